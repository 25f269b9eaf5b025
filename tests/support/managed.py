"""A manager over a folder of its own, with the engine that does not isolate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_kernel.engines.base import Engine
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.support.plain_engine import REFERENCE, PlainEngine

__all__ = ["local_manager", "plain_manager", "plain_settings"]


def plain_settings(data_dir: Path, **changes: object) -> Settings:
    """Return settings under which sandboxes are plain processes below `data_dir`."""
    return Settings(**{"data_dir": data_dir, "engine": REFERENCE, **changes})  # type: ignore[arg-type]


@contextmanager
def plain_manager(
    data_dir: Path, engine: Engine | None = None, last: Engine | None = None, **changes: object
) -> Iterator[Manager]:
    """Yield a manager, and destroy every sandbox of the folder afterwards, with the `last` engine."""
    settings = plain_settings(data_dir, **changes)
    manager = Manager(settings, engines={REFERENCE: engine or PlainEngine()})
    try:
        yield manager
    finally:
        # An engine that a test has made to fail must not keep the next one from a clean machine.
        cleaner = Manager(settings, engines={REFERENCE: last or PlainEngine()})
        for info in cleaner.list():
            cleaner.destroy(info.sandbox_id)
        cleaner.gc()
        cleaner.close()
        manager.close()


@contextmanager
def local_manager(transport: str, data_dir: Path) -> Iterator[Manager]:
    """Yield a manager whose sandboxes a transport can reach: for "inprocess", in this process."""
    if transport != "inprocess":
        with plain_manager(data_dir) as manager:
            yield manager
        return
    from tests.support.inprocess_engine import InProcessEngine

    engine = InProcessEngine()
    with plain_manager(data_dir, engine, engine) as manager:
        yield manager
