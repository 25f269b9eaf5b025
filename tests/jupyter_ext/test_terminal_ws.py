"""The WebSockets of terminals: a real Jupyter server, real sandboxes, and browsers' messages."""

from __future__ import annotations

import base64
import concurrent.futures
import http.client
import json
import os
import signal
import socket
import time
import uuid

import psutil
import pytest
from websockets.exceptions import InvalidStatus

from sandbox_kernel import sync
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.support.jupyter_home import JupyterHome
from tests.support.terminal_connection import TerminalConnection, terminal_url
from tests.support.ws_connection import JupyterServer


@pytest.fixture(scope="module")
def home(tmp_path_factory, warm_cache):
    home = JupyterHome(tmp_path_factory.mktemp("h"), warm_cache).create()
    yield home
    home.destroy_named_sandboxes()


@pytest.fixture(scope="module")
def server(home):
    secrets = {"TERM": "dumb", "COLUMNS": "10", "MY_SERVER_SECRET": "s3cr3t", "PYTHONPATH": "bogus"}
    with JupyterServer(home, **secrets) as made:
        yield made
    assert "Traceback" not in made.log


@pytest.fixture(scope="module")
def manager(home):
    made = Manager(Settings(data_dir=home.sandboxes))
    yield made
    made.close()


@pytest.fixture
def session():
    return uuid.uuid4().hex


@pytest.fixture
def open_socket(server):
    """Return a function that connects to the sandbox ``demo``, or to another one."""
    made = []

    def connect(terminal_id=None, *, sandbox="demo", **query):
        url = terminal_url(server, sandbox, terminal_id, **query)
        each = TerminalConnection(url, server.token, acknowledges=query.get("ack") == 1)
        made.append(each)
        return each

    yield connect
    for each in made:
        each.close()


@pytest.fixture
def create(server):
    """Return a function that makes a terminal over REST and returns its id."""

    def make(*argv, **fields):
        status, info = server.call(
            "POST",
            "/sandbox/api/sandboxes/demo/terminals",
            {"argv": list(argv) or ["bash", "--norc"], **fields},
        )
        assert status == 201, info
        return info["terminal_id"]

    return make


def terminals(server, sandbox="demo"):
    return server.get(f"/sandbox/api/sandboxes/{sandbox}/terminals")["terminals"]


def is_paired(messages) -> bool:
    """Whether each announcement is followed by its bytes, and no bytes come unannounced."""
    left = iter(messages)
    for each in left:
        if isinstance(each, bytes):
            return False
        if "byteLength" in each:
            data = next(left)
            if not isinstance(data, bytes) or len(data) != each["byteLength"]:
                return False
    return True


# --- the three protocols ------------------------------------------------------------------------


def test_stable_first_the_screen_then_ready_then_bytes(open_socket, session):
    """Size from the address; a later viewer sees the same; exit, then the close."""
    one = open_socket(session=session, cols=100, rows=30)
    one.until_type("ready")
    one.type("stty size; echo m$((1+1))\r")
    one.read_until(b"30 100\r\n")
    one.read_until(b"m2\r\n")
    two = open_socket(session=session)
    two.until_type("ready")

    assert b"m2\r\n" in two.data
    assert isinstance(two.messages[0], bytes)
    assert b"\x1bc" in two.data[:8]
    one.type("exit 3\r")
    for each in (one, two):
        assert each.until_closed() == 1000
        assert each.events() == [{"type": "ready"}, {"type": "exit", "code": 3}]


def test_stable_who_comes_after_the_end_makes_no_shell(open_socket, session, server):
    """Last screen, ready, exit, and a quiet socket; a new shell only when Enter is typed."""
    first = open_socket(session=session)
    first.until_type("ready")
    first.type("echo la''st; kill -9 $$\r")
    assert first.until_closed() == 1000
    assert first.of_type("exit") == [{"type": "exit", "code": 137, "signal": "SIGKILL"}]
    again = open_socket(session=session)
    again.until_type("exit")

    assert b"last" in again.data
    assert [each["type"] for each in again.events()] == ["ready", "exit"]
    again.type("x")
    assert again.is_quiet_for(1)
    mine = [each for each in terminals(server) if each["session"] == session]
    assert [each["status"] for each in mine] == ["exited"]
    again.type("\r")
    again.until(lambda c: len(c.of_type("ready")) == 2)
    again.type("echo n$((1+1))\r")
    again.read_until(b"n2\r\n")


