"""The two pipes of a kernel: one thread reads records, and writes everything the kernel says.

All output waits in one queue, in the order in which it was made, whichever thread made it: text of
stdout and stderr, messages, replies.  Adding to the queue is one append; no thread but the pipe's
own ever holds half a record, so no interrupt can cut one.

How long something waits: a cell's first output up to `CORK`, so that a short cell leaves in one
write; later output up to `PACE`; the end of a request not at all.  The queue is bounded: past
`ROOM` bytes, whoever adds to it waits.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import threading
import traceback
from collections import deque
from time import monotonic

from sandbox_kernel.errors import ProtocolViolationError
from sandbox_kernel.wire.kernel import Channel, RecordReader, record_buffers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

__all__ = ["CORK", "KernelPipe", "Text", "widen"]

CORK = 0.003
"""Seconds that the first output of a cell may wait for the rest of a short cell."""

PACE = 0.008
"""Seconds between two writes while output goes on."""

ROOM = 4 << 20
"""Bytes that may wait before those who add more have to wait."""

_BATCH = 1 << 20
_TEXT = 256 << 10
_SMALL = 1 << 16


class Text:
    """One name under which stream text travels; its items in the queue are (self, parent, text)."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name.encode()


class _Bell:
    """Lets threads wait until the pipe's thread has got on.

    An interrupt may end the waiting anywhere and leaves nothing locked behind, as it may in what
    `threading` has for this: the pipe's thread would ring for ever then.
    """

    def __init__(self) -> None:
        self._silence = threading.Lock()
        self._silence.acquire()

    def ring(self) -> None:
        """End the waiting of one thread, or of the next one to come; only one thread rings."""
        if self._silence.locked():
            self._silence.release()

    def wait(self, timeout: float) -> None:
        """Wait until it rings."""
        self._silence.acquire(timeout=timeout)


def widen(fd: int, size: int) -> None:
    """Make a pipe hold more than the usual 64 KiB.

    Only where it helps: all pipes of a user share 64 MiB, beyond which new ones become tiny.
    """
    # No pipe, or the user's allowance is spent: smaller is slower, not wrong.
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size)


def _nothing(_status: int, _why: str) -> None:
    """Stand for an end that has been told."""


