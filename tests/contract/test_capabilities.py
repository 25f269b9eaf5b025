"""What each engine reports of its limits is what the table in docs/docker.md says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel.engines.base import Engine, Launch, Limits, Reached, SandboxSpec, StateLayout
from sandbox_kernel.engines.bubblewrap import BubblewrapEngine
from tests.support.docker import docker_engine

ENGINES: dict[str, Callable[[], Engine]] = {
    "bubblewrap": BubblewrapEngine,
    "docker": docker_engine,
}
PAGE = Path(__file__).parents[2] / "docs" / "docker.md"
LIMITS = Limits(memory_bytes=256 << 20, cpus=1.0, processes=200, file_bytes=1 << 20)


def table() -> dict[str, dict[str, str]]:
    """Return the page's table: for each limit, what it says of each engine."""
    head, *rows = re.findall(r"^\| (?:limit|`\w+`) \|.*$", PAGE.read_text(), re.MULTILINE)
    engines = [each.strip() for each in head.strip("|").split("|")][1:]
    found = {}
    for row in rows:
        name, *cells = [each.strip() for each in row.strip("|").split("|")]
        found[name.strip("`")] = dict(zip(engines, cells, strict=True))
    return found


@pytest.mark.parametrize("name", ENGINES)
def test_each_limit_is_reached_as_far_as_the_page_says(
    name: str, tmp_path: Path, warm_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the page names two, this machine has one of them."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(warm_cache))
    layout = StateLayout(tmp_path / "state")
    layout.root.mkdir(0o700)
    engine = ENGINES[name]()
    spec = SandboxSpec(sleep_after=None, limits=LIMITS, accept_weaker_limits=True)
    instance = engine.start(
        Launch(sandbox_id="limits", lifetime="limits", token="t", spec=spec, layout=layout)
    )
    engine.stop(instance, layout, grace=0)

    said = table()

    assert said.keys() == instance.limits.keys()
    for limit, reached in instance.limits.items():
        words = [each.value for each in Reached if each.value in said[limit][name]]
        assert reached in words, limit
