"""The addons for xterm.js, published and ours, at terminals of real sandboxes.

What the published ones get wrong by themselves is said where it is seen.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.e2e.browser.addon_cells import ADDONS, AddonPage, Cell, numbers
from tests.e2e.browser.wire import Wire
from tests.support.jupyter_home import JupyterHome
from tests.support.ws_connection import JupyterServer

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HERE = Path(__file__).parent

COUNT = """\
import itertools, time
for number in itertools.count(1):
    print(f"\\x1b[3{number % 8}mline {number}\\x1b[0m", flush=True)
    time.sleep(0.05)
"""

ASK = """\
import os, select, sys, termios, time, tty
before = termios.tcgetattr(0)
tty.setraw(0)
asked = "\\x1b[c \\x1b[>c \\x1b[5n \\x1b[6n \\x1b]10;?\\x07 \\x1b]11;?\\x1b\\\\ \\x1b]4;1;?\\x07 \\x1b[?2026$p \\x1bP$qm\\x1b\\\\"
sys.stdout.write(asked); sys.stdout.flush()
answers = b""
while select.select([0], [], [], 0.5)[0]:
    answers += os.read(0, 65536)
termios.tcsetattr(0, termios.TCSANOW, before)
print("\\r\\nanswered", len(answers) > 40)
"""

PROGRAM = """\
# A program to look at, in colours.
def greet(name: str = "Grüße, 世界") -> int:
    \"\"\"Say it.\"\"\"
    return len(f"hello {name}")  # 🎉
""" + "".join(f"VALUE_{n} = {n} + len('text {n}')\n" for n in range(200))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test page's script and style."""
    folder = tmp_path_factory.mktemp("addons")
    subprocess.run(["node", HERE / "addon_page" / "build.mjs", folder], check=True, timeout=60)
    return folder


@pytest.fixture(scope="module")
def addon_home(new_home: Callable[[], JupyterHome]) -> JupyterHome:
    return new_home()


@pytest.fixture(scope="module")
def servers(addon_home: JupyterHome, bundle: Path) -> Iterator[list[JupyterServer]]:
    """The user's servers; the last one runs."""
    servers = [start_server(addon_home, bundle)]
    yield servers
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def manager(addon_home: JupyterHome) -> Manager:
    return Manager(Settings(data_dir=addon_home.sandboxes))


@pytest.fixture(scope="module")
def box(servers: list[JupyterServer], manager: Manager) -> str:
    """A sandbox that runs, with programs in its workspace."""
    box = "addons"
    start(servers[-1], manager, box)
    return box


def start_server(home: JupyterHome, bundle: Path) -> JupyterServer:
    """Start a Jupyter server that has the test page among its static files."""
    return JupyterServer(home, f"--ServerApp.extra_static_paths={bundle}")


def start(server: JupyterServer, manager: Manager, box: str) -> None:
    status, body = server.call(
        "POST", f"/sandbox/api/sandboxes/{box}/terminals", {"argv": ["true"]}
    )
    assert status == 201, body
    info = manager.lookup(box)
    assert info is not None
    for name, source in (("count.py", COUNT), ("ask.py", ASK), ("program.py", PROGRAM)):
        (info.layout.workspace / name).write_text(source)


@pytest.fixture
def wire(servers: list[JupyterServer]) -> Iterator[Wire]:
    with Wire(servers[-1].port) as wire:
        yield wire


@pytest.fixture
def page(
    chromium: Browser,
    servers: list[JupyterServer],
    wire: Wire,
    shots: Path,
    request: pytest.FixtureRequest,
) -> Iterator[AddonPage]:
    """A page that is logged in; no error of its scripts is let through."""
    context = chromium.new_context(viewport={"width": 1400, "height": 1000})
    made = AddonPage(context.new_page(), servers[-1], wire)
    made.load()
    yield made
    made.page.screenshot(path=shots / f"addons-{request.node.name}.png")
    context.close()
    assert made.errors == []


@pytest.fixture
def cells(page: AddonPage, box: str, request: pytest.FixtureRequest) -> list[Cell]:
    """One terminal of each addon, with a prompt."""
    name = request.node.name.replace("_", "-")[:30]
    made = [page.open(f"{name}-{addon}", addon, box) for addon in ADDONS]
    page.await_prompts()
    return made


