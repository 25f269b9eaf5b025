"""What a user may configure, read from Jupyter's configuration without importing Jupyter.

The kernel relay reads these on its way to the first cell, so the classes here are plain; the
traitlets classes of the same names and defaults are in `sandbox_kernel.config`.

Sources, the later one wins:

1. the defaults below;
2. ``jupyter_sandbox_config.json`` and ``.py`` in Jupyter's configuration folders, the more general
   folder first.  A ``.py`` file is evaluated in a process of its own, and its outcome kept until
   the file changes;
3. ``SANDBOX_CONFIG``, a JSON object of the same shape, as the Jupyter server extension hands it to
   the kernels it starts;
4. ``SANDBOX_ENGINE`` and ``SANDBOX_ID``.
"""

from __future__ import annotations

import json
import os
import site
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from sandbox_kernel.arguments import check_flags
from sandbox_kernel.engines.base import USUAL_PROCESSES, FolderMode, Limits, SandboxSpec
from sandbox_kernel.engines.settings import BubblewrapSettings, DockerSettings
from sandbox_kernel.errors import SandboxConfigurationError, SandboxError
from sandbox_kernel.manager.storage import write_private_file
from sandbox_kernel.wall.modes import Mode, OutputLimits

__all__ = [
    "KernelSettings",
    "Settings",
    "config_folders",
    "data_folder",
    "load_settings",
    "own_config_file",
    "settings_from",
]

_NAME = "jupyter_sandbox_config"


@dataclass(frozen=True, kw_only=True)
class KernelSettings:
    """``c.SandboxKernelApp``."""

    sandbox_id: str | None = None
    """The sandbox every notebook shares; None gives each notebook its own."""
    lease: float = 43200.0
    """Seconds a kernel keeps its sandbox awake after its relay has gone."""
    frame_url: str | None = None
    """Path at which the Jupyter server hands out documents of frames; None leaves them in outputs.

    A server with ``c.JupyterSandbox.locked`` sets it for its kernels.
    """


@dataclass(frozen=True, kw_only=True)
class Settings:
    """``c.SandboxManager``, with the groups of the other classes."""

    engine: str = "auto"
    """``auto``, an engine's name, or ``module:Class`` of an engine that is not registered."""
    network: bool = False
    """Whether programs in a sandbox reach the network."""
    notebook_folder: FolderMode = FolderMode.OVERLAY
    """How the notebook's folder is shown: ``overlay``, ``read``, ``write`` or ``none``."""
    keep_packages: bool = False
    """Whether what pip installs inside persists with the sandbox."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of every program in a sandbox, over the default one."""
    memory_bytes: int | None = None
    """Memory of a whole sandbox."""
    cpus: float | None = None
    """Processor time of a sandbox, in cores."""
    processes: int | None = USUAL_PROCESSES
    """Processes and threads of a sandbox at one time; the default holds where it can be had."""
    file_bytes: int | None = None
    """Largest file a program in a sandbox may write."""
    accept_weaker_limits: bool = False
    """Accept a limit that holds per process only, or not at all, where no more can be had."""
    allow_ptrace: bool = False
    """Allow debuggers and tracers inside."""
    sleep_after: float | None = 600.0
    """Idle seconds until a sandbox sleeps; None never."""
    keep_alive: bool = False
    """Never sleep, whatever `sleep_after` says."""
    output_policy: Mode = Mode.DEFAULT
    """How a page draws what a sandbox sends: ``strict``, ``default`` or ``trusted``."""
    command_timeout: float | None = None
    """Seconds for commands of `Sandbox.exec` that have no limit of their own; None is no limit."""
    activity_log: bool = True
    """Whether it is noted who ran what in a sandbox, and when: commands and cells, no outputs."""
    start_timeout: float = 120.0
    """Seconds to wait for another process that is starting or stopping the same sandbox."""
    bubblewrap: BubblewrapSettings = field(default_factory=BubblewrapSettings)
    docker: DockerSettings = field(default_factory=DockerSettings)
    kernel: KernelSettings = field(default_factory=KernelSettings)
    outputs: OutputLimits = field(default_factory=OutputLimits)
    data_dir: Path = field(default_factory=lambda: data_folder() / "sandbox")
    """Where registry and sandboxes are kept; follows ``JUPYTER_DATA_DIR``, is no trait."""

    def __post_init__(self) -> None:
        """Refuse what is no bool where one is declared, as the files of settings do.

        Raises
        ------
        SandboxConfigurationError
            A setting holds another value.
        """
        check_flags(self)

    def spec(self, **changes: Any) -> SandboxSpec:  # values of SandboxSpec's fields
        """Return the specification of a new sandbox under these settings.

        Parameters
        ----------
        **changes
            Fields of `SandboxSpec` that differ from the settings, such as ``notebook_folder=Path``.
        """
        values: dict[str, Any] = {
            "network": self.network,
            "folder_mode": self.notebook_folder,
            "keep_packages": self.keep_packages,
            "env": dict(self.env),
            "limits": Limits(
                memory_bytes=self.memory_bytes,
                cpus=self.cpus,
                processes=self.processes,
                file_bytes=self.file_bytes,
            ),
            "accept_weaker_limits": self.accept_weaker_limits,
            "allow_ptrace": self.allow_ptrace,
            "sleep_after": self.sleep_after,
            "keep_alive": self.keep_alive,
            "output_policy": self.output_policy,
        }
        return SandboxSpec(**{**values, **changes})


