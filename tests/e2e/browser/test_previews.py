"""Programs of sandboxes without network in the browser, under their preview addresses."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from sandbox_kernel import sync
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.e2e.browser.conftest import Lab
from tests.support.ws_connection import JupyterServer

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[3]


class Previews:
    """A server with sandboxes, and a browser whose user is logged in."""

    def __init__(self, server: JupyterServer, manager: Manager, context: BrowserContext) -> None:
        self.server = server
        self.manager = manager
        self.context = context
        self.page = context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.goto(f"{server.base}/tree?token={server.token}", wait_until="commit")

    def sandbox(self, name: str) -> sync.Sandbox:
        return sync.get_sandbox(name, manager=self.manager, keep_alive=True)

    def show(self, sandbox: sync.Sandbox, port: int) -> Page:
        """Open a preview by the address that the SDK gives."""
        self.page.goto(f"{self.server.base}/{sandbox.expose_port(port).path}")
        return self.page


@pytest.fixture(scope="module")
def path_server(lab_server: JupyterServer) -> Iterator[JupyterServer]:
    """A server of the same user whose previews have no hosts of their own."""
    with JupyterServer(lab_server.home, "--SandboxPreview.host=") as server:
        yield server


@pytest.fixture(params=["own host"])
def previews(
    chromium: Browser, lab_server: JupyterServer, shots: Path, request: pytest.FixtureRequest
) -> Iterator[Previews]:
    is_shared = request.param == "path"
    server = request.getfixturevalue("path_server") if is_shared else lab_server
    manager = Manager(Settings(data_dir=lab_server.home.sandboxes))
    context = chromium.new_context(accept_downloads=True)
    made = Previews(server, manager, context)
    yield made
    made.page.screenshot(path=shots / f"end-of-{request.node.name}.png")
    context.close()
    manager.close()


BOTH = pytest.mark.parametrize("previews", ["own host", "path"], indirect=True)


@BOTH
def test_a_folder_is_served(previews: Previews, request: pytest.FixtureRequest) -> None:
    """``python -m http.server``: listing, links, pictures and a download."""
    sandbox = previews.sandbox("folder")
    sandbox.exec(["mkdir", "-p", "sub"])
    sandbox.write_file("/workspace/sub/data.bin", bytes(range(256)) * 40)
    sandbox.write_file("/workspace/sub/style.css", "body { color: rgb(1, 2, 3) }")
    sandbox.write_file("/workspace/sub/code.js", "document.title = 'ran'; export default 1")
    sandbox.write_file(
        "/workspace/sub/index.html",
        "<!doctype html><link rel=stylesheet href=style.css>"
        "<script type=module src=code.js></script>"
        "<a href=data.bin download>get</a>",
    )
    server = sandbox.start_process(["python", "-m", "http.server", "8000"])
    server.wait_for_port(8000, timeout=30)
    page = previews.show(sandbox, 8000)
    page.get_by_role("link", name="sub/").click()

    expect(page).to_have_title("ran")
    expect(page.locator("body")).to_have_css("color", "rgb(1, 2, 3)")
    assert (".localhost:" in page.url) == ("own host" in request.node.name)
    with page.expect_download() as download:
        page.get_by_role("link", name="get").click()
    assert Path(download.value.path()).read_bytes() == bytes(range(256)) * 40
    server.kill()


# What a hostile page tries at Jupyter's own address, with whatever the browser sends along.
ATTACK = """async base => {
  const seen = {};
  const attempt = async (name, work) => {
    try { seen[name] = await work() } catch (error) { seen[name] = `refused: ${error.name}` }
  };
  const get = path => async () => {
    const answer = await fetch(base + path, {credentials: "include"});
    return answer.status + " " + (await answer.text()).slice(0, 80);
  };
  const post = path => async () => {
    const answer = await fetch(base + path, {
      method: "POST", credentials: "include", mode: "no-cors",
      body: JSON.stringify({name: "sandbox-python", id: "stolen"}),
    });
    return answer.type + " " + answer.status;
  };
  const socket = path => () => new Promise((done, fail) => {
    const it = new WebSocket(base.replace("http", "ws") + path);
    it.onopen = () => done("open");
    it.onerror = () => fail(new Error("socket"));
  });
  await attempt("contents", get("/api/contents"));
  await attempt("me", get("/api/me"));
  await attempt("sandboxes", get("/sandbox/api/sandboxes"));
  await attempt("terminals", post("/api/terminals"));
  await attempt("kernels", post("/api/kernels"));
  await attempt("shutdown", post("/api/shutdown"));
  await attempt("stolen", post("/sandbox/api/sandboxes"));
  await attempt("socket", socket("/sandbox/api/sandboxes/stolen/terminal?cwd=../.."));
  await attempt("cookies", async () => document.cookie);
  await attempt("set", async () => {
    for (const domain of ["", "; domain=localhost", "; domain=127.0.0.1"]) {
      document.cookie = `_xsrf=planted${domain}; path=/`;
    }
  });
  await attempt("frame", () => new Promise(done => {
    const frame = document.createElement("iframe");
    frame.src = base + "/api/status";
    frame.onload = () => done(String(frame.contentDocument));
    document.body.append(frame);
  }));
  await attempt("parent", async () => String(window.opener && window.opener.document));
  const form = document.createElement("form");
  form.method = "POST";
  form.action = base + "/api/terminals";
  form.target = "_blank";
  document.body.append(form);
  form.submit();
  return seen;
}"""


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
@BOTH
def test_a_page_of_a_preview_cannot_act_for_the_user(previews: Previews, name: str) -> None:
    """Neither REST nor terminals, kernels or cookies of Jupyter's are in its reach."""
    base = previews.server.base.replace("127.0.0.1", name)
    previews.page.goto(f"{base}/tree?token={previews.server.token}", wait_until="commit")
    sandbox = previews.sandbox("hostile")
    sandbox.write_file("/workspace/index.html", "<!doctype html><title>hostile</title>hello")
    server = sandbox.start_process(["python", "-m", "http.server", "8000"])
    server.wait_for_port(8000, timeout=30)
    before = previews.server.get("/api/terminals"), previews.server.get("/api/kernels")
    previews.page.goto(f"{base}/{sandbox.expose_port(8000).path}")
    expect(previews.page).to_have_title("hostile")

    seen = previews.page.evaluate(ATTACK, base)

    for what in ("contents", "me", "sandboxes", "socket"):
        assert seen[what].startswith("refused"), seen
    assert seen["cookies"] in ("", "refused: SecurityError")
    assert seen["frame"] == "null"
    cookies = previews.context.cookies([previews.server.base, base])
    assert not [each for each in cookies if each["value"] == "planted"]
    previews.page.wait_for_timeout(1000)  # what is looked for is that nothing happens
    after = previews.server.get("/api/terminals"), previews.server.get("/api/kernels")
    assert before == after
    assert "stolen" not in {each.sandbox_id for each in previews.manager.list()}
    server.kill()


