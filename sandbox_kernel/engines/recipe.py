"""The bubblewrap command line of a sandbox: a plan in, options out, in this one place.

Nothing here looks at the machine, so that every option can be tested as text.  Why each option is
there is said beside it; see bwrap(1).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = [
    "CODE",
    "EVENTS",
    "GID",
    "HOME",
    "PACKAGES",
    "SPOOL",
    "UID",
    "WORKSPACE",
    "Descriptors",
    "Mount",
    "MountKind",
    "Options",
    "Plan",
    "command",
    "options",
    "runtime_config",
]

UID = GID = 1000
HOME = "/home/user"
WORKSPACE = "/workspace"
CODE = "/opt/sandbox"
PACKAGES = "/opt/packages"
SPOOL = "/var/spool/sandbox"
EVENTS = "/run/sandbox/memory.events"


class MountKind(StrEnum):
    """How a host folder is shown."""

    READ = "read"
    READ_OVERLAY = "read overlay"
    """As `READ`, and sockets, pipes and locks in it are not the host's."""
    WRITE = "write"
    OVERLAY = "overlay"
    """Writes go to a layer on the host."""
    MEMORY_OVERLAY = "memory overlay"
    """Writes go to a layer in memory that ends with the sandbox."""


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One host folder (or file) in the sandbox.

    `upper` of a `READ_OVERLAY` is an empty folder.
    """

    kind: MountKind
    source: str
    dest: str
    upper: str = ""
    work: str = ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A sandbox with everything about the host decided.

    Parameters
    ----------
    hostname : str
        Its name inside.
    network : bool
        Whether it shares the host's network.
    system : mapping of str to (str or None)
        Top-level folders of programs: the target where the host has a symbolic link, None where it
        has a real folder.
    mounts : tuple of Mount
        Host folders; a folder inside another one's path lies on top of it.
    links : mapping of str to str
        Symbolic links: name and target.
    files : mapping of str to bytes
        Small files made for this sandbox.
    masked : tuple of str
        Files of /proc to hide.
    tmp_bytes : int
        Size of /tmp, and of /dev/shm.
    code : str
        Host folder with the runtime's code.
    memory_events : str, optional
        Host file that counts processes killed for want of memory.
    hostname_file : str
        The file written last; see `Descriptors.sync`.
    """

    hostname: str
    network: bool
    system: Mapping[str, str | None]
    mounts: tuple[Mount, ...]
    links: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    masked: tuple[str, ...] = ()
    tmp_bytes: int
    code: str
    memory_events: str | None = None
    hostname_file: str = "/etc/hostname"


@dataclass(frozen=True, kw_only=True)
class Descriptors:
    """Numbers of the descriptors bubblewrap is started with.

    Parameters
    ----------
    seccomp : int
        Holds the system call filter.
    info : int
        Receives the process id, before anything of the sandbox exists.
    sync : int
        Our end's peer of a socket pair that holds the content of /etc/hostname.  That file is the
        last thing made, so that its being read means that everything before it succeeded.
    files : mapping of str to int
        Holds each of the plan's files.
    """

    seccomp: int
    info: int
    sync: int
    files: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options in two parts.

    The second part is withheld until the process is in its control groups.  It holds the runtime's
    code, so that a sandbox whose starter died in between has nothing to run.
    """

    first: list[str]
    last: list[str]


def options(plan: Plan, descriptors: Descriptors) -> Options:
    """Return bubblewrap's options."""
    return Options(first=_first(plan, descriptors), last=_last(plan, descriptors))


