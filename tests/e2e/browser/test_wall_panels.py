"""Texts of the kernel beside its outputs: completions, help, questions, variables, sources.

All that the kernel answers there is markup that acts.  JupyterLab draws one of it as it draws an
output, a variable, which acts on a plain kernel.  The help it cleans, and the rest it shows as the
text it is, on either kernel: that the markup can be read there is the control.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.e2e.browser.conftest import Lab, lab_of
from tests.support.jupyter_home import JupyterHome
from tests.support.kernel_driver import KERNEL
from tests.support.ws_connection import JupyterServer

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

ANSWERS = r"""
kernel = get_ipython().kernel
def acts(name):
    return f'<img src=x onerror="(window.__ran ??= {{}}).{name} = true">{name}'
def forms(name):
    return {form: acts(name) for form in ('text/html', 'text/markdown', 'text/plain')}
def complete(code, at):
    kind = {'text': acts('match'), 'type': acts('kind'), 'signature': acts('signature')}
    return {'status': 'ok', 'matches': [acts('match'), 'other'], 'cursor_start': at,
            'cursor_end': at, 'metadata': {
                '_jupyter_types_experimental': [{'start': at, 'end': at, **kind}]}}
def inspect(*_, **__):
    return {'status': 'ok', 'found': True, 'data': forms('help'), 'metadata': {}}
kernel.do_complete, kernel.do_inspect = complete, inspect
bodies = {
    'inspectVariables': {'variables': [{
        'name': acts('name'), 'evaluateName': 'x', 'type': acts('type'), 'value': acts('value'),
        'variablesReference': 0}]},
    'richInspectVariables': {'data': forms('variable'), 'metadata': {}},
    'modules': {'modules': [{'id': 1, 'name': acts('module'), 'path': '/m.py'}], 'totalModules': 1},
    'source': {'content': acts('source'), 'mimeType': 'text/html'},
}
answer = kernel.debugger.process_request
async def debug(message):
    body = bodies.get(message['command'])
    return await answer(message) | ({'success': True, 'body': body} if body else {})
kernel.debugger.process_request = debug
"""


@pytest.fixture(scope="module")
def server(new_home: Callable[[], JupyterHome]) -> Iterator[JupyterServer]:
    home = new_home()
    settings = home.root / "settings" / "@jupyterlab" / "completer-extension"
    settings.mkdir(parents=True)
    (settings / "manager.jupyterlab-settings").write_text('{"showDocumentationPanel": true}')
    with lab_of(home, "--LabApp.expose_app_in_browser=True", draws_all=True) as server:
        yield server


@pytest.fixture
def open_lab(
    chromium: Browser, server: JupyterServer, shots: Path
) -> Iterator[Callable[[str], Lab]]:
    context = chromium.new_context(viewport={"width": 2000, "height": 1000})

    def open_lab(kernel: str) -> Lab:
        lab = Lab(context.new_page(), server, shots)
        lab.page.set_default_timeout(30_000)
        lab.write(f"panels-{kernel}.ipynb", ANSWERS, "x", "input(acts('prompt'))", kernel=kernel)
        lab.open(f"panels-{kernel}.ipynb")
        lab.run_cell(0)
        expect(lab.prompt(0)).to_have_text("[1]:", timeout=60_000)
        return lab

    yield open_lab
    context.close()
    for session in server.get("/api/sessions"):
        server.call("DELETE", f"/api/sessions/{session['id']}")


def expect_text_in(panel: Locator, *names: str) -> None:
    """Expect that markup can be read, and is none."""
    for name in names:
        expect(panel).to_contain_text(f".{name} = true")
    expect(panel.locator("img")).to_have_count(0)


def look_at_all(lab: Lab) -> Locator:
    """Have each panel show what the kernel says; return that of the help."""
    page = lab.page
    page.evaluate("() => void jupyterapp.commands.execute('inspector:open')")
    lab.cell(1).locator(".cm-content").click()
    page.keyboard.press("End")
    page.keyboard.press("Home")
    inspector = page.locator(".jp-Inspector-content")
    expect(inspector).to_contain_text("help")

    page.keyboard.press("End")
    lab.complete("other")
    menu = page.locator(".jp-Completer:not(.lm-mod-hidden)")
    expect_text_in(menu.locator(".jp-Completer-list"), "match", "kind")
    documentation = menu.locator(".jp-Completer-docpanel")
    expect(documentation).to_contain_text("help")
    lab.shot(f"panels-completer-{lab.server.get('/api/sessions')[0]['kernel']['name']}")
    page.keyboard.press("Escape")

    lab.run_cell(2)
    expect_text_in(page.locator(".jp-Stdin-prompt"), "prompt")
    page.keyboard.type("y")
    page.keyboard.press("Enter")
    expect(lab.output(2).last).to_have_text("'y'")

    page.locator(".jp-DebuggerBugButton").first.click()
    expect_text_in(page.locator(".jp-DebuggerVariables-body").first, "name", "type")
    module = page.locator(".jp-DebuggerKernelSource-source")
    expect_text_in(module, "module")
    module.click()
    expect_text_in(page.locator(".cm-content", has_text=".source = true"), "source")
    page.evaluate(
        "() => void jupyterapp.commands.execute('debugger:render-mime-variable', {name: 'x'})"
    )
    expect(page.locator("[id^=jp-debugger-variable-mime]")).to_contain_text("variable")
    lab.shot(f"panels-debugger-{lab.server.get('/api/sessions')[0]['kernel']['name']}")
    return inspector


def test_on_a_plain_kernel_a_variable_acts(open_lab: Callable[[str], Lab]) -> None:
    """And help is markup, which JupyterLab cleans."""
    lab = open_lab("python3")
    inspector = look_at_all(lab)

    lab.page.wait_for_function("window.__ran?.variable")
    assert lab.page.evaluate("window.__ran") == {"variable": True}
    expect(inspector.locator("img:not([onerror])")).to_have_count(1)


def test_in_a_sandbox_no_panel_acts(open_lab: Callable[[str], Lab]) -> None:
    """Help and variables are text, too."""
    lab = open_lab(KERNEL)
    inspector = look_at_all(lab)

    expect_text_in(inspector, "help")
    expect_text_in(lab.page.locator("[id^=jp-debugger-variable-mime]"), "variable")
    assert lab.page.evaluate("window.__ran") is None
