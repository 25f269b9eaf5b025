"""The fork server: later kernels start without imports, and nothing depends on it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import psutil

from sandbox_kernel.wire.kernel import Channel as RecordChannel
from sandbox_kernel.wire.kernel import encode_record
from tests.runtime.conftest import Start
from tests.support.runtime_child import Channel, Client, RuntimeChild

PATIENCE = 60.0


def start_python(start_runtime: Start, home: Path) -> RuntimeChild:
    (home / ".local/lib/python3.99/site-packages").mkdir(parents=True)
    return start_runtime(env={"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"})


def made_by_fork(pid: int) -> bool:
    return "sandbox_runtime.forkserver" in psutil.Process(pid).cmdline()


def start_kernel(client: Client, **fields: Any) -> int:
    return int(client.call("kernel.start", kernel_id="k", fresh=True, **fields).pid)


def start_until_forked(client: Client, *, env: dict[str, str] | None = None) -> int:
    """Start kernels until one is forked; the server needs a while after the first one."""
    deadline = time.monotonic() + PATIENCE
    while not made_by_fork(pid := start_kernel(client, env=env or {})):
        assert time.monotonic() < deadline
        time.sleep(0.3)
    return pid


def run_cell(runtime: RuntimeChild, code: str) -> bytes:
    """Run a cell in kernel k; return all that it has said since its start."""
    client = runtime.connect()
    client.welcome()
    channel = Channel(client, "k")
    channel.read_until(b"ready", PATIENCE)
    header = {
        "msg_id": "m-1",
        "msg_type": "execute_request",
        "username": "u",
        "session": "s",
        "date": "2026-01-01T00:00:00Z",
        "version": "5.3",
    }
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
    parts = [json.dumps(part).encode() for part in (header, {}, {}, content)]
    channel.input(encode_record(RecordChannel.SHELL, [b"client"], parts))
    channel.read_until(b"execute_reply", PATIENCE)
    client.close()
    return channel.data


def test_a_later_kernel_is_forked_and_works(start_runtime: Start, tmp_path: Path) -> None:
    """It has the folder, the environment and the parent that a freshly started one would have."""
    runtime = start_python(start_runtime, tmp_path / "home")
    with runtime.connect() as client:
        first = start_kernel(client)
        assert not made_by_fork(first)

        start_until_forked(client)
        pid = start_kernel(client, env={"ASKED": "for it"}, cwd="/usr")
        said = run_cell(
            runtime, "import os; print(f\"{os.getcwd()} {os.environ['ASKED']} {6 * 7}\")"
        )

        assert made_by_fork(pid)
        assert b"/usr for it 42" in said
        kernel = psutil.Process(pid)
        assert kernel.ppid() == runtime.pid
        assert os.getsid(pid) == pid
        client.call("kernel.end", kernel_id="k")
        assert not psutil.pid_exists(pid)


def test_the_locale_of_a_server_is_no_reason_to_start_anew(
    start_runtime: Start, tmp_path: Path
) -> None:
    """Variables that act at the start of an interpreter are those the fork server started with."""
    runtime = start_python(start_runtime, tmp_path / "home")
    locale = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
    with runtime.connect() as client:
        start_until_forked(client, env=locale)
        assert made_by_fork(start_kernel(client, env=locale))
        assert not made_by_fork(start_kernel(client, env={"LANG": "C"}))


def test_kernels_start_without_it(start_runtime: Start, tmp_path: Path) -> None:
    """When it dies, packages change, or a variable needs a new interpreter, a kernel starts anew."""
    runtime = start_python(start_runtime, home := tmp_path / "home")
    with runtime.connect() as client:
        start_until_forked(client)

        pid = start_kernel(client, env={"PYTHONHASHSEED": "7"})
        assert not made_by_fork(pid)
        assert b"seed=7" in run_cell(
            runtime, "import os; print('seed=' + os.environ['PYTHONHASHSEED'])"
        )

        start_until_forked(client)
        (home / ".local/lib/python3.99/site-packages/new_package").mkdir()
        assert not made_by_fork(start_kernel(client))
        assert "packages have changed" in runtime.log()

        start_until_forked(client)
        (server,) = (
            each
            for each in psutil.Process(runtime.pid).children()
            if "sandbox_runtime.forkserver" in each.cmdline() and each.pid != known(client)
        )
        server.kill()
        assert not made_by_fork(start_kernel(client))
        assert b"still here" in run_cell(runtime, "print('still ' + 'here')")


def known(client: Client) -> int:
    (kernel,) = client.call("kernel.list").kernels
    return int(kernel.pid)
