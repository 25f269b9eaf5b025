"""Frames whose scripts are elsewhere: drawn where those may load, and else with a note."""

from __future__ import annotations

from importlib.resources import files

import plotly.express as px
import pytest
from playwright.sync_api import Browser, FrameLocator, Page, Route, expect

from sandbox_kernel.wall import forms
from sandbox_kernel.wall.modes import Wall

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

LIBRARY = (files("plotly") / "package_data" / "plotly.min.js").read_text()
BARS = ".js-plotly-plot .bars path"
NOTE = "p[data-missing]"


def show(page: Page, document: str, *, network: bool) -> tuple[FrameLocator, list[str]]:
    """Draw what the wall makes of HTML; return its frame, and what the page asks for."""
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        allowed = {"Access-Control-Allow-Origin": "*", "Content-Type": "text/javascript"}
        route.fulfill(body=LIBRARY, headers=allowed)

    page.route(lambda url: url.startswith("http"), answer)
    data, _ = forms.bundle({"text/html": document}, {}, Wall(network=network))
    page.set_content(data["text/html"])
    frame = page.frame_locator("iframe.jupyter-sandbox-frame").frame_locator("iframe")
    return frame, asked


def fragment(library: object) -> str:
    """Return a figure as part of a page, with plotly's script or without."""
    figure = px.bar(x=["a", "b", "c"], y=[1, 3, 2])
    return str(figure.to_html(full_html=False, include_plotlyjs=library))


@pytest.fixture
def page(chromium: Browser):
    context = chromium.new_context()
    yield context.new_page()
    context.close()


@pytest.mark.parametrize(("library", "network"), [(True, False), (True, True), ("cdn", True)])
def test_a_fragment_that_can_have_its_script_is_drawn(
    page: Page, library: object, *, network: bool
) -> None:
    """With it in the fragment, or from where frames may load with network."""
    frame, asked = show(page, fragment(library), network=network)

    expect(frame.locator(BARS)).to_have_count(3)
    expect(frame.locator(NOTE)).to_have_count(0)
    assert len(asked) == (library == "cdn")


@pytest.mark.parametrize(
    ("library", "network", "named"),
    [
        (False, False, "Plotly"),
        (False, True, "Plotly"),
        ("cdn", False, "https://cdn.plot.ly/"),
        ("directory", False, "plotly.min.js"),
        ("directory", True, "plotly.min.js"),
        ("https://elsewhere.invalid/plotly.js", True, "https://elsewhere.invalid/"),
    ],
)
def test_a_fragment_that_cannot_have_its_script_says_so(
    page: Page, library: object, named: str, *, network: bool
) -> None:
    """It names what is missing, and nothing is asked for."""
    frame, asked = show(page, fragment(library), network=network)

    expect(frame.locator(NOTE)).to_contain_text(named)
    expect(frame.locator(NOTE)).to_contain_text("OutputLimits.frame_sources")
    assert asked == []
