"""A kernel that cannot start says why, in time, and leaves nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from jupyter_client.manager import KernelManager

from tests.support import docker
from tests.support.jupyter_home import JupyterHome, describe, processes_below
from tests.support.ws_connection import JupyterServer

BROKEN = {
    "engine": ({"SANDBOX_ENGINE": "no-such-engine"}, "no-such-engine"),
    "id": ({"SANDBOX_ID": "../of-somebody-else"}, "../of-somebody-else"),
    "bwrap": (
        {
            "SANDBOX_ENGINE": "bubblewrap",
            "SANDBOX_CONFIG": json.dumps({"BubblewrapEngine": {"executable": "/bin/false"}}),
        },
        "/bin/false",
    ),
    "image": (
        {
            "SANDBOX_ENGINE": "docker",
            "SANDBOX_CONFIG": json.dumps(
                {"DockerEngine": {"host": docker.HOST, "image": "no-such-image"}}
            ),
        },
        "no-such-image",
    ),
    "setting": ({"SANDBOX_CONFIG": json.dumps({"SandboxManager": {"netwrok": True}})}, "netwrok"),
    "data": ({"JUPYTER_DATA_DIR": "/proc/no-such-place"}, "/proc/no-such-place"),
}


@pytest.mark.parametrize("cause", BROKEN)
def test_a_kernel_that_cannot_start_says_why(home: JupyterHome, cause: str) -> None:
    """The process ends by itself with a failure and names the reason in plain words."""
    extra, word = BROKEN[cause]
    if cause == "image":
        docker.need_docker()
    error_path = home.root / "stderr"
    manager = KernelManager(
        kernel_name="sandbox-python", connection_file=str(home.runtime / "kernel-x.json")
    )
    with open(error_path, "wb") as stderr:
        manager.start_kernel(env=home.env(**extra), cwd=str(home.work), stderr=stderr)
    client = manager.client()
    client.start_channels()
    started = time.monotonic()
    try:
        with pytest.raises(RuntimeError, match=r"died"):
            client.wait_for_ready(timeout=30)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)

    said = error_path.read_text()
    assert time.monotonic() - started < 10
    assert word in said
    assert "Traceback" not in said
    assert not manager.is_alive()
    assert not list(home.runtime.glob("kernel-*.json"))
    assert not [describe(p) for p in processes_below(home.root)]


@pytest.mark.slow
def test_a_server_tells_why_a_kernel_cannot_start(new_home: Callable[[], JupyterHome]) -> None:
    """The reason is in the server's log, the kernel goes away after the restarts, the server stays."""
    home = new_home()
    with JupyterServer(home, SANDBOX_ENGINE="no-such-engine") as server:
        status, body = server.call("POST", "/api/kernels", {"name": "sandbox-python"})
        deadline = time.monotonic() + 60
        # The restarter looks every three seconds and gives up after five starts.
        while status == 201:
            found, kernel = server.call("GET", f"/api/kernels/{body['id']}")
            if found != 200 or kernel["execution_state"] == "dead":
                break
            assert time.monotonic() < deadline, server.log
            time.sleep(0.2)

        assert "no-such-engine" in server.log
        server.call("DELETE", f"/api/kernels/{body['id']}")
        assert server.get("/api/kernels") == []
        assert not list(home.sandboxes.glob("sandboxes/*"))
        # The connection file is the server's, which leaves that of any kernel it gives up.
        left = [p for p in processes_below(home.root) if p.pid != server.process.pid]
        assert not left, [describe(p) for p in left]
