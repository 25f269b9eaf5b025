"""The terminal in a cell by keyboard alone, read out, and in letters that can be seen."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e.browser.conftest import Lab
from tests.e2e.browser.terminal_page import TerminalInPage

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

IMPORT = "from sandbox_kernel.widget import TerminalWidget\n"

# All text below an element whose contrast is less than 4.5, with the contrast (WCAG 2.2, 1.4.3).
LOW_CONTRAST = """root => {
  const numbers = text => text.match(/[\\d.]+/g).map(Number);
  const over = ([r, g, b, a = 1], [x, y, z]) =>
    [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a)];
  const luminance = color => color
    .map(part => part / 255)
    .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = node => {
    if (node === null) return [255, 255, 255];
    const color = numbers(getComputedStyle(node).backgroundColor);
    return color[3] === 0 ? ground(node.parentElement) : over(color, ground(node.parentElement));
  };
  const low = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !node.checkVisibility()) continue;
    const behind = ground(node);
    const letters = over(numbers(getComputedStyle(node).color), behind);
    const [light, dark] = [luminance(letters), luminance(behind)].sort((a, b) => b - a);
    const contrast = (light + 0.05) / (dark + 0.05);
    if (contrast < 4.45) low.push([walker.currentNode.textContent, contrast.toFixed(2)]);
  }
  return low;
}"""

# Each of the 16 colours as letters and as ground, inverse, and letters of their ground's colour.
COLOURS = (
    "clear; for c in 0 1 2 3 4 5 6 7; do "
    'printf "\\e[3${c}mfg\\e[0m \\e[9${c}mFG\\e[0m \\e[4${c}mbg\\e[0m \\e[3${c};7minv\\e[0m '
    '\\e[10${c}mBG\\e[0m \\e[4${c};7mvni\\e[0m \\e[3${c};4${c}msame\\e[0m "; done; '
    'printf "\\n\\e[7minverse\\e[0m \\e[38;2;128;128;128mgrey\\e[0m\\n"'
)


def show(lab: Lab, sandbox: str, options: str = "") -> TerminalInPage:
    lab.write(
        f"{sandbox}.ipynb",
        f"{IMPORT}TerminalWidget({sandbox!r}{options})",
        "'next'",
        kernel="python3",
    )
    lab.open(f"{sandbox}.ipynb")
    lab.run_cell(0)
    return TerminalInPage(lab.page).wait_for("Connected")


def has_focus(locator: Locator) -> bool:
    return bool(locator.evaluate("node => node === document.activeElement"))


def test_a_screen_reader_reads_the_screen(lab: Lab) -> None:
    """Lines as a list, new output in a live region, names for all that can be used."""
    terminal = show(lab, "reader", ", screen_reader=True")
    region = lab.page.get_by_role("region", name="Terminal of sandbox reader")
    expect(region).to_have_accessible_name(re.compile(r"Ctrl\+Shift\+E leaves it"))
    terminal.run("echo said-$((6*7))", "said-42", by_key=True)

    lines = region.get_by_role("list").get_by_role("listitem")
    expect(lines.filter(has_text=re.compile("^said-42$"))).to_have_count(1)
    expect(region.locator("[aria-live=assertive]")).to_contain_text("said-42")
    expect(region.get_by_role("textbox", name="Terminal input")).to_be_focused()
    expect(region.get_by_role("status")).to_have_text("Connected")
    lab.page.keyboard.press("Control+Shift+f")
    expect(region.get_by_role("textbox", name="Find in the terminal")).to_be_focused()
    lab.page.keyboard.type("said-42")
    for name in ("Previous match", "Next match", "Close"):
        expect(region.get_by_role("button", name=name, exact=True)).to_be_visible()
    expect(region.get_by_role("status").filter(has_text=re.compile(r"^\d of \d$"))).to_be_visible()
    lab.page.keyboard.press("Escape")
    expect(region.get_by_role("textbox", name="Terminal input")).to_be_focused()
    terminal.run("cat", "cat", by_key=True)
    terminal.paste("one\ntwo\n")
    asked = region.get_by_role("alertdialog", name="Paste")
    expect(asked).to_have_accessible_description(re.compile("^These 2 lines run at once"))
    lab.page.keyboard.press("Escape")
    expect(region.get_by_role("textbox", name="Terminal input")).to_be_focused()


@pytest.mark.parametrize("options", ["", ", screen_reader=True"], ids=["plain", "read-out"])
def test_the_keyboard_gets_in_and_out(
    lab: Lab, options: str, request: pytest.FixtureRequest
) -> None:
    """Tab is the program's, Ctrl+Shift+E leaves; when the program has gone, Tab finds the button."""
    terminal = show(lab, f"keyboard-{request.node.callspec.id}", options)
    letters = terminal.root.locator("textarea")
    terminal.focus()
    # Shift+Tab is ESC [ Z, and Tab 9: whatever the page does with them.
    terminal.type("stty raw; head -c 4 | od -An -tx1; stty sane\n")
    for key in ("Shift+Tab", "Tab"):
        lab.page.keyboard.press(key)
        assert has_focus(letters)
    terminal.shows("1b 5b 5a 09")
    lab.page.keyboard.press("Control+Shift+e")
    assert has_focus(lab.cell(0))
    lab.page.keyboard.press("ArrowDown")
    assert has_focus(lab.cell(1))
    lab.page.keyboard.press("Shift+Tab")
    assert has_focus(terminal.root.get_by_role("button", name="Find"))
    lab.page.keyboard.press("Shift+Tab")
    assert has_focus(letters)

    lab.page.keyboard.press("Enter")
    terminal.type("exit 3\n")
    terminal.wait_for("Exited with code 3")
    lab.page.keyboard.press("Tab")
    assert has_focus(terminal.root.get_by_role("button", name="Start again"))
    lab.page.keyboard.press("Enter")
    terminal.wait_for("Connected")
    assert has_focus(letters)
    terminal.type("echo anew-$((6*7))\n")
    terminal.shows("anew-42")


