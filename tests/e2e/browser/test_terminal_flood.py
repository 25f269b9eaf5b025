"""A flood of output into a terminal in a cell: the page, its memory, and Ctrl-C."""

from __future__ import annotations

import re
import time

import psutil
import pytest
from playwright.sync_api import CDPSession, expect

from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.e2e.browser.conftest import Lab
from tests.e2e.browser.terminal_page import TerminalInPage
from tests.support.jupyter_home import processes_below

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(400)]

SIZE = 200_000_000
LINE = "0123456789" * 7
MIB = 1 << 20

# The longest time between two frames that the page drew, in seconds.
WATCH = """() => {
  window.longest = 0;
  let before = performance.now();
  const draw = now => {
    window.longest = Math.max(window.longest, now - before);
    before = now;
    requestAnimationFrame(draw);
  };
  requestAnimationFrame(draw);
}"""


def heap(session: CDPSession) -> int:
    """Return what the page's scripts hold, after a collection."""
    session.send("HeapProfiler.collectGarbage")
    return int(session.send("Runtime.getHeapUsage")["usedSize"])


def resident(lab: Lab) -> dict[int, int]:
    """Return the memory of each process of the user: server, kernel, sandbox."""
    # A program in a sandbox is no process of ours, as it may hold what it likes.
    found = {}
    for process in [*processes_below(lab.server.home.root), psutil.Process(lab.server.process.pid)]:
        with process.oneshot():
            if process.is_running() and "python" in process.name():
                found[process.pid] = process.memory_info().rss
    return found


def test_200_megabytes(lab: Lab) -> None:
    """The page goes on, nobody keeps the output, and Ctrl-C ends such a flood within a second.

    On a machine that is busy with other things all this takes longer, as does an ``echo``.
    """
    lab.write(
        "flood.ipynb",
        "from sandbox_kernel.widget import TerminalWidget\nTerminalWidget('flood')",
        kernel="python3",
    )
    lab.open("flood.ipynb")
    lab.run_cell(0)
    terminal = TerminalInPage(lab.page).wait_for("Connected", "server")
    # Old lines go and new ones come, as many as the terminal keeps.
    terminal.run(f"yes {LINE} | head -6000; echo warm-$((6*7))", "warm-42")
    began = time.monotonic()
    terminal.run("echo idle-$((6*7))", "idle-42")
    limit = max(1.0, 5 * (time.monotonic() - began))
    session = lab.page.context.new_cdp_session(lab.page)
    heap_before, resident_before = heap(session), resident(lab)
    lab.page.evaluate(WATCH)
    terminal.focus()
    terminal.type(f"yes {LINE} | head -c {SIZE}; echo; echo flood-$((6*7))\n")
    # Meanwhile the page can be used, and holds no more than what waits to be drawn.
    menu = lab.page.locator(".lm-Menu")
    for entry in ("File", "Edit"):
        lab.page.wait_for_timeout(1_000)
        began = time.monotonic()
        lab.page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(f"^{entry}$")).click()
        expect(menu).to_be_visible()
        assert time.monotonic() - began < 2 * limit
        lab.page.keyboard.press("Escape")
        assert heap(session) - heap_before < 32 * MIB
    assert "flood-42" not in terminal.text(), "the flood is too short to see anything"
    expect(terminal.rows).to_contain_text("flood-42", timeout=180_000)

    assert lab.page.evaluate("longest") < 1_000 * limit
    assert heap(session) - heap_before < 16 * MIB
    grown = {
        pid: size - resident_before[pid]
        for pid, size in resident(lab).items()
        if pid in resident_before
    }
    assert grown
    assert max(grown.values()) < 24 * MIB, grown

    info = Manager(Settings(data_dir=lab.server.home.sandboxes)).lookup("flood")
    assert info is not None
    terminal.focus()
    terminal.type(f"(trap 'touch ended' INT; yes {LINE})\n")
    terminal.shows(re.compile(rf"^({LINE}){{20}}"))
    lab.page.wait_for_timeout(500)
    pressed = time.time()
    lab.page.keyboard.press("Control+c")
    terminal.shows(re.compile(r"\^C.*\$\s*$", re.DOTALL))
    # Shown is what was on its way, too.
    assert time.time() - pressed < 2 * limit
    assert (info.layout.workspace / "ended").stat().st_mtime - pressed < limit
    terminal.run("echo still-$((6*7))", "still-42")