def _utf8(text: str) -> bytes:
    """Encode text; what no UTF-8 can hold becomes U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


class KernelPipe:
    """Carries records between a kernel and the runtime.

    Parameters
    ----------
    in_fd, out_fd : int
        Ends of two pipes or sockets; this object owns them.
    parent_json : callable
        Makes the JSON of a parent header.
    """

    def __init__(
        self, in_fd: int, out_fd: int, parent_json: Callable[[dict[str, Any]], bytes]
    ) -> None:
        self._in_fd = in_fd
        self._out_fd = out_fd
        self._parent_json = parent_json
        self._outbox: deque[Any] = deque()
        self._calls: deque[Callable[[], object]] = deque()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._produced = 0
        self._consumed = 0
        self._scheduled = False
        self._urgent = False
        self._open_at = 0.0
        self._written_at = 0.0
        self._unwritten: list[bytes | memoryview] = []
        self._room = _Bell()
        self._dry = _Bell()
        self._reader = RecordReader()
        self._is_over = False
        # Not asked of the thread: an interrupt while it is asked lets it pass for ended.
        self._is_moving = False
        self._captures: dict[int, Callable[[], bool]] = {}
        self._on_record: Callable[[Channel, list[Any], list[Any]], object] | None = None
        self._on_end: Callable[[int, str], object] = _nothing
        self.thread = threading.Thread(target=self._run, name="Kernel pipe", daemon=True)
        # A debugger that stops every thread must leave this one alone.
        self.thread.pydev_do_not_trace = True  # type: ignore[attr-defined]
        self.thread.is_pydev_daemon_thread = True  # type: ignore[attr-defined]
        os.set_blocking(out_fd, False)

    def start(
        self,
        on_record: Callable[[Channel, list[Any], list[Any]], object],
        on_end: Callable[[int, str], object],
    ) -> None:
        """Begin to move records.

        Parameters
        ----------
        on_record : callable
            Gets channel, identities and parts on the pipe's thread; must not block.
        on_end : callable
            Gets an exit code, and a reason or nothing, on the pipe's thread when no more records
            can come or go.
        """
        self._on_record = on_record
        self._on_end = on_end
        self._is_moving = True
        self.thread.start()

    def watch(self, fd: int, drain: Callable[[], bool]) -> None:
        """Call `drain` on the pipe's thread whenever `fd` can be read, until it returns False."""
        self._captures[fd] = drain
        self._wake()

    # What the kernel says

    def put(self, channel: int, identities: Sequence[bytes], parts: Sequence[Any]) -> None:
        """Queue a record.

        Raises
        ------
        ValueError
            The record is larger than a record may be.
        """
        buffers = record_buffers(channel, identities, parts)
        self._add(buffers, sum(map(len, buffers)))

    def put_text(self, text: Text, parent: dict[str, Any], string: str) -> None:
        """Queue text of a stream; `parent` is the header it belongs to."""
        # A cell that prints in a loop spends its time here: no further calls.
        self._outbox.append((text, parent, string))
        size = len(string)
        self._produced += size
        if not self._scheduled:
            self._scheduled = True
            self._wake()
        if size > _SMALL or self._produced - self._consumed > ROOM:
            self._wait_for_room()

    def put_captured(self, text: Text, parent: dict[str, Any], string: str) -> None:
        """Queue text as `put_text` does, but never wait; `make_way` is to follow."""
        self._outbox.append((text, parent, string))
        self._produced += len(string)
        if not self._scheduled:
            self._scheduled = True
            self._wake()

    def make_way(self) -> None:
        """Wait while too much is queued."""
        if self._produced - self._consumed > ROOM:
            self._wait_for_room()

    def _add(self, item: Any, size: int) -> None:
        self._outbox.append(item)
        self._produced += size
        if not self._scheduled:
            self._scheduled = True
            self._wake()
        if size > _SMALL or self._produced - self._consumed > ROOM:
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        me = threading.get_ident()
        if me == self.thread.ident or not self._is_moving:
            return
        self._wake()
        while self._produced - self._consumed > ROOM and self._is_moving:
            self._wake()
            self._room.wait(0.1)

    def cork(self) -> None:
        """Hold output back for a moment: a request has come.  Only on the pipe's thread."""
        if not self._scheduled:
            self._scheduled = True
            self._open_at = monotonic() + CORK

    def release(self) -> None:
        """Let everything queued so far go at once."""
        self._urgent = self._scheduled = True
        self._wake()

    def flush(self, timeout: float) -> bool:
        """Wait until all that was queued is in the pipe; say whether it is."""
        if threading.get_ident() == self.thread.ident:
            deadline = monotonic() + timeout
            while self._unwritten or self._outbox:
                if not self._write():
                    left = deadline - monotonic()
                    if left <= 0:
                        return False
                    select.select([], [self._out_fd], [], left)
            return True
        deadline = monotonic() + timeout
        while self._unwritten or self._outbox:
            left = deadline - monotonic()
            if left <= 0 or not self._is_moving:
                return False
            self.release()
            self._dry.wait(min(left, 0.1))
        return True

    def call(self, function: Callable[[], object]) -> None:
        """Run a function on the pipe's thread, after every record that has come by now."""
        self._calls.append(function)
        self._wake()

    def disown(self) -> None:
        """Forget both pipes in a forked child, which must not speak for the kernel."""
        self._is_moving = False
        self._outbox.clear()
        self._unwritten.clear()
        for fd in (self._in_fd, self._out_fd, self._wake_fd):
            os.close(fd)

    def _wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    # The thread

    def _run(self) -> None:
        try:
            self._move()
        except BaseException:  # noqa: BLE001 - without this thread the kernel would be mute
            on_end, self._on_end = self._on_end, _nothing
            on_end(1, traceback.format_exc())
        finally:
            self._is_moving = False

    def _move(self) -> None:
        poll = select.poll()
        poll.register(self._in_fd, select.POLLIN)
        poll.register(self._wake_fd, select.POLLIN)
        watched: set[int] = set()
        writing = False
        while True:
            # What child processes print waits in their pipe while the queue is full.
            wanted = self._captures.keys() if self._produced - self._consumed <= ROOM else set()
            for fd in watched - wanted:
                poll.unregister(fd)
            for fd in wanted - watched:
                poll.register(fd, select.POLLIN)
            watched = set(wanted)
            if bool(self._unwritten) != writing:
                writing = not writing
                if writing:
                    poll.register(self._out_fd, select.POLLOUT)
                else:
                    poll.unregister(self._out_fd)
            for fd, _ in poll.poll(self._pause()):
                if fd == self._wake_fd:
                    os.eventfd_read(fd)
                elif fd == self._in_fd:
                    self._read()
                elif fd == self._out_fd:
                    pass  # writing comes last, whatever else there was
                elif not self._captures[fd]():
                    del self._captures[fd]
            if self._calls:
                self._run_calls()
            if self._is_due():
                self._write()
            if self._is_over:
                return

    def _pause(self) -> float | None:
        """How long to sleep, in milliseconds, if nothing happens."""
        if not self._scheduled or self._unwritten:
            return None
        if self._urgent:
            return 0
        return max(0.0, (self._due_at() - monotonic()) * 1000)

    def _due_at(self) -> float:
        return max(self._open_at, self._written_at + PACE)

    def _is_due(self) -> bool:
        return bool(self._unwritten) or (
            self._scheduled
            and (
                self._urgent
                or self._produced - self._consumed > _BATCH
                or monotonic() >= self._due_at()
            )
        )

    def _read(self) -> bool:
        """Take what is in the pipe; False when the kernel's life is over."""
        reader = self._reader
        space = reader.space
        try:
            if space is None:
                data = os.read(self._in_fd, _SMALL)
                count = len(data)
            else:
                count = os.readv(self._in_fd, [space])
        except BlockingIOError:
            return True
        if not count:
            self._is_over = True
            self._on_end(0, "")
            return False
        try:
            records = reader.feed(data) if space is None else reader.filled(count)
        except ProtocolViolationError as error:
            self._is_over = True
            self._on_end(1, str(error))
            return False
        assert self._on_record is not None  # noqa: S101 - start() came first
        for channel, identities, parts in records:
            self._on_record(channel, identities, parts)
        return True

    def _run_calls(self) -> bool:
        poll = select.poll()
        poll.register(self._in_fd, select.POLLIN)
        while poll.poll(0):
            if not self._read():
                return False
        while self._calls:
            self._calls.popleft()()
        return True

    def _write(self) -> bool:
        """Write until all is written or the pipe is full; say whether all is written."""
        # Before the queue is looked at: what is added from here on schedules itself again.
        self._scheduled = self._urgent = False
        while True:
            if not self._unwritten:
                self._unwritten = self._gather()
                if not self._unwritten:
                    break
                # Asked for before what was just taken was queued, so it comes first: whoever reads
                # that a request has ended may rely on what its end has changed.
                if self._calls and not self._run_calls():
                    return False
            try:
                count = os.writev(self._out_fd, self._unwritten[:1000])
            except BlockingIOError:
                self._scheduled = True
                self._room.ring()
                return False
            except BrokenPipeError:
                # Nobody will read any of it, and nothing more can be said.
                self._outbox.clear()
                self._unwritten.clear()
                on_end, self._on_end = self._on_end, _nothing
                on_end(1, "nobody reads what the kernel says")
                return False
            self._drop_written(count)
        self._written_at = monotonic()
        self._room.ring()
        self._dry.ring()
        return True

    def _drop_written(self, count: int) -> None:
        unwritten = self._unwritten
        done = 0
        for buffer in unwritten:
            if count < len(buffer):
                break
            count -= len(buffer)
            done += 1
        del unwritten[:done]
        if count:
            unwritten[0] = memoryview(unwritten[0])[count:]

    def _gather(self) -> list[bytes | memoryview]:
        """Take about one batch from the queue as buffers, small ones joined."""
        outbox = self._outbox
        buffers: list[bytes | memoryview] = []
        small: list[bytes | memoryview] = []
        size = 0
        while outbox and size < _BATCH:
            item = outbox.popleft()
            if type(item) is list:
                records = [item]
                self._consumed += sum(map(len, item))
            else:
                records = self._texts(item)
            for record in records:
                for buffer in record:
                    size += len(buffer)
                    if len(buffer) < _SMALL:
                        small.append(buffer)
                        continue
                    if small:
                        buffers.append(b"".join(small))
                        small = []
                    buffers.append(buffer)
        if small:
            buffers.append(b"".join(small))
        if not outbox:
            # Threads that add at the same moment may have lost each other's count; start afresh.
            self._produced = self._consumed = 0
        return buffers

    def _texts(self, first: tuple[Text, dict[str, Any], str]) -> list[list[bytes | memoryview]]:
        """Join an item of text with those that follow under the same name and parent."""
        text, parent, string = first
        outbox = self._outbox
        pieces = [string]
        size = len(string)
        while outbox and size < _BATCH:
            item = outbox[0]
            if type(item) is list or item[0] is not text or item[1] is not parent:
                break
            outbox.popleft()
            pieces.append(item[2])
            size += len(item[2])
        self._consumed += size
        joined = "".join(pieces)
        if not joined:
            return []
        head = self._parent_json(parent)
        data = _utf8(joined)
        if len(data) <= _TEXT:
            return [record_buffers(Channel.STREAM, (), (text.name, head, data))]
        pieces_of_data: Iterable[bytes | memoryview]
        if len(data) == len(joined):  # one byte a character: cut anywhere
            view = memoryview(data)
            pieces_of_data = (view[at : at + _TEXT] for at in range(0, len(view), _TEXT))
        else:  # a character has at most four bytes
            step = _TEXT // 4
            pieces_of_data = (_utf8(joined[at : at + step]) for at in range(0, len(joined), step))
        return [
            record_buffers(Channel.STREAM, (), (text.name, head, piece)) for piece in pieces_of_data
        ]
