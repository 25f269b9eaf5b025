from __future__ import annotations

import pytest

from tests.support.managed import plain_manager


@pytest.fixture
def data_dir(tmp_path):
    return tmp_path / "sandbox"


@pytest.fixture
def manager(data_dir):
    with plain_manager(data_dir) as made:
        yield made
