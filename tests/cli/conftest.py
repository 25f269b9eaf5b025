"""The command line in this process, for a user with folders of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sandbox_kernel.cli import main
from sandbox_kernel.manager.manager import Manager
from tests.support.jupyter_home import JupyterHome


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def home(
    tmp_path: Path, warm_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[JupyterHome]:
    home = JupyterHome(tmp_path, warm_cache).create()
    for name, value in home.changes().items():
        monkeypatch.setenv(name, value)
    for name in ("SANDBOX_ID", "SANDBOX_CONFIG", "SANDBOX_ENGINE", "JPY_SESSION_NAME"):
        monkeypatch.delenv(name, raising=False)
    yield home
    manager = Manager()
    for info in manager.list():
        manager.destroy(info.sandbox_id)
    manager.gc()
    manager.close()


@pytest.fixture
def sandbox(home: JupyterHome, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Return a function that runs ``jupyter sandbox`` with these words."""

    def run(*words: str | os.PathLike[str]) -> Ended:
        capfd.readouterr()
        try:
            code = main([os.fspath(word) for word in words])
        except SystemExit as error:
            code = int(error.code or 0)
        return Ended(code, *capfd.readouterr())

    return run
