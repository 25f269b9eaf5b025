"""Where this user's Jupyter server is, out of what servers write down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from sandbox_kernel.manager.jupyter_address import jupyter_address
from sandbox_kernel.manager.ports import ExposedPort

EXPOSED = ExposedPort(sandbox_id="web", port=8000, token="t", name="a <b>")


def write(folder: Path, pid: int, url: object = None, base_url: object = "/u/") -> None:
    written = {"url": url or f"http://localhost:{pid}/u/", "base_url": base_url, "token": "secret"}
    (folder / f"jpserver-{pid}.json").write_text(json.dumps(written))


def test_it_is_the_server_that_runs_this_kernel(tmp_path: Path) -> None:
    """Else the only one; of two strangers none."""
    environ = {"JUPYTER_RUNTIME_DIR": str(tmp_path)}
    assert jupyter_address(environ) is None
    write(tmp_path, os.getpid())
    only = jupyter_address(environ)
    assert only is not None
    assert only.url == f"http://localhost:{os.getpid()}/u/"
    write(tmp_path, os.getppid())
    assert jupyter_address(environ) is None
    ours = jupyter_address({**environ, "JPY_PARENT_PID": str(os.getppid())})
    assert ours is not None
    assert ours.url == f"http://localhost:{os.getppid()}/u/"


def test_what_is_left_of_servers_is_no_server(tmp_path: Path) -> None:
    """Nor is what cannot be read, or is at no address."""
    environ = {"JUPYTER_RUNTIME_DIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    write(tmp_path, ended.pid)
    assert jupyter_address(environ) is None
    mine = tmp_path / f"jpserver-{os.getpid()}.json"
    for text in ("", "[]", "{}", '{"url": 1, "base_url": "/"}'):
        mine.write_text(text)
        assert jupyter_address(environ) is None
    write(tmp_path, os.getpid(), url="http+unix://%2Fsocket/")
    assert jupyter_address(environ) is None


def test_a_preview_is_shown_as_a_link(tmp_path: Path, monkeypatch) -> None:
    """Below the server's path, for whichever host the browser knows it under."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    assert str(EXPOSED) == "sandbox/preview/8000-web-t/"
    assert "a &lt;b&gt;" in EXPOSED._repr_html_()
    assert "<a" not in EXPOSED._repr_html_()
    assert "<iframe" not in EXPOSED.frame()._repr_html_()

    write(tmp_path, os.getpid())

    assert EXPOSED.url == f"http://localhost:{os.getpid()}/u/sandbox/preview/8000-web-t/"
    assert str(EXPOSED) == EXPOSED.url
    assert 'href="/u/sandbox/preview/8000-web-t/"' in EXPOSED._repr_html_()
    frame = EXPOSED.frame(height=99)._repr_html_()
    assert 'src="/u/sandbox/preview/8000-web-t/"' in frame
    assert 'height="99"' in frame
    assert "allow-top-navigation" not in frame
    assert "secret" not in frame + EXPOSED._repr_html_() + repr(EXPOSED)