def _first(plan: Plan, descriptors: Descriptors) -> list[str]:
    result = [
        "--unshare-all",  # namespaces: user (if possible), IPC, pid, network, names, cgroup
        *(["--share-net"] if plan.network else []),
        "--unshare-user",  # not only if possible; --disable-userns demands it
        "--disable-userns",  # no further user namespaces, hence no new capabilities, inside
        *("--uid", str(UID), "--gid", str(GID)),
        *("--hostname", plan.hostname),
        # The runtime is pid 1: KILL from inside does not reach it (nor does it heed TERM), it reaps
        # what is orphaned, and when it ends the kernel ends all else.
        "--as-pid-1",
        "--new-session",  # no controlling terminal of the host
        *("--cap-drop", "ALL"),
        *("--seccomp", str(descriptors.seccomp)),
        *("--info-fd", str(descriptors.info)),
        "--clearenv",
        # For the runtime alone; programs get theirs from the runtime's configuration.
        *("--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin"),
        *("--setenv", "HOME", HOME),
        *("--setenv", "LANG", "C.UTF-8"),
        *("--ro-bind", "/usr", "/usr"),
    ]
    for name, target in plan.system.items():
        if target is None:
            result += ["--ro-bind", name, name]
        else:
            result += ["--symlink", target, name]
    result += ["--proc", "/proc"]
    # Started by root, the sandbox's user is root to the file system (without capabilities), and
    # may then write the kernel's settings; bubblewrap does not cover them.
    result += ["--ro-bind", "/proc/sys", "/proc/sys"]
    for path in plan.masked:
        result += ["--ro-bind", "/dev/null", path]
    size = str(plan.tmp_bytes)
    result += [
        *("--dev", "/dev"),
        *("--perms", "1777", "--size", size, "--tmpfs", "/dev/shm"),  # noqa: S108 - inside the sandbox
        *("--remount-ro", "/dev"),  # else it is memory without a limit
        *("--perms", "1777", "--size", size, "--tmpfs", "/tmp"),  # noqa: S108 - inside the sandbox
        # Relative: bubblewrap still makes mount points below it before "/" is the sandbox's own.
        *("--symlink", "../tmp", "/var/tmp"),  # noqa: S108 - inside the sandbox
        *("--dir", "/run"),
    ]
    for name, target in plan.links.items():
        result += ["--symlink", target, name]
    for path in plan.files:
        result += ["--perms", "0644", "--file", str(descriptors.files[path]), path]
    # What lies in another's path comes later, and so on top of it.
    for mount in sorted(plan.mounts, key=lambda each: each.dest.rstrip("/").count("/")):
        result += _mount(mount)
    return [*result, "--chdir", WORKSPACE]


def _last(plan: Plan, descriptors: Descriptors) -> list[str]:
    result = ["--ro-bind", plan.code, CODE]
    if plan.memory_events is not None:
        result += ["--ro-bind", plan.memory_events, EVENTS]
    return [
        *result,
        *("--perms", "0644", "--file", str(descriptors.sync), plan.hostname_file),
        *("--remount-ro", "/"),  # the root is memory without a limit
    ]


def _mount(mount: Mount) -> list[str]:
    match mount.kind:
        case MountKind.READ:
            return ["--ro-bind", mount.source, mount.dest]
        case MountKind.READ_OVERLAY:
            # One source by itself bubblewrap does not overlay.
            return [
                *("--overlay-src", mount.upper, "--overlay-src", mount.source),
                *("--ro-overlay", mount.dest),
            ]
        case MountKind.WRITE:
            return ["--bind", mount.source, mount.dest]
        case MountKind.OVERLAY:
            return [
                *("--overlay-src", mount.source),
                *("--overlay", mount.upper, mount.work, mount.dest),
            ]
        case MountKind.MEMORY_OVERLAY:
            return ["--overlay-src", mount.source, "--tmp-overlay", mount.dest]


def command(interpreter: str, config: int) -> list[str]:
    """Return the runtime's command; `config` is the descriptor of its configuration."""
    return [
        *(interpreter, "-I", "-S", f"{CODE}/sandbox_runtime/__main__.py"),
        *("--config-fd", str(config)),
    ]


def runtime_config(values: Mapping[str, object]) -> bytes:
    """Return the runtime's configuration as it reads it."""
    # Values of the environment may hold any bytes; those that are no text travel as escapes of
    # lone surrogates.
    return json.dumps(values, ensure_ascii=True, separators=(",", ":")).encode("ascii")
