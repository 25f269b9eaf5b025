"""What a program in a sandbox can do to the page by escape sequences: nothing but draw."""

from __future__ import annotations

import contextlib
import re

import pytest
from playwright.sync_api import expect

from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.e2e.browser.conftest import Lab
from tests.e2e.browser.terminal_page import TerminalInPage

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

SHOW = "from sandbox_kernel.widget import TerminalWidget\nTerminalWidget('escapes')"

WATCH = """() => {
  window.seen = [];
  window.Notification = class { constructor(...all) { seen.push(['note', ...all]); } };
  window.Notification.requestPermission = () => seen.push(['permission']);
  for (const name of ['alert', 'confirm', 'prompt', 'open'])
    window[name] = (...all) => { seen.push([name, ...all]); };
  const play = HTMLMediaElement.prototype.play;
  HTMLMediaElement.prototype.play = function () { seen.push(['play']); return play.call(this); };
}"""

ASK = r"""
import os, re, select, sys, termios, tty
before = termios.tcgetattr(0)
tty.setraw(0)
os.write(1, eval('"' + sys.argv[1] + '"').encode())
got = b""
while select.select([0], [], [], 1)[0]:
    got += os.read(0, 999)
termios.tcsetattr(0, termios.TCSANOW, before)
print("\r\ngot" + sys.argv[2] + "=" + got.hex() + ".")
"""


def ask(terminal: TerminalInPage, number: int, question: str) -> bytes:
    """Have a program ask the terminal; return what came back to it."""
    pattern = rf"got{number}=([0-9a-f]*)\."
    terminal.run(f"clear; python3 ask.py '{question}' {number}", re.compile(pattern))
    found = re.search(pattern, terminal.text().replace("\n", ""))
    assert found
    return bytes.fromhex(found[1])


