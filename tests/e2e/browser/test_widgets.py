"""Widgets of a sandbox in JupyterLab: those of ipywidgets work, others show why they do not."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e.browser.conftest import Lab

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(400)]

IMPORTS = (
    "import ipywidgets as w, anywidget\nfrom IPython.display import display, HTML, Javascript\n"
    "from traitlets import Unicode\n"
    "def mark(name): return f'(window.top.document ? window.top : window).__ran_{name} = 1'\n"
    "def html(name): return f'<b>bold markup</b><img src=x onerror=\"{mark(name)}\">'"
)
INTERACT = "@w.interact(x=(0, 10))\ndef shown(x=3): print('shown with', x)"
SLIDER = (
    "s, echoed, linked = w.IntSlider(value=3, description='s'), w.Label(), w.IntText()\n"
    "s.observe(lambda c: setattr(echoed, 'value', f'inside it is {c.new}'), 'value')\n"
    "w.jsdlink((s, 'value'), (linked, 'value'))\ndisplay(w.VBox([s, echoed, linked]))"
)
BARS = (
    "from tqdm.notebook import tqdm\nfor _ in tqdm(range(7), desc='work'): pass\n"
    "display(w.IntProgress(value=4, max=10), w.FloatProgress(value=0.5, max=1.0, bar_style='info'))"
)
OUTPUT = (
    "o = w.Output()\ndisplay(o)\nwith o:\n    print('printed inside')\n"
    "    display(HTML('<b>bold inside</b>'))\n"
    "    display(HTML('<p>framed inside</p>' + html('output_html')))\n"
    "    display(Javascript(mark('output_script')))\nprint('printed outside')"
)
MARKUP = (
    "display(w.HTML(html('html')), w.HTMLMath(html('math') + '$x^2$'))\n"
    "display(w.IntSlider(description=html('description'), description_allow_html=True))"
)
CODE = (
    "class Mine(anywidget.AnyWidget): _esm = f\"{mark('code')}; export default {{ render() {{}} }}\"\n"
    "class Unseen(anywidget.AnyWidget): _esm = f\"{mark('unseen')}; export default {{ }}\"\n"
    "unseen = Unseen()\ndisplay(Mine())"
)
VIEW = (
    "class Tricky(w.Label): _view_name = Unicode('HTMLView').tag(sync=True)\n"
    "display(Tricky(html('view')), w.VBox([w.Label('beside it'), Tricky(html('view'))]))"
)
LINK = (
    "a, b = w.Text(html('link')), w.HTML('nothing yet')\n"
    "w.jslink((a, 'value'), (b, 'value'))\ndisplay(w.HBox([a, b]))"
)
CELLS = (IMPORTS, INTERACT, SLIDER, BARS, OUTPUT, MARKUP, CODE, VIEW, LINK, "s.value")
_, interact, slider, bars, output, markup, code, view, link, value = range(len(CELLS))

MARKS = "Object.keys(window).filter(name => name.startsWith('__ran_')).sort()"
"""What has run in the page."""


def move(cell: Locator, *expected: str) -> None:
    """Move a slider one step per text that its readout shows then."""
    handle = cell.locator(".noUi-handle")
    handle.focus()
    for text in expected:
        handle.press("ArrowRight")
        expect(cell.locator(".widget-readout").first).to_have_text(text)


def look(lab: Lab, name: str, *, interact_at: int, slider_at: int) -> None:
    """Look at every cell, and move the sliders from where they are by one and two."""
    lab.cell(interact).scroll_into_view_if_needed()
    move(lab.cell(interact), str(interact_at + 1))
    expect(lab.cell(interact)).to_contain_text(f"shown with {interact_at + 1}")
    move(lab.cell(slider), str(slider_at + 1), str(slider_at + 2))
    expect(lab.cell(slider)).to_contain_text(f"inside it is {slider_at + 2}")
    expect(lab.cell(slider).locator("input[type=number]")).to_have_value(str(slider_at + 2))

    expect(lab.cell(bars).locator(".widget-html", has_text="work")).to_be_visible()
    expect(lab.cell(bars)).to_contain_text("7/7")
    expect(lab.cell(bars).locator(".progress-bar")).to_have_count(3)
    lab.shot(f"widgets-work-{name}")

    inside = lab.cell(output).locator(".widget-output")
    inside.scroll_into_view_if_needed()
    expect(inside).to_contain_text("printed inside")
    expect(inside.locator("b", has_text="bold inside")).to_be_visible()
    expect(inside).to_contain_text("application/javascript is withheld")
    assert inside.locator("iframe").get_attribute("sandbox") == "allow-scripts"
    framed = inside.frame_locator("iframe").frame_locator("iframe")
    expect(framed.locator("p")).to_have_text("framed inside")
    expect(lab.cell(output)).to_contain_text("printed outside")
    lab.shot(f"widgets-output-{name}")

    lab.cell(markup).scroll_into_view_if_needed()
    for kind in ("widget-html", "widget-htmlmath"):
        expect(lab.cell(markup).locator(f".{kind} b")).to_have_text("bold markup")
    expect(lab.cell(markup).locator(".widget-slider .widget-label")).to_contain_text("<img src=x")
    lab.cell(code).scroll_into_view_if_needed()
    expect(lab.cell(code)).to_contain_text("AnyModel of anywidget is withheld")
    lab.cell(view).scroll_into_view_if_needed()
    notes = lab.cell(view).get_by_text(re.compile("LabelModel .* withheld"))
    expect(notes).to_have_count(2)
    expect(lab.cell(view).locator(".widget-label", has_text="beside it")).to_be_visible()
    lab.shot(f"widgets-notes-{name}")
    lab.cell(link).scroll_into_view_if_needed()
    expect(lab.cell(link).locator(".widget-html")).to_contain_text("nothing yet")
    lab.shot(f"widgets-link-{name}")

    assert lab.page.get_by_text("model not found").count() == 0
    assert lab.page.get_by_text("Error displaying widget").count() == 0
    assert lab.page.evaluate(MARKS) == []


def test_widgets_before_and_after_a_reload(lab: Lab) -> None:
    """Values reach the kernel and come back; nothing a widget holds runs in the page."""
    lab.write("widgets.ipynb", *CELLS)
    lab.open("widgets.ipynb")
    lab.menu("Run", "Run All Cells")
    expect(lab.prompt(value)).to_have_text(f"[{value + 1}]:", timeout=60_000)
    look(lab, "run", interact_at=3, slider_at=3)
    lab.run_cell(value)
    expect(lab.output(value)).to_have_text("5")

    lab.page.keyboard.press("Control+S")
    expect(lab.page.locator(".jp-mod-dirty")).to_have_count(0)
    lab.page.reload()
    lab.wait_for_kernel()
    look(lab, "reloaded", interact_at=4, slider_at=5)
    lab.run_cell(value)
    expect(lab.output(value)).to_have_text("7")


def test_what_widgets_do_on_a_plain_kernel(lab: Lab) -> None:
    """The same cells, to show that they would act: without a sandbox they mark the page."""
    lab.write("plain.ipynb", *CELLS, kernel="python3")
    lab.open("plain.ipynb")
    lab.menu("Run", "Run All Cells")
    expect(lab.prompt(value)).to_have_text(f"[{value + 1}]:", timeout=60_000)
    names = ["code", "html", "link", "math", "output_html", "output_script", "unseen", "view"]

    lab.page.wait_for_function(f"{MARKS}.length >= {len(names)}")
    assert lab.page.evaluate(MARKS) == [f"__ran_{name}" for name in names]