GROUPS: dict[str, tuple[str | None, type]] = {
    "SandboxManager": (None, Settings),
    "BubblewrapEngine": ("bubblewrap", BubblewrapSettings),
    "DockerEngine": ("docker", DockerSettings),
    "SandboxKernelApp": ("kernel", KernelSettings),
    "OutputLimits": ("outputs", OutputLimits),
}
"""Each configurable class: the field of `Settings` that holds its group, and the group's class."""


def trait_names(cls: type) -> list[str]:
    """Return the fields of a group that a user may configure."""
    groups = {attribute for attribute, _ in GROUPS.values()}
    return [each.name for each in fields(cls) if each.name not in {*groups, "data_dir"}]


def data_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return Jupyter's data folder of this user."""
    if environ.get("JUPYTER_DATA_DIR"):
        return Path(environ["JUPYTER_DATA_DIR"]).absolute()
    if environ.get("XDG_DATA_HOME"):
        return Path(environ["XDG_DATA_HOME"]).absolute() / "jupyter"
    return Path("~/.local/share/jupyter").expanduser()


def own_config_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where a user puts settings: in what ``jupyter --config-dir`` shows."""
    return _own_config_folder(environ) / f"{_NAME}.py"


def _own_config_folder(environ: Mapping[str, str]) -> Path:
    if environ.get("JUPYTER_CONFIG_DIR"):
        return Path(environ["JUPYTER_CONFIG_DIR"])
    return Path("~/.jupyter").expanduser()


def config_folders(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return Jupyter's configuration folders, the most general first.

    Notes
    -----
    The order is that of ``jupyter --paths``, reversed.
    """
    user = _own_config_folder(environ)
    if environ.get("JUPYTER_NO_CONFIG"):
        return []
    system = [Path("/usr/local/etc/jupyter"), Path("/etc/jupyter")]
    here = Path(sys.prefix, "etc", "jupyter")
    own = [user]
    if site.ENABLE_USER_SITE and (base := site.getuserbase()):
        own.append(Path(base, "etc", "jupyter"))
    middle = [here] if here not in system else []
    order = [*middle, *own] if _prefers_environment(environ) else [*own, *middle]
    extra = [
        Path(each) for each in environ.get("JUPYTER_CONFIG_PATH", "").split(os.pathsep) if each
    ]
    return list(reversed([*extra, *order, *system]))


def _prefers_environment(environ: Mapping[str, str]) -> bool:
    said = environ.get("JUPYTER_PREFER_ENV_PATH")
    if said is not None:
        return said.lower() not in {"no", "n", "false", "off", "0", "0.0"}
    # An environment that belongs to this user was made for this work.
    return sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK)