def test_vite_serves_and_reloads(previews: Previews) -> None:
    """The page of a Vite dev server, and a change in it by its WebSocket, without a reload."""
    node, modules = shutil.which("node"), ROOT / "js" / "node_modules"
    assert node is not None
    assert (modules / "vite").is_dir(), "make js installs it"
    home = previews.server.home.work / "site"
    home.mkdir()
    (home / "index.html").write_text(
        "<!doctype html><div id=app></div><script type=module src=/main.js></script>"
    )
    sandbox = sync.get_sandbox(
        "vite",
        manager=previews.manager,
        keep_alive=True,
        notebook_folder=modules,
        folder_mode="read",
    )
    sandbox.write_file("/workspace/index.html", (home / "index.html").read_text())
    main = (
        "window.loads = (window.loads || 0);\n"
        "import {text} from './text.js';\n"
        "const show = text => document.querySelector('#app').textContent = text;\n"
        "show(text);\n"
        "import.meta.hot.accept('./text.js', made => show(made.text));\n"
    )
    sandbox.write_file("/workspace/main.js", main)
    sandbox.write_file("/workspace/text.js", "export const text = 'first';\n")
    vite = sandbox.start_process(
        [node, str(modules / "vite" / "bin" / "vite.js"), "--port", "5173", "--strictPort"],
        cwd="/workspace",
    )
    vite.wait_for_port(5173, timeout=60)
    page = previews.show(sandbox, 5173)

    expect(page.locator("#app")).to_have_text("first")
    page.evaluate("window.stayed = true")
    sandbox.write_file("/workspace/text.js", "export const text = 'second';\n")
    expect(page.locator("#app")).to_have_text("second")
    assert page.evaluate("window.stayed") is True
    vite.kill()


PANEL = """
import panel as pn

pn.extension()
count = pn.widgets.IntInput(name="count", value=0)
button = pn.widgets.Button(name="press me")
button.on_click(lambda event: setattr(count, "value", count.value + 1))
pn.Column(button, pn.bind(lambda number: f"pressed {number} times", count)).servable(title="Counter")
"""


@BOTH
def test_a_panel_app_answers_to_its_page(previews: Previews) -> None:
    """Its scripts load and its WebSocket carries a click there and the change back."""
    apps = Path(sys.prefix) / "preview-apps"
    assert (apps / "panel").is_dir(), "make .venv/.dev installs it"
    sandbox = previews.sandbox("panel")
    sandbox.write_file("/workspace/counter.py", PANEL)
    server = sandbox.start_process(
        ["python", "-m", "panel", "serve", "counter.py", "--port", "5006"],
        env={"PYTHONPATH": str(apps)},
    )
    server.wait_for_port(5006, timeout=120)
    page = previews.show(sandbox, 5006)

    page.get_by_role("button", name="press me").click()
    expect(page.get_by_text("pressed 1 times")).to_be_visible()
    page.get_by_role("button", name="press me").click()
    expect(page.get_by_text("pressed 2 times")).to_be_visible()
    server.kill()


