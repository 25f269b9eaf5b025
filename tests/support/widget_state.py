"""States of widgets as ipywidgets sends them."""

from __future__ import annotations

from typing import Any

from sandbox_kernel.wall.widget_table import MODELS

__all__ = ["identity"]


def identity(name: str) -> dict[str, Any]:
    """Return what a widget of ipywidgets says of its type."""
    module, view, view_module, *_ = MODELS[name]
    return {
        "_model_name": name,
        "_model_module": module,
        "_model_module_version": "2.0.0",
        "_view_name": view,
        "_view_module": view_module or module,
        "_view_module_version": "2.0.0",
    }
