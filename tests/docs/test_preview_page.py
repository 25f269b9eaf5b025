"""docs/preview.md names every setting with its default."""

from __future__ import annotations

import re
from pathlib import Path

from jupyter_ext.preview import SandboxPreview

_TEXT = (Path(__file__).parents[2] / "docs" / "preview.md").read_text()


def test_each_setting_is_described_with_its_default():
    """No more and no less."""
    rows = dict(re.findall(r"^\| `SandboxPreview\.(\w+)` \| `(.+?)` \|", _TEXT, re.MULTILINE))
    made = {
        name: f'"{default}"' if isinstance(default := trait.default(), str) else repr(default)
        for name, trait in SandboxPreview.class_traits(config=True).items()
    }

    assert rows == made
