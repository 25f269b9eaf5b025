"""A terminal in a notebook's cell: `TerminalWidget`.

>>> from sandbox_kernel.widget import TerminalWidget  # doctest: +SKIP
>>> TerminalWidget("my-sandbox")  # doctest: +SKIP
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox_kernel.widget.terminal_widget import TerminalWidget

__all__ = ["TerminalWidget"]


def __getattr__(name: str) -> object:
    # The server extension needs the bundle, and no widgets.
    if name == "TerminalWidget":
        from sandbox_kernel.widget.terminal_widget import TerminalWidget  # noqa: PLC0415

        return TerminalWidget
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
