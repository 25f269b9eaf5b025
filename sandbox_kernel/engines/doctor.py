"""What this machine offers to sandboxes and what it lacks, found out by trying, in plain words."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sandbox_kernel.engines import binary, cgroups
from sandbox_kernel.engines.base import Limits, Reached
from sandbox_kernel.engines.diagnosis import diagnose
from sandbox_kernel.engines.disk import no_upper
from sandbox_kernel.engines.limits import weigh_limits
from sandbox_kernel.engines.machine import machine_facts
from sandbox_kernel.engines.seccomp import ARCHITECTURES
from sandbox_kernel.engines.settings import BubblewrapSettings
from sandbox_kernel.engines.trial import not_found, try_bwrap

__all__ = ["Finding", "apparmor_profile", "findings"]

_LIMIT_NAMES = {
    "memory_bytes": "memory",
    "cpus": "processor time",
    "processes": "number of processes",
    "file_bytes": "file size",
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing looked at.

    Parameters
    ----------
    name : str
        What was looked at.
    ok : bool
        Whether it is as it should be.
    detail : str
        What was found.
    mend : str
        What to do about it; empty where nothing needs doing.
    required : bool
        Whether sandboxes do not work at all without it; otherwise they do less, and say so.
    """

    name: str
    ok: bool
    detail: str
    mend: str = ""
    required: bool = True


def findings(
    settings: BubblewrapSettings | None = None, *, state_folder: str | None = None
) -> list[Finding]:
    """Look at everything the bubblewrap engine needs; takes well under a second.

    Parameters
    ----------
    settings : BubblewrapSettings, optional
        The user's settings.
    state_folder : str, optional
        Where sandboxes are kept; tells whether that disk takes layers.
    """
    settings = settings or BubblewrapSettings()
    found = binary.find(settings.executable)
    machine = os.uname().machine
    result = [
        _binary(found),
        Finding(
            name="processor",
            ok=machine in ARCHITECTURES,
            detail=machine,
            mend=""
            if machine in ARCHITECTURES
            else f"The bubblewrap engine runs on {' and '.join(ARCHITECTURES)}.",
        ),
    ]
    if found.path is not None:
        isolation = _isolation(found.path)
        result.append(isolation)
        if isolation.ok:
            result.append(_layers(found.path, state_folder or tempfile.gettempdir()))
    return [*result, *_limits()]


def _binary(found: binary.Binary) -> Finding:
    if found.path is None:
        problem = not_found(found)
        return Finding(name="bubblewrap", ok=False, detail=problem.cause, mend=problem.mend)
    version = ".".join(map(str, binary.version_of(found.path) or ("unknown version",)))
    detail = f"{version}, {found.path}, from {found.source}"
    if found.passed_over:
        detail += f"; passed over: {'; '.join(found.passed_over)}"
    return Finding(name="bubblewrap", ok=True, detail=detail)


def _isolation(bwrap: str) -> Finding:
    problem = try_bwrap(bwrap)
    if problem is None:
        return Finding(name="isolation", ok=True, detail="namespaces, mounts and /proc of its own")
    mend = problem.mend
    if problem.code == "apparmor":
        mend += "\n" + apparmor_profile(bwrap)
    return Finding(name="isolation", ok=False, detail=problem.cause, mend=mend)


def apparmor_profile(bwrap: str) -> str:
    """Return a profile that lets this program use user namespaces, to be stored by root."""
    return (
        "# /etc/apparmor.d/jupyter-sandbox-bwrap; then: sudo apparmor_parser -r"
        " /etc/apparmor.d/jupyter-sandbox-bwrap\n"
        "abi <abi/4.0>,\n"
        "include <tunables/global>\n"
        f'profile jupyter-sandbox-bwrap "{bwrap}" flags=(unconfined) {{\n'
        "  userns,\n"
        "}\n"
    )


