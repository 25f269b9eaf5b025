"""The five sockets of a connection file: bound, guarded, signed.

Shell, control and stdin are ROUTERs that let a client take its address over when it comes back,
and that say when a client is not there.  iopub is an XPUB that welcomes every subscriber.  Where
the file holds Curve keys all five sockets demand them.

A slow subscriber loses nothing while less than `BACKLOG_LIMIT` bytes wait for it: the relay stops
reading the sandbox above that, which in turn blocks the cell that writes.  Statuses and replies are
always queued.
"""

from __future__ import annotations

import hmac
import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import zmq
import zmq.backend

from sandbox_kernel.errors import SandboxConfigurationError
from sandbox_kernel.kernel.connection import ConnectionInfo
from sandbox_kernel.wire.kernel import Channel

__all__ = [
    "BACKLOG_LIMIT",
    "Incoming",
    "Sockets",
    "UnreadableMessage",
]

BACKLOG_LIMIT = 256 << 20
"""Bytes that may wait for the slowest subscriber."""

_DELIMITER = b"<IDS|MSG>"
_TRACK_EVERY = 256 << 10
_ZERO_COPY_FROM = 64 << 10
_REMEMBERED_SIGNATURES = 8192
_LINGER_MS = 1000
_HEARTBEATS_PER_TURN = 64
_MESSAGE_COST = 300
"""Bytes that a waiting message takes beside its frames, about."""
_PROTOCOL = "5.4"

# pyzmq's own multipart calls cost three times as much: they make an enum of the flags for every
# frame, and ask for an option after each.
_SNDMORE, _NOBLOCK = int(zmq.SNDMORE), int(zmq.NOBLOCK)
_send: Callable[..., Any] = zmq.backend.Socket.send
_receive: Callable[..., Any] = zmq.backend.Socket.recv


class UnreadableMessage(ValueError):  # noqa: N818  a verdict on the client's bytes
    """A message of a client that is dropped; says why."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A client's message whose signature is right; the rest of it is not looked at."""

    identities: list[bytes]
    header: bytes
    values: dict[str, Any]  # the header's values, any JSON
    msg_id: str
    msg_type: str
    parts: list[bytes | memoryview]
    """Header, parent header, metadata and content as sent, then the buffers."""

    @property
    def content(self) -> bytes:
        """The content's bytes."""
        return bytes(self.parts[3])


