"""Nothing that a sandbox's outputs are made of acts in JupyterLab; on a plain kernel it does.

One notebook holds every way of `tests.support.escapes`.  On a plain kernel each is seen to act, or,
where JupyterLab itself stops it, to act in an empty page.  On our kernel each shows something, and
neither the page nor the server notices more: when it has just run, when the page is loaded again,
when the notebook is opened again, and when it comes from somebody else.
"""

from __future__ import annotations

import contextlib
import html
import json
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Frame, Locator, expect

from tests.e2e.browser.conftest import Lab, lab_of
from tests.support.canary import Canary
from tests.support.escapes import (
    FRAME,
    NOTE,
    PRELUDE,
    Effect,
    Escape,
    escapes,
    frame_probe,
    leavings,
    stored_widget,
)
from tests.support.jupyter_home import JupyterHome
from tests.support.kernel_driver import KERNEL
from tests.support.ws_connection import JupyterServer

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(580)]

AWAY = {
    f"probe_{name}"
    for name in (
        "away",
        "events",
        "worker",
        "image_away",
        "style_away",
        "script_away",
        "frame_away",
        "beacon",
        "prefetch",
    )
}
"""What a frame asks somebody else for."""
# What cannot tell whether it was refused; and WebRTC, which Chromium does not let a page's policy
# forbid yet.
NOT_REFUSED = {"beacon", "frame_away", "prefetch", "rtc"}
WIDGETS = (13, 14, 15, 16)
"""Rows that show widgets."""
EXTENSION = "@jupyter-sandbox/labextension"
UNTRUSTED = "text=trust the notebook, to see this output"


@pytest.fixture(scope="module")
def canary() -> Iterator[Canary]:
    with Canary() as canary:
        yield canary


@pytest.fixture(scope="module")
def ways(canary: Canary) -> list[Escape]:
    return escapes(canary.base)


@pytest.fixture(scope="module")
def server(new_home: Callable[[], JupyterHome]) -> Iterator[JupyterServer]:
    """JupyterLab that logs every request, and draws all cells whether they are in view or not."""
    logs_all = "--ServerApp.log_level=DEBUG"
    with lab_of(
        new_home(), logs_all, "--LabApp.expose_app_in_browser=True", draws_all=True
    ) as server:
        yield server


class Visit:
    """One user in one page, and what came of it.

    Parameters
    ----------
    context : BrowserContext
        Of the browser.
    server : JupyterServer
        JupyterLab.
    canary : Canary
        Somebody else's server.
    shots : Path
        Where screenshots go.
    """

    def __init__(
        self, context: BrowserContext, server: JupyterServer, canary: Canary, shots: Path
    ) -> None:
        self.context = context
        self.server = server
        self.canary = canary
        self.foreign: list[str] = []
        context.on("response", lambda response: self._note(response.url))
        context.on("page", lambda page: self.foreign.append(f"page {page.url}"))
        self._pages = 1
        self.page = context.new_page()
        self.page.set_default_timeout(90_000)
        self.lab = Lab(self.page, server, shots)
        self.foreign.clear()
        self.forget()

    def _note(self, url: str) -> None:
        ours = (self.server.base + "/", "data:", "blob:")
        if not url.startswith(ours):
            self.foreign.append(url)

    def forget(self) -> None:
        """Count from here."""
        self._logged = len(self.server.log)
        self._asked = len(self.canary.asked)
        self.foreign.clear()

    def asked(self) -> set[str]:
        """Return by which ways the server was asked."""
        lines = self.server.log[self._logged :].splitlines()
        return {
            line.partition("row=")[2].split()[0].strip("'\"&;,)")
            for line in lines
            if "row=" in line and "referer=" not in line.partition("row=")[0]
        }

    def left(self) -> set[str]:
        """Return by which ways somebody else was asked."""
        return set(self.canary.asked[self._asked :])

    def ran(self) -> dict[str, object]:
        """Return what ran in the page, and what the server answered it."""
        return dict(self.page.evaluate("window.__ran ?? {}"))

    def close(self) -> None:
        self.context.close()
        for session in self.server.get("/api/sessions"):
            self.server.call("DELETE", f"/api/sessions/{session['id']}")


@pytest.fixture
def visit(
    chromium: Browser, server: JupyterServer, canary: Canary, shots: Path
) -> Iterator[Callable[[], Visit]]:
    visits: list[Visit] = []

    def begin() -> Visit:
        context = chromium.new_context(viewport={"width": 1280, "height": 860})
        visits.append(Visit(context, server, canary, shots))
        return visits[-1]

    yield begin
    for each in visits:
        each.close()