def _layers(bwrap: str, state_folder: str) -> Finding:
    """Mount a layer where the sandboxes' own would lie, and write through it."""
    while not os.path.isdir(state_folder):
        state_folder = os.path.dirname(state_folder)
    lacking = "The notebook's folder is then shown read-only; /workspace can be written."
    reason = no_upper(Path(state_folder))
    if not reason:
        try:
            folder = tempfile.mkdtemp(prefix=".sandbox-doctor-", dir=state_folder)
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            try:
                reason = _try_layer(bwrap, folder)
            finally:
                # The kernel leaves a folder without permissions in "work".
                with contextlib.suppress(OSError):
                    os.chmod(f"{folder}/work/work", 0o700)
                shutil.rmtree(folder, ignore_errors=True)
    if not reason:
        return Finding(
            name="layers", ok=True, detail=f"writable, over host folders, kept below {state_folder}"
        )
    return Finding(
        name="layers",
        ok=False,
        required=False,
        detail=f"none below {state_folder}: {reason}",
        mend=f"Put JUPYTER_DATA_DIR on a local disk, with Linux 5.11 or later. {lacking}",
    )


def _try_layer(bwrap: str, folder: str) -> str:
    for name in ("lower", "upper", "work"):
        os.mkdir(f"{folder}/{name}")
    done = subprocess.run(
        [
            *("bwrap", "--unshare-all", "--unshare-user", "--ro-bind", "/", "/"),
            *("--overlay-src", f"{folder}/lower"),
            *("--overlay", f"{folder}/upper", f"{folder}/work", f"{folder}/lower"),
            *("--", "/usr/bin/touch", f"{folder}/lower/written"),
        ],
        executable=bwrap,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={},
        cwd="/",
        timeout=10,
        check=False,
    )
    if done.returncode == 0 and os.path.exists(f"{folder}/upper/written"):
        return ""
    said = done.stderr.decode("utf-8", "replace").strip()
    problem = diagnose(said, machine_facts())
    return problem.cause if problem is not None else said or "what is written gets lost"


def _try_group(place: cgroups.Place, asked: Limits) -> tuple[set[str], str]:
    """Put a process into a group; returns the controllers that hold, and by what or why not."""
    group, holding = cgroups.create(place, f"sandbox-doctor-{os.getpid()}", asked)
    # It ends when its input does.
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as inside:
        try:
            cgroups.enter(group, inside.pid)
        except OSError as error:
            return set(), error.strerror or str(error)
        finally:
            inside.kill()
            inside.wait()
            cgroups.remove(group.folders)
    by = "a scope of systemd" if place.manager is not None else "control groups"
    return holding, f"{by}, version {place.version}"


def _group_mend() -> str:
    """Say what gives this user control groups."""
    accept = "Or accept it: SandboxManager.accept_weaker_limits = True."
    if not os.path.exists("/run/systemd/system"):
        return f"Have whoever runs this machine delegate a control group to you. {accept}"
    if os.geteuid() != 0 and not os.path.exists(f"/run/user/{os.geteuid()}/bus"):
        return (
            "Your systemd manager cannot be asked: install the package dbus-user-session and log"
            f" in anew, or 'sudo loginctl enable-linger {os.geteuid()}' where you do not log in."
            f" {accept}"
        )
    return (
        "Have your systemd manager given the controllers: 'sudo systemctl edit user@.service' with"
        f" '[Service]' and 'Delegate=memory pids cpu', then log in anew. {accept}"
    )


def _limits() -> list[Finding]:
    """Say how far each limit would hold, by making and removing a group."""
    asked = Limits(memory_bytes=1 << 30, cpus=1.0, processes=256, file_bytes=1 << 30)
    place = cgroups.locate(("memory", "cpu", "pids"))
    holding: set[str] = set()
    by = "no control group can be written"
    if place is not None:
        holding, by = _try_group(place, asked)
    reached, _ = weigh_limits(asked, holding, is_root=os.geteuid() == 0, kernel=os.uname().release)
    return [
        Finding(
            name=f"limit on {_LIMIT_NAMES[name]}",
            ok=how_far is Reached.HARD,
            required=False,
            detail=how_far.value if how_far is Reached.HARD else f"{how_far.value} ({by})",
            mend="" if how_far is Reached.HARD else _group_mend(),
        )
        for name, how_far in reached.items()
    ]