def test_preview_announces_and_resumes_without_gap(open_socket, create):
    """Ten cuts while a program numbers its lines: every line once."""
    tid = create("sh", "-c", "read x; for i in $(seq 1 4000); do echo $i; done; exit 7")
    first = open_socket(tid, cols=80, rows=24)
    first.until_type("ready")
    start = first.cursor
    first.type("\r")
    first.read_until(b"\r\n")
    whole, cursor = bytes(first.data), first.cursor
    first.abort()
    for _ in range(10):
        each = open_socket(tid, cursor=cursor)
        each.until(lambda c: c.data or c.close_code)
        assert is_paired(each.messages)
        whole, cursor = whole + each.data, each.cursor or cursor
        if each.close_code is not None:
            break
        each.abort()
    last = open_socket(tid, cursor=cursor)

    assert last.until_closed() == 1000
    assert last.messages[0] == {"type": "ready", "cursor": cursor}
    whole += last.data
    assert whole[whole.index(b"1\r\n2\r\n") :] == b"".join(b"%d\r\n" % n for n in range(1, 4001))
    assert last.of_type("exit")[0]["exit"] == {"code": 7, "timedOut": False}
    assert start is None


def test_acknowledged_tells_replay_and_output_apart(open_socket, create):
    """Ready with terminal and size; the replay; live; chunks; exact from a cursor."""
    tid = create()
    one = open_socket(tid, ack=1, cols=90, rows=20)
    one.until_type("live")

    assert [each["type"] for each in one.events()[:3]] == ["ready", "replay", "live"]
    assert one.events()[0] == {
        "type": "ready",
        "terminalId": tid,
        "cols": 90,
        "rows": 20,
        "acknowledgeEvery": 65536,
    }
    assert one.events()[1]["kind"] == "screen"
    one.type("echo o$((1+1))\r")
    one.read_until(b"o2\r\n")
    cursor = one.cursor
    assert is_paired(one.messages)
    one.type("echo p$((1+1))\r")
    one.read_until(b"p2\r\n")
    one.abort()
    two = open_socket(tid, ack=1, cursor=cursor)
    two.until_type("live")
    assert two.of_type("replay")[0]["kind"] == "exact"
    assert two.data in one.data
    assert b"p2\r\n" in two.data
    two.say(type="ping")
    two.until_type("pong")
    two.say(type="terminate")
    assert two.until_closed() == 1000
    assert two.of_type("exit")[0]["exit"]["signal"] in (1, 9, 15)


def test_acknowledged_on_the_sessions_route(open_socket, session):
    """The same protocol; with a cursor it wants that very terminal, finished or not."""
    one = open_socket(session=session, ack=1, cols=80, rows=24)
    one.until_type("live")
    one.type("exit 5\r")
    assert one.until_closed() == 1000
    two = open_socket(session=session, ack=1, cursor=one.cursor)
    assert two.until_closed() == 1000
    assert two.of_type("exit")[0]["exit"]["code"] == 5
    other = open_socket(session=session + "x", ack=1, cursor=one.cursor)
    assert other.until_closed() == 1011
    assert other.of_type("error")[0]["code"] == "INVALID_TERMINAL_CURSOR"
    three = open_socket(session=session, ack=1)
    three.until_type("live")
    assert three.of_type("ready")[0]["terminalId"] != one.of_type("ready")[0]["terminalId"]


# --- what is wrong is answered ------------------------------------------------------------------


BAD_SIZES = [
    {"cols": 0, "rows": 24},
    {"cols": 80, "rows": -1},
    {"cols": "80x", "rows": 24},
    {"cols": 80.5, "rows": 24},
    {"cols": 2001, "rows": 24},
    {"cols": 80, "rows": 1001},
    {"cols": 1000, "rows": 501},
    {"cols": "", "rows": ""},
    {"rows": 24},
    {"cols": 80},
    {"ack": "yes"},
    {"columns": 80},
    {"sessionId": "s"},
]


@pytest.mark.parametrize("query", BAD_SIZES, ids=str)
def test_a_bad_value_or_name_in_the_address_is_an_error(
    open_socket, create, session, server, query
):
    """On both routes, and no shell is made for it."""
    tid = create()
    for each in (open_socket(tid, **query), open_socket(session=session, **query)):
        assert each.until_closed() == 1011
        assert [event["type"] for event in each.events()] == ["error"]
        assert each.of_type("error")[0]["code"] == "VALIDATION_FAILED"
    assert not [each for each in terminals(server) if each["session"] == session]


