"""A terminal in a cell when kernel or server go, and for whom it is not."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.e2e.browser.conftest import Lab, lab_of
from tests.e2e.browser.terminal_page import TerminalInPage
from tests.e2e.browser.wire import Wire
from tests.support.jupyter_home import JupyterHome, describe, processes_below
from tests.support.ws_connection import JupyterServer

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

SHOW = "from sandbox_kernel.widget import TerminalWidget\nTerminalWidget({!r})"

# Whether a socket opened, and if so the types of what was said until it closed.
CONNECT = """address => new Promise(resolve => {
  const socket = new WebSocket(address);
  const heard = [];
  socket.onopen = () => heard.push("open");
  socket.onmessage = ({data}) => heard.push(typeof data === "string" ? JSON.parse(data).type : "bytes");
  socket.onclose = ({code}) => resolve([...heard, code]);
  setTimeout(() => resolve([...heard, "no end"]), 20_000);
})"""


@pytest.fixture
def home(new_home: Callable[[], JupyterHome]) -> JupyterHome:
    """A user whose servers end with the test."""
    return new_home()


@pytest.fixture
def start_server(home: JupyterHome) -> Iterator[Callable[[], JupyterServer]]:
    servers: list[JupyterServer] = []

    def start() -> JupyterServer:
        servers.append(lab_of(home))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def page(chromium: Browser, shots: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    page.set_default_timeout(30_000)
    yield page
    page.screenshot(path=shots / f"end-of-{request.node.name}.png")
    context.close()


def test_a_saved_terminal_outlives_its_kernel(
    page: Page, start_server: Callable[[], JupyterServer], shots: Path
) -> None:
    """Where the notebook keeps its widgets, it shows the terminal when their kernel has gone."""
    lab = Lab(page, start_server(), shots)
    lab.write("saved.ipynb", SHOW.format("saved"), kernel="python3")
    lab.open("saved.ipynb")
    lab.menu("Settings", "Save Widget State Automatically")
    lab.run_cell(0)
    terminal = TerminalInPage(page).wait_for("Connected", "server")
    terminal.run("export KEPT=kept-$((40+2)); echo is $KEPT", "is kept-42")
    # Asked again at the next return, it would stand at the prompt.
    terminal.run("printf '\\e[c'; IFS= read -rsd c -t 9 x; echo asked-$((6*7))", "asked-42")
    lab.menu("File", "Save Notebook")
    expect(page.locator(".jp-mod-dirty")).to_have_count(0)
    assert (lab.server.home.work / "saved.ipynb").stat().st_size < 8_000
    for session in lab.server.get("/api/sessions"):
        lab.server.call("DELETE", f"/api/sessions/{session['id']}")

    terminal.run("echo still $KEPT", "still kept-42")
    page.goto("about:blank")
    lab.open("saved.ipynb")
    again = TerminalInPage(page).wait_for("Connected", "server")
    again.shows("still kept-42")
    again.run("echo again $KEPT", "again kept-42")
    assert "1;2c" not in again.text()


def test_servers_go_and_the_terminal_stays(
    page: Page, home: JupyterHome, start_server: Callable[[], JupyterServer], shots: Path
) -> None:
    """A killed server's successor has the screen; what stays behind a server is the sandbox alone."""
    server = start_server()
    manager = Manager(Settings(data_dir=home.sandboxes))
    with Wire(server.port) as wire:
        lab = Lab(page, server, shots)
        lab.write("lasting.ipynb", SHOW.format("lasting"), kernel="python3")
        server.base = wire.base
        lab.open("lasting.ipynb")
        lab.run_cell(0)
        terminal = TerminalInPage(page).wait_for("Connected", "server")
        terminal.run("export KEPT=kept-$((40+2)); echo is $KEPT", "is kept-42")
        terminal.type("for n in $(seq 100); do echo line $n; sleep .1; done\n")
        terminal.shows("line 5")
        kernels = [each for each in processes_below(home.root) if "ipykernel" in describe(each)]
        assert kernels
        server.process.kill()
        server.process.wait()
        expect(terminal.state).to_have_text("Reconnecting")
        lab.shot("terminal-server-killed")
        _, left = psutil.wait_procs(kernels, timeout=30)
        assert left == []

        successor = start_server()
        wire.target = successor.port
        page.keyboard.press("Escape")  # JupyterLab's own word on the connection
        terminal.wait_for("Connected", "server")
        terminal.shows("line 100")
        shown = re.findall(r"line (\d+)", terminal.text())
        assert [int(number) for number in shown] == list(range(101 - len(shown), 101))
        page.locator(".jp-Dialog").wait_for(state="detached")
        terminal.run("echo still $KEPT", "still kept-42")
        lab.shot("terminal-server-back")
        # A server that is asked to end takes its kernels with it.
        assert successor.call("POST", "/api/kernels", {"name": "python3"})[0] == 201
        successor.close()
        manager.stop("lasting")
        _, left = psutil.wait_procs(processes_below(home.root), timeout=10)
        assert [describe(each) for each in left] == []


