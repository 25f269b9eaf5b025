"""A sandbox's terminal in a cell of a notebook whose kernel runs on the host, in JupyterLab."""

from __future__ import annotations

import contextlib
import re

import pytest
from playwright.sync_api import TimeoutError, WebSocketRoute, expect  # noqa: A004

from sandbox_kernel.widget.bundle import bundle_name
from tests.e2e.browser.conftest import Lab
from tests.e2e.browser.terminal_page import TerminalInPage

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

IMPORT = "from sandbox_kernel.widget import TerminalWidget\n"
COLOURS = "printf '\\e[31mred \\e[32mgreen \\e[33myellow \\e[34mblue\\e[0m\\n'; ls --color=always /"


def show(lab: Lab, sandbox: str, *more: str, options: str = "") -> TerminalInPage:
    """Open a notebook that shows a terminal, and wait for the terminal's connection."""
    first = f"{IMPORT}widget = TerminalWidget({sandbox!r}{options})\nwidget"
    lab.write(f"{sandbox}.ipynb", first, *more, kernel="python3")
    lab.open(f"{sandbox}.ipynb")
    lab.run_cell(0)
    return TerminalInPage(lab.page).wait_for("Connected")


def test_echo_and_a_full_screen_program(lab: Lab) -> None:
    """The shell echoes what is typed; an editor fills the screen, and gives it back."""
    terminal = show(lab, "first-steps").wait_for("Connected", "server")
    terminal.focus()
    terminal.type("echo $((6*7))-$SANDBOX_ID\n")
    terminal.shows("42-first-steps")
    terminal.run(COLOURS, "red green")
    lab.shot("terminal-light")
    terminal.run("vim -u NONE -c 'set ruler' new.txt", "All")
    terminal.type("ihello from vim\nsecond line")
    lab.page.keyboard.press("Escape")
    terminal.shows("second line")
    lab.shot("terminal-vim")
    terminal.type(":wq\n")
    terminal.shows("42-first-steps")

    terminal.run("cat new.txt | tr a-z A-Z", "HELLO FROM VIM")
    # A letter; a Chinese one; hands, a family, a heart and a flag of several parts; a composed one.
    terminal.run(
        r"for c in a \\u6f22 \\U1f44d\\U1f3fd \\U1f468\\u200d\\U1f469\\u200d\\U1f467 \\u2764\\ufe0f "
        r"\\U1f1e9\\U1f1ea e\\u0301; do printf '\r%b\e[6n' $c; IFS=';' read -rsd R _ col; "
        r'widths="$widths $((col-1))"; done; echo; echo "widths:$widths"',
        "widths: 1 2 2 2 2 2 1",
    )


def test_theme_and_size_follow_the_page(lab: Lab) -> None:
    """Dark is dark at once; a folded side bar gives more columns; a zoomed page has as many rows."""
    terminal = show(lab, "look")
    assert terminal.background() == "rgb(255, 255, 255)"
    narrow = terminal.size("narrow")
    lab.page.locator(".jp-SideBar.jp-mod-left .lm-TabBar-tab").first.click()
    expect(lab.page.locator("#filebrowser")).to_be_hidden()
    wide = terminal.wait_for_cols(lambda cols: cols > narrow[0] + 10)
    assert wide[1] == narrow[1] == 24
    browser = lab.page.context.new_cdp_session(lab.page)
    for zoom in (0.67, 1.1):  # a line's height is not the same part of the page in each
        size = {"width": int(1280 / zoom), "height": int(860 / zoom)}
        browser.send(
            "Emulation.setDeviceMetricsOverride",
            {**size, "deviceScaleFactor": zoom, "mobile": False},
        )
        lab.page.wait_for_function(f"devicePixelRatio.toFixed(2) === '{zoom:.2f}'")
        zoomed = terminal.wait_for_cols(wide[0].__lt__ if zoom < 1 else wide[0].__gt__)
        assert zoomed[1] == 24
    browser.send("Emulation.clearDeviceMetricsOverride")
    lab.menu("Settings", "Theme")
    lab.page.locator(".lm-Menu-itemLabel", has_text=re.compile("^JupyterLab Dark$")).click()

    expect(terminal.screen).to_have_css("background-color", "rgb(17, 17, 17)")
    terminal.run(COLOURS, "red green")
    lab.shot("terminal-dark")
    lab.menu("Settings", "Theme")
    lab.page.locator(".lm-Menu-itemLabel", has_text=re.compile("^JupyterLab Light$")).click()
    expect(terminal.screen).to_have_css("background-color", "rgb(255, 255, 255)")


