"""What libraries show is drawn behind the output wall: tables, pictures, plots, maps, widgets.

The sandbox has network, as some libraries let the page load their scripts.  There is no network in
the test: the browser gets small scripts of ours in their place, which draw what they are called
with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Browser, FrameLocator, Locator, Route, expect

from tests.e2e.browser.conftest import Lab, lab_of
from tests.support.jupyter_home import JupyterHome
from tests.support.kernel_driver import KERNEL
from tests.support.ws_connection import JupyterServer

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(580)]

FRAME = "iframe.jupyter-sandbox-frame"
DATA = "{'name': ['ada', 'bob'], 'score': [3, 5]}"
LIBRARIES = {
    "pandas": f"import pandas as pd\ntable = pd.DataFrame({DATA})\ntable",
    "styler": "table.style.background_gradient(axis=None)",
    "matplotlib": "import matplotlib.pyplot as plt\n_ = plt.plot([1, 3, 2])",
    "matplotlib_svg": (
        "import matplotlib_inline.backend_inline as inline\ninline.set_matplotlib_formats('svg')\n"
        "_ = plt.plot([1, 3, 2])"
    ),
    "plotly": "import plotly.express as px\npx.bar(x=['a', 'b', 'c'], y=[1, 3, 2])",
    "plotly_html": (
        "from IPython.display import HTML\nHTML(px.bar(x=['a', 'b', 'c'], y=[1, 3, 2]).to_html())"
    ),
    "altair": (
        "import altair as alt\nchart = alt.Chart(table).mark_bar().encode(x='name', y='score')\nchart"
    ),
    "altair_mime": "_ = alt.renderers.enable('mimetype')\nchart",
    "bokeh": (
        "from bokeh.embed import file_html\nfrom bokeh.plotting import figure\n"
        "from bokeh.resources import INLINE\n"
        "plot = figure(width=300, height=200)\nplot.line([1, 2, 3], [1, 3, 2])\n"
        "HTML(file_html(plot, INLINE))"
    ),
    "folium": (
        "import folium\nplace = folium.Map([48.2, 16.4])\n_ = folium.Marker([48.2, 16.4]).add_to(place)\nplace"
    ),
    "polars": f"import polars as pl\npl.DataFrame({DATA})",
    "sympy": "import sympy\nsympy.sqrt(sympy.Symbol('x')) / 2",
    "rich": (
        "import rich\nfrom rich.table import Table\nrows = Table('name', 'score')\n"
        "rows.add_row('ada', '[bold red]3')\nrich.print(rows)"
    ),
    "tqdm": (
        "from tqdm import tqdm\nfrom tqdm.notebook import tqdm as bar\n"
        "for _ in tqdm(range(3), desc='plain'): pass\nfor _ in bar(range(3), desc='drawn'): pass"
    ),
    "ipywidgets": (
        "import ipywidgets as w\n"
        "w.VBox([w.IntSlider(3), w.Tab([w.HTML('<b>inside</b>')], titles=['tab']), w.Button(description='go')])"
    ),
}

# In place of scripts from elsewhere; what they draw comes from the library in the sandbox.
STUBS = {
    "vega-embed": (
        "window.vegaEmbed = async (node, spec) => {"
        " const rows = Object.values(spec.datasets)[0];"
        " node.innerHTML = '<svg class=marks>' + rows.map((row, i) => `<rect x=${i * 40} y=0"
        " width=30 height=${row.score * 20} />`).join('') + '</svg>'; }"
    ),
    "leaflet.js": (
        "const say = (node, text) => node.append(Object.assign(document.createElement('p'),"
        " {className: 'drawn', textContent: text}));"
        "const thing = text => ({addTo(map) { say(map.node, text); return this; }, bindPopup() {}});"
        "window.L = {map: id => ({node: document.getElementById(id)}),"
        " control: new Proxy({}, {get: () => () => thing('control')}), CRS: {},"
        " tileLayer: url => thing('tiles'), marker: at => thing('marker at ' + at)};"
    ),
}


@pytest.fixture(scope="module")
def server(new_home: Callable[[], JupyterHome]) -> Iterator[JupyterServer]:
    home = new_home()
    (home.root / "cfg" / "jupyter_sandbox_config.json").write_text(
        json.dumps({"SandboxManager": {"network": True}})
    )
    with lab_of(home, draws_all=True) as server:
        yield server


class Elsewhere:
    """Everything that is not the server: it gives the stubs, and keeps what was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def answer(self, route: Route) -> None:
        url = route.request.url
        self.asked.append(url)
        body = next((stub for name, stub in STUBS.items() if name in url), "")
        kind = "text/css" if url.endswith(".css") else "text/javascript"
        route.fulfill(body=body, content_type=kind)