@pytest.mark.parametrize("ack", [0, 1])
@pytest.mark.parametrize("name", ["cursor", "session", "cols"])
def test_an_address_that_is_no_text_is_an_error(open_socket, create, session, name, ack):
    """Wherever in it; the browser is told so, as of any other bad value."""
    bad = {"session": session, "rows": 24, "cols": 80, "ack": ack, name: b"\xff\0"}
    sockets = [open_socket(**bad)]
    if name != "session":
        sockets.append(open_socket(create(), **bad))
    for each in sockets:
        assert each.until_closed() == 1011
        assert [(event["type"], event["code"]) for event in each.events()] == [
            ("error", "VALIDATION_FAILED")
        ]


def test_bad_messages_are_answered_and_harm_nobody(open_socket, create, server):
    """One error frame for each, the size stays, the connection and others go on."""
    tid = create(cols=91, rows=29)
    bad = [
        *("", "hello", "[]", "null", "{}", '{"type":"nope"}', '{"type":5}', '{"type":"ready"}'),
        "{" * 100_000,
        "[" * 100_000,
        '{"type":"ack","bytes":1}',
        '{"type":"resize","cols":NaN,"rows":24}',
        *(
            json.dumps({"type": "resize", **size})
            for size in (
                {"cols": 0, "rows": 24},
                {"cols": 80, "rows": -1},
                {"cols": "80", "rows": 24},
                {"cols": 80.5, "rows": 24},
                {"cols": None, "rows": 24},
                {"cols": True, "rows": 24},
                {"rows": 24},
                {},
            )
        ),
    ]
    one = open_socket(tid)
    one.until_type("ready")
    for text in bad:
        one.raw_text(text)
    one.until(lambda c: len(c.of_type("error")) == len(bad))
    one.type(b"")
    one.type(b"stty size; echo al''ive\r")

    assert b"29 91" in one.read_until(b"alive\r\n")
    assert all(each["code"] == "VALIDATION_FAILED" for each in one.of_type("error"))
    assert max(map(len, server.log.splitlines())) < 2000


def test_text_that_is_none_ends_the_connection_only(open_socket, create):
    """The terminal lives, and takes the next viewer."""
    tid = create()
    one = open_socket(tid)
    one.until_type("ready")
    # A text frame by hand: the client library would not send it.
    mask = b"\0\0\0\0"
    one.socket.socket.sendall(b"\x81\x82" + mask + b"\xff\xfe")
    one.until_closed()
    two = open_socket(tid)
    two.until_type("ready")
    two.type("echo al''ive\r")
    two.read_until(b"alive\r\n")


@pytest.mark.parametrize("ack", [0, 1])
def test_a_terminal_that_is_not_there(open_socket, create, ack):
    """Error, then 1008; a cursor that is none, error, then 1011; never a shell."""
    tid = create()
    for sandbox, name in (("demo", "t-nope"), ("never-was", "t-1")):
        each = open_socket(name, sandbox=sandbox, ack=ack)
        assert each.until_closed() == 1008
        assert each.events()[0]["code"] == "TERMINAL_NOT_FOUND"
    for cursor in ("x", "AAAA", "a" * 5000):
        each = open_socket(tid, cursor=cursor, ack=ack)
        assert each.until_closed() == 1011
        assert each.events()[0]["code"] == "INVALID_TERMINAL_CURSOR"
    each = open_socket(tid, sandbox="No_Id", ack=ack)
    assert each.until_closed() == 1011
    assert each.events()[0]["code"] == "INVALID_SANDBOX_ID"


def test_input_however_it_is_cut(open_socket, create):
    """In fragments, byte by byte on the wire, and many frames at once: the same keys in order."""
    one = open_socket(create("bash", "--norc", env={"PS1": "$ "}))
    one.read_until(b"$ ")
    one.socket.send([b"echo fr", b"", b"ag", b"$((1+1))\r"])
    one.read_until(b"frag2\r\n")
    keys = b"echo by''tes\r"
    frames = b"".join(b"\x82\x81\0\0\0\0" + bytes([key]) for key in keys)
    one.socket.socket.sendall(frames)
    one.read_until(b"bytes\r\n")
    for byte in frames:
        one.socket.socket.sendall(bytes([byte]))
        time.sleep(0.001)
    one.read_until(b"bytes\r\n")


