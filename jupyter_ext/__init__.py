"""The Jupyter server extension: thin, everything of substance lives in `sandbox_kernel`."""

from __future__ import annotations

from typing import Any

__all__ = ["_jupyter_server_extension_points"]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Tell jupyter_server which application to load; called by its extension manager."""
    from jupyter_ext.app import SandboxExtension  # noqa: PLC0415  `import jupyter_ext` stays cheap

    return [{"module": "jupyter_ext", "app": SandboxExtension}]
