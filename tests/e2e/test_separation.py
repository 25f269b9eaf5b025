"""Two users of one machine: what the one's server and sandboxes hold is out of the other's reach."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zmq

from sandbox_kernel.manager.doorbell import call_once
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.registry import Registry
from sandbox_kernel.manager.settings import load_settings
from sandbox_kernel.wire.operations import Empty, StartProcessRequest
from tests.e2e.test_server_kill import POOL, notebook, wait_until
from tests.support.host_user import HostUser
from tests.support.jupyter_home import JupyterHome
from tests.support.ws_connection import JupyterServer

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user"),
    pytest.mark.timeout(240),
]

ENCRYPTED = ("--KernelManager.transport_encryption=required",)

# Runs as another user: tries to reach what the order names, and tells what it got.
ATTACKER = """
import json, os, socket, sys, urllib.error, urllib.request

order = json.loads(sys.stdin.readline())
got = {"opened": [], "connected": [], "environ": [], "answered": [], "signalled": []}

for path in order["paths"]:
    try:
        if os.path.isdir(path):
            os.listdir(path)
        else:
            open(path, "rb").close()
        got["opened"].append(path)
    except OSError:
        pass
names = [line.split()[-1] for line in open("/proc/net/unix") if "@" in line or "/" in line]
for path in {*order["sockets"], *(name for name in names if order["root"] in name)}:
    address = "\\0" + path[1:] if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(2)
            client.connect(address)
        got["connected"].append(path)
    except OSError:
        pass
for name in filter(str.isdigit, os.listdir("/proc")):
    for file in ("cmdline", "environ"):
        try:
            data = open(f"/proc/{name}/{file}", "rb").read().decode(errors="replace")
        except OSError:
            continue
        got["environ"] += [[name, file] for secret in order["secrets"] if secret in data]
for pid in order["pids"]:
    try:
        os.kill(pid, 0)
        got["signalled"].append(pid)
    except OSError:
        pass
