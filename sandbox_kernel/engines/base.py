"""What an engine is: four verbs over a specification, and the records they exchange.

Everything here is synchronous and light to import: the kernel relay starts sandboxes and must not
pay for an event loop.  Async callers run these verbs in a thread.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from sandbox_kernel.arguments import (
    as_configuration,
    check_flags,
    count,
    environment,
    number,
    text,
)
from sandbox_kernel.errors import SandboxConfigurationError
from sandbox_kernel.wall.modes import Mode

__all__ = [
    "USUAL_PROCESSES",
    "Engine",
    "FolderMode",
    "Found",
    "Instance",
    "Launch",
    "Limits",
    "Probe",
    "Reached",
    "SandboxSpec",
    "StateLayout",
    "check_limits",
]


USUAL_PROCESSES = 4096
"""Far more than programs need (a numeric library starts a thread for each processor), and far less
than a fork bomb takes to hold a machine up."""


class FolderMode(StrEnum):
    """How the notebook's folder appears in the sandbox, at its own path."""

    OVERLAY = "overlay"
    """Reads see the host's files; writes stay in the sandbox's own layer."""
    READ = "read"
    WRITE = "write"
    NONE = "none"


class Reached(StrEnum):
    """How far a limit holds."""

    HARD = "hard"
    """For the sandbox as a whole, by the kernel."""
    PER_PROCESS = "per process"
    ABSENT = "absent"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits a caller asks for; None asks for nothing.

    One that is asked for holds for the sandbox as a whole or is refused.  The usual number of
    processes is asked for by nobody: it holds where it can be had.

    Parameters
    ----------
    memory_bytes : int, optional
        Memory of the whole sandbox.
    cpus : float, optional
        Processor time, in cores.
    processes : int, optional
        Processes and threads at one time.  Without such a limit a fork bomb inside holds up the
        whole machine.
    file_bytes : int, optional
        Largest file a program may write.
    """

    memory_bytes: int | None = None
    cpus: float | None = None
    processes: int | None = USUAL_PROCESSES
    file_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is no number.

        Raises
        ------
        SandboxConfigurationError
            A limit is of another kind.
        """
        with as_configuration():
            for name, unit in (
                ("memory_bytes", "bytes, such as 512 << 20 for 512M"),
                ("processes", ""),
                ("file_bytes", "bytes, such as 512 << 20 for 512M"),
            ):
                if (value := getattr(self, name)) is not None:
                    object.__setattr__(self, name, count(name, value, least=None, of=unit))
            if self.cpus is not None:
                cpus = number("cpus", self.cpus, of="cores", least=None)
                object.__setattr__(self, "cpus", cpus)


def check_limits(value: object) -> None:
    """Make sure that limits are given as `Limits`.

    Raises
    ------
    SandboxConfigurationError
        They are not.
    """
    if not isinstance(value, Limits):
        raise SandboxConfigurationError(
            f"The option limits must be Limits, not {value!r}.",
            hint="Pass sandbox_kernel.Limits(memory_bytes=512 << 20), or what you need of it.",
            context={"setting": "limits"},
        )


@dataclass(frozen=True, kw_only=True)
class SandboxSpec:
    """What a sandbox shall be, whatever the engine.

    Parameters
    ----------
    engine : str, optional
        The engine to use, by name or ``module:Class``; None is the one of the settings.
    image : str, optional
        The image to use, of an engine that has images; None is the one of the settings.
    network : bool
        Whether programs reach the network; off by default.
    notebook_folder : Path, optional
        Absolute path of the folder to show at its own path.
    folder_mode : FolderMode
        How it is shown.
    folder_required : bool
        What to do with a folder that may not be shown: refuse the start (the caller named this
        folder), or go on without it and say so in `Instance.notices` (it is merely where the
        notebook lies).
    python_prefix, python_base_prefix : str
        The Python environment to show read-only, with a writable layer over it.
    keep_packages : bool
        Whether what pip installs inside persists with the sandbox, or vanishes when it stops.
    env : mapping of str to str
        Added to the environment of every program in the sandbox.
    limits : Limits
        Asked-for limits; one that the engine cannot enforce is refused.
    accept_weaker_limits : bool
        Accept a weaker form (per process, or none) of a limit asked for.
    allow_ptrace : bool
        Allow debuggers and tracers inside (gdb, strace, py-spy).
    sleep_after : float, optional
        Idle seconds until the sandbox sleeps; None never.
    keep_alive : bool
        Never sleep, whatever `sleep_after` says.
    output_policy : Mode
        How a page draws what the sandbox sends.
    """

    engine: str | None = None
    image: str | None = None
    network: bool = False
    notebook_folder: Path | None = None
    folder_mode: FolderMode = FolderMode.OVERLAY
    folder_required: bool = False
    python_prefix: str = sys.prefix
    python_base_prefix: str = sys.base_prefix
    keep_packages: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    accept_weaker_limits: bool = False
    allow_ptrace: bool = False
    sleep_after: float | None = 600.0
    keep_alive: bool = False
    output_policy: Mode = Mode.DEFAULT

    def __post_init__(self) -> None:
        """Refuse what is of another kind than declared: text is true, and would open what is shut.

        Raises
        ------
        SandboxConfigurationError
            A field holds such a value.
        """
        check_flags(self)
        with as_configuration():
            object.__setattr__(self, "env", environment(self.env, may_unset=False))
            if self.image is not None:
                text("image", self.image)
        check_limits(self.limits)


