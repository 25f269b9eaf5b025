"""JupyterLab on loopback in a headless Chromium, as a user sees it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Browser, Locator, Page, TimeoutError, expect, sync_playwright  # noqa: A004

from tests.support.jupyter_home import JupyterHome
from tests.support.kernel_driver import KERNEL
from tests.support.ws_connection import JupyterServer

FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]

# Asking whether to show news would lie over the page, and the news are elsewhere.
PAGE_CONFIG = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}


class Lab:
    """One page of JupyterLab with one notebook.

    Parameters
    ----------
    page : Page
        The browser's page.
    server : JupyterServer
        JupyterLab.
    shots : Path
        Where screenshots go.
    """

    def __init__(self, page: Page, server: JupyterServer, shots: Path) -> None:
        self.page = page
        self.server = server
        self.shots = shots

    def write(self, name: str, *codes: str, kernel: str = KERNEL) -> None:
        """Make a notebook of code cells."""
        cells = [nbformat.v4.new_code_cell(code) for code in codes]
        notebook = nbformat.v4.new_notebook(cells=cells)
        shown = "Python 3 (sandbox)" if kernel == KERNEL else kernel
        notebook.metadata["kernelspec"] = {
            "name": kernel,
            "display_name": shown,
            "language": "python",
        }
        nbformat.write(notebook, self.server.home.work / name)

    def open(self, name: str) -> None:
        """Open a notebook in a workspace of its own, and wait for its kernel."""
        workspace = re.sub(r"\W", "", name)
        self.page.goto(
            f"{self.server.base}/lab/workspaces/{workspace}/tree/{name}?token={self.server.token}"
        )
        self.wait_for_kernel()

    def wait_for_kernel(self) -> None:
        """Wait until the status bar says that the kernel is there and idle."""
        state = self.page.locator("#jp-main-statusbar").get_by_text(re.compile(r"\| Idle$"))
        state.wait_for(timeout=180_000)

    def cell(self, number: int) -> Locator:
        """Return a code cell, counted from 0."""
        return self.page.locator(".jp-CodeCell").nth(number)

    def output(self, number: int) -> Locator:
        return self.cell(number).locator(".jp-OutputArea-output")

    def prompt(self, number: int) -> Locator:
        return self.cell(number).locator(".jp-InputPrompt")

    def menu(self, menu: str, entry: str) -> None:
        self.page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(f"^{menu}$")).click()
        self.page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{entry}")).first.click()

    def tool(self, name: str) -> None:
        """Press a button of the notebook's toolbar."""
        self.page.locator(f'.jp-NotebookPanel-toolbar [data-jp-item-name="{name}"]').first.click()

    def run_cell(self, number: int) -> None:
        self.cell(number).locator(".cm-content").click()
        self.page.keyboard.press("Shift+Enter")

    def complete(self, *expected: str) -> None:
        """Press Tab until the menu shows every expected completion.

        The page waits one second for a kernel, and a kernel loads a library at its first completion.
        """
        menu = self.page.locator(".jp-Completer:not(.lm-mod-hidden)")
        for attempt in range(15):
            self.page.keyboard.press("Tab")
            try:
                menu.wait_for(timeout=2_000)
            except TimeoutError:
                assert attempt < 14, "no completion"
            else:
                break
        for text in expected:
            expect(menu).to_contain_text(text)

    def kernel_id(self) -> str:
        (session,) = self.server.get("/api/sessions")
        return str(session["kernel"]["id"])

    def shot(self, name: str) -> None:
        self.page.screenshot(path=self.shots / f"{name}.png")


@pytest.fixture(scope="module")
def shots(e2e_root: Path) -> Path:
    """Where screenshots are kept: ``E2E_ARTIFACTS``, or a folder that goes with the run."""
    folder = Path(os.environ.get("E2E_ARTIFACTS") or e2e_root / "shots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The system's Chromium."""
    executable = shutil.which("chromium")
    assert executable, "these tests need Chromium: apt-get install chromium"
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield browser
        browser.close()


def lab_of(
    home: JupyterHome, *arguments: str, draws_all: bool = False, **environment: str
) -> JupyterServer:
    """Return a JupyterLab of a user, not yet begun, whose page asks for nothing and fetches no news.

    Parameters
    ----------
    *arguments, **environment : str
        More of both for its command.
    draws_all : bool
        Draw all cells, whether they are in view or not.
    """
    folder = home.root / "cfg" / "labconfig"
    folder.mkdir(exist_ok=True)
    (folder / "page_config.json").write_text(json.dumps(PAGE_CONFIG))
    if draws_all:
        notebooks = home.root / "settings" / "@jupyterlab" / "notebook-extension"
        notebooks.mkdir(parents=True)
        settings = json.dumps({"windowingMode": "none"})
        (notebooks / "tracker.jupyterlab-settings").write_text(settings)
    return JupyterServer(
        home,
        *arguments,
        app="jupyterlab",
        # In a virtual environment JupyterLab would keep both in the environment itself.
        JUPYTERLAB_SETTINGS_DIR=str(home.root / "settings"),
        JUPYTERLAB_WORKSPACES_DIR=str(home.root / "workspaces"),
        **environment,
    )


@pytest.fixture(scope="module")
def lab_server(new_home: Callable[[], JupyterHome]) -> Iterator[JupyterServer]:
    with lab_of(new_home()) as server:
        yield server


@pytest.fixture
def lab(
    chromium: Browser, lab_server: JupyterServer, shots: Path, request: pytest.FixtureRequest
) -> Iterator[Lab]:
    """A fresh page; the kernels of the test are shut down at its end."""
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    page.set_default_timeout(30_000)
    yield Lab(page, lab_server, shots)
    page.screenshot(path=shots / f"end-of-{request.node.name}.png")
    context.close()
    for session in lab_server.get("/api/sessions"):
        lab_server.call("DELETE", f"/api/sessions/{session['id']}")
