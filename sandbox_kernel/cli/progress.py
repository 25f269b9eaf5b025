"""A bar for long work, on a terminal only."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self

from sandbox_kernel.cli.report import printable

__all__ = ["Progress"]

_LONGEST_NAME = 30


class Progress:
    """Shows on standard error how far work is; nothing where that is no terminal.

    Parameters
    ----------
    quiet : bool
        Show nothing at all.
    unit : str
        What is counted; bytes get the prefixes of sizes.
    """

    def __init__(self, *, quiet: bool = False, unit: str = "B") -> None:
        self._is_shown = not quiet and sys.stderr.isatty()
        self._unit = unit
        self._bar: Any = None  # tqdm's, which has no types

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def expect(self, total: int, name: str) -> None:
        """Say how much there is, and of what."""
        if self._is_shown:
            self._made().total = total
            self.reach(0, name)

    def reach(self, done: int, name: str | None = None) -> None:
        """Say how much is done, and what comes now; names may come from a sandbox."""
        if not self._is_shown:
            return
        bar = self._made()
        if name is not None:
            shown = printable(name)
            if len(shown) > _LONGEST_NAME:
                shown = f"...{shown[3 - _LONGEST_NAME :]}"
            bar.set_description_str(shown, refresh=False)
        bar.update(done - bar.n)

    def _made(self) -> Any:
        if self._bar is None:
            from tqdm import tqdm  # noqa: PLC0415  start-up time

            self._bar = tqdm(
                unit=self._unit,
                unit_scale=self._unit == "B",
                dynamic_ncols=True,
                leave=False,
                file=sys.stderr,
                ascii=(sys.stderr.encoding or "").lower() not in {"utf-8", "utf8"},
            )
        return self._bar