def test_commands_and_sizes(page: AddonPage, cells: list[Cell]) -> None:
    """Each addon connects, shows a prompt, runs commands, and the programs know its size."""
    for cell in cells:
        cell.run("echo $((6 * 7)) 'Grüße 世界' $TERM", "^42 Grüße 世界 xterm-256color")
        cell.run("stty size", "^24 80$")
        cell.get("cell.terminal.resize(100, 20)")
        cell.run("stty size", "^20 100$")
        cell.run("sleep 60", "sleep 60")
        cell.press("Control+c")
        cell.run("echo status $?", "^status 130$")

        (socket,) = cell.sockets
        assert [state for state, _ in cell.states][:2] == ["connecting", "connected"]
        assert socket["errors"] == []
        assert {"type": "resize", "cols": 100, "rows": 20} in socket["orders"]


def test_ten_cuts(page: AddonPage, box: str, shots: Path) -> None:
    """After each of ten cuts the screens are the same, and no line of a counter is lost or doubled.

    One terminal of each addon has an editor's alternate screen open, one prints numbered lines.
    """
    editors = [page.open(f"edit-{addon}", addon, box) for addon in ADDONS]
    counters = [page.open(f"count-{addon}", addon, box) for addon in ADDONS]
    page.await_prompts()
    for cell in editors:
        cell.type("vim -n -u NONE -c 'syntax on' -c 'set mouse=a number ruler' program.py\n")
        cell.wait_for("VALUE_15")
        cell.type("/VALUE_100\n")
        cell.wait_for("VALUE_105")
        cell.wait_for("105,1")
    for cell in counters:
        cell.run("python3 count.py", "^line 20$")
    screens = [cell.screen for cell in editors]

    for cut in range(1, 11):
        page.wire.cut()
        page.wait_for_reconnects(cut + 1)
        for cell, screen in zip(editors, screens, strict=True):
            cell.wait_for_screen(screen)
    page.page.screenshot(path=shots / "addons-after-ten-cuts.png")
    for cell in counters:
        cell.press("Control+c")
        cell.wait_for(r"KeyboardInterrupt[^]*[$#]\s*$")

    for cell in counters:
        found = numbers(cell.text)
        assert found[-1] > 100
        assert found == list(range(found[0], found[-1] + 1))
        # The stable addon has no cursor and is sent the last lines of the scrollback.
        assert found[0] == 1 or cell.addon == "stable"
    for cell in editors:
        assert all(socket["code"] == 1006 for socket in cell.sockets[:-1])
        # Still the same editor, which the shell of the beginning waits for.
        cell.type(":q!\n")
        cell.run("echo back $?", "^back 0$")
        assert [order["type"] for order in cell.sockets[-1]["orders"][:1]] == ["resize"]


def test_replay_is_not_answered(page: AddonPage, cells: list[Cell]) -> None:
    """Questions in the history were answered once: nothing is typed into the shell after a replay."""
    for cell in cells:
        cell.run("python3 ask.py; echo don''e", r"^answered True[^]*done[^]*[$#]\s*$")
    screens = [cell.screen for cell in cells]
    page.wire.cut()
    page.wait_for_reconnects(2)
    for cell, screen in zip(cells, screens, strict=True):
        cell.wait_for_screen(screen)
        cell.run("echo typed", "^typed$")

        assert cell.sockets[1]["typed"] == "echo typed\r"
    # A page that is new has the whole history before it.
    for cell in list(cells):
        late = page.open(
            f"late-{cell.addon}",
            cell.addon,
            cell.sandbox,
            terminal=cell.terminal_id,
            session=cell.name,
        )
        late.wait_for("^typed$")
        late.run("echo later", "^later$")

        assert late.sockets[0]["typed"] == "echo later\r"


def test_exit_ends_quietly(page: AddonPage, cells: list[Cell]) -> None:
    """After ``exit`` each addon says so and connects no more."""
    for cell in cells:
        cell.type("exit 3\n")
    for cell in cells:
        cell.wait("cell.states.some(([, error]) => /exited|code 3/.test(error ?? ''))")
    stable, *others = cells
    for cell in others:
        cell.wait_for_state("disconnected")
    # The stable addon comes again after any end, and is then kept.
    stable.wait("cell.sockets.length === 2 && cell.addon.state === 'connected'")
    stable.wait_for("exited with code 3; press Enter")
    page.page.wait_for_timeout(2_500)

    for cell in others:
        (socket,) = cell.sockets
        assert socket["code"] in (1000, 1005), socket
        assert cell.state == "disconnected"
    assert len(stable.sockets) == 2
    assert stable.sockets[0]["code"] == 1000
    assert stable.state == "connected"
    stable.press("Enter")
    stable.wait("cell.sockets.at(-1).code === undefined")
    stable.run("echo again $((1 + 1))", "^again 2$")


