"""The debugger of a kernel, loaded when somebody debugs: a quarter of a kernel's imports is its."""

# mypy: disable-error-code="no-untyped-call, override"
# ipykernel is annotated in part; what it takes and gives is proved by tests instead.

from __future__ import annotations

import asyncio
import importlib.util
import queue
import sys
import types
from contextlib import contextmanager
from functools import cached_property

import zmq
from ipykernel.ipkernel import IPythonKernel
from zmq.eventloop.zmqstream import ZMQStream

from sandbox_runtime.kernel_session import Outlet, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

__all__ = ["DebugShell", "DebugpyStream", "LazyDebugger"]

_MODULE = "ipykernel.debugger"


class DebugpyStream(ZMQStream):
    """The stream to the debugger's own socket; nothing of it exists before somebody debugs."""

    def __init__(self, io_loop: Any) -> None:
        self.io_loop = io_loop
        self._on_recv: tuple[Any, ...] = ()
        self._stream: ZMQStream | None = None

    def on_recv(self, callback: Any, copy: bool = True) -> None:  # noqa: FBT001, FBT002 - ZMQStream's
        """Take the handler of what the debugger says."""
        self._on_recv = (callback, copy)

    def _open(self) -> ZMQStream:
        if self._stream is None:
            socket: Any = zmq.Context.instance().socket(zmq.STREAM)
            socket.linger = 1000
            self._stream = ZMQStream(socket, self.io_loop)
            if self._on_recv:
                self._stream.on_recv(*self._on_recv)
        return self._stream

    @property
    def socket(self) -> Any:
        """The socket, opened by the first who asks."""
        return self._open().socket

    def send_multipart(self, *args: Any, **kwargs: Any) -> Any:
        """Send to the debugger."""
        return self._open().send_multipart(*args, **kwargs)


class DebugShell(Outlet):
    """The debugger's own client of the main shell: sends one request, waits for its reply."""

    identity = b"debugger"

    def __init__(self, submit: Callable[[Record], object]) -> None:
        self._submit = submit
        self._replies: queue.SimpleQueue[Record] = queue.SimpleQueue()

    def getsockopt(self, _option: int) -> bytes:
        """Return the identity that requests bear."""
        return self.identity

    def send_parts(self, identities: Sequence[bytes], parts: Sequence[Any]) -> None:
        """Give the request to the main shell."""
        self._submit(Record(identities, parts))

    def answer(self, identities: Sequence[bytes], parts: Sequence[Any]) -> None:
        """Take the reply."""
        self._replies.put(Record(identities, parts))

    def recv_multipart(self, *_: Any, **__: Any) -> Record:
        """Wait for the reply."""
        return self._replies.get()


@contextmanager
def _absent_debugger(*, installed: bool) -> Iterator[None]:
    """Let ipykernel ask whether there is a debugger without loading it."""
    loaded = sys.modules.get(_MODULE)
    answer: Any = types.ModuleType(_MODULE)
    answer._is_debugpy_available = installed  # noqa: SLF001 - the name ipykernel asks for
    sys.modules[_MODULE] = answer
    try:
        yield
    finally:
        if loaded is not None:
            sys.modules[_MODULE] = loaded
        else:
            del sys.modules[_MODULE]


class LazyDebugger(IPythonKernel):
    """A kernel that makes its debugger at the first debug request."""

    def __init__(self, **kwargs: Any) -> None:
        with _absent_debugger(installed=False):
            super().__init__(**kwargs)

    @property
    def kernel_info(self) -> dict[str, Any]:
        """What the kernel can do."""
        with _absent_debugger(installed=importlib.util.find_spec("debugpy") is not None):
            info: dict[str, Any] = super().kernel_info
        return info

    @property
    def debugger_class(self) -> Any:
        """The debugger's class; as a trait with a default it would be imported at once."""
        from ipykernel.debugger import Debugger  # noqa: PLC0415 - that is the point

        return Debugger

    @cached_property
    def debugger(self) -> Any:
        """The debugger; made on the control thread, by the first request that needs it."""
        # Skipped when stepping and in stacks: what was loaded before any cell ran.  By now the
        # user's own modules would be among them, and this package no longer.
        debugger: Any = self.debugger_class(
            self.log,
            self.debugpy_stream,
            self._publish_debug_event,
            self.debug_shell_socket,
            self.session,
            self._kernel_modules,
            self.debug_just_my_code,
            self.filter_internal_frames,
        )
        loop: Any = self.control_thread.io_loop
        asyncio.run_coroutine_threadsafe(super().poll_stopped_queue(), loop.asyncio_loop)
        return debugger

    async def poll_stopped_queue(self) -> None:
        """Do nothing yet: there is no debugger that could stop."""
