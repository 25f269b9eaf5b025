"""The locked server, as a process of its own: what it refuses, and that it still does its work."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.support.jupyter_home import JupyterHome
from tests.support.kernel_driver import KERNEL, Kernel
from tests.support.ws_connection import JupyterServer, WsConnection

LOCKED = "--JupyterSandbox.locked=True"
_RELAY = ["-P", "-m", "sandbox_kernel.kernel.launch", "{connection_file}"]
POSING = {
    "posing": {"argv": ["sh", "-c", "exit 1", *_RELAY[1:]]},
    "posing-program": {"argv": ["/bin/sh", *_RELAY]},
    "posing-path": {"argv": ["python", *_RELAY], "env": {"PYTHONPATH": "/workspace"}},
    "posing-trust": {"argv": ["python", *_RELAY], "env": {"SANDBOX_CONFIG": "{}"}},
    "posing-provisioner": {
        "argv": ["python", *_RELAY],
        "metadata": {"kernel_provisioner": {"provisioner_name": "local-provisioner"}},
    },
}
"""Kernels that look like the relay, and start or trust something else."""


@pytest.fixture(scope="module")
def locked_home(new_home) -> JupyterHome:
    home = new_home()
    for name, spec in POSING.items():
        folder = home.data / "kernels" / name
        folder.mkdir(parents=True)
        named = {"display_name": "Posing", "language": "python", **spec}
        (folder / "kernel.json").write_text(json.dumps(named))
    return home


@pytest.fixture(scope="module")
def server(locked_home) -> Iterator[JupyterServer]:
    with JupyterServer(locked_home, LOCKED, app="jupyterlab", base_url="/user/ada/") as server:
        yield server


def head(
    server: JupyterServer, path: str, method: str = "GET", *, is_known: bool = True
) -> tuple[int, Message, bytes]:
    request = urllib.request.Request(  # noqa: S310  our own server on loopback
        server.base + path,
        method=method,
        headers={"Authorization": f"token {server.token}"} if is_known else {},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def doctor(server: JupyterServer) -> dict[str, dict[str, object]]:
    """Return what doctor finds on the server, by what was looked at."""
    done = subprocess.run(
        [sys.executable, "-m", "sandbox_kernel.cli", "doctor", "--json"],
        env=server.home.env(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    begin = f"server on port {server.port}: "
    return {
        finding["name"].removeprefix(begin): finding
        for finding in json.loads(done.stdout)
        if finding["name"].startswith(begin)
    }


def test_without_the_line_the_server_starts_host_kernels(new_home):
    """The positive control: what the tests below refuse is there on a server as it comes."""
    with JupyterServer(new_home()) as server:
        assert "python3" in server.get("/api/kernelspecs")["kernelspecs"]
        status, kernel = server.call("POST", "/api/kernels", {"name": "python3"})
        assert status == 201
        server.call("DELETE", f"/api/kernels/{kernel['id']}")
        assert server.call("GET", "/api/terminals")[0] == 200
        found = doctor(server)
    assert found["host kernels"]["ok"] is False
    assert "python3" in found["host kernels"]["detail"]
    assert "JupyterSandbox.locked" in found["host kernels"]["mend"]
    assert [name for name, finding in found.items() if finding["mend"]] == ["host kernels"]
    assert found["host terminals"]["ok"] is found["page policy"]["ok"] is False
    assert found["frames"]["ok"] is False
    assert found["login"]["ok"] is found["pages from elsewhere"]["ok"] is True


def test_doctor_sees_what_holds(server):
    """On the server that runs, found by the file that it has written."""
    found = doctor(server)

    assert {name: finding["ok"] for name, finding in found.items()} == {
        "host kernels": True,
        "host terminals": True,
        "page policy": True,
        "frames": True,
        "commands in outputs": True,
        "login": True,
        "pages from elsewhere": True,
        "user": os.geteuid() != 0,
        "other extensions": True,
    }
    assert not any(finding["required"] for finding in found.values())


def test_only_sandbox_kernels_are_listed(server):
    """Their pictures and specifications are there, those of others are not."""
    specs = server.get("/api/kernelspecs")

    assert set(specs["kernelspecs"]) == {"sandbox-python"}
    assert specs["default"] == "sandbox-python"
    assert server.call("GET", "/api/kernelspecs/sandbox-python")[0] == 200
    assert server.call("GET", "/api/kernelspecs/python3")[0] == 404
    assert head(server, "/kernelspecs/python3/logo-64x64.png")[0] == 404


@pytest.mark.parametrize("name", ["python3", "PYTHON3", *POSING])
def test_host_kernels_are_refused_by_name(server, name):
    """By the kernels' route, the sessions' route, and as the new kernel of a session."""
    refusals = [
        server.call("POST", "/api/kernels", {"name": name}),
        server.call(
            "POST",
            "/api/sessions",
            {"path": "x.ipynb", "type": "notebook", "name": "", "kernel": {"name": name}},
        ),
    ]

    for status, answer in refusals:
        assert status == 403
        assert "sandboxes only" in answer["message"]
    assert server.get("/api/kernels") == []
    assert server.get("/api/sessions") == []


@pytest.mark.parametrize(
    ("body", "status"),
    [({"name": "unheard-of"}, 404), ({"name": ["python3"]}, 400), ({"name": "%s%d"}, 404)],
)
def test_what_is_no_kernel_is_an_error_of_the_asker(server, body, status):
    """Never 500, as the stock server answers."""
    assert server.call("POST", "/api/kernels", body)[0] == status
    assert (
        server.call("POST", "/api/sessions", {"path": "x", "type": "notebook", "kernel": body})[0]
        == status
    )


def test_without_a_name_the_sandbox_kernel_starts(server):
    """And a session cannot be moved to a host kernel later."""
    status, kernel = server.call("POST", "/api/kernels")
    assert (status, kernel["name"]) == (201, "sandbox-python")
    assert server.call("DELETE", f"/api/kernels/{kernel['id']}")[0] == 204

    status, session = server.call(
        "POST", "/api/sessions", {"path": "a.ipynb", "type": "notebook", "name": ""}
    )
    assert (status, session["kernel"]["name"]) == (201, "sandbox-python")
    path = f"/api/sessions/{session['id']}"
    status, answer = server.call("PATCH", path, {"kernel": {"name": "python3"}})
    assert status == 403
    assert "sandboxes only" in answer["message"]
    assert server.call("PATCH", path, {"path": "b.ipynb"})[0] == 200
    assert [each["name"] for each in server.get("/api/kernels")] == ["sandbox-python"]
    assert server.call("DELETE", path)[0] == 204


def test_host_terminals_are_off(server):
    """Neither the list nor a new one."""
    assert head(server, "/api/terminals")[0] == 404
    assert head(server, "/api/terminals", "POST")[0] == 404


def test_no_program_of_the_host_is_started(server, locked_home):
    """Exports that need one are refused, others are there; language servers are off."""
    notebook = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (locked_home.work / "e.ipynb").write_text(json.dumps(notebook))

    assert head(server, "/nbconvert/webpdf/e.ipynb")[0] == 403
    assert head(server, "/nbconvert/pdf/e.ipynb")[0] == 403
    assert head(server, "/nbconvert/pdf", "POST")[0] == 403
    assert head(server, "/nbconvert/html/e.ipynb")[0] == 200
    assert head(server, "/lsp/status")[0] == 404


EXPORTERS = {
    "import": {"nbconvert_exporter": "planted.Exporter"},
    "program": {"nbconvert_exporter": "WebPDF"},
    "plain": {"nbconvert_exporter": "python"},
    "none": {},
}
"""Exporters that a notebook names."""


def plant(folder: Path) -> Path:
    """Put into a folder what converting its notebooks would run; return the file that tells."""
    ran = folder / "ran"
    (folder / "planted.py").write_text(
        f"open({str(ran)!r}, 'a').write('module ')\n"
        "from nbconvert.exporters import PythonExporter as Exporter\n"
    )
    template = f"{{{{ cycler.__init__.__globals__.os.system('echo template >> {ran}') }}}}"
    for name in ("lab/index.html.j2", "script/script.j2", "webpdf/index.html.j2"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(template)
    for name, exporter in EXPORTERS.items():
        notebook = {
            "cells": [{"cell_type": "raw", "metadata": {}, "source": "converted"}],
            "metadata": {"language_info": {"name": "x", **exporter}},
            "nbformat": 4,
            "nbformat_minor": 4,
        }
        (folder / f"{name}.ipynb").write_text(json.dumps(notebook))
    return ran


def test_conversions_of_a_server_as_it_comes_run_what_lies_beside_notebooks(new_home):
    """The positive control of the next test."""
    home = new_home()
    ran = plant(home.work)
    with JupyterServer(home, app="jupyterlab") as server:
        head(server, "/nbconvert/script/import.ipynb")
        head(server, "/nbconvert/html/none.ipynb")
    assert set(ran.read_text().split()) == {"module", "template"}


def test_conversions_run_nothing_that_lies_beside_notebooks(server, locked_home):
    """Neither a module that a notebook names, nor a template, nor a program by another spelling."""
    ran = plant(locked_home.work)

    for path in ("script/import", "script/program", "script/plain", "script/none", "html/none"):
        status, _, body = head(server, f"/nbconvert/{path}.ipynb")
        assert status == 200, path
        assert b"%PDF" not in body
    assert b"converted" in body
    for path in ("PDF/none.ipynb", "WebPdf/none.ipynb", "Latex/none.ipynb", "latex/none.ipynb"):
        assert head(server, f"/nbconvert/{path}")[0] == 403, path
    for name in ("script", "html", "LATEX"):
        assert head(server, f"/nbconvert/{name}", "POST")[0] in (403, 405), name
    assert not ran.exists()


PLAIN_EXPORTS = {"html", "markdown", "notebook", "python", "script", "slides"}
"""Those that a locked server makes."""


def export_all(server: JupyterServer, folder: Path) -> dict[str, int]:
    """Export a notebook in every form there is; return what the server answers to each."""
    outputs = [
        {"output_type": "display_data", "metadata": {}, "data": {form: text}}
        for form, text in (
            ("text/latex", r"\input{neighbour}"),
            ("text/html", "<p>x</p>"),
            ("text/markdown", "x"),
        )
    ]
    code = {"cell_type": "code", "metadata": {}, "source": "", "execution_count": 1}
    notebook = {
        "cells": [
            {**code, "outputs": outputs},
            {"cell_type": "markdown", "metadata": {}, "source": "x"},
        ],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 4,
    }
    (folder / "all.ipynb").write_text(json.dumps(notebook))
    names = {each.name for each in entry_points(group="nbconvert.exporters")}
    return {name: head(server, f"/nbconvert/{name}/all.ipynb")[0] for name in sorted(names)}


@pytest.mark.parametrize("is_locked", [False, True], ids=["as it comes", "locked"])
def test_no_export_hands_outputs_to_pandoc(new_home, tmp_path, *, is_locked):
    """It would read the files that a formula names; the server as it comes is the control."""
    home, asked = new_home(), tmp_path / "asked"
    program = tmp_path / "pandoc"
    program.write_text(
        f'#!/bin/sh\ncase "$1" in -v) echo "pandoc 3.1";; *) echo "$@" >> {asked}; cat;; esac\n'
    )
    program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    options = [LOCKED] if is_locked else []
    with JupyterServer(home, *options, app="jupyterlab", PATH=path) as server:
        answers = export_all(server, home.work)

    if is_locked:
        assert {name for name, status in answers.items() if status == 200} == PLAIN_EXPORTS
        # The custom one needs a template, which nobody can name.
        refused = answers.keys() - PLAIN_EXPORTS - {"custom"}
        assert {answers[name] for name in refused} == {403}
        assert not asked.exists()
    else:
        assert answers["rst"] == answers["asciidoc"] == 200
        assert "-f latex -t asciidoc" in asked.read_text()
        assert "-f html -t asciidoc" in asked.read_text()


@pytest.mark.parametrize("path", ["/lab", "/login", "/nowhere"])
def test_pages_have_a_policy(server, path):
    """Scripts of the server's own only, whatever page it is."""
    _, headers, _ = head(server, path)

    policy = dict(
        rule.strip().split(" ", 1) for rule in headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'self'"
    assert "'unsafe-inline'" not in policy["script-src"]
    assert "blob:" not in policy["script-src"]
    assert "'sha256-" in policy["script-src"]
    assert policy["frame-src"] == "'self' blob:"
    assert policy["object-src"] == "'none'"


def test_files_stay_in_an_origin_of_their_own(server, locked_home):
    """What the stock server adds to a policy is added to ours."""
    (locked_home.work / "x.html").write_text("<p>")

    _, headers, _ = head(server, "/files/x.html")

    assert headers["Content-Security-Policy"].endswith("sandbox allow-scripts")


def test_no_file_of_a_user_is_a_script(server, locked_home):
    """The policy lets scripts of the server in: a page could load what somebody has put there."""
    (locked_home.work / "x.js").write_text("window.__ran = true")
    (locked_home.work / "y.mjs").write_text("window.__ran = true")
    (locked_home.work / "z.png").write_bytes(b"\x89PNG")
    language = {"name": "x", "mimetype": "text/javascript", "file_extension": ".js"}
    notebook = {"cells": [], "metadata": {"language_info": language}, "nbformat": 4}
    (locked_home.work / "s.ipynb").write_text(json.dumps({**notebook, "nbformat_minor": 5}))

    for path in ("/files/x.js", "/files/y.mjs", "/nbconvert/script/s.ipynb"):
        status, headers, _ = head(server, path)
        assert (status, headers["Content-Type"]) == (200, "text/plain; charset=utf-8"), path
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert head(server, "/files/z.png")[1]["Content-Type"] == "image/png"


def test_lab_is_told_to_do_less(server):
    """Commands in outputs, renderers that run code, and installing are off."""
    sanitizer = server.get("/lab/api/settings/@jupyterlab/apputils-extension:sanitizer")
    default = sanitizer["schema"]["properties"]["allowCommandLinker"]["default"]
    _, _, page = head(server, "/lab")
    told = page.decode().partition('id="jupyter-config-data"')[2].partition(">")[2]
    config = json.loads(told.partition("</script>")[0])

    assert default is False
    assert {
        "@jupyterlab/javascript-extension",
        "@jupyterlab/terminal-extension",
        "@jupyterlab/vega5-extension",
    } <= set(config["disabledExtensions"])
    assert config["extensionManager"]["can_install"] is False
    status, _ = server.call(
        "POST", "/lab/api/extensions", {"cmd": "install", "extension_name": "nothing-of-this-name"}
    )
    assert status >= 400


def test_framed_outputs_are_documents_of_the_server(server):
    """The output names it, and it comes with a policy of its own."""
    code = (
        "from IPython.display import HTML, display\n"
        "display(HTML('<p>é</p><script>document.title = 1</script>'))"
    )
    with Kernel(WsConnection(server, KERNEL)) as kernel:
        kernel.become_ready()
        (shown,) = kernel.cell(code).displays
    html = shown["text/html"]

    assert "srcdoc" not in html
    path = html.partition("src='/user/ada")[2].partition("'")[0]
    assert path.startswith("/sandbox/frame/")
    status, headers, body = head(server, path)
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("sandbox allow-scripts;")
    assert "default-src 'self'" not in policy
    assert "<p>é</p>".encode() in body
    assert head(server, path.replace(path[-8:], "00000000"))[0] == 404
    _, _, body = head(server, path, is_known=False)
    assert "<p>é</p>".encode() not in body


@pytest.mark.parametrize(
    "options",
    [
        ["--ServerApp.allow_origin=*"],
        ["--ServerApp.disable_check_xsrf=True"],
        ["--GatewayClient.url=http://127.0.0.1:1"],
    ],
)
def test_a_server_that_cannot_be_locked_does_not_start(new_home, options):
    """It says why; a server that is half locked would be taken for a locked one."""
    home = new_home()
    words = [sys.executable, "-m", "jupyter_server", "--allow-root", "--no-browser", LOCKED]

    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            [*words, "--ip=127.0.0.1", "--port=0", *options],
            env=home.env(),
            cwd=home.work,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1
        assert "cannot be:" in done.stderr
        return
    pytest.fail("it started")


def test_a_setting_of_another_file_does_not_unlock(new_home):
    """Configuration of an application is read after the server's own."""
    home = new_home()
    (home.root / "cfg" / "jupyter_lab_config.json").write_text(
        json.dumps(
            {
                "ServerApp": {
                    "kernel_spec_manager_class": "jupyter_client.kernelspec.KernelSpecManager",
                    "tornado_settings": {"headers": {}},
                },
                "LabApp": {"extension_manager": "pypi"},
            }
        )
    )

    with pytest.raises(AssertionError, match=r"cannot be: another ServerApp\.kernel_spec_manager"):
        JupyterServer(home, LOCKED, app="jupyterlab")
