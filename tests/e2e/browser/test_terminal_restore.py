"""A terminal in a cell that a page brings back by itself."""

from __future__ import annotations

import contextlib

import pytest
from playwright.sync_api import expect

from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.e2e.browser.conftest import Lab
from tests.e2e.browser.terminal_page import TerminalInPage

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

SHOW = "from sandbox_kernel.widget import TerminalWidget\nTerminalWidget({!r}, carrier={!r})"


@pytest.mark.parametrize("carrier", ["server", "kernel"])
def test_a_page_that_is_loaded_again_starts_nothing(lab: Lab, carrier: str) -> None:
    """A sandbox that has stopped meanwhile stays so until somebody asks for it."""
    name = f"restore-{carrier}"
    settings = Settings(data_dir=lab.server.home.sandboxes)
    lab.write(f"{name}.ipynb", SHOW.format(name, carrier), kernel="python3")
    lab.open(f"{name}.ipynb")
    lab.run_cell(0)
    terminal = TerminalInPage(lab.page).wait_for("Connected", carrier)
    terminal.run("echo before-$((6*7))", "before-42")
    with contextlib.closing(Manager(settings)) as manager:
        manager.stop(name)
        terminal.wait_for("Disconnected")
        lab.page.keyboard.press("Control+Shift+E")
        lab.page.keyboard.press("Control+S")
        expect(lab.page.locator(".jp-mod-dirty")).to_have_count(0)
        lab.page.reload()
        lab.wait_for_kernel()

        restored = TerminalInPage(lab.page).wait_for("Disconnected", carrier)
        expect(restored.root).to_contain_text("is stopped")
        lab.shot(f"terminal-restored-{carrier}")
        info = manager.lookup(name)
        assert info is not None
        assert info.state == "stopped"
        restored.root.get_by_text("Start again").click()
        restored.wait_for("Connected", carrier)
        restored.run("echo after-$((6*7))", "after-42")
