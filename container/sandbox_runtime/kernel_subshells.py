"""Subshells: threads of the kernel that take shell requests of their own, side by side."""

# mypy: disable-error-code="no-untyped-call, attr-defined"
# ipykernel is annotated in part; what it takes and gives is proved by tests instead.

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from contextvars import copy_context

from ipykernel.thread import BaseThread
from tornado.ioloop import IOLoop

try:
    from ipykernel.subshell_manager import UnknownSubshellError
except ImportError:  # ipykernel before 7.4 has no name for it

    class UnknownSubshellError(KeyError):  # type: ignore[no-redef]
        """A request names a subshell that is not there."""


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from sandbox_runtime.kernel_session import Outlet, Record

__all__ = ["Dispatcher", "SubshellManager", "Subshells", "UnknownSubshellError"]


class Dispatcher:
    """Starts the handling of messages on one event loop, in the order of their coming.

    All handlers share one context, so that what one cell sets there the next one finds.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._context = copy_context()
        self._tasks: set[asyncio.Task[Any]] = set()

    def submit(self, handle: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        """Start a handler soon; may be called from any thread."""
        # A closed loop: the kernel or the subshell is ending.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._start, handle, args)

    def _start(self, handle: Callable[..., Coroutine[Any, Any, Any]], args: tuple[Any]) -> None:
        task = self._loop.create_task(handle(*args), context=self._context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Subshell:
    def __init__(self, name: str) -> None:
        self.thread = BaseThread(name=f"subshell-{name}", daemon=True)
        self.lock = asyncio.Lock()
        self.is_aborting = False
        self.dispatcher = Dispatcher(self.thread.io_loop.asyncio_loop)


class SubshellManager:
    """What ipykernel asks of its manager of subshells, without sockets in between."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._main = threading.current_thread()
        self._lock = threading.Lock()
        self._subshells: dict[str, _Subshell] = {}
        self._handle: Callable[..., Coroutine[Any, Any, Any]] | None = None
        self._dispatcher: Dispatcher | None = None

    def set_on_recv_callback(self, handle: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        """Take the handler of shell messages; called on the main thread, with its loop."""
        self._handle = handle
        self._dispatcher = Dispatcher(IOLoop.current().asyncio_loop)

    def deliver(self, subshell_id: str | None, record: Record) -> None:
        """Give a request to a subshell, or to the main shell.

        Raises
        ------
        UnknownSubshellError
            There is no such subshell.
        """
        assert self._handle is not None  # noqa: S101 - the kernel has started
        self.submit(subshell_id, self._handle, subshell_id, record)

    def submit(
        self, subshell_id: str | None, handle: Callable[..., Coroutine[Any, Any, Any]], *args: Any
    ) -> None:
        """Start a coroutine where the subshell's requests are handled, behind those."""
        dispatcher = self._dispatcher if subshell_id is None else self._get(subshell_id).dispatcher
        assert dispatcher is not None  # noqa: S101 - the kernel has started
        dispatcher.submit(handle, *args)

    def _get(self, subshell_id: str) -> _Subshell:
        with self._lock:
            try:
                return self._subshells[subshell_id]
            except KeyError:
                raise UnknownSubshellError(subshell_id) from None

    def create(self) -> str:
        """Start a subshell; returns its id."""
        name = str(uuid.uuid4())
        subshell = _Subshell(name)
        with self._lock:
            self._subshells[name] = subshell
        subshell.thread.start()
        return name

    def delete(self, subshell_id: str) -> None:
        """Let a subshell end once its cell, if any, has ended.

        Raises
        ------
        UnknownSubshellError
            There is no such subshell.
        """
        subshell = self._get(subshell_id)
        with self._lock:
            self._subshells.pop(subshell_id, None)
        subshell.thread.stop()

    def close(self) -> None:
        """Let all subshells end."""
        for name in self.list_subshell():
            self.delete(name)

    def list_subshell(self) -> list[str]:
        """Return the ids of all subshells."""
        with self._lock:
            return list(self._subshells)

    def subshell_id_from_thread_id(self, thread_id: int) -> str | None:
        """Return which subshell a thread is; None for the main shell.

        Raises
        ------
        RuntimeError
            The thread is neither.
        """
        if thread_id == self._main.ident:
            return None
        with self._lock:
            for name, subshell in self._subshells.items():
                if subshell.thread.ident == thread_id:
                    return name
        msg = f"Thread id {thread_id!r} does not correspond to a subshell of this kernel"
        raise RuntimeError(msg)

    def get_subshell_to_shell_channel_socket(self, subshell_id: str | None) -> Outlet:  # noqa: ARG002 - ipykernel's
        """Return where a subshell's replies go."""
        return self._outlet

    def get_subshell_aborting(self, subshell_id: str) -> bool:
        """Say whether a subshell refuses execute requests for now."""
        return self._get(subshell_id).is_aborting

    def set_subshell_aborting(self, subshell_id: str, aborting: bool) -> None:  # noqa: FBT001 - ipykernel's
        """Let a subshell refuse execute requests, or take them again."""
        self._get(subshell_id).is_aborting = aborting

    def get_subshell_asyncio_lock(self, subshell_id: str) -> asyncio.Lock:
        """Return the lock that a subshell holds while it handles a request."""
        return self._get(subshell_id).lock


class Subshells:
    """Stands where ipykernel has its shell channel thread; there is no such thread here."""

    def __init__(self, outlet: Outlet) -> None:
        self.manager = SubshellManager(outlet)
        self.parent_thread = threading.current_thread()

    def is_alive(self) -> bool:
        """Return False: there is nothing to stop."""
        return False

    def start(self) -> None:
        """Do nothing: requests come from the kernel's pipe."""