def cells(visit: Visit, ways: list[Escape], *, alone: bool) -> list[str]:
    """Return the code of all cells; documents of frames come alone, or in a frame of the page."""
    elsewhere = visit.canary.base
    documents = [
        frame_probe(visit.server.base, elsewhere, visit.canary.udp_port),
        *leavings(elsewhere).values(),
    ]
    if not alone:
        documents = [
            f'<iframe srcdoc="{html.escape(document)}"></iframe>' for document in documents
        ]
    shown = [f"display(HTML({document!r}))" for document in documents]
    return [PRELUDE, *(way.code for way in ways), *shown]


def write(server: JupyterServer, name: str, codes: list[str], kernel: str) -> None:
    """Make a notebook whose cells may fail without keeping the others from running."""
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": kernel, "display_name": kernel, "language": "python"}
    for code in codes:
        cell = nbformat.v4.new_code_cell(code, metadata={"tags": ["raises-exception"]})
        notebook.cells.append(cell)
    nbformat.write(notebook, server.home.work / name)


def copy_untrusted(server: JupyterServer, name: str, copy: str, **metadata: Any) -> None:
    """Copy a notebook as somebody else's, which nobody has signed."""
    notebook = json.loads((server.home.work / name).read_text())
    notebook["metadata"] |= {"from": "somebody else", **metadata}
    (server.home.work / copy).write_text(json.dumps(notebook))


def run_all(visit: Visit, count: int) -> None:
    visit.lab.menu("Run", "Run All Cells")
    expect(visit.lab.prompt(count - 1)).to_have_text(f"[{count}]:", timeout=120_000)


def save(visit: Visit) -> None:
    visit.page.keyboard.press("Control+S")
    expect(visit.page.locator(".jp-mod-dirty")).to_have_count(0)


def open_instead(visit: Visit, name: str) -> None:
    """Close all notebooks with their kernels, and open another one in the same page."""
    visit.page.evaluate("() => void jupyterapp.commands.execute('application:close-all')")
    panels, discard = (
        visit.page.locator(".jp-NotebookPanel"),
        visit.page.locator(".jp-Dialog .jp-mod-warn"),
    )
    # Widgets that are drawn again may have changed the notebook since it was saved.
    wait_for(visit, lambda: discard.count() > 0 or panels.count() == 0, "the notebook is open")
    if discard.count():
        discard.click()
    expect(panels).to_have_count(0)
    for session in visit.server.get("/api/sessions"):
        visit.server.call("DELETE", f"/api/sessions/{session['id']}")
    visit.page.evaluate("window.__ran = {}")
    visit.forget()
    visit.page.evaluate("path => jupyterapp.commands.execute('docmanager:open', {path})", name)
    expect(panels).to_have_count(1)
    visit.lab.wait_for_kernel()


def wait_for(visit: Visit, look: Callable[[], bool], what: str) -> None:
    """Wait until something is so, while the browser goes on."""
    deadline = time.monotonic() + 60
    while not look():
        assert time.monotonic() < deadline, what
        visit.page.wait_for_timeout(50)


def settle(visit: Visit) -> None:
    """Wait until everything that was drawn has had its turn in the page and at the server."""
    mark = uuid.uuid4().hex
    visit.page.evaluate(
        "async mark => { for (let i = 0; i < 3; i++) { await fetch(`/api/me?settled=${mark}`);"
        " await new Promise(done => setTimeout(done, 100)); } }",
        mark,
    )
    wait_for(visit, lambda: mark in visit.server.log, "the server's log lacks a request")


def frames_in(frame: Frame) -> Iterator[Frame]:
    for child in frame.child_frames:
        yield child
        yield from frames_in(child)


def ran_in_frames(visit: Visit) -> set[str]:
    """Return the ways that acted in a frame, as far as it is one."""
    found: set[str] = set()
    for frame in frames_in(visit.page.main_frame):
        with contextlib.suppress(Error):  # it has just been left
            found |= set(frame.evaluate("Object.keys(window.__ran ?? {})"))
    return found


