"""docs/rest.md: its examples run as they stand, and it names every route."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_ext.routes import ROUTES
from tests.support.jupyter_home import JupyterHome
from tests.support.ws_connection import JupyterServer

_DOCS = Path(__file__).parents[2] / "docs"
_TEXT = (_DOCS / "rest.md").read_text()
_BLOCKS = re.findall(r"```(bash|python)\n(.*?)```\n\n```text\n(.*?)```", _TEXT, re.DOTALL)

# What the page uses of jq, for machines that have none.
_JQ = r"""
import json, sys

flags, wanted = sys.argv[1:-1], sys.argv[-1]
text = sys.stdin.read()
is_lines = wanted.startswith(".data |")
for value in map(json.loads, text.splitlines() if is_lines else [text]):
    if is_lines:
        found = [value["data"].get("data") or value["data"]["exit_code"]]
    elif wanted == ".":
        found = [value]
    elif wanted.startswith("["):
        found = [[value[name] for name in ("path", "size")]]
    elif wanted.endswith("[].path"):
        found = [each["path"] for each in value["entries"]]
    else:
        found = []
        for part in wanted.split(", "):
            item = value
            for name in part.strip(".").split("."):
                item = item[name]
            found.append(item)
    for item in found:
        is_plain = "-r" in flags and isinstance(item, str)
        print(item if is_plain else json.dumps(item, separators=(",", ":")))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = JupyterHome(tmp_path_factory.mktemp("h")).create()
    try:
        with JupyterServer(home) as made:
            yield made
            assert "Traceback" not in made.log, made.log
    finally:
        home.destroy_named_sandboxes()


def test_the_examples_print_what_the_page_says(server, tmp_path):
    """One after the other, those of each language in one program."""
    tools = tmp_path / "bin"
    tools.mkdir()
    if shutil.which("jq") is None:
        (tools / "jq").write_text(f"#!{sys.executable}\n{_JQ}")
        (tools / "jq").chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "TOKEN": server.token,
        "API": f"{server.base}/sandbox/api",
    }
    box = "\n".join(re.findall(r"^box\(\) .*$", _TEXT, re.MULTILINE))
    python = [code for kind, code, _ in _BLOCKS if kind == "python"]
    setting_up = python[0].partition("\nbody = ")[0]
    printed = []
    for kind, code, _ in _BLOCKS:
        if kind == "bash":
            lines = re.sub(r"^export .*\n", "", code, flags=re.MULTILINE)
            command = ["bash", "-c", f"set -e\n{box}\n{lines}"]
        else:
            command = [
                sys.executable,
                "-c",
                code if code is python[0] else setting_up + "\n" + code,
            ]
        ran = subprocess.run(
            command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert ran.returncode == 0, (code, ran.stderr)
        printed.append(ran.stdout)

    assert printed == [expected for _, _, expected in _BLOCKS]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_route_is_named(route):
    """By its path, here or on the page of its part."""
    if route.tag == "api":
        assert "openapi.json" in _TEXT
        return
    pages = "".join((_DOCS / page).read_text() for page in _PAGES)
    path = route.path.removeprefix("sandboxes/{sandbox_id}").strip("/")
    last = [part for part in path.split("/") if part and not part.startswith("{")]
    for part in last or ["sandboxes/{id}"]:
        assert part in pages, route.path


_PAGES = ("rest.md", "terminals.md", "observability.md")
