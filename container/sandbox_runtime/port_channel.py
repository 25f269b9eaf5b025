"""One connection to a program's port, carried by a channel: bytes both ways, as they come.

Overflow rules.  While `MOST_QUEUED` bytes wait for the client, the program is not read and waits in
its own socket; while `MOST_INPUT` bytes wait for the program, the client is not read.  So neither
side's speed makes this one hold more, and nothing is dropped.
"""

from __future__ import annotations

from _socket import SHUT_WR, SO_LINGER, SOL_SOCKET

from sandbox_kernel.errors import ProtocolViolationError
from sandbox_kernel.wire.port_operations import PIECE, PortEvent, PortOrder, port_order, told
from sandbox_kernel.wire.rpc import FrameKind, frame_header
from sandbox_runtime.input_queue import InputQueue
from sandbox_runtime.loop import READ, WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable

    from sandbox_runtime.connection import Connection
    from sandbox_runtime.loop import Loop, Timer

__all__ = ["LINGER", "MOST_INPUT", "MOST_QUEUED", "PortChannel"]

MOST_QUEUED = 256 << 10
"""Bytes that may wait for the client, beside its socket's buffer."""

MOST_INPUT = 256 << 10
"""Bytes that may wait for the program, beside its socket's buffer."""

_FIRST_READ = 64 << 10
"""A buffer for bulk costs more than a short message itself."""

LINGER = 10.0
"""Seconds without progress after which a program is not waited for whose client has left."""

_RESET_AT_CLOSE = b"\1\0\0\0\0\0\0\0"  # struct linger: on, for no time