def told_by_probe(visit: Visit) -> dict[str, str]:
    """Return what came of the frame's attempts, when all have come to an end."""
    count = frame_probe("", "", 0).count("\nattempt(")
    told: dict[str, str] = {}

    def look() -> bool:
        for frame in frames_in(visit.page.main_frame):
            with contextlib.suppress(Error):
                text = frame.evaluate("document.getElementById('told')?.textContent ?? ''")
                told.update(json.loads(text or "{}"))
        return len(told) == count

    wait_for(visit, look, "not all attempts of the frame ended")
    return told


def press(visit: Visit, number: int, way: Escape) -> None:
    """Click on what is to be clicked, in the output, in its frame, or what is left of it."""
    area = visit.lab.cell(number).locator(".jp-OutputArea").first
    target = area.locator(".press, .updatemenu-button")
    if not target.count():
        target = area.locator(way.shown)
        if way.shown == FRAME:
            target = area.frame_locator(FRAME).frame_locator("iframe").locator(".press")
    target.first.click()


def inspect(visit: Visit, number: int) -> Locator:
    """Ask for the documentation of what a cell begins with; return where it is shown."""
    visit.lab.cell(number).locator(".cm-content").click()
    visit.page.keyboard.press("Control+Home")
    visit.page.keyboard.press("ArrowRight")
    visit.page.keyboard.press("Shift+Tab")
    tooltip = visit.page.locator(".jp-Tooltip")
    expect(tooltip).to_be_visible()
    return tooltip


def help_menu(visit: Visit) -> list[str]:
    """Return what the Help menu offers."""
    visit.page.locator(".lm-MenuBar-itemLabel", has_text=re.compile("^Help$")).click()
    items = visit.page.locator(".lm-Menu-itemLabel")
    expect(items.first).to_be_visible()
    texts = items.all_inner_texts()
    visit.page.keyboard.press("Escape")
    return texts


def named(ways: list[Escape], *effects: str) -> set[str]:
    return {way.name for way in ways if way.effect in effects}


def expect_drawn(visit: Visit, ways: list[Escape], instead_of_frames: str = FRAME) -> None:
    """Expect that each way shows something; an empty selector stands for anything."""
    for number, way in enumerate(ways, 1):
        shown = instead_of_frames if way.shown == FRAME else way.shown
        if shown:
            area = visit.lab.cell(number).locator(".jp-OutputArea").first
            expect(area.locator(shown).first).to_be_attached()


def expect_nothing(visit: Visit) -> None:
    """Expect that nothing acts in the page, nothing asks the server, and nothing leaves."""
    settle(visit)
    assert visit.ran() == {}
    assert visit.asked() == set()
    assert visit.left() == set()
    assert visit.foreign == []
    for bad in ("[href^='javascript:' i]", "[data-commandlinker-command]", "[onerror]", "[onload]"):
        assert visit.page.locator(f".jp-OutputArea {bad}").count() == 0


def test_what_does_nothing_in_jupyterlab_acts_in_an_empty_page(
    visit: Callable[[], Visit], server: JupyterServer, ways: list[Escape]
) -> None:
    """So it is JupyterLab that stops it there, and no mistake in what is tried."""
    bare = [way for way in ways if way.bare]
    text = "<!doctype html>" + "".join(f"<div id={way.name}>{way.bare}</div>" for way in bare)
    there = visit()
    there.page.goto(f"{server.base}/api/me?token={server.token}")
    there.page.route("**/empty", lambda route: route.fulfill(body=text, content_type="text/html"))
    there.page.goto(f"{server.base}/empty")
    for link in there.page.locator(".press").all():
        link.click()
    expected = dict.fromkeys((way.name for way in bare), 200)

    there.page.wait_for_function("count => Object.keys(__ran).length >= count", arg=len(expected))
    there.page.wait_for_function("Object.values(__ran).every(answer => answer === 200)")
    assert there.ran() == expected
    assert there.asked() == expected.keys()


