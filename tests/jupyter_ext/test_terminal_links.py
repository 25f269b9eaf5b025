"""Between server and sandbox: connections that break are taken up again, and nobody notices."""

from __future__ import annotations

import os
import signal
import time
import uuid

import pytest

from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.support.jupyter_home import JupyterHome
from tests.support.middleman import before_runtime
from tests.support.terminal_connection import TerminalConnection, terminal_url
from tests.support.ws_connection import JupyterServer

COUNT = "import sys,time\ninput()\nfor n in range(int(sys.argv[1])): print(n, flush=True); time.sleep(.001)"


@pytest.fixture(scope="module")
def home(tmp_path_factory, warm_cache):
    home = JupyterHome(tmp_path_factory.mktemp("h"), warm_cache).create()
    yield home
    home.destroy_named_sandboxes()


@pytest.fixture(scope="module")
def server(home):
    with JupyterServer(home) as made:
        yield made
    assert "Traceback" not in made.log


@pytest.fixture(scope="module")
def manager(home):
    made = Manager(Settings(data_dir=home.sandboxes))
    yield made
    made.close()


@pytest.fixture
def box(server, manager):
    """A sandbox of its own whose connections can be broken; yields its name and the breaker."""
    name = f"box-{uuid.uuid4().hex[:8]}"
    status, _ = server.call("POST", f"/sandbox/api/sandboxes/{name}/terminals", {"argv": ["true"]})
    assert status == 201
    with before_runtime(manager.lookup(name).layout.socket) as between:
        # The server's present connection goes past us.
        yield name, between
    manager.destroy(name)


@pytest.fixture
def connect(server):
    made = []

    def open_socket(name, terminal_id=None, **query):
        url = terminal_url(server, name, terminal_id, **query)
        made.append(TerminalConnection(url, server.token, acknowledges=query.get("ack") == 1))
        return made[-1]

    yield open_socket
    for each in made:
        each.close()


def create(server, name, *argv):
    status, info = server.call(
        "POST", f"/sandbox/api/sandboxes/{name}/terminals", {"argv": list(argv)}
    )
    assert status == 201, info
    return info["terminal_id"]


@pytest.mark.parametrize("dialect", ["stable", "preview", "acknowledged"])
def test_a_broken_link_is_not_noticed(server, connect, box, dialect):
    """Every byte comes once, over several breaks; no word, no reset, no second ready."""
    name, between = box
    query = {"cols": 90, "rows": 20, **({"ack": 1} if dialect == "acknowledged" else {})}
    if dialect == "stable":
        one = connect(name, **query)
        one.until_type("ready")
        one.type("stty -echo; PS1=; echo go\r")
        one.read_until(b"go\r\n")
        one.type(f"python3 -c '{COUNT}' 3000\r")
    else:
        one = connect(name, create(server, name, "python3", "-c", COUNT, "3000"), **query)
    one.until_type("ready")
    one.type("\r")
    while dialect == "stable" and b"\r\n2\r\n" not in one.data:
        # What comes while the shell has the terminal is no end of line to its program.
        one.step(0.3)
        one.type("\r")
    one.read_until(b"\r\n2\r\n")
    begin = between.taken
    for number in (200, 1400, 2600):
        one.read_until(b"\r\n%d\r\n" % number, 30)
        between.cut()
    one.read_until(b"\r\n2999\r\n", 30)

    # On a busy machine one may be connected again while the old one is still being cut.
    assert begin + 3 <= between.taken <= begin + 6
    lines = one.data[one.data.index(b"0\r\n1\r\n") :].split(b"\r\n")
    assert lines[:3000] == [b"%d" % number for number in range(3000)]
    assert one.close_code is None or one.events()[-1]["type"] == "exit"
    kinds = {each["type"] for each in one.events()}
    assert kinds <= {"ready", "live", "replay", "chunk", "exit"}
    assert len(one.of_type("ready")) == 1
    assert len(one.of_type("replay")) == (dialect == "acknowledged")


def test_a_viewer_is_as_before_after_a_break(connect, box):
    """Its size holds, what is typed arrives, in both directions and at once."""
    name, between = box
    one = connect(name, ack=1, cols=91, rows=21)
    one.until_type("live")
    tid = one.of_type("ready")[0]["terminalId"]
    two = connect(name, tid, ack=1, cols=60, rows=20)
    two.until_type("live")
    one.until(lambda c: c.of_type("size"))
    one.say(type="resize", cols=100, rows=30)
    one.say(type="view", visible=True, focused=True)
    two.until(lambda c: c.of_type("size") and c.of_type("size")[-1]["cols"] == 100)
    before = between.taken
    between.cut()
    # What is typed before the server has heard of the break may be lost, which is then told.
    deadline = time.monotonic() + 15
    while between.taken < before + 2:
        assert time.monotonic() < deadline
        one.step(0.05)
    # The two come back in any order, each claiming its size: until that is over.
    while not one.is_quiet_for(0.5):
        assert time.monotonic() < deadline
    one.type("stty size; echo al''ive\r")

    one.read_until(b"alive\r\n")
    assert b"30 100\r\n" in one.data
    # Whoever connects last decides; each knows what is in force, and typing takes it back.
    two.type("stty size; echo al''so\r")
    two.read_until(b"also\r\n")
    assert b"20 60\r\n" in two.data
    one.until(lambda c: c.of_type("size")[-1] == {"type": "size", "cols": 60, "rows": 20})


def test_what_cannot_be_taken_up_is_told_as_passing(connect, box):
    """A sandbox that runs and cannot be reached: a code that viewers come again for."""
    name, between = box
    one = connect(name, ack=1)
    one.until_type("live")
    one.type("echo al''ive\r")
    one.read_until(b"alive\r\n")
    stable = connect(name)
    stable.until_type("ready")
    between.is_up = False
    between.cut()

    for each in (one, stable):
        assert each.until_closed(30) == 1011
        assert each.events()[-1]["code"] == "RPC_TRANSPORT_ERROR"
    between.is_up = True
    connect(name).read_until(b"alive\r\n")
    again = connect(name, ack=1, cursor=one.cursor)
    again.until_type("live")
    assert again.of_type("replay")[0]["kind"] == "exact"


def test_a_sandbox_that_has_died_is_told_as_such(connect, box, manager):
    """Not as trouble that may pass, so that nobody comes again in vain."""
    name, _between = box
    viewers = [connect(name, ack=1), connect(name)]
    viewers[0].until_type("live")
    viewers[1].until_type("ready")
    os.kill(manager.lookup(name).instance.data["pid"], signal.SIGKILL)

    for each in viewers:
        assert each.until_closed(30) == 1011
        assert each.events()[-1]["code"] == "CONTAINER_UNAVAILABLE"