class PortChannel:
    """What is between one client and one program.

    Parameters
    ----------
    service : socket
        Connected, not blocking; closed here.
    on_over : callable
        Called once when nothing of the connection is left to be done.
    """

    def __init__(
        self, loop: Loop, connection: Connection, service: socket, on_over: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._service: socket | None = service
        self._on_over = on_over
        self._fd = service.fileno()
        self._offset = 0
        self._read_size = _FIRST_READ
        self._watched = 0
        self._input = InputQueue(self._fd, self._blocked, self._refused)
        self._has_client = True
        self._is_choked = False
        self._is_told_over = False
        # Either side may end before the other, as in TCP.
        self._service_has_ended = False
        self._client_has_ended = False
        self._is_closing = False
        self._is_broken = False
        self._linger: Timer | None = None
        self._last_waiting = 0

    def __repr__(self) -> str:
        return f"<PortChannel sent={self._offset} waiting={self._input.waiting}>"

    def begin(self) -> None:
        """Start to carry; the client knows that it is connected."""
        self._watch()

    # --- from the program ---------------------------------------------------------------------

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._input.pump()
        if events & ~WRITE and self._service is not None:
            self._read()

    def _read(self) -> None:
        assert self._service is not None  # noqa: S101  the caller has looked
        try:
            data = self._service.recv(self._read_size)
        except BlockingIOError:
            return
        except OSError:
            self._reset()
            return
        if not self._has_client or self._is_closing:
            return
        self._read_size = PIECE if len(data) >= _FIRST_READ else _FIRST_READ
        if data:
            head = frame_header(FrameKind.DATA, 0, 8 + len(data)) + self._offset.to_bytes(8, "big")
            self._offset += len(data)
            self._connection.send(head, data)
        elif self._is_broken:
            # The system tells of a reset once, and told it to what was written.
            self._reset()
            return
        else:
            self._service_has_ended = True
            self._connection.send_channel(FrameKind.EVENT, told(PortEvent.END))
            self._end_if_done()
        self._watch()

    def _reset(self) -> None:
        """Tell the client that the program will neither take nor send any more."""
        if self._has_client and not self._is_closing:
            self._connection.send_channel(FrameKind.EVENT, told(PortEvent.RESET))
        self._close()

    # --- to the program -----------------------------------------------------------------------

    def channel_frame(self, kind: FrameKind, payload: memoryview) -> None:
        """Take a frame from the client."""
        if kind is FrameKind.INPUT:
            if self._client_has_ended:
                raise ProtocolViolationError("an INPUT after the end of input")
            if len(payload) > PIECE:
                raise ProtocolViolationError(f"an INPUT of {len(payload)} bytes")
            if self._service is not None and not self._is_broken:
                self._input.put(payload, self, self._written)
                self._is_choked = self._input.waiting > MOST_INPUT
        elif kind is FrameKind.CONTROL:
            self._obey(port_order(payload))
        else:
            raise ProtocolViolationError(f"frame {kind.name} on the channel of a port")

    def _obey(self, order: PortOrder | None) -> None:
        if order is None:
            return
        self._client_has_ended = True
        if order is PortOrder.CLOSE:
            self._is_closing = True
            self._watch()
            self._wait_for_program()
        self._deliver_end()

    def _written(self, _written: bool) -> None:  # noqa: FBT001  the queue's form
        if self._is_choked and self._input.waiting <= MOST_INPUT:
            self._is_choked = False
            self._connection.recheck()
        if self._client_has_ended:
            # Once the queue has let go of this piece.
            self._loop.call_soon(self._deliver_end)

    def _deliver_end(self) -> None:
        """Let the program see the end of input, once it has all that came before."""
        if self._service is None:
            if self._is_closing:
                self._connection.close_when_sent()
            return
        if self._input.waiting:
            return
        if self._is_closing or not self._has_client:
            self._close()
            return
        try:
            self._service.shutdown(SHUT_WR)
        except OSError:
            self._reset()
            return
        self._end_if_done()
        self._watch()

    def _refused(self) -> None:
        """Learn that the program takes nothing more; what it has sent is still to be read."""
        self._is_broken = True
        self._input.clear()
        if self._service_has_ended or self._is_closing or not self._has_client:
            self._reset()

    def _blocked(self, _blocked: bool) -> None:  # noqa: FBT001  the queue's form
        self._watch()

    # --- the client ---------------------------------------------------------------------------

    def channel_choked(self) -> bool:
        """Whether too much of the client's input waits for the program."""
        return self._is_choked

    def channel_writable(self) -> None:
        """Go on reading the program; the client has taken something."""
        if self._service is None:
            self._tell_over()
        else:
            self._watch()

    def channel_lost(self) -> None:
        """Deliver what the client had sent, as the system does for a socket that is closed."""
        self._has_client = False
        self._client_has_ended = True
        if self._service is None:
            self._tell_over()
            return
        self._watch()
        self._wait_for_program()
        self._deliver_end()

    def _wait_for_program(self) -> None:
        """Give the program time to take what was sent to it, as long as it takes something."""
        if self._linger is None and self._service is not None:
            self._last_waiting = self._input.waiting
            self._linger = self._loop.call_later(LINGER, self._check_progress)

    def _check_progress(self) -> None:
        if self._service is None:
            return
        if self._input.waiting == self._last_waiting:
            # An end would look as if this were all there was to come.
            self._service.setsockopt(SOL_SOCKET, SO_LINGER, _RESET_AT_CLOSE)
            self._close()
            return
        self._last_waiting = self._input.waiting
        self._linger = self._loop.call_later(LINGER, self._check_progress)

    # --- both ---------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Ask the loop for exactly what can be acted on.

        A socket that nothing is wanted of is not watched at all: the loop would be told of its end
        without pause.
        """
        if self._service is None:
            return
        wanted = 0
        if (
            self._has_client
            and not self._service_has_ended
            and not self._is_closing
            and self._connection.queued < MOST_QUEUED
        ):
            wanted |= READ
        if self._input.blocked:
            wanted |= WRITE
        if wanted == self._watched:
            return
        if not wanted:
            self._loop.remove(self._fd)
        elif not self._watched:
            self._loop.add(self._fd, wanted, self._ready)
        else:
            self._loop.modify(self._fd, wanted)
        self._watched = wanted

    def _end_if_done(self) -> None:
        if self._service_has_ended and self._client_has_ended and not self._input.waiting:
            self._close()

    def _close(self) -> None:
        """Close the program's connection, and the client's if that is what it waits for."""
        service, self._service = self._service, None
        if service is None:
            return
        if self._watched:
            self._loop.remove(self._fd)
        if self._linger is not None:
            self._linger.cancel()
        service.close()
        self._fd = -1
        self._input.clear()
        if self._is_choked:
            # What else comes is read and dropped, and so the client's leaving is seen.
            self._is_choked = False
            self._connection.recheck()
        if self._is_closing:
            self._connection.close_when_sent()
        self._tell_over()

    def _tell_over(self) -> None:
        if not self._is_told_over and (not self._has_client or not self._connection.queued):
            self._is_told_over = True
            self._on_over()