def load_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read every source and return the settings.

    Raises
    ------
    SandboxConfigurationError
        A source cannot be read, or holds a value of the wrong type; names the file and the setting.
    """
    data_dir = data_folder(environ) / "sandbox"
    merged: dict[str, dict[str, Any]] = {}
    for folder in config_folders(environ):
        for source in (folder / f"{_NAME}.json", folder / f"{_NAME}.py"):
            value = _read(source, data_dir)
            if value is not None:
                _merge(merged, value, str(source))
    if environ.get("SANDBOX_CONFIG"):
        try:
            value = json.loads(environ["SANDBOX_CONFIG"])
        except ValueError as error:
            raise SandboxConfigurationError(f"SANDBOX_CONFIG is not JSON: {error}.") from error
        _merge(merged, value, "SANDBOX_CONFIG")
    if environ.get("SANDBOX_ENGINE"):
        merged.setdefault("SandboxManager", {})["engine"] = environ["SANDBOX_ENGINE"]
    if environ.get("SANDBOX_ID"):
        merged.setdefault("SandboxKernelApp", {})["sandbox_id"] = environ["SANDBOX_ID"]
    return settings_from(merged, data_dir=data_dir)


def settings_from(
    value: Mapping[str, Mapping[str, Any]], *, data_dir: Path | None = None
) -> Settings:
    """Build settings from ``{"SandboxManager": {...}, ...}``; unknown classes are left alone.

    Raises
    ------
    SandboxConfigurationError
        A name is unknown in one of our classes, or a value has the wrong type.
    """
    top: dict[str, Any] = {}
    for name, (attribute, cls) in GROUPS.items():
        group = value.get(name, {})
        checked = {key: _checked(name, cls, key, item) for key, item in group.items()}
        if attribute is None:
            top.update(checked)
        else:
            top[attribute] = cls(**checked)
    if data_dir is not None:
        top["data_dir"] = data_dir
    return Settings(**top)


def _checked(group: str, cls: type, key: str, item: Any) -> Any:
    kinds = {each.name: str(each.type) for each in fields(cls)}
    if key not in trait_names(cls):
        raise SandboxConfigurationError(
            f"{group} has no setting {key!r}.",
            hint=f"It has: {', '.join(trait_names(cls))}.",
            context={"setting": f"{group}.{key}"},
        )
    kind = kinds[key]
    if kind in _CHOICES:
        choices = _CHOICES[kind]
        try:
            return choices(item)
        except ValueError:
            expected = "one of " + ", ".join(repr(each.value) for each in choices)
    else:
        accepted, expected = _KINDS[kind]
        if type(item) in accepted and _is_text(item):
            if kind.startswith("float") and item is not None:
                return float(item)
            return tuple(item) if isinstance(item, list) else item
    raise SandboxConfigurationError(
        f"{group}.{key} = {item!r} is not {expected}.", context={"setting": f"{group}.{key}"}
    )


_CHOICES: dict[str, type[StrEnum]] = {"FolderMode": FolderMode, "Mode": Mode}

_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "True or False"),
    "str": ((str,), "a string"),
    "str | None": ((str, type(None)), "a string or None"),
    "int | None": ((int, type(None)), "a whole number or None"),
    "float": ((int, float), "a number"),
    "float | None": ((int, float, type(None)), "a number or None"),
    "int": ((int,), "a whole number"),
    "Mapping[str, str]": ((dict,), "a dict of strings"),
    "tuple[str, ...]": ((list, tuple), "a list of strings"),
}


def _is_text(value: Any) -> bool:
    """Whether a collection holds nothing but strings; true of what is no collection."""
    if isinstance(value, dict):
        return all(isinstance(each, str) for pair in value.items() for each in pair)
    return not isinstance(value, list | tuple) or all(isinstance(each, str) for each in value)


def _merge(merged: dict[str, dict[str, Any]], value: Any, source: str) -> None:
    if not isinstance(value, dict):
        raise SandboxConfigurationError(f"{source} does not hold a JSON object.")
    for name in GROUPS:
        group = value.get(name, {})
        if not isinstance(group, dict):
            raise SandboxConfigurationError(f"{name} in {source} is not an object.")
        merged.setdefault(name, {}).update(group)


def _read(source: Path, data_dir: Path) -> Any:
    try:
        if source.suffix == ".py":
            status = os.stat(source)
            return _evaluated(source, status, data_dir)
        return json.loads(source.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        # As Jupyter does: a configuration folder one may not read is not one's own.
        return None
    except (OSError, ValueError) as error:
        raise SandboxConfigurationError(f"{source} cannot be read: {error}.") from error


def _evaluated(source: Path, status: os.stat_result, data_dir: Path) -> Any:
    """Return what a configuration file in Python sets, as JSON values."""
    mark = [str(source), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    kept = data_dir / "config-cache.json"
    try:
        cache = json.loads(kept.read_bytes())
        found = cache[str(source)]
        if found["mark"] == mark:
            return found["value"]
    except (OSError, ValueError, KeyError, TypeError):
        cache = {}
    import subprocess  # noqa: PLC0415  only for a file that is new

    done = subprocess.run(
        # Without -P, a module beside the notebook would take the place of one of Python's.
        [sys.executable, "-P", "-m", "sandbox_kernel.config", "--dump", str(source)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise SandboxConfigurationError(
            f"{source} failed: {last[0] if last else f'exit code {done.returncode}'}.",
            context={"path": str(source)},
        )
    value = json.loads(done.stdout)
    if isinstance(cache, dict) and data_dir.is_dir():
        cache[str(source)] = {"mark": mark, "value": value}
        try:
            write_private_file(kept, json.dumps(cache).encode())
        except SandboxError:
            # Only speed is lost.
            return value
    return value