def test_unknown_terminal(page: AddonPage, box: str) -> None:
    """A terminal that does not exist is refused by 1008, and ours does not ask again."""
    own = page.open("own", "own-terminal", box, terminal="t-unknown", wait=False)
    preview = page.open("preview", "preview", box, terminal="t-unknown", wait=False)
    own.wait_for_state("disconnected")
    # The published one reads no close codes: it asks eleven times.
    preview.wait("cell.sockets.length > 1 && cell.sockets[1].code !== undefined")

    assert len(own.sockets) == 1
    assert "t-unknown" in str(own.states[-1][1])
    for socket in (*own.sockets, *preview.sockets):
        assert socket["code"] == 1008
        assert [error["code"] for error in socket["errors"]] == ["TERMINAL_NOT_FOUND"]
    assert any("t-unknown" in str(error) for _, error in preview.states)


def test_bad_cursor(page: AddonPage, box: str) -> None:
    """A cursor of nowhere is refused by 1011, and without it the terminal is shown."""
    for addon in ("preview", "own-terminal"):
        page.open(addon, addon, box, wait=False, query={"cursor": "nowhere"})
    page.wait_for_reconnects(2)
    for cell in page.cells.values():
        cell.run("echo $((6 * 7))", "^42$")

        refused, accepted = cell.sockets
        assert refused["code"] == 1011
        assert [error["code"] for error in refused["errors"]] == ["INVALID_TERMINAL_CURSOR"]
        assert "cursor=" not in accepted["url"]


def test_killed_server(
    page: AddonPage,
    cells: list[Cell],
    servers: list[JupyterServer],
    addon_home: JupyterHome,
    bundle: Path,
) -> None:
    """After kill -9 of the server the next one has the same terminals, and nothing is missing."""
    for cell in cells:
        cell.run("echo shell $$; python3 count.py", "^line 20$")
    listed = _terminals(servers[-1], cells[0].sandbox)
    # Before the end of the first, as the published addons wait longer after each try.
    servers.append(start_server(addon_home, bundle))
    servers[-2].process.kill()
    servers[-2].process.wait()
    page.wire.target = servers[-1].port
    for cell in cells:
        cell.wait("(cell.comeBack(), cell.addon.state === 'connected')", 40)
        cell.press("Control+c")
        cell.wait_for(r"KeyboardInterrupt[^]*[$#]\s*$")
        cell.run("echo still $$", r"^still \d+$")

        found = numbers(cell.text)
        assert found == list(range(found[0], found[-1] + 1))
        assert found[0] == 1 or cell.addon == "stable"
        shell = re.search(r"^still (\d+)$", cell.text, re.MULTILINE)
        assert shell
        assert cell.addon == "stable" or f"shell {shell[1]}\n" in cell.text
    again = _terminals(servers[-1], cells[0].sandbox)
    assert {each["terminal_id"] for each in listed} <= {each["terminal_id"] for each in again}


def test_network_that_swallows_all(page: AddonPage, box: str) -> None:
    """Without a word from anybody our addon notices within half a minute, and comes back by cursor."""
    cells = [page.open(f"void-{addon}", addon, box) for addon in ADDONS if addon.startswith("own")]
    page.await_prompts()
    for cell in cells:
        cell.run("echo before $((6 * 7))", "^before 42$")
    screens = [cell.screen for cell in cells]
    page.wire.swallows = True
    for cell in cells:
        cell.wait_for_state("reconnecting", 40)
    assert all("stopped answering" in str(cell.states[-1][1]) for cell in cells)
    page.wire.swallows = False
    page.wire.cut()
    for cell, screen in zip(cells, screens, strict=True):
        cell.wait("(cell.comeBack(), cell.addon.state === 'connected')", 40)
        cell.wait_for_screen(screen)
        assert "cursor=" in cell.sockets[-1]["url"]
        cell.run("echo after $((6 * 7))", "^after 42$")


def test_stopped_sandbox(page: AddonPage, servers: list[JupyterServer], manager: Manager) -> None:
    """Addons that come again by themselves do not start a sandbox that was stopped; a user does."""
    start(servers[-1], manager, "sleeper")
    cells = [page.open(addon, addon, "sleeper") for addon in ADDONS]
    page.await_prompts()
    manager.stop("sleeper")
    stable, preview, *own = cells
    for cell in own:
        cell.wait_for_state("disconnected")
    # The published ones read no close codes.
    for cell in (stable, preview):
        cell.wait("cell.sockets.length > 2 && cell.sockets[2].code !== undefined")

    info = manager.lookup("sleeper")
    assert info is not None
    assert info.state == "stopped"
    for cell in own:
        assert len(cell.sockets) == 1
        assert "stopped" in str(cell.states[-1][1])
    assert {socket["code"] for socket in stable.sockets[:3]} == {1011}
    assert {socket["code"] for socket in preview.sockets[1:3]} == {1008}
    own[0].get("cell.connect()")
    own[0].wait_for_state("connected", 30)
    own[0].run("echo $((6 * 7))", "^42$")