def test_escape_sequences_reach_nothing_but_the_screen(lab: Lab) -> None:
    """Titles are text, links say where they lead, bells and notes are silent, nothing is told."""
    lab.write("escapes.ipynb", SHOW, kernel="python3")
    lab.open("escapes.ipynb")
    lab.run_cell(0)
    terminal = TerminalInPage(lab.page).wait_for("Connected")
    lab.page.evaluate(WATCH)
    before = lab.page.title()
    settings = Settings(data_dir=lab.server.home.sandboxes)
    with contextlib.closing(Manager(settings)) as manager:
        info = manager.lookup("escapes")
        assert info is not None
        (info.layout.workspace / "ask.py").write_text(ASK)

    # A title is text of bounded length beside the sandbox's name, and the page's own stays.
    terminal.run("printf '\\e]2;<b>bold</b>\\u202e%0300d\\a'; echo title-$((6*7))", "title-42")
    title = terminal.root.locator(".sbx-title")
    expect(title).to_have_text("<b>bold</b>" + "0" * 89)
    assert title.locator("b").count() == 0
    expect(terminal.root.locator(".sbx-name")).to_have_text("escapes")
    assert lab.page.title() == before
    # Asked for, neither it nor anything of the window comes back.
    assert ask(terminal, 1, "\\x1b[21t\\x1b[20t\\x1b[14t\\x1b[13t\\x1b[18t\\x1b[19t") == b""
    assert ask(terminal, 2, "\\x05\\x1b[>q\\x1b[=c\\x1bP+q544e\\x1b\\x5c\\x1b[?u") == b""
    colours = ask(terminal, 3, "\\x1b]10;?\\x07\\x1b]11;?\\x07\\x1b]4;1;?\\x07")
    assert re.fullmatch(
        rb"(\x1b\](10|11|4;1);rgb:[0-9a-f]{4}/[0-9a-f]{4}/[0-9a-f]{4}(\x07|\x1b\\)){3}", colours
    )
    # The clipboard is neither read nor written, also where the page itself may do both.
    lab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    lab.page.evaluate("navigator.clipboard.writeText('mine')")
    clipboard = "\\x1b]52;c;?\\x07\\x1b]52;c;dG9sZA==\\x07\\x1b]52;ls;?\\x07"
    assert re.fullmatch(rb"(\x1b\]52;[cpqs0-7]*;\x1b\\)*", ask(terminal, 4, clipboard))
    assert ask(terminal, 5, "\\x1bP$qtold\\x1b\\x5c") == b"\x1bP0$r\x1b\\"
    assert lab.page.evaluate("navigator.clipboard.readText()") == "mine"
    size = terminal.size("size")
    terminal.run("printf '\\e[8;5;20t\\e[2t\\e[3;9;9t'; echo ops-$((6*7))", "ops-42")
    assert terminal.size("after") == size

    # Links to anything but web pages are text; an address in the text needs Ctrl as well.
    for address in ("javascript:alert(1)", "file:///etc/passwd", "data:text/html,x"):
        terminal.run(f"clear; printf '\\e]8;;{address}\\e\\\\look\\e]8;;\\e\\\\\\n'", "look")
        terminal.point_at("look")
        lab.page.keyboard.down("Control")
        terminal.click()
        lab.page.keyboard.up("Control")
        expect(terminal.root.locator(".sbx-hint")).not_to_contain_text(address)
    assert lab.page.evaluate("seen") == []
    # A link whose text is another address leads, and says so, to its own.
    terminal.run(
        "clear; printf '\\e]8;;https://real.invalid/\\e\\\\https://shown.invalid/\\e]8;;\\e\\\\\\n'",
        re.compile(r"^https://shown", re.MULTILINE),
    )
    terminal.point_at("https://shown")
    expect(terminal.root.locator(".sbx-hint")).to_contain_text("https://real.invalid/")
    lab.page.keyboard.down("Control")
    terminal.click()
    lab.page.keyboard.up("Control")
    assert [each[:2] for each in lab.page.evaluate("seen")] == [["open", "https://real.invalid/"]]
    lab.page.evaluate("seen.length = 0")
    terminal.run("clear; echo https://plain.invalid/x", re.compile(r"^https://plain", re.MULTILINE))
    terminal.point_at("https://plain")
    expect(terminal.root.locator(".sbx-hint")).to_contain_text("https://plain.invalid/x")
    terminal.click()
    assert lab.page.evaluate("seen") == []
    lab.page.keyboard.down("Control")
    terminal.click()
    lab.page.keyboard.up("Control")
    assert lab.page.evaluate("seen") == [
        ["open", "https://plain.invalid/x", "_blank", "noopener,noreferrer"]
    ]

    # Bells, notes, progress and pictures: nothing happens, however many there are.
    lab.page.evaluate("seen.length = 0")
    terminal.run(
        "clear; printf '\\e]9;note\\a\\e]777;notify;t;b\\a\\e]9;4;1;50\\a\\ePq#0;2;0;0;0~~\\e\\\\';"
        " head -c 3000000 /dev/zero | tr '\\0' '\\a'; echo bells-$((6*7))",
        "bells-42",
    )
    assert lab.page.evaluate("seen") == []
    assert terminal.root.locator("canvas, img, audio").count() == 0


def test_a_program_may_write_the_clipboard_where_it_was_allowed(lab: Lab) -> None:
    """Live, from the terminal that is typed in; what is replayed writes nothing.  Old lines end."""
    lab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    allowed = SHOW.replace("'escapes'", "'clipboard', clipboard_write=True")
    lab.write("clipboard.ipynb", allowed, kernel="python3")
    lab.open("clipboard.ipynb")
    lab.run_cell(0)
    terminal = TerminalInPage(lab.page).wait_for("Connected")

    terminal.run("printf '\\e]52;c;%s\\a' $(printf told | base64); echo wrote-$((1+1))", "wrote-2")
    lab.page.wait_for_function("async () => await navigator.clipboard.readText() === 'told'")

    lab.page.evaluate("navigator.clipboard.writeText('mine')")
    lab.page.keyboard.press("Control+Shift+e")
    lab.run_cell(0)
    terminal.wait_for("Connected")
    terminal.shows("wrote-2")
    terminal.run("echo after-$((1+1))", "after-2")
    assert lab.page.evaluate("navigator.clipboard.readText()") == "mine"

    terminal.run("clear; seq 7000; echo end-$((1+1))", "end-2")
    for _ in range(7000 // 20):
        lab.page.keyboard.press("Shift+PageUp")
    # 5000 lines and the screen are kept.
    expect(terminal.rows.locator("> div").first).to_have_text(re.compile(r"^(19|20)\d\d$"))