def test_two_views_are_one_terminal(lab: Lab) -> None:
    """Both show the same, the size is that of the one that is typed in; the bundle came once."""
    requests: list[str] = []
    lab.page.on("request", lambda request: requests.append(request.url))
    one = show(
        lab,
        "views",
        "other = TerminalWidget('views', rows=10)\nother.layout.width = '60%'\nother",
    )
    wide = one.size("wide")
    one.run("echo from_$((1+1))", "from_2")
    lab.run_cell(1)
    other = TerminalInPage(lab.page, 1).wait_for("Connected")
    other.shows("from_2")
    other.run("echo back_$((1+2))", "back_3")

    one.shows("back_3")
    narrow = other.wait_for_cols(lambda cols: cols < wide[0])
    assert narrow[1] == 10
    expect(one.root.locator(".sbx-hint")).to_contain_text("as in another view")
    assert len([url for url in requests if bundle_name() in url]) == 1
    lab.shot("terminal-two-views")
    one.focus()
    one.wait_for_cols(lambda cols: cols == wide[0])
    # A program's question is answered by one of them.
    question = (
        "printf '\\e[c'; IFS= read -rsd c -t 9 a; IFS= read -rsd c -t 1 b; echo \"<${#a}:$b>\""
    )
    one.run(question, re.compile(r"<\d+:>"))


def test_outputs_and_kernels_come_and_go(lab: Lab) -> None:
    """Cleared and run again, the kernel started anew, the page loaded again: the same shell."""
    terminal = show(lab, "lasting", "'idle'")
    terminal.run("export KEPT=kept-$((40+2)); echo is $KEPT", "is kept-42")
    lab.menu("Edit", "Clear Outputs of All Cells")
    expect(lab.page.locator(".sbx-terminal")).to_have_count(0)
    lab.run_cell(0)
    again = TerminalInPage(lab.page).wait_for("Connected")
    again.shows("is kept-42")
    lab.tool("restart")
    lab.page.locator(".jp-Dialog .jp-mod-accept").click()
    lab.page.locator(".jp-Dialog").wait_for(state="detached")
    lab.wait_for_kernel()
    again.run("echo still $KEPT", "still kept-42")
    lab.run_cell(0)
    anew = TerminalInPage(lab.page).wait_for("Connected")
    anew.run("echo anew $KEPT", "anew kept-42")
    lab.page.keyboard.press("Control+Shift+E")  # leaves the terminal; Ctrl+S is the page's again
    lab.page.keyboard.press("Control+S")
    expect(lab.page.locator(".jp-mod-dirty")).to_have_count(0)
    lab.page.reload()
    lab.wait_for_kernel()

    loaded = TerminalInPage(lab.page).wait_for("Connected")
    loaded.shows("anew kept-42")
    loaded.run("echo loaded $KEPT", "loaded kept-42")
    # Answers to what programs asked long ago are not typed at the prompt.
    assert "1;2c" not in loaded.text()


def test_scrolled_away_it_keeps_its_size(lab: Lab) -> None:
    """Where the page takes away what is out of sight, the shell hears of no size of nothing."""
    folder = lab.server.home.root / "settings" / "@jupyterlab" / "notebook-extension"
    folder.mkdir(parents=True, exist_ok=True)
    setting = folder / "tracker.jupyterlab-settings"
    setting.write_text('{"windowingMode": "full"}')
    try:
        terminal = show(lab, "windowed", *[f"print({number})\n" * 20 for number in range(20)])
        terminal.run("trap 'stty size >> sizes' WINCH; echo set-$((6*7))", "set-42")
        size = terminal.size("before")
        scroller = lab.page.locator(".jp-WindowedPanel-outer")
        for _ in range(2):
            scroller.evaluate("node => node.scrollTo(0, node.scrollHeight)")
            expect(terminal.screen).not_to_be_in_viewport()
            scroller.evaluate("node => node.scrollTo(0, 0)")
            expect(terminal.screen).to_be_in_viewport()

        assert terminal.size("after") == size
        terminal.run("awk '$2 < 10' sizes | wc -l | sed 's/^/small: /'", "small: 0")
    finally:
        setting.unlink()