def test_flood(page: AddonPage, box: str, manager: Manager) -> None:
    """20 MB never keep the page from painting for a second, and Ctrl-C ends a flood within one.

    On a machine that is busy with other things all this takes longer, as does an ``echo``.
    """
    line = "0123456789" * 7
    info = manager.lookup(box)
    assert info is not None
    for addon in ("stable", "preview", "own-terminal"):
        cell = page.open(addon, addon, box, scrollback=1_000)
        page.await_prompts()
        began = time.monotonic()
        cell.run("echo id''le", "^idle$")
        limit = max(1.0, 5 * (time.monotonic() - began))
        page.page.evaluate("frames.take()")
        cell.type(f"yes {line} | head -c 20000000; echo; echo flood-do''ne\n")
        cell.wait_for_shown("^flood-done$", 60)

        assert page.page.evaluate("frames.take()") < 1000 * limit
        cell.type(f"(trap 'touch ended-{addon}' INT; yes {line})\n")
        cell.wait_for_shown(f"({line}\\n){{20}}")
        page.page.wait_for_timeout(250)
        began = time.monotonic()
        cell.press("Control+c")
        cell.wait_for_shown(r"\^C\s*user@.*[$#]\s*$", 60)
        ended = (info.layout.workspace / f"ended-{addon}").stat().st_mtime
        assert ended - cell.sockets[0]["typedAt"] < limit
        # The pages of the published addons are slow to send it, and first draw what has come.
        assert addon != "own-terminal" or time.monotonic() - began < limit
        cell.run("echo $((6 * 7))", "^42$")


def test_two_pages(page: AddonPage, box: str, chromium: Browser) -> None:
    """Two pages at one terminal see the same; who typed last decides on the size."""
    for ours, theirs in (("own-terminal", "preview"), ("own-session", "stable")):
        other = AddonPage(page.page.context.new_page(), page.server, page.wire)
        other.load()
        left = page.open(ours, ours, box, cols=80, rows=24)
        shared = {"terminal": left.terminal_id, "session": ours}
        right = other.open(theirs, theirs, box, cols=100, rows=30, **shared)
        left.run("echo from le''ft", "^from left$")
        right.wait_for("^from left$")
        right.run("echo from ri''ght; stty size", "^30 100$")
        left.wait_for("^from right$")
        left.wait("cell.terminal.cols === 100 && cell.terminal.rows === 30")
        left.run("echo; stty size", "^24 80$")
        right.wait_for("^24 80$")
        right.run("clear; stty size", "^30 100$")
        left.wait("cell.terminal.cols === 100")
        other.page.close()
        # The one that stays has its own size again.
        left.wait("cell.terminal.cols === 80 && cell.terminal.rows === 24")
        left.run("clear; stty size", "^24 80$")

        assert other.errors == []


def test_strangers_are_refused(
    page: AddonPage, box: str, servers: list[JupyterServer], wire: Wire
) -> None:
    """Without a right token, and from a page of another origin, no socket opens."""
    before = _terminals(servers[-1], box)
    address = wire.base.replace("http", "ws")
    with Wire(servers[-1].port) as elsewhere:
        # Another port is another origin, but the same site: the browser sends the cookie.
        page.load(elsewhere.base)
        for addon in ("stable", "preview", "own-session", "own-terminal"):
            cell = page.open(
                addon, addon, box, terminal="t-any", wait=False, origin=address, reconnect=False
            )
            cell.wait("cell.sockets.length === 1 && cell.sockets[0].code !== undefined")
            cell.wait_for_state("disconnected")

            assert not cell.sockets[0]["isOpened"]
        assert servers[-1].log.count("Blocking Cross Origin WebSocket Attempt") == 4
    page.load()
    page.page.context.clear_cookies()
    for addon in ("stable", "preview", "own-session", "own-terminal"):
        for query in ({}, {"token": "wrong"}):
            cell = page.open(
                f"{addon}-{len(query)}",
                addon,
                box,
                terminal="t-any",
                wait=False,
                query=query,
                reconnect=False,
            )
            cell.wait("cell.sockets.length === 1 && cell.sockets[0].code !== undefined")
            cell.wait_for_state("disconnected")

            assert not cell.sockets[0]["isOpened"]
    assert _terminals(servers[-1], box) == before


def _terminals(server, sandbox):
    return server.get(f"/sandbox/api/sandboxes/{sandbox}/terminals")["terminals"]
