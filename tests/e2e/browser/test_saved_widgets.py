"""Widgets that a notebook's file brings along act on opening in Jupyter as it is, and not in ours."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.browser.conftest import Lab, lab_of
from tests.support.escapes import stored_widget
from tests.support.jupyter_home import JupyterHome
from tests.support.kernel_driver import KERNEL
from tests.support.ws_connection import JupyterServer

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

_DATA = Path(__file__).parents[3] / "data"
_EXTENSION = "**/@jupyter-sandbox/labextension/**"
_TRUST = "from nbformat.sign import TrustNotebookApp; TrustNotebookApp.launch_instance()"


@pytest.fixture(scope="module")
def server(new_home: Callable[[], JupyterHome]) -> Iterator[JupyterServer]:
    # The extension of these sources, also where another one is installed.
    with lab_of(new_home(), JUPYTER_PATH=str(_DATA)) as server:
        yield server


def _open(lab: Lab, name: str, application: str) -> None:
    """Open a notebook in JupyterLab, or by itself in Notebook 7, and wait for its kernel."""
    if application == "lab":
        lab.open(name)
        return
    lab.page.goto(f"{lab.server.base}/notebooks/{name}?token={lab.server.token}")
    idle = lab.page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]')
    idle.wait_for(state="attached", timeout=180_000)
    # It says so before there is a kernel, too.
    deadline = time.monotonic() + 60
    while True:
        kernels = [each["kernel"] for each in lab.server.get("/api/sessions")]
        if any(each["execution_state"] == "idle" and each["connections"] for each in kernels):
            break
        assert time.monotonic() < deadline, kernels
        lab.page.wait_for_timeout(50)
    idle.wait_for(state="attached")


def _is_made(
    chromium: Browser,
    server: JupyterServer,
    shots: Path,
    application: str,
    *,
    kernel: str,
    trusted: bool = False,
    alone: bool = False,
) -> bool:
    """Open a notebook with a saved widget; return whether that acts."""
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    page.set_default_timeout(30_000)
    if alone:
        page.route(_EXTENSION, lambda route: route.abort())
    lab = Lab(page, server, shots)
    name = f"saved-{application}-{kernel}-{trusted}-{alone}.ipynb"
    lab.write(name, "6 * 7", kernel=kernel)
    path = server.home.work / name
    notebook = json.loads(path.read_text())
    saved = stored_widget("saved")
    notebook["metadata"]["widgets"] = saved
    path.write_text(json.dumps(notebook))
    if trusted:
        command = [sys.executable, "-c", _TRUST, name]
        subprocess.run(command, env=server.home.env(), cwd=path.parent, check=True, timeout=60)
    _open(lab, name, application)
    lab.run_cell(0)
    expect(lab.output(0)).to_have_text("42")
    made = bool(page.evaluate("window.__ran?.saved ?? false"))
    with page.expect_response(lambda answer: answer.request.method == "PUT"):
        page.keyboard.press("Control+S")
    assert '"42"' in path.read_text()
    assert json.loads(path.read_text())["metadata"]["widgets"] == saved
    context.close()
    for session in server.get("/api/sessions"):
        server.call("DELETE", f"/api/sessions/{session['id']}")
    return made


@pytest.mark.parametrize("application", ["lab", "notebook"])
def test_saved_widgets_act_only_where_a_notebook_of_the_host_is_trusted(
    chromium: Browser, server: JupyterServer, shots: Path, application: str
) -> None:
    """What is saved stays in the file; without our extension all of them act."""

    def is_made(*, kernel: str, trusted: bool = False, alone: bool = False) -> bool:
        how = {"kernel": kernel, "trusted": trusted, "alone": alone}
        return _is_made(chromium, server, shots, application, **how)

    assert is_made(kernel="python3", alone=True)
    assert is_made(kernel=KERNEL, alone=True)
    assert not is_made(kernel="python3")
    assert is_made(kernel="python3", trusted=True)
    assert not is_made(kernel=KERNEL)
    assert not is_made(kernel=KERNEL, trusted=True)
