"""The table of widgets is that of the ipywidgets which is installed."""

from __future__ import annotations

from ipywidgets.widgets.widget import _registry

from sandbox_kernel.wall.widget_table import MODELS
from tests.wall.make_widget_table import rows


def test_the_table_is_that_of_the_installed_ipywidgets() -> None:
    """Else: ``python -m tests.wall.make_widget_table``, and read what has changed."""
    assert rows() == MODELS


def test_every_widget_that_ipywidgets_registers_is_in_the_table() -> None:
    """But the one that stands for media of no kind."""
    registered = {
        model
        for versions in _registry._registry.values()
        for models in versions.values()
        for model in models
    }

    assert registered - MODELS.keys() == {"DOMWidgetModel"}