@dataclass(frozen=True)
class StateLayout:
    """Where one lifetime of a sandbox keeps its files on the host; all of it mode 0700.

    The manager creates the root and removes it at destroy; engines create what they need below.
    """

    root: Path

    @property
    def workspace(self) -> Path:
        """Shown as /workspace; persists."""
        return self.root / "workspace"

    @property
    def home(self) -> Path:
        """Shown as the home folder; persists."""
        return self.root / "home"

    @property
    def folder(self) -> Path:
        """Holds ``upper`` and ``work``, the layer over the notebook's folder; persists."""
        return self.root / "folder"

    @property
    def taken_over(self) -> Path:
        """Which changes to the notebook's folder the host has taken over; beside the layer."""
        return self.folder / "taken-over.json"

    @property
    def packages(self) -> Path:
        """Holds the layer over the Python environment where `keep_packages` is on."""
        return self.root / "packages"

    @property
    def spool(self) -> Path:
        """Where process output that outgrows memory is kept while its process is known."""
        return self.root / "spool"

    @property
    def run(self) -> Path:
        """Socket, lock and log of the present incarnation; never shown inside."""
        return self.root / "run"

    @property
    def socket(self) -> Path:
        """The runtime's frame door."""
        return self.run / "runtime.sock"

    @property
    def lock(self) -> Path:
        """Locked (flock) by the living runtime."""
        return self.run / "alive.lock"

    @property
    def log(self) -> Path:
        """What engine and runtime wrote to standard error since the last start."""
        return self.run / "runtime.log"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One start: which sandbox, made how, with which secret."""

    sandbox_id: str
    lifetime: str
    token: str
    spec: SandboxSpec
    layout: StateLayout
    is_named_later: bool = False
    """Whether the id is only that of a place in a pool: nothing inside gets to see it."""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A started sandbox as the engine will need to find it again; all JSON values.

    Parameters
    ----------
    engine : str
        The engine's name.
    socket : str
        Path of the unix socket the runtime listens on.
    data : dict
        The engine's own facts (process ids with start times, boot id, control groups, ...).
    isolation : dict of str to str
        What separates the sandbox, for people: ``{"network": "off", ...}``.
    limits : dict of str to str
        Each limit with how far it holds, a `Reached` value.
    notices : list of str
        What was not given as asked, in sentences, such as a notebook folder that was refused.
    """

    engine: str
    socket: str
    data: dict[str, Any]
    isolation: dict[str, str]
    limits: dict[str, str]
    notices: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Whether an engine works on this machine, found out by trying."""

    engine: str
    works: bool
    cause: str = ""
    """Why not, in plain words."""
    mend: str = ""
    """What to do about it."""
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Found:
    """A sandbox that an engine knows, though the registry may not."""

    sandbox_id: str
    lifetime: str


class Engine(Protocol):
    """Starts and stops isolated runtimes; holds no state of its own.

    An engine that keeps more of a sandbox than what lies in its layout has two further methods:
    ``discard(layout)`` removes it when the sandbox is destroyed, and ``found(folder)`` yields a
    `Found` for each sandbox whose layout lies, or lay, in a folder.

    One that can tell what a sandbox uses has ``usage(instance)``, which returns a `Usage`, or None
    if the sandbox has gone.

    One whose sandboxes can have images of their own says so with ``has_images = True``.

    One that can start a sandbox which gets its id later says so with ``names_later = True``.
    """

    name: str

    def probe(self) -> Probe:
        """Find out by trying whether this engine works here; takes well under a second."""
        ...

    def start(self, launch: Launch) -> Instance:
        """Start the runtime and return as soon as its socket takes connections.

        Raises
        ------
        EngineUnavailableError
            The engine cannot work on this machine.
        EngineStartError
            The runtime did not come up; nothing is left behind.
        LimitNotEnforceableError
            A limit cannot be enforced and `accept_weaker_limits` is off.
        NotebookFolderRefusedError
            The notebook's folder may not be shown and `folder_required` is on, or does not exist.
        StorageError, StorageFullError
            The sandbox's own files cannot be written.
        """
        ...

    def is_alive(self, instance: Instance, layout: StateLayout) -> bool:
        """Whether the runtime of this instance still runs; cannot be fooled by a reused pid."""
        ...

    def stop(self, instance: Instance | None, layout: StateLayout, *, grace: float) -> None:
        """End every process of the instance and remove what the engine made for it.

        None stands for whatever a starter that died on the way has left over this layout.

        The caller has asked the runtime to shut down already or does not want to; after `grace`
        seconds everything is killed.  Returns when nothing of it is left; a second call is fine.
        """
        ...
