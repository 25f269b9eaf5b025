from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.host_user import HostSandbox, HostUser

# As an ordinary user we can only be ourselves; that is one of the two cases then.
_WHO = ["root", "ordinary user"] if os.geteuid() == 0 else ["ordinary user"]


@pytest.fixture(scope="session", params=_WHO)
def user(request: pytest.FixtureRequest) -> Iterator[HostUser]:
    """Who starts the sandbox."""
    host_user = HostUser(ordinary=request.param == "ordinary user")
    yield host_user
    host_user.close()


@pytest.fixture(scope="session")
def box(user: HostUser) -> Iterator[HostSandbox]:
    """A sandbox with default settings, shared by the tests that only look."""
    with user.start("box") as sandbox:
        yield sandbox