def test_it_is_for_its_user_only(page: Page, home: JupyterHome) -> None:
    """Without login, with a wrong token, or from a frame without an origin: no socket opens."""
    with JupyterServer(home) as server:
        status, made = server.call(
            "POST", "/sandbox/api/sandboxes/private/terminals", {"argv": ["sleep", "600"]}
        )
        assert status == 201, made
        path = "/sandbox/api/sandboxes/private"
        routes = [
            f"{server.base}{path}/{end}".replace("http", "ws", 1)
            for end in ("terminal?session=s", f"terminals/{made['terminal_id']}/connect?ack=1")
        ]
        refused = [1006]
        # A small page that the server itself sends: to what else there is, Chromium allows less.
        missing = f"{server.base}/nothing-here"
        page.goto(f"{server.base}/login")
        for address in routes:
            for token in ("", "&token=wrong", f"&token={server.token[::-1]}"):
                assert page.evaluate(CONNECT, address + token) == refused
        # A frame as outputs are shown in, in a page that is logged in.  Who has the token may do all.
        page.goto(f"{server.base}/api?token={server.token}")
        page.goto(missing)
        page.set_content('<iframe sandbox="allow-scripts" srcdoc="<p>an output</p>"></iframe>')
        frame = page.frames[-1]
        assert frame.evaluate("self.origin") == "null"
        for address in routes:
            for token in ("", "&token=wrong"):
                assert frame.evaluate(CONNECT, address + token) == refused
        assert server.log.count("403") >= 2 * 3 + 2 * 2
        assert [each["terminal_id"] for each in server.get(f"{path}/terminals")["terminals"]] == [
            made["terminal_id"]
        ]
        # And whoever may, does.
        page.goto(missing)
        heard = page.evaluate(CONNECT.replace('"bytes"', '(socket.close(), "bytes")'), routes[0])
        assert heard[:2] == ["open", "bytes"]


class Refusing(BaseHTTPRequestHandler):
    """Answers everything with 403."""

    def do_GET(self) -> None:
        self.send_error(403)

    def log_message(self, *_: object) -> None:
        pass


def test_what_cannot_come_back_is_told(
    page: Page, home: JupyterHome, start_server: Callable[[], JupyterServer], shots: Path
) -> None:
    """A login that has ended is named, until there is one; a terminal that ended is not promised."""
    server = start_server()
    show = (
        "from sandbox_kernel import get_sandbox\n"
        "sandbox = get_sandbox('ending')\n"
        "(await sandbox.create_terminal(['bash', '--norc'])).widget()"
    )
    with Wire(server.port) as wire:
        lab = Lab(page, server, shots)
        lab.write("ending.ipynb", show, kernel="python3")
        server.base = wire.base
        lab.open("ending.ipynb")
        lab.run_cell(0)
        terminal = TerminalInPage(page).wait_for("Connected", "server")
        # As a server answers that has other secrets by now.
        refusal = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
        threading.Thread(target=refusal.serve_forever, daemon=True).start()
        wire.target = refusal.server_port
        wire.cut()
        expect(terminal.state).to_have_text("Logged out")
        again = page.get_by_role("button", name="Reconnect now")
        expect(again).to_be_visible()
        lab.shot("terminal-logged-out")

        wire.target = server.port
        wire.cut()
        refusal.shutdown()
        refusal.server_close()
        page.keyboard.press("Escape")  # JupyterLab's own word on the connection
        again.click()
        terminal.wait_for("Connected", "server")
        manager = Manager(Settings(data_dir=home.sandboxes))
        manager.stop("ending")
        manager.close()
        expect(terminal.state).to_have_text("Gone")
        expect(page.get_by_text("Run the cell again for a new terminal")).to_be_visible()
        lab.shot("terminal-stopped")
        expect(again).to_be_hidden()
