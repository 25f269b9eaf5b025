"""What holds for every test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is; pytest's own limit ends what hangs.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

# Of what jsonschema imports where it is installed, the grammar of addresses takes seconds.  Nothing
# in these processes asks for it; programs that tests start import what they import.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

# What a machine that CI runs on need not have: a user's rights, an architecture, a kind of control
# groups, hours.  Each says what stands in for it.
_MAY_SKIP = (
    "E2E_KILLS=300 asks for it",
    "so that nothing is counted",
    "the ordinary user's turn is the test",
    "the other table",
    "the per-process test stands in",
    "there is nobody to kill",
    "the fake tree stands in",
    "no control group can be written here",
    "not installed: ",
    "this interpreter comes without CPython's own tests",
    "whether we may write control groups depends on the machine",
    "whoever reaches a daemon by TCP is its user",
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    """In CI a skip is a failure, unless it is known that it hides none."""
    report: pytest.TestReport = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI"):
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
        if not any(known in reason for known in _MAY_SKIP):
            report.outcome = "failed"
            report.longrepr = f"skipped in CI: {reason}"
    return report


@pytest.fixture(scope="session")
def warm_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``XDG_CACHE_HOME`` for tests that have a home of their own.

    The first start of a sandbox compiles the runtime's code and tries the engine, and keeps both
    for the next; half a second of each test otherwise.
    """
    return tmp_path_factory.mktemp("cache")
