"""Programs of sandboxes without network in the browser, under their preview addresses."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from sandbox_kernel import sync
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
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
