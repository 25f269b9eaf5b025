"""A notebook on "Python 3 (sandbox)" in JupyterLab, by mouse and keyboard."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.e2e.browser.conftest import Lab

pytestmark = [pytest.mark.browser, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


def test_run_all_of_the_example(lab: Lab) -> None:
    """Run All Cells fills in table, figure and widget; the kernel's name is shown."""
    for source in EXAMPLES.iterdir():
        shutil.copy(source, lab.server.home.work)
    lab.open("sales.ipynb")
    lab.menu("Run", "Run All Cells")
    for number in range(lab.page.locator(".jp-CodeCell").count()):
        expect(lab.prompt(number)).to_have_text(f"[{number + 1}]:", timeout=30_000)

    expect(lab.page.locator(".jp-Toolbar-kernelName")).to_contain_text("Python 3 (sandbox)")
    assert lab.page.locator(".jp-RenderedHTMLCommon table").count() >= 2
    assert lab.page.locator('.jp-OutputArea img[src^="data:image/png"]').count() >= 1
    assert lab.page.locator(".jp-OutputArea .widget-slider").count() >= 1
    said = lab.page.locator('[data-mime-type="application/vnd.jupyter.stderr"]')
    expect(said).to_contain_text("this sandbox has no network")
    assert lab.page.get_by_text("Error displaying widget").count() == 0
    lab.page.locator('.jp-OutputArea img[src^="data:image/png"]').first.scroll_into_view_if_needed()
    lab.shot("run-all")


def test_interrupt_button(lab: Lab) -> None:
    """The square ends a loop; the next cell still knows its variables."""
    lab.write("interrupt.ipynb", "x = 41", "print('going')\nwhile True: pass", "x + 1")
    lab.open("interrupt.ipynb")
    lab.run_cell(0)
    lab.run_cell(1)
    expect(lab.output(1)).to_contain_text("going")
    lab.tool("interrupt")
    expect(lab.cell(1).locator(".jp-OutputArea").first).to_contain_text("KeyboardInterrupt")
    lab.run_cell(2)

    expect(lab.output(2)).to_have_text("42")
    lab.shot("interrupt")


def test_restart_button(lab: Lab) -> None:
    """Restart asks, clears the names and keeps the page's outputs."""
    lab.write("restart.ipynb", "x = 41; print('before')", "x")
    lab.open("restart.ipynb")
    lab.run_cell(0)
    expect(lab.output(0)).to_have_text("before")
    lab.tool("restart")
    lab.page.locator(".jp-Dialog .jp-mod-accept").click()
    lab.page.locator(".jp-Dialog").wait_for(state="detached")
    lab.wait_for_kernel()
    lab.run_cell(1)

    expect(lab.output(1)).to_contain_text("NameError")
    expect(lab.prompt(1)).to_have_text("[1]:")
    expect(lab.output(0)).to_have_text("before")
    lab.shot("restart")


def test_completion_and_tooltip(lab: Lab) -> None:
    """Tab completes from the sandbox's interpreter; Shift-Tab shows its documentation."""
    lab.write("complete.ipynb", "import os\nmy_own_name = my_own_number = 1", "")
    lab.open("complete.ipynb")
    lab.run_cell(0)
    expect(lab.prompt(0)).to_have_text("[1]:")
    lab.cell(1).locator(".cm-content").click()
    lab.page.keyboard.type("my_own")
    lab.complete("my_own_name", "my_own_number")
    lab.shot("completion")
    lab.page.keyboard.press("Enter")
    expect(lab.cell(1).locator(".cm-content")).to_have_text("my_own_name")
    lab.page.keyboard.press("Control+A")
    lab.page.keyboard.type("os.getc")
    lab.complete("getcwd", "getcwdb")
    lab.page.keyboard.press("Escape")
    lab.page.keyboard.press("Control+A")
    lab.page.keyboard.type("os.path.join(")
    lab.page.keyboard.press("Shift+Tab")

    expect(lab.page.locator(".jp-Tooltip")).to_contain_text("Signature")
    lab.shot("tooltip")


