"""What tests share that compare a sandbox's kernel with a local one."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def trusted_outputs() -> Iterator[None]:
    """Trust the sandboxes of a module: a local kernel's outputs are compared as they are sent.

    What the output wall makes of the same libraries' outputs is what tests/wall is about.
    """
    with pytest.MonkeyPatch.context() as patched:
        settings = {"SandboxManager": {"output_policy": "trusted"}}
        patched.setenv("SANDBOX_CONFIG", json.dumps(settings))
        yield
