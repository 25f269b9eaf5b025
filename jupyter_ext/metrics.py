"""Prometheus metrics of sandboxes, beside jupyter_server's own at ``<base_url>metrics``.

The server's loop answers a scrape and must not wait, so a scrape reads what a thread has counted.
The thread counts as long as somebody scrapes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry

from jupyter_ext.handles import manager
from sandbox_kernel.errors import SandboxError

if TYPE_CHECKING:
    from sandbox_kernel.manager.stats import SandboxStats

__all__ = ["SandboxMetrics", "offer"]

_PERIOD = 10.0
"""Seconds between two counts; scrapes are usually 15 to 60 s apart."""

_PATIENCE = 150.0
"""Seconds without a scrape after which nothing is counted any more."""

_MOST_LABELLED = 500
"""Sandboxes that have series of their own; above, only the totals are told."""


def count_all() -> list[SandboxStats]:
    """Return what every sandbox uses; starts nothing."""
    found = []
    for info in manager().list():
        try:
            stats = manager().stats(info.sandbox_id)
        except SandboxError:
            continue  # its engine does not answer: a gap tells more than a made-up zero
        if stats is not None:
            found.append(stats)
    return found


class SandboxMetrics(Collector):
    """Turns counts into metrics.

    Parameters
    ----------
    count : callable
        Returns the present count; called in a thread.
    period, patience : float
        Seconds between counts, and without a scrape until the counting ends.
    """

    def __init__(
        self,
        count: Callable[[], list[SandboxStats]] = count_all,
        *,
        period: float = _PERIOD,
        patience: float = _PATIENCE,
    ) -> None:
        self._count = count
        self._period = period
        self._patience = patience
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._counted: list[SandboxStats] = []
        self._scraped_at = time.monotonic()
        self._counting: threading.Thread | None = None

    def describe(self) -> Iterable[Metric]:
        """Return the families without values: registering must not count anything."""
        return _families([])

    def collect(self) -> Iterator[Metric]:
        """Yield the families with what was counted last."""
        self.begin()
        yield from _families(self._counted)

    def begin(self) -> None:
        """Count from now on, for as long as somebody scrapes."""
        with self._lock:
            self._scraped_at = time.monotonic()
            if self._counting is None and not self._ended.is_set():
                self._counting = threading.Thread(
                    target=self._go_on, name="sandbox-metrics", daemon=True
                )
                self._counting.start()

    def close(self) -> None:
        """Count no more, and wait for the count under way."""
        self._ended.set()
        counting = self._counting
        if counting is not None:
            counting.join()

    def _go_on(self) -> None:
        while True:
            try:
                self._counted = self._count()
            except SandboxError:
                self._counted = []  # the registry cannot be read, so that nothing is known
            has_ended = self._ended.wait(self._period)
            with self._lock:
                if has_ended or time.monotonic() - self._scraped_at > self._patience:
                    self._counting = None
                    return


def offer(registry: CollectorRegistry = REGISTRY) -> Callable[[], None]:
    """Add the metrics to a registry; returns what takes them away again.

    A second server of the same process and user has nothing else to tell, and adds nothing.
    """
    metrics = SandboxMetrics()
    try:
        registry.register(metrics)
    except ValueError:
        return lambda: None
    # The first scrape is to find something.
    metrics.begin()

    def withdraw() -> None:
        registry.unregister(metrics)
        metrics.close()

    return withdraw


def _families(counted: list[SandboxStats]) -> Iterator[Metric]:
    sandboxes = GaugeMetricFamily("sandboxes", "Sandboxes of this user.", labels=["state"])
    for state in ("running", "stopped"):
        sandboxes.add_metric([state], sum(each.state == state for each in counted))
    yield sandboxes
    running = [each for each in counted if each.state == "running"]
    labelled = running if len(running) <= _MOST_LABELLED else []
    for family, values in (
        (
            CounterMetricFamily(
                "sandbox_cpu_seconds", "Processor time since its start.", labels=["sandbox_id"]
            ),
            [(each, each.cpu_seconds) for each in labelled],
        ),
        (
            GaugeMetricFamily("sandbox_memory_bytes", "Memory in use.", labels=["sandbox_id"]),
            [(each, each.memory_bytes) for each in labelled],
        ),
        (
            GaugeMetricFamily("sandbox_processes", "Processes.", labels=["sandbox_id"]),
            [(each, each.processes) for each in labelled],
        ),
        (
            GaugeMetricFamily("sandbox_kernels", "Living kernels.", labels=["sandbox_id"]),
            [(each, each.kernels) for each in labelled],
        ),
        (
            GaugeMetricFamily("sandbox_terminals", "Living terminals.", labels=["sandbox_id"]),
            [(each, each.terminals) for each in labelled],
        ),
        (
            GaugeMetricFamily("sandbox_idle_seconds", "Since its last use.", labels=["sandbox_id"]),
            [(each, each.idle_for) for each in labelled],
        ),
        (
            GaugeMetricFamily(
                "sandbox_start_time_seconds",
                "When it was started, since the epoch.",
                labels=["sandbox_id"],
            ),
            [(each, each.started_at) for each in labelled],
        ),
    ):
        for each, value in values:
            if value is not None:
                family.add_metric([each.sandbox_id], value)
        yield family