def test_keys_are_the_terminals(lab: Lab) -> None:
    """No key changes a cell or opens a palette, Ctrl+S does not freeze, Ctrl+C interrupts."""
    lab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    terminal = show(lab, "keys", "'second'")
    cells = lab.page.locator(".jp-CodeCell").count()
    terminal.focus()
    for keys in ("x", "d", "d", "a", "b", "m", "y", "z"):
        lab.page.keyboard.press(keys)
    for chord in ("Shift+Enter", "Control+Enter", "Escape", "Control+b", "Control+c"):
        lab.page.keyboard.press(chord)
    lab.page.keyboard.press("Control+s")
    terminal.shows("i-search")  # readline's forward search: nothing stands still
    lab.page.keyboard.press("Control+c")
    terminal.run("echo not-$((6*7))-frozen", "not-42-frozen")
    terminal.run("sleep 600; echo ended", "sleep 600")
    lab.page.keyboard.press("Control+c")
    terminal.run("echo and-$((6*7))-on", "and-42-on")

    terminal.point_at("not-42-frozen")
    terminal.click(count=2)
    lab.page.keyboard.press("Control+Shift+c")
    expect(lab.page.locator("#modal-command-palette:visible")).to_have_count(0)
    copied = lab.page.evaluate("navigator.clipboard.readText()")
    assert copied in ("not-42-frozen", "not")
    assert lab.page.locator(".jp-CodeCell").count() == cells
    lab.page.keyboard.press("Control+Shift+e")
    assert not lab.page.evaluate("document.activeElement.closest('.sbx-terminal') !== null")


def test_paste_find_links_and_clipboard(lab: Lab) -> None:
    """A paste is filtered and asked about; find marks; links need Ctrl; nobody reads the clipboard."""
    lab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    terminal = show(lab, "hands")
    terminal.run("echo ready-$((6*7))", "ready-42")
    terminal.paste("echo a\x1b[201~\x03b")
    terminal.shows("echo a[201~b")
    lab.page.keyboard.press("Control+u")

    terminal.run("bind 'set enable-bracketed-paste off'", "off")
    terminal.paste("echo one-$((1+0))\necho two-$((1+1))\n")
    bar = terminal.root.locator(".sbx-paste")
    expect(bar).to_contain_text("These 2 lines run at once")
    lab.shot("terminal-paste")
    bar.get_by_text("Cancel").click()
    expect(bar).to_be_hidden()
    terminal.paste("echo one-$((1+0))\necho two-$((1+1))\n")
    bar.get_by_text("Paste", exact=True).click()
    terminal.shows("two-2")

    lab.page.keyboard.press("Control+Shift+f")
    lab.page.keyboard.type("two-")
    expect(terminal.root.locator(".sbx-count")).to_have_text(re.compile(r"\d of \d"))
    lab.shot("terminal-find")
    lab.page.keyboard.press("Escape")

    lab.page.evaluate("navigator.clipboard.writeText('a secret')")
    terminal.run(
        "stty -echo; printf '\\e]52;c;?\\a'; IFS= read -rsd '\\\\' -t 5 answer; stty echo; "
        "printf '<%s>\\n' \"${answer@Q}\"",
        re.compile(r"<\$'\\E\]52;c;\\E'>"),
    )
    terminal.run(
        "printf '\\e]52;c;%s\\a' $(printf stolen | base64); echo wrote-$((1+1))", "wrote-2"
    )
    assert lab.page.evaluate("navigator.clipboard.readText()") == "a secret"

    terminal.run("clear; printf '\\e]8;;https://real.invalid/\\e\\\\look\\e]8;;\\e\\\\\\n'", "look")
    terminal.point_at("look")
    expect(terminal.root.locator(".sbx-hint")).to_contain_text("https://real.invalid/")
    pages = len(lab.page.context.pages)
    terminal.click()
    assert len(lab.page.context.pages) == pages
    lab.page.keyboard.down("Control")
    with lab.page.context.expect_page() as opened:
        terminal.click()
    lab.page.keyboard.up("Control")
    assert opened.value.evaluate("window.opener") is None


