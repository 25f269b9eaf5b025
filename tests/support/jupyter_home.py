"""One Jupyter user for a test: data, runtime, configuration and home folders of their own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings

__all__ = ["JupyterHome", "describe", "processes_below"]


@dataclass(frozen=True)
class JupyterHome:
    """The folders of one user, all below `root`.

    The root should be short: unix sockets live below it and their paths are limited to 107 bytes.
    A cache that users share saves each the time of the very first start of a sandbox.
    """

    root: Path
    cache: Path | None = None

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def runtime(self) -> Path:
        return self.root / "run"

    @property
    def work(self) -> Path:
        """Where notebooks live and kernels start."""
        return self.root / "work"

    @property
    def sandboxes(self) -> Path:
        """What the project itself keeps on the host."""
        return self.data / "sandbox"

    def create(self) -> JupyterHome:
        for folder in (self.data, self.runtime, self.work, self.root / "home", self.root / "cfg"):
            folder.mkdir(parents=True, exist_ok=True)
        self.runtime.chmod(0o700)
        return self

    def changes(self, **extra: str) -> dict[str, str]:
        """Return the variables to set for programs of this user."""
        home = self.root / "home"
        return {
            "HOME": str(home),
            "JUPYTER_DATA_DIR": str(self.data),
            "JUPYTER_RUNTIME_DIR": str(self.runtime),
            "JUPYTER_CONFIG_DIR": str(self.root / "cfg"),
            "IPYTHONDIR": str(home / ".ipython"),
            "MPLCONFIGDIR": str(home / ".mpl"),
            # A debugger that says at each start that frozen modules hide breakpoints.
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
            **({} if self.cache is None else {"XDG_CACHE_HOME": str(self.cache)}),
            **extra,
        }

    def env(self, **extra: str) -> dict[str, str]:
        """Return a whole environment for a program of this user."""
        # A kernel that sees PYTEST_CURRENT_TEST does not capture what children write.
        # Compiling every module anew at each start would be most of the time of these tests.
        kept = {
            key: value
            for key, value in os.environ.items()
            if key not in {"PYTHONDONTWRITEBYTECODE", "SANDBOX_ID", "SANDBOX_ENGINE"}
            and not key.startswith(("JPY_", "JUPYTER_", "XDG_", "PYTEST_"))
        }
        return {**kept, **self.changes(**extra)}

    def destroy_named_sandboxes(self) -> None:
        """Destroy the sandboxes that outlive their kernels; those of one kernel end with it."""
        manager = Manager(Settings(data_dir=self.sandboxes))
        for sandbox in manager.list():
            if not sandbox.ephemeral:
                manager.destroy(sandbox.sandbox_id)


def processes_below(root: Path) -> list[psutil.Process]:
    """Return every process that has to do with a folder: by argv, environment or mounts.

    A process inside a sandbox shows the sandbox's host folders as sources of its mounts, whatever
    its own arguments say, so nothing which we started escapes this look.  What is mounted where we
    are ourselves says nothing of a process: a Docker engine mounts layers for its containers there,
    and then every process of the machine shows them.
    """
    needle = os.fsencode(root)
    ours = os.readlink("/proc/self/ns/mnt")
    found = []
    for process in psutil.process_iter():
        for source in ("cmdline", "environ", "mountinfo"):
            try:
                if source == "mountinfo" and os.readlink(f"/proc/{process.pid}/ns/mnt") == ours:
                    continue
                with open(f"/proc/{process.pid}/{source}", "rb") as file:
                    hit = needle in file.read()
            except OSError:
                continue
            if hit and process.pid != os.getpid():
                found.append(process)
                break
    return found


def describe(process: psutil.Process) -> str:
    """Return pid and command line, also of a process that has just ended."""
    try:
        return f"{process.pid} {' '.join(process.cmdline()) or process.name()}"
    except psutil.Error:
        return f"{process.pid} (ended)"
