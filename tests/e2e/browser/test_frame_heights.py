"""Framed outputs get the height of what they show, and not more than is good for the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.browser.conftest import Lab, lab_of
from tests.support.jupyter_home import JupyterHome
from tests.support.ws_connection import JupyterServer

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

_DATA = Path(__file__).parents[3] / "data"
_SHOW = "from IPython.display import HTML, display\ndisplay(HTML({!r}))"
# As plotly and folium write whole documents: the first knows its height, the second takes what it gets.
_STRETCHED = (
    "<!doctype html><style>html, body {{ margin: 0; height: 100% }}</style>"
    '<div style="height: {}">stretched</div><script>1</script>'
)
_HIGH = '<div style="height: 700px">high</div><script>1</script>'
# Whatever room it gets, it wants more.
_GREEDY = (
    '<div id="d">greedy</div><script>'
    "addEventListener('resize', () => { d.style.height = innerHeight + 50 + 'px'; });"
    "d.style.height = '500px'</script>"
)
# Speaks for another frame, and of what is no number; from the frame around it, too.
_LYING = (
    '<div style="height: 300px">lying</div><script>for (const to of [parent, parent.parent, top])'
    " for (const height of [9999, '50px; position: fixed', NaN])"
    " to.postMessage({type: 'jupyter-sandbox:frame-height', height}, '*')</script>"
)
# Waits until something was typed.
_TAKING = (
    "<input id=i><script>addEventListener('message', () => setInterval(() => i.focus(), 20))"
    "</script>"
)


@pytest.fixture(scope="module")
def server(new_home: Callable[[], JupyterHome]) -> Iterator[JupyterServer]:
    # The extension of these sources, also where another one is installed.
    with lab_of(new_home(), JUPYTER_PATH=str(_DATA)) as server:
        yield server


def test_frames_are_as_high_as_what_they_show(
    chromium: Browser, server: JupyterServer, shots: Path
) -> None:
    """Within bounds, each by its own word; one that grows with its room stops."""
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    page.set_default_timeout(30_000)
    lab = Lab(page, server, shots)
    whole, low, tall = (_STRETCHED.format(each) for each in ("100%", "300px", "900px"))
    shown = (_HIGH, _GREEDY, _LYING, whole, low, tall)
    lab.write("heights.ipynb", *(_SHOW.format(text) for text in shown))
    lab.open("heights.ipynb")
    for number in range(len(shown)):
        lab.run_cell(number)
    frames = (lab.output(number).locator("iframe").first for number in range(len(shown)))
    high, greedy, lying, whole_frame, low_frame, tall_frame = frames

    expect(low_frame).to_have_css("height", "300px")
    expect(tall_frame).to_have_css("height", "900px")
    expect(whole_frame).to_have_css("height", "450px")
    expect(high).to_have_css("height", "700px")
    expect(lying).to_have_css("height", "300px")
    height = page.wait_for_function(
        """() => {
          const frame = document.querySelectorAll('iframe.jupyter-sandbox-frame')[1];
          const now = frame.offsetHeight, same = window.__last === now;
          window.__count = same ? (window.__count ?? 0) + 1 : 0;
          window.__last = now;
          return window.__count > 60 && now;
        }"""
    ).json_value()
    assert 450 < height < 900
    expect(greedy).to_be_visible()
    lab.shot("frame-heights")
    context.close()
    for session in server.get("/api/sessions"):
        server.call("DELETE", f"/api/sessions/{session['id']}")


def test_what_is_typed_goes_to_no_frame(
    chromium: Browser, server: JupyterServer, shots: Path
) -> None:
    """One that takes the focus while a cell is edited is emptied, and the cell has it again."""
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    page.set_default_timeout(30_000)
    lab = Lab(page, server, shots)
    lab.write("focus.ipynb", _SHOW.format(_TAKING), "")
    lab.open("focus.ipynb")
    lab.run_cell(0)
    frame = lab.output(0).locator("iframe").first
    expect(frame.content_frame.locator("iframe").content_frame.locator("#i")).to_be_visible()
    editor = lab.cell(1).locator(".cm-content")
    editor.click()
    page.mouse.move(640, 8)
    page.keyboard.type("before")
    page.evaluate(
        "document.querySelector('iframe.jupyter-sandbox-frame').contentWindow.frames[0]"
        ".postMessage(1, '*')"
    )
    expect(frame.content_frame.locator("body")).to_contain_text("took the keyboard")
    page.keyboard.type(" after")

    expect(editor).to_have_text("before after")
    context.close()
    for session in server.get("/api/sessions"):
        server.call("DELETE", f"/api/sessions/{session['id']}")
