"""docs/observability.md names every field and kind."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from sandbox_kernel import Activity, SandboxStats
from sandbox_kernel.client import recorded

_TEXT = (Path(__file__).parents[2] / "docs" / "observability.md").read_text()


def test_each_field_is_named():
    for each in (*fields(SandboxStats), *fields(Activity)):
        if each.name not in {"sandbox_id", "taken_at"}:
            assert f"`{each.name}`" in _TEXT, each.name


def test_each_kind_that_is_noted_is_named():
    source = Path(recorded.__file__).read_text()
    kinds = set(re.findall(r'return "(\w+)",', source)) | {"started", "stopped", "ended", "cell"}

    assert {"command", "process_ended"} <= kinds
    for kind in kinds:
        assert f"`{kind}`" in _TEXT, kind
