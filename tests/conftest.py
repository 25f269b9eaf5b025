"""What holds for every test."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is; pytest's own limit ends what hangs.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def warm_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``XDG_CACHE_HOME`` for tests that have a home of their own.

    The first start of a sandbox compiles the runtime's code and tries the engine, and keeps both
    for the next; half a second of each test otherwise.
    """
    return tmp_path_factory.mktemp("cache")