def test_a_paste_of_12_megabytes(open_socket, create):
    """Taken whole, in one frame or many; beyond the limit refused with its number, then 1009."""
    code = "import os,sys,tty;tty.setraw(0);os.write(1,b'up');n=int(sys.argv[1])\n"
    code += "while n:n-=len(os.read(0,min(n,65536)))\nos.write(1,b'all')"
    for size, piece in ((12_000_000, 12_000_000), (2_000_000, 65536)):
        one = open_socket(create("python3", "-c", code, str(size)))
        one.read_until(b"up")
        for start in range(0, size, piece):
            one.type(b"x" * min(piece, size - start))
        one.read_until(b"all", 60)
    tid = create()
    one = open_socket(tid)
    one.until_type("ready")
    one.type(b"x" * (16 * 1024 * 1024 + 1))
    assert one.until_closed() == 1009
    assert "16777216" in one.of_type("error")[0]["message"]
    again = open_socket(tid)
    again.type("echo al''ive\r")
    again.read_until(b"alive\r\n")


@pytest.mark.parametrize("query", [{}, {"ack": 1}], ids=["preview", "acknowledged"])
def test_what_was_typed_before_an_orderly_close_still_arrives(open_socket, create, query):
    """A large paste to a program that reads late, then a close: the program gets all of it."""
    code = (
        "import os,sys,time,tty;tty.setraw(0);os.write(1,b'up');time.sleep(1);n=int(sys.argv[1])\n"
        "while n:n-=len(os.read(0,min(n,65536)))\nos.write(1,b'all')"
    )
    tid = create("python3", "-c", code, "1000000")
    one = open_socket(tid, **query)
    one.read_until(b"up")
    one.type(b"x" * 1_000_000)
    one.close()

    again = open_socket(tid)
    again.read_until(b"all", 30)


def test_an_address_that_is_malformed_keeps_nobody_from_starting_the_sandbox(open_socket):
    """The next browser, with a right address, gets its shell."""
    assert open_socket(sandbox="fresh", cols=80).until_closed() == 1011

    one = open_socket(sandbox="fresh", cols=80, rows=24)
    one.until_type("ready")


# --- who may connect ----------------------------------------------------------------------------


def test_who_is_not_allowed_makes_no_shell(server, session):
    """Wrong token, foreign origin, gone at once: refused before anything is made."""
    url = terminal_url(server, "demo", session=session)
    with pytest.raises(InvalidStatus) as caught:
        TerminalConnection(url, "wrong")
    assert caught.value.response.status_code == 403
    host = f"127.0.0.1:{server.port}"
    for origin in ("http://other.invalid", f"http://{host}1", "null"):
        with pytest.raises(InvalidStatus) as caught:
            TerminalConnection(url, None, headers={"Cookie": cookie(server), "Origin": origin})
        assert caught.value.response.status_code == 403
    for _ in range(20):
        key = base64.b64encode(os.urandom(16)).decode()
        with socket.create_connection(("127.0.0.1", server.port)) as raw:
            path = url.split(host)[1]
            raw.sendall(
                f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
                f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
                f"Sec-WebSocket-Version: 13\r\n\r\n".encode()
            )
    # A plain request is no way in either.
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", url.split(host)[1], headers={"Cookie": cookie(server)})
    assert connection.getresponse().status == 400
    connection.close()
    assert not [each for each in terminals(server) if each["session"] == session]
    with TerminalConnection(
        url, None, headers={"Cookie": cookie(server), "Origin": f"http://{host}"}
    ) as good:
        good.until_type("ready")
    assert len([each for each in terminals(server) if each["session"] == session]) == 1


def cookie(server) -> str:
    """Log in as a browser does."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", f"/api?token={server.token}")
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return "; ".join(each.split(";")[0] for each in answer.headers.get_all("Set-Cookie"))


def test_nothing_of_the_server_reaches_the_shell(open_socket, session):
    """Neither its secrets nor its idea of a terminal; and the token is in no log."""
    one = open_socket(session=session, cols=80, rows=24)
    one.until_type("ready")
    one.type("echo =$TERM $(tput colors) [$COLUMNS] [$MY_SERVER_SECRET] [$PYTHONPATH]=\r")

    one.read_until(b"=xterm-256color 256 [80] [] []=\r\n")


def test_each_socket_sends_at_once(open_socket, create):
    """Two small messages do not wait for the first's acknowledgement, some 40 ms."""
    code = "import os,time,tty;tty.setraw(0);os.write(1,b'up')\n"
    code += "while os.read(0,1):\n for i in b'abc':os.write(1,bytes([i]));time.sleep(.003)"
    one = open_socket(create("python3", "-c", code))
    one.read_until(b"up")
    times = []
    for _ in range(10):
        begin = time.monotonic()
        one.type(b"x")
        one.read_until(b"c")
        times.append(time.monotonic() - begin)

    assert sorted(times)[5] < 0.03


