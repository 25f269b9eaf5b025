"""What a transport offers: four verbs, whatever carries them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol, Self

from sandbox_kernel.wire.record import Record
from sandbox_kernel.wire.rpc import ChannelFrame, FrameKind

__all__ = ["Channel", "EventStream", "Transport"]


class EventStream(Protocol):
    """The events of a stream operation, each as the record its operation declares.

    Iterate over it for the events; when it is exhausted, `end` is the operation's last word.
    Leaving the ``async with`` block early cancels the operation.
    """

    @property
    def end(self) -> Record | None:
        """The operation's result; None while events may follow."""
        ...

    def __aiter__(self) -> AsyncIterator[Record]: ...

    async def __anext__(self) -> Record: ...


class Channel(Protocol):
    """A two-way connection of its own, such as a kernel's."""

    @property
    def opening(self) -> Record:
        """What the operation answered before the connection became a channel."""
        ...

    async def send(self, kind: FrameKind, *parts: bytes | memoryview) -> None:
        """Send one frame; returns when not too much waits to be sent."""
        ...

    def post(self, kind: FrameKind, *parts: bytes | memoryview) -> bool:
        """Send one frame; False if too much waits now, so that `drained` is to be awaited."""
        ...

    async def drained(self) -> None:
        """Wait until not too much waits to be sent."""
        ...

    async def receive(self) -> tuple[FrameKind, memoryview] | None:
        """Return the next frame, or None once the runtime has closed the channel."""
        ...

    def listen(
        self,
        take: Callable[[ChannelFrame | None], object],
        rested: Callable[[], object] | None = None,
    ) -> None:
        """Have frames handed on as they come, then None once, in the place of `receive`.

        `take` is called from the event loop and must not wait; `pause` stops the reading.
        `rested` is called behind frames that came together: more may take a while.
        """
        ...

    def pause(self) -> None:
        """Read nothing more until `resume`; frames read already are still handed on."""
        ...

    def resume(self) -> None:
        """Go on reading."""
        ...

    @property
    def has_lost_input(self) -> bool:
        """Whether the connection broke with input that is known not to have been sent."""
        ...

    def close(self) -> None:
        """Close the connection soon, without waiting for it."""
        ...

    def close_when_sent(self) -> None:
        """Close once all that was sent is on its way, without waiting for it."""
        ...

    async def aclose(self) -> None:
        """Close the connection; a second time is fine."""
        ...


class Transport(Protocol):
    """Carries operations to one incarnation of one sandbox, for one event loop.

    Every verb raises `ContainerUnavailableError` when nobody listens or the runtime ended before it
    took the operation, `OperationInterruptedError` when the connection breaks after that may have
    begun, and otherwise what the runtime answers.  Nothing is ever sent twice.
    """

    async def call(
        self, operation: str, request: Record, *, incarnation: str | None = None
    ) -> Record:
        """Do an operation that answers once; cancelling gives it up at the other end too.

        Parameters
        ----------
        incarnation : str, optional
            Refuse, with the operation's Stale… error, if the runtime is another one.
        """
        ...

    def stream(
        self, operation: str, request: Record, *, incarnation: str | None = None
    ) -> AbstractAsyncContextManager[EventStream]:
        """Do an operation that answers with events; leaving the block early cancels it."""
        ...

    async def connect(
        self, operation: str, request: Record, *, incarnation: str | None = None
    ) -> Channel:
        """Open a channel, on a connection of its own; the caller closes it."""
        ...

    async def aclose(self) -> None:
        """Close what is open; calls under way are interrupted.  A second time is fine."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