def test_slider_moves_the_value_in_the_sandbox(lab: Lab) -> None:
    """A slider moved by keyboard changes the value there, and what an observer prints comes back."""
    lab.write(
        "slider.ipynb",
        "import ipywidgets as w\nslider = w.IntSlider(value=3)\nout = w.Output()\n"
        "def moved(change):\n    with out: print('moved to', change.new)\n"
        "slider.observe(moved, 'value')\ndisplay(slider, out)",
        "slider.value",
    )
    lab.open("slider.ipynb")
    lab.run_cell(0)
    handle = lab.page.locator(".widget-slider .noUi-handle")
    handle.focus()
    for value in (4, 5):
        lab.page.keyboard.press("ArrowRight")
        expect(lab.page.locator(".widget-readout")).to_have_text(str(value))
    expect(lab.cell(0)).to_contain_text("moved to 5")
    lab.run_cell(1)

    expect(lab.output(1)).to_have_text("5")
    lab.shot("slider")


def test_debugger_stops_at_a_breakpoint(lab: Lab) -> None:
    """A breakpoint set in the margin stops the cell; the panel shows the frame; it goes on."""
    lab.write("debug.ipynb", "def f(a):\n    b = a + 1\n    return b\nf(2)")
    lab.open("debug.ipynb")
    # The button does nothing until the page has asked the kernel whether it can be debugged.
    switch = lab.page.locator('[data-jp-item-name="debugger-icon"] jp-button')
    expect(switch).not_to_have_attribute("aria-disabled", "true")
    switch.click()
    gutter = lab.cell(0).locator(".cm-breakpoint-gutter .cm-gutterElement")
    expect(gutter.nth(2)).to_be_attached()
    box = gutter.nth(2).bounding_box()
    assert box
    lab.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(lab.cell(0).locator(".cm-breakpoint-icon")).to_have_count(1)
    lab.run_cell(0)
    panel = lab.page.locator(".jp-DebuggerSidebar")
    frames = panel.locator(".jp-DebuggerCallstack li")
    expect(frames).to_contain_text([":2", ":4"])
    expect(panel.locator(".jp-DebuggerVariables")).to_contain_text("a")
    lab.shot("debugger")
    panel.get_by_title("Continue").first.click()

    expect(lab.output(0)).to_have_text("3")
    lab.shot("debugger-done")


def test_reload_keeps_kernel_and_outputs(lab: Lab) -> None:
    """After a reload the page shows the saved outputs and is on the same interpreter."""
    lab.write("reload.ipynb", "x = 41; print('shown')", "x + 1")
    lab.open("reload.ipynb")
    lab.run_cell(0)
    expect(lab.output(0)).to_have_text("shown")
    before = lab.kernel_id()
    lab.page.keyboard.press("Control+S")
    expect(lab.page.locator(".jp-mod-dirty")).to_have_count(0)
    lab.page.reload()
    lab.wait_for_kernel()
    expect(lab.output(0)).to_have_text("shown")
    lab.run_cell(1)

    expect(lab.output(1)).to_have_text("42")
    assert lab.kernel_id() == before
    lab.shot("reload")


def test_input_and_error_in_the_page(lab: Lab) -> None:
    """A cell asks in the page and gets the answer; an error is shown with its traceback."""
    lab.write("input.ipynb", "name = input('who? ')\nprint('hello', name)", "1 / 0")
    lab.open("input.ipynb")
    lab.run_cell(0)
    field = lab.page.locator(".jp-Stdin-input")
    field.fill("me")
    field.press("Enter")
    expect(lab.cell(0)).to_contain_text("hello me")
    lab.run_cell(1)

    expect(lab.output(1)).to_contain_text("ZeroDivisionError")
    lab.shot("input-and-error")
