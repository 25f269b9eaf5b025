"""Sandboxes for notebooks: named, isolated, lasting.  The public surface is loaded on first use."""

from __future__ import annotations

__version__ = "0.1.0"