def test_on_a_plain_kernel_each_way_acts(
    visit: Callable[[], Visit], server: JupyterServer, ways: list[Escape]
) -> None:
    """Just run, loaded again, and from somebody else; an imported copy does not."""
    there = visit()
    # It keeps saved widgets from acting, whatever the kernel.
    there.page.route(f"**/{EXTENSION}/**", lambda route: route.abort())
    codes = cells(there, ways, alone=False)
    write(server, "plain.ipynb", codes, "python3")
    there.lab.open("plain.ipynb")
    run_all(there, len(codes))
    acts = named(ways, Effect.ACTS)
    loads = {way.name for way in ways if way.effect == Effect.ASKS and not way.click}
    wait_for(there, lambda: there.ran() == dict.fromkeys(acts, 200), "not all act")
    told = told_by_probe(there)
    pressed = {way.name for way in ways if way.click}
    leaves = named(ways, Effect.LEAVES) - pressed | leavings("").keys() | AWAY
    wait_for(there, lambda: there.left() >= leaves, "not all leave")
    assert there.canary.datagrams > 0
    assert there.asked() >= acts | loads
    assert told["fetch"] == "200"
    assert [name for name, what in told.items() if what == "refused"] == []
    there.lab.shot("escapes-plain")

    left_area = there.page.locator("#jp-left-stack")
    for number, way in enumerate(ways, 1):
        if way.click:
            was_open = left_area.is_visible()
            press(there, number, way)
            if way.effect == Effect.COMMANDS:
                expect(left_area).to_be_visible(visible=not was_open)
    inspect(there, len(codes) - 1)
    wait_for(there, lambda: "form" in there.asked(), "the form was not sent")
    leaves = named(ways, Effect.LEAVES) & pressed
    wait_for(there, lambda: there.left() >= leaves, "not all that was pressed leaves")
    assert there.ran() == dict.fromkeys(acts, 200)

    save(there)
    there.page.reload()
    there.lab.wait_for_kernel()
    wait_for(there, lambda: there.ran() == dict.fromkeys(acts, 200), "not all act again")
    assert "Help of the sandbox" in help_menu(there)

    copy_untrusted(server, "plain.ipynb", "foreign.ipynb", widgets=stored_widget("stored"))
    untrusted = {way.name for way in ways if way.acts_untrusted}
    open_instead(there, "foreign.ipynb")
    wait_for(there, lambda: there.ran() == {"stored": True}, "the stored widget does not act")
    wait_for(there, lambda: there.asked() | there.left() == untrusted, "not all load")

    subprocess.run(
        [*(sys.executable, "-m", "sandbox_kernel.cli", "import"), "foreign.ipynb"],
        env=server.home.env(),
        cwd=server.home.work,
        check=True,
        timeout=60,
        capture_output=True,
    )
    open_instead(there, "foreign-sandbox.ipynb")
    expect(there.page.locator(".jp-Toolbar-kernelName")).to_contain_text("sandbox")
    there.lab.shot("escapes-imported")
    expect_nothing(there)


def test_in_a_sandbox_no_way_acts(
    visit: Callable[[], Visit], server: JupyterServer, ways: list[Escape]
) -> None:
    """Just run, loaded again, opened again, and from somebody else."""
    framed = {way.name for way in ways if way.shown == FRAME and way.effect == Effect.ACTS}
    there = visit()
    codes = cells(there, ways, alone=True)
    write(server, "walled.ipynb", codes, KERNEL)
    there.lab.open("walled.ipynb")
    run_all(there, len(codes))
    expect_drawn(there, ways)
    wait_for(there, lambda: ran_in_frames(there) == framed, "what is framed acts in its frame")
    told = told_by_probe(there)
    assert {name for name, what in told.items() if what != "refused"} <= NOT_REFUSED
    expect_nothing(there)
    there.lab.shot("escapes-walled")

    for number, way in enumerate(ways, 1):
        if way.click:
            press(there, number, way)
    expect(inspect(there, len(codes) - 1)).to_have_text("inspected")
    expect(there.page.locator("#jp-left-stack")).to_be_visible()
    expect_nothing(there)

    save(there)
    there.page.reload()
    there.lab.wait_for_kernel()
    expect_drawn(there, ways)
    wait_for(there, lambda: ran_in_frames(there) == framed, "what is framed acts in its frame")
    assert not [text for text in help_menu(there) if text.startswith("Help of")]
    expect_nothing(there)

    # A kernel that is new has no widgets yet; their cells are not looked at.
    stored = [replace(way, shown="") if way.row in WIDGETS else way for way in ways]
    open_instead(there, "walled.ipynb")
    expect_drawn(there, stored)
    framed -= {way.name for way in ways if way.row in WIDGETS}
    wait_for(there, lambda: ran_in_frames(there) == framed, "what is framed acts in its frame")
    expect_nothing(there)

    copy_untrusted(server, "walled.ipynb", "other.ipynb")
    open_instead(there, "other.ipynb")
    noted = [way if way.shown in (FRAME, NOTE) else replace(way, shown="") for way in stored]
    expect_drawn(there, noted, instead_of_frames=UNTRUSTED)
    there.lab.shot("escapes-untrusted")
    expect_nothing(there)