# --- slow viewers -------------------------------------------------------------------------------


@pytest.mark.parametrize("ack", [0, 1])
def test_a_viewer_that_reads_nothing_costs_no_memory_and_delays_nobody(
    open_socket, create, server, ack
):
    """Server and sandbox stay as they are; another viewer's Ctrl-C works at once."""
    tid = create()
    fast = open_socket(tid, ack=1)
    fast.until_type("live")
    slow = open_socket(tid, ack=ack)
    slow.acknowledges = False
    fast.type("head -c 300000000 /dev/zero | tr '\\0' x\r")
    fast.read_until(b"xxxx")
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        fast.step(1)
    grown = process.memory_info().rss - before
    got = len(fast.data)
    fast.type(b"\x03")
    begin = time.monotonic()
    fast.read_until(b"$ ", 30)

    assert time.monotonic() - begin < 2
    assert got > 2_000_000
    assert grown < 16 << 20
    # It is alive, and its next screen is the right one.
    slow.acknowledges = bool(ack)
    fast.type("echo do''ne\r")
    slow.until(lambda c: b"done\r\n" in c.data[-4000:], 30)
    assert slow.close_code is None
    assert slow.of_type("screen" if ack else "truncated")


def test_the_last_output_comes_before_the_exit(open_socket, create):
    """A slow reader gets all of it, then one exit, and nothing after it."""
    tid = create("bash", "-c", "read x; seq 1 200000; echo LAST; exit 7")
    one = open_socket(tid, ack=1)
    one.until_type("live")
    one.type("\r")
    while one.close_code is None:
        assert one.step(20)
        time.sleep(0.002)

    lines = one.data.split(b"\r\n")
    assert lines[-2] == b"LAST"
    assert one.messages[-1]["type"] == "exit"
    assert one.messages[-1]["exit"]["code"] == 7
    assert is_paired(one.messages)
    if not one.of_type("screen"):
        assert lines[-200_002:-2] == [b"%d" % number for number in range(1, 200_001)]


# --- ends that are not the program's ------------------------------------------------------------


def test_a_stopped_sandbox_is_not_started_by_viewers_that_come_again(open_socket, server, manager):
    """All are told and closed with 1011; no reconnect brings it back; a real operation does."""
    name = "stopped-one"
    stable = open_socket(sandbox=name)
    stable.until_type("ready")
    acknowledged = open_socket(sandbox=name, session="two", ack=1)
    acknowledged.until_type("live")
    tid = acknowledged.of_type("ready")[0]["terminalId"]
    preview = open_socket(tid, sandbox=name)
    preview.until_type("ready")
    manager.stop(name)

    for each in (stable, acknowledged, preview):
        assert each.until_closed() == 1011
        assert each.events()[-1]["code"] == "CONTAINER_UNAVAILABLE"
    cursor = acknowledged.cursor
    for _ in range(3):
        stable = open_socket(sandbox=name)
        assert stable.until_closed() == 1011
        again = open_socket(sandbox=name, session="two", ack=1, cursor=cursor)
        assert again.until_closed() == 1008
        assert again.events()[0]["code"] == "STALE_TERMINAL_HANDLE"
        assert open_socket(tid, sandbox=name, cursor=cursor).until_closed() == 1008
        assert terminals(server, name) == []
    assert manager.lookup(name).state == "stopped"
    status, _ = server.call("POST", f"/sandbox/api/sandboxes/{name}/terminals")
    assert status == 201
    open_socket(sandbox=name).until_type("ready")


@pytest.mark.parametrize("ack", [0, 1])
def test_a_page_that_is_loaded_again_starts_nothing(open_socket, server, manager, ack):
    """With start=0 a stopped sandbox stays so, and of a running one the last shell is shown."""
    name = f"restored-{ack}"
    one = open_socket(sandbox=name, ack=ack)
    one.until_type("ready")
    one.type("echo be''fore; exit 3\r")
    assert one.until_closed() == 1000
    again = open_socket(sandbox=name, ack=ack, start=0)
    again.until_type("exit")
    assert b"before" in again.data
    assert [each["status"] for each in terminals(server, name)] == ["exited"]
    manager.stop(name)

    for _ in range(2):
        restored = open_socket(sandbox=name, ack=ack, start=0)
        assert restored.until_closed() == 1011
        assert restored.events()[-1]["code"] == "CONTAINER_UNAVAILABLE"
    assert manager.lookup(name).state == "stopped"
    bad = open_socket(sandbox=name, ack=ack, start=2)
    assert bad.until_closed() == 1011
    assert bad.events()[-1]["code"] == "VALIDATION_FAILED"
    asked_for = open_socket(sandbox=name, ack=1)
    asked_for.until_type("live")