def test_ten_cuts_leave_the_screen_as_it_was(lab: Lab) -> None:
    """A lost socket is told, and made again; nothing is missing, doubled or typed by itself."""
    routes: list[WebSocketRoute] = []

    def pass_on(route: WebSocketRoute) -> None:
        route.connect_to_server()
        routes.append(route)

    lab.page.route_web_socket(re.compile("/sandbox/api/"), pass_on)
    terminal = show(lab, "cuts")
    # A question whose answer, given once more at each return, would stand at the prompt.
    terminal.run("printf '\\e[c'; IFS= read -rsd c -t 9 x; seq 1 15; echo end-$((6*7))", "end-42")
    before = terminal.text()
    for cut in range(10):
        assert len(routes) == cut + 1
        routes[-1].close(code=1012, reason="cut")
        # It comes back by itself; a connection that is lost at once again is waited for longer.
        if cut == 0:
            expect(terminal.root.locator(".sbx-countdown")).to_have_text(re.compile(r"in \d s"))
            lab.shot("terminal-reconnecting")
        while len(routes) < cut + 2:
            button = terminal.root.locator(".sbx-bordered:visible", has_text="Reconnect now")
            if button.count():
                with contextlib.suppress(TimeoutError):  # it went away by itself
                    button.click(timeout=1_000)
            lab.page.wait_for_timeout(50)
        terminal.wait_for("Connected", "server")

    assert terminal.text() == before
    terminal.run("echo alive-$((6*7))", "alive-42")


def test_the_end_is_told_and_a_new_shell_offered(lab: Lab) -> None:
    """The exit code stands below the last screen; a press starts the session's next shell."""
    terminal = show(lab, "ending")
    terminal.run("echo last-$((6*7)); sleep .1; exit 3", "last-42")
    terminal.wait_for("Exited with code 3")
    lab.shot("terminal-exited")
    terminal.root.get_by_text("Start again").click()
    terminal.wait_for("Connected")

    terminal.run("echo new-$((6*7))", "new-42")


def test_without_a_server_the_kernel_carries(lab: Lab) -> None:
    """A page that does not say where its server is gets code and bytes from the kernel."""
    lab.write(
        "tunnel.ipynb",
        f"{IMPORT}TerminalWidget('tunnel', screen_reader=True)",
        "import time; time.sleep(8)",
        kernel="python3",
    )
    lab.open("tunnel.ipynb")
    lab.page.evaluate("document.getElementById('jupyter-config-data').remove()")
    lab.run_cell(0)
    terminal = TerminalInPage(lab.page).wait_for("Connected", "kernel")
    terminal.run("echo over-$((6*7))-kernel", "over-42-kernel", by_key=True)
    lab.run_cell(1)
    terminal.run("echo busy-$((6*7))", "busy-42", by_key=True)
    terminal.run("seq 200000 | tail -1; echo flood-$((6*7))", "flood-42", by_key=True)
    lab.shot("terminal-kernel")

    # Where screen readers look.
    tree = terminal.root.locator(".xterm-accessibility-tree")
    expect(tree).to_contain_text("busy-42")


def test_an_output_cannot_name_another_server(lab: Lab) -> None:
    """An element that takes the configuration's id is not believed: the kernel carries."""
    lab.write(
        "clobber.ipynb",
        "from IPython.display import HTML\n"
        'HTML(\'<div id="jupyter-config-data">{"baseUrl": "http://evil.invalid/"}</div>\')',
        f"{IMPORT}TerminalWidget('clobber')",
        kernel="python3",
    )
    lab.open("clobber.ipynb")
    lab.run_cell(0)
    lab.page.evaluate("document.querySelector('script#jupyter-config-data').remove()")
    assert "evil" in lab.page.evaluate("document.getElementById('jupyter-config-data').textContent")
    lab.run_cell(1)

    TerminalInPage(lab.page).wait_for("Connected", "kernel")
