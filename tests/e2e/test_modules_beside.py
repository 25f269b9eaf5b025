"""Modules beside the notebook: the sandbox imports them, and nothing on the host does."""

from __future__ import annotations

import pytest

from tests.support.jupyter_home import JupyterHome

# Of Python's library, of packages that the relay needs, of the project itself.
NAMES = ["json.py", "select.py", "orjson.py", "zmq.py", "nh3.py", "sandbox_kernel.py"]
TELL = """
import os
path = os.path.join({folder!r}, "ran-" + os.path.basename(__file__))
with open(path, "w") as file:
    file.write(os.readlink("/proc/self/ns/user"))
raise SystemExit("shadowed")
"""


@pytest.fixture
def folder(home: JupyterHome, tmp_path):
    for name in NAMES:
        (home.work / name).write_text(TELL.format(folder=str(tmp_path)))
    (home.work / "mine.py").write_text("value = 6 * 7")
    (home.root / "cfg" / "jupyter_sandbox_config.py").write_text(
        "c.SandboxKernelApp.lease = 20.0\n"  # evaluated by a process of its own
    )
    return tmp_path


def test_nothing_on_the_host_runs_what_lies_beside_a_notebook(folder, start_kernel) -> None:
    """Such a file needs no cell: it would run when the kernel starts, outside of the sandbox."""
    kernel = start_kernel()

    assert kernel.value("__import__('mine').value") == 42
    assert list(folder.iterdir()) == []