class Sockets:
    """The bound sockets and what every message on them has in common.

    Parameters
    ----------
    info : ConnectionInfo
        Where to bind, and the keys.

    Raises
    ------
    SandboxConfigurationError
        A port is taken or a key is of no use; nothing stays bound.
    """

    def __init__(self, info: ConnectionInfo) -> None:
        self.session = ""
        self._key, self._digest = info.key, info.digest
        self._context = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []
        try:
            self.shell = self._bind(info, zmq.ROUTER, "shell_port")
            self.control = self._bind(info, zmq.ROUTER, "control_port")
            self.stdin = self._bind(info, zmq.ROUTER, "stdin_port")
            self.iopub = self._bind(info, zmq.XPUB, "iopub_port")
            self.heartbeat = self._bind(info, zmq.ROUTER, "hb_port")
        except BaseException:
            self.close(linger=False)
            raise
        self._by_channel = {
            Channel.SHELL: self.shell,
            Channel.CONTROL: self.control,
            Channel.STDIN: self.stdin,
        }
        self.subscribers = 0
        self.hold_unroutable_until = 0.0
        """Until this moment (monotonic) replies to absent clients wait for them."""
        self._unroutable: deque[tuple[Channel, list[bytes | memoryview]]] = deque()
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self.published = 0
        """Bytes published so far, about."""
        self.routed = 0
        """Messages sent so far to one client each."""
        self._tracked = self._reached = 0
        self._marks: deque[tuple[int, zmq.MessageTracker]] = deque()
        self._second, self._middle = -1, ""
        self._own = 0
        self._prefix = ""
        self.use_session(os.urandom(16).hex())

    def use_session(self, session: str) -> None:
        """Set the one session id of every header; a client that met two would drop outputs."""
        self.session = session
        self._prefix = f"{session}_{time.time_ns():x}"
        self._second = -1

    def _bind(self, info: ConnectionInfo, kind: int, port_name: str) -> zmq.Socket[bytes]:
        bound = self._context.socket(kind)
        self._sockets.append(bound)
        bound.linger = _LINGER_MS
        bound.sndhwm = 0
        if kind == zmq.XPUB:
            bound.xpub_verboser = True
        else:
            bound.router_handover = True
            bound.router_mandatory = True
        if info.transport == "tcp" and ":" in info.ip:
            bound.ipv6 = True
        port = info.ports[port_name]
        try:
            if info.curve_secret is not None:
                bound.curve_secretkey = info.curve_secret
                if info.curve_public is not None:
                    bound.curve_publickey = info.curve_public
                bound.curve_server = True
            joint = ":" if info.transport == "tcp" else "-"
            host = f"[{info.ip}]" if ":" in info.ip else info.ip
            bound.bind(f"{info.transport}://{host}{joint}{port}")
        except zmq.ZMQError as error:
            raise SandboxConfigurationError(
                f"The kernel cannot listen on {info.ip}, {port_name} {port}: {error.strerror}."
            ) from error
        return bound

    def close(self, *, linger: bool = True) -> None:
        """Send what is queued, for at most a second, and unbind."""
        for each in self._sockets:
            each.close(_LINGER_MS if linger else 0)
        self._context.term()

    # --- receiving ----------------------------------------------------------------------------

    def receive(self, channel: Channel) -> Incoming | None:
        """Return the next message of a channel, or None when there is none now.

        Raises
        ------
        UnreadableMessage
            Its signature is wrong or was used before, or it is no Jupyter message.
        """
        source = self._by_channel[channel]
        try:
            frame = _receive(source, _NOBLOCK, copy=False)
        except zmq.Again:
            return None
        frames: list[bytes | memoryview] = [frame.bytes]
        split = -1
        while frame.more:
            frame = _receive(source, 0, copy=False)
            if split >= 0 and len(frames) > split + 5:
                # Buffers may be large; the view keeps the frame alive.
                frames.append(frame.buffer)
                continue
            data = frame.bytes
            if split < 0 and data == _DELIMITER:
                split = len(frames)
            frames.append(data)
        return self._check(frames, split)

    def _check(self, frames: list[bytes | memoryview], split: int) -> Incoming:
        parts = frames[split + 2 :]
        if split < 0 or len(parts) < 4:
            raise UnreadableMessage("it is no Jupyter message")
        if self._key:
            signature = bytes(frames[split + 1])
            if not hmac.compare_digest(signature, self._sign(b"".join(parts[:4]))):
                raise UnreadableMessage("its signature is wrong")
            short = signature[:24]
            if short in self._seen:
                raise UnreadableMessage("it was sent before")
            self._seen[short] = None
            if len(self._seen) > _REMEMBERED_SIGNATURES:
                self._seen.popitem(last=False)
        header = bytes(parts[0])
        try:
            values = orjson.loads(header)
            msg_id, msg_type = values["msg_id"], values["msg_type"]
        except (ValueError, KeyError, TypeError):
            raise UnreadableMessage("its header is broken") from None
        if not isinstance(msg_id, str) or not isinstance(msg_type, str):
            raise UnreadableMessage("its header is broken")
        identities = [bytes(each) for each in frames[:split]]
        return Incoming(identities, header, values, msg_id, msg_type, parts)

    def echo_heartbeats(self) -> None:
        """Send heartbeats back, at most so many that a flood of them holds nothing else up."""
        try:
            for _ in range(_HEARTBEATS_PER_TURN):
                self.heartbeat.send_multipart(self.heartbeat.recv_multipart(zmq.NOBLOCK))
        except zmq.ZMQError:
            # Nothing more to read, or the asker has gone meanwhile.
            return

    def take_subscriptions(self) -> list[bytes]:
        """Return the topics subscribed to since the last call, and count subscribers."""
        topics: list[bytes] = []
        while True:
            try:
                frame = self.iopub.recv(zmq.NOBLOCK)
            except zmq.Again:
                return topics
            if frame[:1] == b"\x01":
                self.subscribers += 1
                topics.append(frame[1:])
            elif frame[:1] == b"\x00":
                self.subscribers = max(0, self.subscribers - 1)

    # --- sending ------------------------------------------------------------------------------

    def new_id(self) -> str:
        """Return a message id for a message of the relay's own."""
        self._own += 1
        return f"{self._prefix}_{self._own}"

    def send(
        self,
        channel: Channel,
        identities: Sequence[bytes],
        msg_type: str,
        parent: bytes,
        content: bytes,
        *,
        metadata: bytes = b"{}",
        buffers: Sequence[bytes | memoryview] = (),
        msg_id: str | None = None,
    ) -> bool:
        """Send to one client; return whether it was there (or is waited for)."""
        header = self._header(msg_type, msg_id)
        signature = self._sign(header + parent + metadata + content)
        frames = [
            *identities,
            _DELIMITER,
            signature,
            header,
            parent,
            metadata,
            content,
            *buffers,
        ]
        if self._route(channel, frames):
            return True
        if time.monotonic() < self.hold_unroutable_until:
            self._unroutable.append((channel, frames))
            return True
        return False

    def _route(self, channel: Channel, frames: Sequence[bytes | memoryview]) -> bool:
        try:
            _send_all(self._by_channel[channel], frames)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        self.routed += 1
        return True

    def retry_unroutable(self) -> None:
        """Try again what waited for absent clients; drop it once the time is over."""
        if not self._unroutable:
            return
        waiting, self._unroutable = self._unroutable, deque()
        late = time.monotonic() >= self.hold_unroutable_until
        for channel, frames in waiting:
            if not self._route(channel, frames) and not late:
                self._unroutable.append((channel, frames))

    def publish(
        self,
        topic: bytes,
        msg_type: str,
        parent: bytes,
        content: bytes,
        *,
        metadata: bytes = b"{}",
        buffers: Sequence[bytes | memoryview] = (),
        msg_id: str | None = None,
        follow: bool = False,
    ) -> None:
        """Send to every subscriber.

        One that is to be followed lets `reached` tell when it has left; that costs as much as
        sending a few.
        """
        header = self._header(msg_type, msg_id)
        signature = self._sign(header + parent + metadata + content)
        frames: list[Any] = [topic, _DELIMITER, signature, header, parent, metadata, content]
        if buffers:
            frames.extend(buffers)
        # All of it may be the sandbox's but the header and the parent, and those wait as well.
        self.published += _MESSAGE_COST + len(header) + len(parent) + len(metadata) + len(content)
        if buffers:
            self.published += sum(map(len, buffers))
        if not follow and self.published - self._tracked < _TRACK_EVERY:
            _send_all(self.iopub, frames)
            return
        # The last frame of some messages is followed until every subscriber has it; all before it
        # are gone by then too, so this says how much waits, and costs nothing for small output.
        self._tracked = self.published
        last = zmq.Frame(frames.pop(), track=True, copy=False, copy_threshold=0)
        _send_all(self.iopub, frames, more=True)
        _send(self.iopub, last, 0, copy=False)
        if last.tracker is not None:
            self._marks.append((self.published, last.tracker))

    def reached(self) -> int:
        """Return how much of `published` has left for every subscriber, as far as is known.

        What came after the last message that was followed counts as soon as that one has left.
        """
        while self._marks and self._marks[0][1].done:
            self._reached = self._marks.popleft()[0]
        return self._reached if self._marks else self.published

    def backlog(self) -> int:
        """Return how many bytes wait for the slowest subscriber, about."""
        return self.published - self.reached()

    def _sign(self, joined: bytes) -> bytes:
        if not self._key:
            return b""
        return hmac.digest(self._key, joined, self._digest).hex().encode()

    def _header(self, msg_type: str, msg_id: str | None) -> bytes:
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second = second
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
            self._middle = (
                f'"username":"kernel","session":"{self.session}","version":"{_PROTOCOL}",'
                f'"date":"{stamp}.'
            )
        microseconds = int((now - second) * 1e6)
        return (
            f'{{"msg_id":"{msg_id or self.new_id()}","msg_type":"{msg_type}",'
            f'{self._middle}{microseconds:06d}Z"}}'
        ).encode()


def _send_all(
    target: zmq.Socket[bytes], frames: Sequence[bytes | memoryview], *, more: bool = False
) -> None:
    last = len(frames) - 1
    for index, frame in enumerate(frames):
        flags = _SNDMORE if more or index < last else 0
        _send(target, frame, flags, copy=len(frame) < _ZERO_COPY_FROM)
