"""docs/terminals.md: its client is a terminal."""

from __future__ import annotations

import inspect
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox, Terminal
from tests.support.jupyter_home import JupyterHome
from tests.support.ws_connection import JupyterServer

_TEXT = (Path(__file__).parents[2] / "docs" / "terminals.md").read_text()


def test_the_client_without_xterm_is_a_terminal(tmp_path, warm_cache):
    """It shows the prompt, takes keys, has its terminal's size, and ends with the shell."""
    (code,) = re.findall(r"```python title=client.py\n(.*?)```", _TEXT, re.DOTALL)
    (tmp_path / "client.py").write_text(code)
    home = JupyterHome(tmp_path / "h", warm_cache).create()
    ours, theirs = pty.openpty()
    try:
        with JupyterServer(home) as server:
            url = server.base.replace("http", "ws", 1) + "/sandbox/api/sandboxes/demo/terminal"
            environment = {**home.env(), "COLUMNS": "91", "LINES": "31"}
            process = subprocess.Popen(
                [sys.executable, tmp_path / "client.py", url, server.token],
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                env=environment,
            )
            try:
                seen = read_until(ours, b"$ ")
                os.write(ours, b"stty size; exit 3\r")
                seen += read_until(ours, b"exited with code 3")
                assert process.wait(20) == 0, seen
            finally:
                process.kill()
                process.wait()
    finally:
        os.close(ours)
        os.close(theirs)
        home.destroy_named_sandboxes()

    assert b"31 91" in seen
    assert len(code.splitlines()) < 45


def read_until(descriptor: int, text: bytes, timeout: float = 40) -> bytes:
    """Return what comes until it holds a text."""
    seen, deadline = b"", time.monotonic() + timeout
    os.set_blocking(descriptor, False)
    while text not in seen:
        assert time.monotonic() < deadline, seen
        try:
            seen += os.read(descriptor, 65536)
        except BlockingIOError:
            time.sleep(0.01)
    return seen


@pytest.mark.parametrize(
    "function", [Sandbox.create_terminal, Sandbox.terminal, Terminal.connect, Terminal.output]
)
def test_each_parameter_is_in_the_signature_that_is_shown(function):
    """With its default."""
    shown = re.findall(rf"\b{function.__name__}\((\S.*?)\)", _TEXT)

    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        has_default = parameter.default is not parameter.empty
        word = f"{parameter.name}={parameter.default}" if has_default else parameter.name
        assert any(word in each.replace('"', "") for each in shown), word


def test_each_method_is_described():
    """What can be done with a terminal, and its properties."""
    for name, member in vars(Terminal).items():
        if not name.startswith("_") and (
            inspect.isfunction(member) or isinstance(member, property)
        ):
            assert re.search(rf"\b{name}\b", _TEXT), name