for url in order["urls"]:
    request = urllib.request.Request(url, headers={"Authorization": "token wrong"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            if "/login" not in answer.url:
                got["answered"].append([url, answer.status])
    except urllib.error.HTTPError as error:
        if error.code not in (401, 403, 404):
            got["answered"].append([url, error.code])
sys.path.insert(0, order["code"])
os.environ.update(order["environ"])
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.manager.manager import Manager
for verb in ("list", "waiting", "gc"):
    try:
        got[verb] = len(getattr(Manager(), verb)())
    except SandboxError as error:
        got[verb] = error.code
try:
    Manager().ensure(order["sandbox_id"])
    got["ensure"] = "a sandbox"
except SandboxError as error:
    got["ensure"] = error.code
print(json.dumps(got))
"""


@pytest.fixture
def other() -> Iterator[HostUser]:
    user = HostUser(ordinary=True)
    yield user
    user.close()


@pytest.fixture
def open_home(home: JupyterHome) -> JupyterHome:
    """A user whose folders are as they mostly are: anybody may go through to ours."""
    for folder in (home.root.parent, home.root, home.data, home.work):
        folder.chmod(0o755)
    return home


def below(folder: Path) -> list[str]:
    return [
        *(str(folder),),
        *(
            os.path.join(at, name)
            for at, *both in os.walk(folder)
            for each in both
            for name in each
        ),
    ]


def secrets_of(home: JupyterHome) -> list[str]:
    with closing(Registry(home.sandboxes / "registry.sqlite3")) as registry:
        entries = registry.all()
        ports = [port.token for each in entries for port in registry.ports(each.lifetime)]
    return [*(each.token for each in entries if each.token), *ports]


def attack(user: HostUser, **order: Any) -> dict[str, Any]:
    process = user.popen(ATTACKER)
    out, _ = process.communicate(json.dumps(order) + "\n", timeout=90)
    assert process.returncode == 0
    told: dict[str, Any] = json.loads(out)
    return told


def test_another_user_reaches_nothing_of_a_server_and_its_sandboxes(
    open_home: JupyterHome, other: HostUser
) -> None:
    """Files, sockets, secrets of processes, REST, previews, and the manager's verbs."""
    home = open_home
    with (
        JupyterServer(home, *POOL, *ENCRYPTED) as server,
        closing(Manager(load_settings(home.env()))) as manager,
        notebook(server, "work.ipynb") as kernel,
    ):
        wait_until(lambda: " waits, for " in server.log, "no pool")
        preview = serve_page(manager)
        [sandbox] = manager.list()
        wait_until(lambda: is_shown(server, preview), "no preview")
        relays = [int(each) for each in os.listdir("/proc") if each.isdigit() and _is_relay(each)]
        secrets = secrets_of(home)
        assert len(secrets) >= 3  # the notebook's, the pool's, the port's

        got = attack(
            other,
            paths=below(home.sandboxes) + below(home.runtime),
            sockets=[str(each) for each in home.sandboxes.rglob("*.sock")],
            root=str(home.root),
            secrets=secrets,
            pids=relays,
            urls=[
                f"{server.base}/sandbox/api/sandboxes",
                f"{server.base}/sandbox/api/sandboxes/{sandbox.sandbox_id}",
                f"{server.base}{preview}",
                f"{server.base}{preview[:-5]}aaaa/",
            ],
            code=str(other.path[0]),
            environ={"JUPYTER_DATA_DIR": str(home.data)},
            sandbox_id=sandbox.sandbox_id,
        )

        assert got["opened"] == []
        assert got["connected"] == []
        assert got["environ"] == []
        assert got["signalled"] == []
        assert got["answered"] == []
        assert {got["list"], got["waiting"], got["ensure"]} <= {"STORAGE_ERROR", 0}
        assert got["ensure"] == "STORAGE_ERROR"
        assert [each.sandbox_id for each in manager.list()] == [sandbox.sandbox_id]
        assert kernel.value("1 + 1") == 2
        _nobody_has_written_a_secret(home, server, secrets)


def serve_page(manager: Manager) -> str:
    """Serve a folder in the sandbox; return the path of its preview on the server."""
    [sandbox] = manager.list()
    running = manager.ensure(sandbox.sandbox_id)
    request = StartProcessRequest(argv=["python3", "-m", "http.server", "8000"])
    call_once(running.endpoint, "process.start", request, timeout=10)
    incarnation = call_once(running.endpoint, "runtime.health", Empty(), timeout=5).incarnation
    port = manager.ports.expose(
        sandbox.sandbox_id, 8000, secret=running.endpoint.token, incarnation=incarnation
    )
    assert port is not None
    return f"/{port.path.strip('/')}/"


def is_shown(server: JupyterServer, path: str) -> bool:
    """Whether the user's own browser would be shown a preview."""
    request = urllib.request.Request(  # noqa: S310 - our own server on loopback
        server.base + path, headers={"Authorization": f"token {server.token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return b"Directory listing" in answer.read()
    except urllib.error.HTTPError:
        return False


def _is_relay(pid: str) -> bool:
    try:
        return b"sandbox_kernel.kernel.launch" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _nobody_has_written_a_secret(
    home: JupyterHome, server: JupyterServer, secrets: list[str]
) -> None:
    """Neither into a log nor where every user of the machine may read it."""
    logs = {"server": server.log}
    logs |= {
        str(path): path.read_text(errors="replace")
        for path in home.sandboxes.rglob("*")
        if path.is_file() and path.suffix in {".log", ".jsonl"}
    }
    assert [
        (name, secret) for name, text in logs.items() for secret in secrets if secret in text
    ] == []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for file in ("cmdline", "environ"):
            try:
                data = Path(f"/proc/{pid}/{file}").read_bytes().decode(errors="replace")
            except OSError:
                continue
            assert not [secret for secret in secrets if secret in data], (pid, file, data)


def test_a_kernels_sockets_tell_nothing_without_its_keys(open_home: JupyterHome) -> None:
    """By TCP everybody on the machine may connect; with encryption required nobody hears anything."""
    with (
        JupyterServer(open_home, *POOL, *ENCRYPTED) as server,
        notebook(server, "work.ipynb") as kernel,
        zmq.Context() as context,
    ):
        [file] = open_home.runtime.glob("kernel-*.json")
        info = json.loads(file.read_text())
        assert file.stat().st_mode & 0o077 == 0
        listener = context.socket(zmq.SUB)
        listener.linger = 0
        listener.subscribe = b""
        listener.connect(f"tcp://127.0.0.1:{info['iopub_port']}")

        assert kernel.cell("print('only for me')").text == "only for me\n"

        assert not listener.poll(500)
        listener.close()


def test_two_users_sandboxes_of_one_name_are_two(home: JupyterHome, other: HostUser) -> None:
    """An id names a sandbox among those of one user."""
    code = """
import json, os, sys
from sandbox_kernel.manager.manager import Manager
# The system's Python has not what the log of activity needs.
os.environ["SANDBOX_CONFIG"] = '{"SandboxManager": {"activity_log": false}}'
manager = Manager()
running = manager.ensure("dev")
print(json.dumps([running.lifetime, running.endpoint.socket]), flush=True)
sys.stdin.read()
manager.destroy("dev")
"""
    with closing(Manager(load_settings(home.env()))) as manager:
        mine = manager.ensure("dev")
        process = other.popen(code)
        assert process.stdout is not None
        assert process.stdin is not None
        lifetime, socket = json.loads(process.stdout.readline())

        assert lifetime != mine.lifetime
        assert socket.startswith(str(other.home))
        process.stdin.close()
        assert process.wait(30) == 0
        process.stdout.close()
        assert manager.find_running("dev") is not None
        manager.destroy("dev")
