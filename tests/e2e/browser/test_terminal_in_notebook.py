"""A terminal in a cell in Notebook 7, behind an address with a prefix as hubs have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.e2e.browser.conftest import Lab
from tests.e2e.browser.terminal_page import TerminalInPage
from tests.support.jupyter_home import JupyterHome
from tests.support.ws_connection import JupyterServer

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def notebook(new_home: Callable[[], JupyterHome], chromium: Browser, shots: Path) -> Iterator[Lab]:
    with JupyterServer(new_home(), app="notebook", base_url="/user/alice/") as server:
        context = chromium.new_context(viewport={"width": 1280, "height": 860})
        page = context.new_page()
        page.set_default_timeout(30_000)
        yield Lab(page, server, shots)
        page.screenshot(path=shots / "end-of-notebook.png")
        context.close()
        for session in server.get("/api/sessions"):
            server.call("DELETE", f"/api/sessions/{session['id']}")


def test_a_terminal_behind_a_prefix(notebook: Lab) -> None:
    """The bundle and the WebSocket are found below the prefix."""
    addresses: list[str] = []
    notebook.page.on("websocket", lambda socket: addresses.append(socket.url))
    notebook.write(
        "classic.ipynb",
        "from sandbox_kernel.widget import TerminalWidget\nTerminalWidget('prefixed')",
        kernel="python3",
    )
    base, token = notebook.server.base, notebook.server.token
    notebook.page.goto(f"{base}/notebooks/classic.ipynb?token={token}")
    idle = notebook.page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]')
    idle.wait_for(state="attached", timeout=60_000)
    notebook.run_cell(0)
    terminal = TerminalInPage(notebook.page).wait_for("Connected", "server")
    terminal.run("echo in-$((6*7))-notebook", "in-42-notebook")
    notebook.shot("terminal-notebook")

    assert [
        url for url in addresses if "/user/alice/sandbox/api/sandboxes/prefixed/terminal" in url
    ]
