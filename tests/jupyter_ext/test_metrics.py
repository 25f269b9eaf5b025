"""Metrics of sandboxes: counted in a thread, told at once, and only while somebody asks."""

from __future__ import annotations

import threading
import time
from urllib.request import Request, urlopen

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from jupyter_ext.metrics import SandboxMetrics, offer
from sandbox_kernel.manager.stats import SandboxStats
from tests.support.jupyter_home import JupyterHome
from tests.support.ws_connection import JupyterServer


def stats(sandbox_id, **more):
    facts = {"state": "running", "engine": "e", "taken_at": 2.0, "created_at": 1.0, **more}
    return SandboxStats(sandbox_id=sandbox_id, **facts)


def wait_until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def told():
    """Return the text of a scrape of what was counted."""
    opened = []

    def scrape(counted):
        metrics = SandboxMetrics(lambda: counted, period=60)
        opened.append(metrics)
        registry = CollectorRegistry()
        registry.register(metrics)
        metrics.begin()
        wait_until(lambda: metrics._counted is counted)
        return generate_latest(registry).decode()

    yield scrape
    for each in opened:
        each.close()


def test_each_running_sandbox_has_its_series_and_all_are_totalled(told):
    text = told(
        [
            stats("a", cpu_seconds=1.5, memory_bytes=100, processes=3, kernels=1, terminals=0),
            stats("b", started_at=7.0),
            stats("c", state="stopped"),
        ]
    )

    assert 'sandboxes{state="running"} 2.0' in text
    assert 'sandboxes{state="stopped"} 1.0' in text
    assert 'sandbox_cpu_seconds_total{sandbox_id="a"} 1.5' in text
    assert 'sandbox_memory_bytes{sandbox_id="a"} 100.0' in text
    assert 'sandbox_start_time_seconds{sandbox_id="b"} 7.0' in text
    assert 'sandbox_memory_bytes{sandbox_id="b"}' not in text, "unknown is not zero"
    assert 'sandbox_id="c"' not in text


def test_more_sandboxes_than_a_scrape_should_hold_are_only_totalled(told):
    text = told([stats(f"s{n}", processes=1) for n in range(501)])

    assert 'sandboxes{state="running"} 501.0' in text
    assert "sandbox_id=" not in text


def test_a_scrape_never_waits_for_a_count():
    """The server's loop answers it."""
    release = threading.Event()
    metrics = SandboxMetrics(lambda: [release.wait(30)][:0])
    try:
        started = time.monotonic()
        list(metrics.collect())
        assert time.monotonic() - started < 5
    finally:
        release.set()
        metrics.close()


def test_counting_ends_when_nobody_scrapes_and_begins_again():
    counts = []
    metrics = SandboxMetrics(lambda: counts.append(1) or [], period=0.01, patience=0.05)
    list(metrics.collect())
    wait_until(lambda: metrics._counting is None)
    before = len(counts)
    list(metrics.collect())
    wait_until(lambda: len(counts) > before)
    metrics.close()

    assert before >= 2
    assert metrics._counting is None


def test_a_second_server_of_the_process_adds_nothing():
    registry = CollectorRegistry()
    first, second = offer(registry), offer(registry)
    second()
    assert b"sandboxes" in generate_latest(registry)
    first()
    assert b"sandboxes" not in generate_latest(registry)


def test_a_server_tells_them_beside_its_own(tmp_path, warm_cache):
    home = JupyterHome(tmp_path, warm_cache).create()
    try:
        with JupyterServer(home) as server:
            allowed = {"Authorization": f"token {server.token}"}
            server.call("POST", "/sandbox/api/sandboxes/seen/exec", {"argv": ["true"]})
            deadline = time.monotonic() + 60
            while True:
                asked = Request(f"{server.base}/metrics", headers=allowed)  # noqa: S310  ours
                with urlopen(asked) as answer:  # noqa: S310  likewise
                    text = answer.read().decode()
                if 'sandbox_processes{sandbox_id="seen"}' in text:
                    break
                assert time.monotonic() < deadline, text
                time.sleep(0.5)
            assert "http_request_duration_seconds" in text, "the server's own are there as well"
    finally:
        home.destroy_named_sandboxes()
