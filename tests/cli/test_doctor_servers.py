"""What doctor says of Jupyter servers, from what they answer."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sandbox_kernel.cli.servers import look_at, running_servers

STRICT = "default-src 'self'; script-src 'self' 'unsafe-eval'"
FACTS = {
    "host_kernels": [],
    "external_kernels": False,
    "serves_frames": True,
    "is_superuser": False,
    "other_extensions": [],
}
SANITIZER = {"schema": {"properties": {"allowCommandLinker": {"default": False}}}, "settings": {}}
LOCKED: dict[str, Any] = {
    "/x/sandbox/api/protection": FACTS,
    "/x/lab": {},
    "/x/lab/api/settings/@jupyterlab/apputils-extension:sanitizer": SANITIZER,
    "/x/api/kernels": [],
}


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@contextlib.contextmanager
def serving(runtime, answers: dict[str, Any], **headers: str) -> Iterator[dict[str, Any]]:
    """Answer as a Jupyter server would, and yield what doctor finds."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path
            is_known = self.headers["Authorization"] == "token t"
            if path not in answers:
                self.send_response(404)
            elif not is_known and "anyone" not in answers:
                self.send_response(403)
            else:
                self.send_response(200)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(json.dumps(answers.get(path)).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    told = {"pid": os.getpid(), "port": server.server_port, "base_url": "/x/", "token": "t"}
    (runtime / "jpserver-1.json").write_text(json.dumps(told))
    try:
        (found,) = running_servers()
        yield {finding.name.partition(": ")[2]: finding for finding in look_at(found)}
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_all_holds_on_a_locked_server(runtime):
    """Each line is ok, and there is nothing to do."""
    with serving(runtime, LOCKED, Content_Security_Policy=STRICT) as found:
        assert len(found) == 9
        assert all(finding.ok and not finding.mend for finding in found.values())


@pytest.mark.parametrize(
    ("answers", "headers", "bad"),
    [
        ({"/x/sandbox/api/protection": {**FACTS, "host_kernels": ["ir"]}}, {}, "host kernels"),
        ({"/x/sandbox/api/protection": {**FACTS, "external_kernels": True}}, {}, "host kernels"),
        ({"/x/sandbox/api/protection": {**FACTS, "serves_frames": False}}, {}, "frames"),
        ({"/x/sandbox/api/protection": {**FACTS, "is_superuser": True}}, {}, "user"),
        (
            {"/x/sandbox/api/protection": {**FACTS, "other_extensions": ["a"]}},
            {},
            "other extensions",
        ),
        ({"/x/api/terminals": []}, {}, "host terminals"),
        ({"anyone": True}, {}, "login"),
        ({}, {"Content_Security_Policy": "frame-ancestors 'self'"}, "page policy"),
        ({}, {"Access_Control_Allow_Origin": "*"}, "pages from elsewhere"),
        (
            {
                "/x/lab/api/settings/@jupyterlab/apputils-extension:sanitizer": {
                    **SANITIZER,
                    "settings": {"allowCommandLinker": True},
                }
            },
            {},
            "commands in outputs",
        ),
    ],
)
def test_each_door_that_is_open_is_named(runtime, answers, headers, bad):
    """With what to do about it, and none of it makes doctor fail."""
    headers = {"Content_Security_Policy": STRICT, **headers}
    with serving(runtime, {**LOCKED, **answers}, **headers) as found:
        assert [name for name, finding in found.items() if not finding.ok] == [bad]
        assert "JupyterSandbox.locked" in found[bad].mend
        assert not found[bad].required


def test_a_server_without_our_extension_is_told(runtime):
    """Nothing more can be said of it."""
    with serving(runtime, {}) as found:
        assert list(found) == ["answer"]
        assert "jupyter_ext" in found["answer"].detail


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"pid": "x", "port": 1}',
        '{"pid": 999999999, "port": 1}',
        json.dumps({"pid": 1, "port": "x"}),
        json.dumps({"pid": os.getpid(), "port": 1, "sock": "/a"}),
    ],
)
def test_files_of_no_server_are_passed_over(runtime, text):
    """Half written ones, those of servers that have gone, and sockets without a port."""
    (runtime / "jpserver-2.json").write_text(text)

    assert list(running_servers()) == []


def test_a_server_that_does_not_answer_is_told(runtime):
    """One line, after a bounded time."""
    told = {"pid": os.getpid(), "port": 1, "base_url": "/", "token": ""}
    (runtime / "jpserver-3.json").write_text(json.dumps(told))

    (server,) = running_servers()
    (finding,) = look_at(server)

    assert not finding.ok
    assert "ConnectionRefusedError" in finding.detail
