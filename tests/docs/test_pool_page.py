"""docs/pool.md and docs/jupyterhub.md say what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager
from jupyter_server.services.kernels.kernelmanager import MappingKernelManager
from traitlets.config import Config, Configurable

from jupyter_ext.hardening import JupyterSandbox
from jupyter_ext.provisioner import NAME
from jupyter_ext.schedule import STAY, SandboxPool

_DOCS = Path(__file__).resolve().parents[2] / "docs"
_CLASSES: dict[str, type[Configurable]] = {
    each.__name__: each
    for each in (JupyterSandbox, KernelManager, MappingKernelManager, SandboxPool)
}


def test_each_setting_of_the_pool_is_described_with_its_default() -> None:
    """A row for each trait, and no row for what is none."""
    text = (_DOCS / "pool.md").read_text()

    rows = dict(re.findall(r"^\| `(\w+\.\w+)` \| `(.+?)` \|", text, re.MULTILINE))

    assert rows == {
        f"SandboxPool.{name}": repr(trait.default() or type(trait.default())())
        if trait.default() is not None
        else "None"
        for name, trait in SandboxPool.class_traits(config=True).items()
    }


@pytest.mark.parametrize("page", ["pool.md", "jupyterhub.md"])
def test_the_settings_of_the_examples_exist(page: str) -> None:
    """Each block of configuration is taken by the classes it names."""
    text = (_DOCS / page).read_text()
    blocks = re.findall(r"```python\n(# jupyter_server_config.py\n.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        config = Config()
        exec(compile(block, page, "exec"), {"c": config})  # noqa: S102 - a page of ours
        for name, values in config.items():
            made = _CLASSES[name](config=config)
            for key, value in values.items():
                assert getattr(made, key) == value


def test_numbers_and_names_are_those_of_the_code() -> None:
    """How long what waits stays, and what the provisioner is called."""
    text = (_DOCS / "pool.md").read_text()

    assert f"after {STAY:.0f}\nseconds" in text
    assert NAME in text