def test_letters_can_be_told_from_what_is_behind_them(lab: Lab) -> None:
    """A contrast of 4.5 in both themes, for every colour of a program and in the bars."""
    terminal = show(lab, "contrast")
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        lab.menu("Settings", "Theme")
        lab.page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{theme}$")).click()
        expect(lab.page.locator("body")).to_have_attribute("data-jp-theme-name", theme)
        ground = "rgb(17, 17, 17)" if "Dark" in theme else "rgb(255, 255, 255)"
        expect(terminal.screen).to_have_css("background-color", ground)
        terminal.run(COLOURS, "inverse grey")
        terminal.run("bind 'set enable-bracketed-paste off'", "off")
        inverse = terminal.rows.locator("span", has_text=re.compile("^inverse$"))
        expect(inverse).to_have_css("color", ground)
        terminal.paste("one\ntwo\n")
        expect(terminal.root.locator(".sbx-paste")).to_be_visible()
        lab.shot(f"terminal-contrast-{theme[-5:].strip().lower()}")

        assert terminal.rows.evaluate(LOW_CONTRAST) == []
        assert terminal.root.locator(".sbx-paste").evaluate(LOW_CONTRAST) == []
        assert terminal.root.locator(".sbx-status").evaluate(LOW_CONTRAST) == []
        lab.page.keyboard.press("Escape")
        lab.page.keyboard.press("Control+Shift+f")
        lab.page.keyboard.type("same")
        expect(terminal.root.locator(".sbx-count")).to_have_text(re.compile("of"))
        assert terminal.root.locator(".sbx-find").evaluate(LOW_CONTRAST) == []
        assert terminal.rows.evaluate(LOW_CONTRAST) == []
        lab.page.keyboard.press("Escape")
