"""Removal of trees that sandboxes made; the code lies with the engines, which need it as well."""

from __future__ import annotations

from sandbox_kernel.engines.remove import remove_tree

__all__ = ["remove_tree"]