def test_a_second_jupyter_works_inside(previews: Previews) -> None:
    """JupyterLab with a notebook and a terminal, and no request of its page goes elsewhere."""
    sandbox = previews.sandbox("inner")
    server = sandbox.start_process(
        [
            *("python", "-m", "jupyterlab", "--port=8900", "--no-browser", "--ip=127.0.0.1"),
            *("--IdentityProvider.token=", "--ServerApp.password=", "--ServerApp.base_url=/"),
            "--LabApp.news_url=None",
        ],
    )
    server.wait_for_port(8900, timeout=120)
    asked: list[str] = []
    previews.page.on("request", lambda request: asked.append(request.url))
    previews.page.on("websocket", lambda socket: asked.append(socket.url))
    page = previews.show(sandbox, 8900)
    expect(page).to_have_url(re.compile(r"\.localhost:[0-9]+/lab"))
    del asked[:]

    page.locator('.jp-LauncherCard[data-category="Notebook"]').first.click()
    state = page.locator("#jp-main-statusbar").get_by_text(re.compile(r"\| Idle$"))
    state.wait_for(timeout=120_000)
    page.locator(".jp-CodeCell .cm-content").first.click()
    page.keyboard.type("import os; print(os.environ['SANDBOX_ID'], 6 * 7)")
    page.keyboard.press("Shift+Enter")
    expect(page.locator(".jp-OutputArea-output").first).to_contain_text("inner 42", timeout=90_000)
    page.locator(".lm-MenuBar-itemLabel", has_text=re.compile("^File$")).click()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile("^New$")).hover()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Terminal$")).click()
    terminal = page.locator(".jp-Terminal .xterm-helper-textarea")
    terminal.press_sequentially("echo made > by_terminal\n")
    deadline = time.monotonic() + 60
    while sandbox.exec(["grep", "-rl", "made", "--include=by_terminal", "/workspace"]).exit_code:
        assert time.monotonic() < deadline

    own = page.url.split("/")[2]
    assert {url.split("/")[2] for url in asked if url.startswith(("http", "ws"))} == {own}
    server.kill()


def test_the_link_in_a_notebook_works(lab: Lab) -> None:
    """What `expose_port` gives is a link to click on, and a frame when asked for."""
    lab.write(
        "link.ipynb",
        "from sandbox_kernel import sync\n"
        "sandbox = sync.get_sandbox('linked')\n"
        "sandbox.write_file('/workspace/index.html', '<h1>hello from inside</h1>')\n"
        "server = sandbox.start_process(['python', '-m', 'http.server', '8000'])\n"
        "server.wait_for_port(8000, timeout=30)\n"
        "exposed = sandbox.expose_port(8000, 'my page')\n"
        "print(exposed)\n"
        "exposed",
        "exposed.frame(height=200)",
        kernel="python3",
    )
    lab.open("link.ipynb")
    lab.run_cell(0)
    with lab.page.expect_popup() as popup:
        lab.output(0).get_by_role("link", name="my page").click(timeout=60_000)
    expect(popup.value.get_by_role("heading")).to_have_text("hello from inside")
    assert ".localhost:" in popup.value.url
    popup.value.close()
    lab.run_cell(1)
    frame = lab.output(1).frame_locator("iframe")

    expect(frame.get_by_role("heading")).to_have_text("hello from inside")
    expect(lab.output(0).first).to_contain_text(f"{lab.server.base}/sandbox/preview/8000-linked-")


def test_a_sandboxed_notebook_links_to_its_own_app(lab: Lab) -> None:
    """`%sandbox preview` is answered by the host, and opens nothing that is no port."""
    lab.write(
        "own.ipynb",
        "import subprocess, time, urllib.request\n"
        "open('index.html', 'w').write('<h1>hello from the cell</h1>')\n"
        "server = subprocess.Popen(['python', '-m', 'http.server', '8000'])\n"
        "for _ in range(100):\n"
        "    try:\n"
        "        urllib.request.urlopen('http://localhost:8000')\n"
        "    except OSError:\n"
        "        time.sleep(0.1)\n"
        "    else:\n"
        "        break",
        "%sandbox preview 8000",
        "%sandbox preview 80",
    )
    lab.open("own.ipynb")
    for number in range(3):
        lab.run_cell(number)
    with lab.page.expect_popup() as popup:
        lab.output(1).get_by_role("link", name="port 8000").click(timeout=60_000)

    expect(popup.value.get_by_role("heading")).to_have_text("hello from the cell")
    expect(lab.output(2).first).to_contain_text("Port 80 is not a number from 1024 to 65535")
