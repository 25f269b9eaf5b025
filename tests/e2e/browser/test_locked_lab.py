"""JupyterLab on a locked server: it starts, runs cells and draws, within its strict policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser.conftest import Lab, lab_of
from tests.support.jupyter_home import JupyterHome
from tests.support.ws_connection import JupyterServer

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

# Draws by script, asks for the page around it, and says what came of it.
PLOT = """
from IPython.display import HTML, display
display(HTML('''<div id="plot">empty</div><script>
let reached = "nothing";
try { reached = parent.parent.document.title; } catch (error) { reached = error.name; }
document.getElementById("plot").textContent = "drawn, reached " + reached;
</script>'''))
"""
# The same by the ways that a strict policy stops in the page itself.
IN_THE_PAGE = """
const made = document.createElement("div");
made.innerHTML = "<img src=x onerror='window.__ran = true'>";
document.body.append(made);
const script = document.createElement("script");
script.textContent = "window.__ran = true";
document.body.append(script);
const file = document.createElement("script");
file.src = "/files/x.js";
file.onerror = () => { window.__refused = true; };
document.body.append(file);
"""


@pytest.fixture(scope="module")
def locked_server(new_home: Callable[[], JupyterHome]) -> Iterator[JupyterServer]:
    with lab_of(new_home(), "--JupyterSandbox.locked=True") as server:
        yield server


@pytest.fixture
def locked_lab(
    chromium: Browser, locked_server: JupyterServer, shots: Path, request: pytest.FixtureRequest
) -> Iterator[Lab]:
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.add_init_script(
        "window.__violations = [];"
        "addEventListener('securitypolicyviolation', event => __violations.push("
        "[event.effectiveDirective, event.blockedURI, event.sample].join(' ')));"
    )
    yield Lab(page, locked_server, shots)
    page.screenshot(path=shots / f"end-of-{request.node.name}.png")
    context.close()
    for session in locked_server.get("/api/sessions"):
        locked_server.call("DELETE", f"/api/sessions/{session['id']}")


def drawn(page: Page):
    outer = page.frame_locator("iframe.jupyter-sandbox-frame")
    return outer.frame_locator("iframe").locator("#plot")


def test_it_starts_runs_and_draws(locked_lab: Lab) -> None:
    """A cell, a framed plot, and both again after a reload; no rule of the policy is broken."""
    lab = locked_lab
    lab.write("locked.ipynb", "print(6 * 7)", PLOT)

    lab.open("locked.ipynb")
    assert lab.page.evaluate("__violations") == []
    lab.run_cell(0)
    expect(lab.output(0)).to_contain_text("42")
    lab.run_cell(1)
    expect(drawn(lab.page)).to_have_text("drawn, reached SecurityError")
    lab.shot("locked-lab")
    source = lab.page.locator("iframe.jupyter-sandbox-frame").get_attribute("src")
    assert source is not None
    assert source.startswith("/sandbox/frame/")

    lab.page.keyboard.press("Control+S")
    expect(lab.page.locator(".jp-mod-dirty")).to_have_count(0)
    lab.page.reload()
    lab.wait_for_kernel()
    expect(drawn(lab.page)).to_have_text("drawn, reached SecurityError")
    assert lab.page.evaluate("__violations") == []


def test_script_in_the_page_does_not_run(locked_lab: Lab) -> None:
    """What would get through the wall meets the policy, and a server with nothing to start."""
    lab = locked_lab
    lab.write("policy.ipynb", "1")
    lab.open("policy.ipynb")
    (lab.server.home.work / "x.js").write_text("window.__ran = true")

    lab.page.evaluate(IN_THE_PAGE)

    lab.page.wait_for_function("window.__refused")
    lab.page.wait_for_function("__violations.length >= 2")
    assert lab.page.evaluate("window.__ran") is None
    status = lab.page.evaluate("async () => (await fetch('/api/terminals')).status")
    assert status == 404


def test_nothing_of_the_host_is_offered(locked_lab: Lab) -> None:
    """The launcher has the sandbox's kernel, and neither others nor a terminal."""
    lab = locked_lab
    lab.page.goto(f"{lab.server.base}/lab?token={lab.server.token}")

    launcher = lab.page.locator(".jp-Launcher")
    expect(launcher.get_by_text("Python 3 (sandbox)").first).to_be_visible()
    expect(launcher.get_by_text("Python 3 (ipykernel)")).to_have_count(0)
    expect(launcher.get_by_text("Terminal", exact=True)).to_have_count(0)