def expect_something_in(lab: Lab, area: Callable[[str], Locator]) -> None:
    """Expect the elements of every library."""

    def framed(name: str) -> FrameLocator:
        return area(name).frame_locator(FRAME).frame_locator("iframe")

    expect(area("pandas").locator("table.dataframe tbody tr")).to_have_count(2)
    expect(area("polars").locator("table.dataframe tbody tr")).to_have_count(2)
    expect(area("pandas").locator("iframe")).to_have_count(0)
    expect(area("polars").locator("iframe")).to_have_count(0)
    cell = framed("styler").locator("td", has_text="5")
    expect(cell).to_have_css("background-color", re.compile(r"rgb\((?!255, 255, 255)"))
    expect(area("matplotlib").locator("img[src^='data:image/png']")).to_have_count(1)
    expect(area("matplotlib_svg").locator("img[src^='data:image/svg+xml']")).to_have_count(1)
    for name in ("matplotlib", "matplotlib_svg"):
        assert area(name).locator("img").evaluate("image => image.naturalWidth") > 100
    expect(area("plotly").locator(".js-plotly-plot .bars path")).to_have_count(3)
    expect(framed("plotly_html").locator(".js-plotly-plot .bars path")).to_have_count(3)
    expect(area("altair_mime")).to_contain_text('alt.renderers.enable("html")')
    expect(framed("altair").locator("svg.marks rect")).to_have_count(2)
    expect(framed("bokeh").locator("canvas").first).to_be_attached()
    map_ = framed("folium").frame_locator("iframe")
    expect(map_.locator(".folium-map .drawn")).to_have_text(["tiles", "marker at 48.2,16.4"])
    expect(area("sympy").locator("mjx-container")).to_have_count(1)
    expect(area("rich")).to_contain_text("ada")
    expect(area("rich").get_by_text("3", exact=True)).to_have_css("font-weight", "700")
    expect(area("tqdm")).to_contain_text("plain: 100%")
    expect(area("tqdm").locator(".progress-bar")).to_have_count(1)
    expect(area("ipywidgets").locator(".noUi-handle")).to_have_count(1)
    expect(area("ipywidgets").locator("b", has_text="inside")).to_be_visible()
    assert lab.page.get_by_text("Error displaying widget").count() == 0


def test_what_libraries_show_is_drawn(
    chromium: Browser, server: JupyterServer, shots: Path
) -> None:
    """By elements; pictures of each are kept for those who look."""
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": KERNEL, "display_name": KERNEL, "language": "python"}
    notebook.cells = [nbformat.v4.new_code_cell(code) for code in LIBRARIES.values()]
    nbformat.write(notebook, server.home.work / "libraries.ipynb")
    elsewhere = Elsewhere()
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    context.route(lambda url: not url.startswith(server.base), elsewhere.answer)
    page = context.new_page()
    page.set_default_timeout(90_000)
    lab = Lab(page, server, shots)
    lab.open("libraries.ipynb")
    lab.menu("Run", "Run All Cells")
    expect(lab.prompt(len(LIBRARIES) - 1)).to_have_text(f"[{len(LIBRARIES)}]:", timeout=180_000)

    def area(name: str) -> Locator:
        return lab.cell(list(LIBRARIES).index(name)).locator(".jp-OutputArea").first

    try:
        expect_something_in(lab, area)
    finally:
        for name in LIBRARIES:
            area(name).scroll_into_view_if_needed()
            page.wait_for_timeout(500)  # a frame that comes into view is painted a little later
            area(name).screenshot(path=shots / f"library-{name}.png")
    assert {"cdn.jsdelivr.net", "code.jquery.com"} <= {url.split("/")[2] for url in elsewhere.asked}
    context.close()
    for session in server.get("/api/sessions"):
        server.call("DELETE", f"/api/sessions/{session['id']}")
