"""Between browser and server: pings, silence, networks that fail without a word."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import time

import psutil
import pytest
from websockets.exceptions import ConnectionClosed

from sandbox_kernel import sync
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from sandbox_runtime.terminal_readers import MOST_INPUT_OF_ALL
from tests.support.jupyter_home import JupyterHome
from tests.support.middleman import before_port
from tests.support.terminal_connection import TerminalConnection, terminal_url
from tests.support.ws_connection import JupyterServer

PING = 0.5
"""Seconds between two pings here; 30 by default."""

BLOCKED = "stty raw -echo; printf up; sleep {}; head -c {} | md5sum; printf 'all\\n'"


@pytest.fixture(scope="module")
def home(tmp_path_factory, warm_cache):
    home = JupyterHome(tmp_path_factory.mktemp("h"), warm_cache).create()
    yield home
    home.destroy_named_sandboxes()


@pytest.fixture(scope="module")
def server(home):
    settings = f"--ServerApp.tornado_settings={{'ws_ping_interval': {PING * 1000:.0f}}}"
    with JupyterServer(home, settings) as made:
        yield made
    assert "Traceback" not in made.log


@pytest.fixture(scope="module")
def manager(home):
    made = Manager(Settings(data_dir=home.sandboxes))
    yield made
    made.close()


@pytest.fixture
def terminal(manager, create):
    """A terminal as Python sees it."""
    with sync.get_sandbox("demo", manager=manager) as sandbox:
        yield sandbox.get_terminal(create())


@pytest.fixture
def create(server):
    def make(*argv):
        status, info = server.call(
            "POST", "/sandbox/api/sandboxes/demo/terminals", {"argv": list(argv) or ["bash"]}
        )
        assert status == 201, info
        return info["terminal_id"]

    return make


@pytest.fixture
def connect(server):
    made = []

    def open_socket(tid, *, port=None, sandbox="demo", **query):
        url = terminal_url(server, sandbox, tid, **query)
        if port is not None:
            url = url.replace(f":{server.port}/", f":{port}/")
        made.append(TerminalConnection(url, server.token, acknowledges=query.get("ack") == 1))
        return made[-1]

    yield open_socket
    for each in made:
        each.close()


def wait_until(condition, timeout=10.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_idle_terminal_outlives_a_proxy_that_cuts_idle_connections(server, create, connect):
    """Pings and their answers keep both directions in use."""
    with before_port(server.port, idle=4 * PING) as proxy:
        viewers_of_each = [
            connect(create(), port=proxy.port, **({"ack": 1} if ack else {})) for ack in (0, 1)
        ]
        for each in viewers_of_each:
            each.until_type("ready")
        deadline = time.monotonic() + 12 * PING
        while time.monotonic() < deadline:
            for each in viewers_of_each:
                each.step(0.05)
        for each in viewers_of_each:
            each.type("echo al''ive\r")
            each.read_until(b"alive\r\n")
        assert proxy.taken == 2


def test_a_browser_that_answers_no_ping_is_let_go(server, terminal):
    """Within two intervals, with a word; its terminal lives on."""
    address = terminal_url(server, "demo", terminal.id).split(f":{server.port}")[1]
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(
            f"GET {address} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            f"Sec-WebSocket-Version: 13\r\nAuthorization: token {server.token}\r\n\r\n".encode()
        )
        raw.settimeout(10)
        begin, came = time.monotonic(), b""
        while piece := raw.recv(65536):
            came += piece

    assert time.monotonic() - begin < 2 * PING + 1
    assert came.count(b"\x89\x00") == 1
    assert came.endswith(b"\x88\x14\x03\xe9no answer to pings")
    wait_until(lambda: terminal.get_snapshot().viewers == 0)
    assert terminal.status == "running"


def test_a_browser_that_vanished_is_let_go(server, terminal, connect):
    """Its end of the connection is gone and nobody says so; the next one finds all as it was."""
    with before_port(server.port) as network:
        one = connect(terminal.id, port=network.port, ack=1, cols=90, rows=20)
        one.until_type("live")
        one.type("echo al''ive\r")
        one.read_until(b"alive\r\n")
        network.swallows = True
        wait_until(lambda: terminal.get_snapshot().viewers == 0)
        two = connect(terminal.id, ack=1, cursor=one.cursor)
        two.until_type("live")

        assert two.of_type("replay")[0]["kind"] == "exact"


def test_a_ping_of_the_browser_is_answered_at_once(create, connect):
    """Before it is ready, and beside a flood."""
    one = connect(
        create("sh", "-c", "read x; head -c 3000000 /dev/zero | tr '\\0' x; read x"), ack=1
    )
    one.say(type="ping")
    one.until_type("pong")
    one.type("\r")
    one.read_until(b"xxxx")
    begin = time.monotonic()
    one.say(type="ping")
    one.until(lambda c: len(c.of_type("pong")) == 2)

    assert time.monotonic() - begin < 1


def test_pings_do_not_keep_a_sandbox_awake(connect, manager):
    """Those of the server and of the browser: the sandbox goes to sleep beside its viewer."""
    with sync.get_sandbox("sleepy", manager=manager, sleep_after=2) as sandbox:
        tid = sandbox.create_terminal(["bash"]).id
    one = connect(tid, sandbox="sleepy", ack=1)
    one.until_type("live")
    deadline = time.monotonic() + 20
    while one.close_code is None:
        assert time.monotonic() < deadline
        with contextlib.suppress(ConnectionClosed):
            one.say(type="ping")
        one.step(PING / 2)

    assert one.close_code == 1011
    assert one.events()[-1]["code"] == "CONTAINER_UNAVAILABLE"


@pytest.mark.parametrize(("size", "form"), [(3_000_000, "one"), (48_000_000, "many")])
def test_a_paste_that_waits_loses_neither_viewer_nor_byte(create, connect, server, size, form):
    """The program takes nothing for many intervals; then it gets all, in order."""
    text = b"".join(b"%08d" % number for number in range(size // 8))
    pieces = [text] if form == "one" else [text[at : at + 65536] for at in range(0, size, 65536)]
    blocked = 8 * PING
    one = connect(create("sh", "-c", BLOCKED.format(blocked, size)), ack=1)
    one.read_until(b"up")
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss
    begin = time.monotonic()
    for each in pieces:
        one.type(each)
    one.read_until(b"all", 60)

    assert time.monotonic() - begin > blocked / 2
    assert hashlib.md5(text).hexdigest().encode() in one.data  # noqa: S324  to compare
    assert one.close_code is None or one.events()[-1]["type"] == "exit"
    assert not one.of_type("error")
    assert process.memory_info().rss - before < 64 << 20
    if size > MOST_INPUT_OF_ALL:
        # Its own pings waited behind the paste: the server has shown that it is there.
        assert one.of_type("pong")


def test_a_slow_upload_is_a_sign_of_life(create, connect, server):
    """One long message, of which a little comes now and then, and no pong in between."""
    tid = create("sh", "-c", "stty raw -echo; printf up; head -c 40 | od -c | tail -1")
    one = connect(tid)
    one.read_until(b"up")
    raw = one.socket.socket
    # The client's own thread would answer pings in the middle of the frame.
    with contextlib.ExitStack() as stack:
        stack.enter_context(one.socket.protocol_mutex)
        raw.sendall(b"\x82\xa8\0\0\0\0")
        for _ in range(40):
            raw.sendall(b"x")
            time.sleep(PING / 10)
    one.read_until(b"0000050", 10)
    assert one.close_code is None or one.events()[-1]["type"] == "exit"