def test_a_killed_runtime_closes_its_viewers(open_socket, manager):
    """With a word, and 1011."""
    name = "killed-one"
    one = open_socket(sandbox=name)
    one.until_type("ready")
    instance = manager.lookup(name).instance
    os.kill(instance.data["pid"], signal.SIGKILL)

    assert one.until_closed() == 1011
    assert one.events()[-1]["code"] == "CONTAINER_UNAVAILABLE"


def test_a_killed_server_loses_no_byte(home, manager):
    """kill -9 of the server: the terminal is listed and attaches; each line is there once."""
    count = "read x; i=0; while [ $i -lt 60000 ]; do i=$((i+1)); echo $i; done"
    body = {"argv": ["sh", "-c", count]}
    with JupyterServer(home) as first:
        status, info = first.call("POST", "/sandbox/api/sandboxes/lasting/terminals", body)
        assert status == 201
        url = terminal_url(first, "lasting", info["terminal_id"], cols=80, rows=24)
        one = TerminalConnection(url, first.token)
        one.type("\r")
        one.until(lambda c: b"\r\n50\r\n" in c.data)
        first.process.kill()
        one.until_closed()
    with JupyterServer(home) as second:
        assert [each["terminal_id"] for each in terminals(second, "lasting")] == [
            info["terminal_id"]
        ]
        url = terminal_url(second, "lasting", info["terminal_id"], cursor=one.cursor)
        with TerminalConnection(url, second.token) as two:
            assert two.until_closed(60) == 1000
            assert is_paired(two.messages)
    # Bytes that were on their way when the server died came, or come again: the cursor decides.
    lines = (bytes_up_to(one) + two.data).split(b"\r\n")
    start = lines.index(b"2")
    assert lines[start:-1] == [b"%d" % number for number in range(2, 60001)]


def bytes_up_to(connection) -> bytes:
    """Return what was received with its announcement, as a browser counts."""
    return b"".join(each for each in connection.messages if isinstance(each, bytes))


# --- several viewers ----------------------------------------------------------------------------


def test_the_size_is_that_of_who_typed_last(open_socket, create):
    """When a viewer leaves, the size of the one before returns by itself; both saw the same."""
    tid = create()
    one = open_socket(tid, ack=1, cols=120, rows=40)
    one.until_type("live")
    two = open_socket(tid, ack=1, cols=60, rows=20)
    two.until_type("live")
    one.until(lambda c: c.of_type("size"))
    assert one.of_type("size")[-1] == {"type": "size", "cols": 60, "rows": 20}
    two.type("stty size\r")
    one.read_until(b"20 60\r\n")
    one.type("stty size\r")
    one.read_until(b"40 120\r\n")
    two.until(lambda c: c.of_type("size"))
    two.type("\r")
    one.until(lambda c: c.of_type("size")[-1]["cols"] == 60)
    two.close()
    one.until(lambda c: c.of_type("size")[-1] == {"type": "size", "cols": 120, "rows": 40})


def test_many_at_once_each_see_their_output_once(server, create):
    """Output from before, at and after the moment of connecting comes exactly once."""

    def look(number: int) -> int:
        tid = create("sh", "-c", "printf READY; sleep 5")
        time.sleep((0, 0.01, 0.1)[number % 3])
        query = {"ack": 1} if number % 2 else {}
        with TerminalConnection(terminal_url(server, "demo", tid, **query), server.token) as one:
            one.until(lambda c: b"READY" in c.data)
            one.is_quiet_for(0.2)
            return one.data.count(b"READY")

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(look, range(30))) == [1] * 30


def test_python_and_the_browser_share_a_terminal(open_socket, create, manager):
    """What Python types the browser sees, in the same sandbox by the same id."""
    tid = create()
    one = open_socket(tid)
    one.until_type("ready")
    with sync.get_sandbox("demo", manager=manager) as sandbox:
        terminal = sandbox.get_terminal(tid)
        terminal.write("echo fr''om python\r")

        one.read_until(b"from python\r\n")
        assert terminal.get_snapshot().viewers == 1
