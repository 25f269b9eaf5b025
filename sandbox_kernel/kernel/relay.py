"""The loop of a relay: clients on one side, an interpreter in a sandbox on the other.

Everything happens on one thread in one poll.  What a client sends is checked for its signature and
type, entered in the request table and passed on; what the sandbox sends is taken apart, judged by
the policy, routed by the table and built anew.  Nothing is forwarded unread.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import zmq

from sandbox_kernel.errors import ContainerUnavailableError, SandboxError
from sandbox_kernel.kernel.hints import Facts, death, hint_for
from sandbox_kernel.kernel.hostcells import (
    HELP,
    Command,
    Commands,
    HostCell,
    UsageProblem,
    parse,
)
from sandbox_kernel.kernel.hostcomms import CommMessage, HostComms
from sandbox_kernel.kernel.journal import Journal
from sandbox_kernel.kernel.jsontext import Refused, read, write
from sandbox_kernel.kernel.lifecycle import ParentWatch, Signals
from sandbox_kernel.kernel.link import (
    Attached,
    Ended,
    Link,
    Lost,
    Record,
    Started,
    Superseded,
)
from sandbox_kernel.kernel.policy import CONTROL_REQUESTS, SHELL_REQUESTS, Policy
from sandbox_kernel.kernel.requests import Question, Request, RequestTable
from sandbox_kernel.kernel.sockets import BACKLOG_LIMIT, Incoming, Sockets, UnreadableMessage
from sandbox_kernel.wire.kernel import Channel
from sandbox_kernel.wire.operations import KernelInfo, StartKernelRequest

__all__ = ["Relay", "mark_of"]

_MESSAGES_PER_TURN = 64
_STREAM_JOIN = 256 << 10
_QUEUE_LIMIT = 64 << 20
"""Bytes for the sandbox that may wait; above it the shell is not read."""

_ACK_DELAY = 0.005
_SUBSCRIBER_WAIT = 3.0
_SUBSCRIBER_GRACE = 0.15
_ROUTE_WAIT = 10.0
_RETRY = 0.05
_RECONNECT_DELAYS = (0.0, 0.02, 0.1, 0.3, 0.6, 1.0)
_IDLE_END = 1.0
_BUSY_END = 0.25
_END_GRACE = 0.5
_STUCK_READER = 30.0
_KEPT_OUTPUTS = 2000
_KEPT_BYTES = 16 << 20

_EMPTY = b"{}"
_BUSY = b'{"execution_state":"busy"}'
_IDLE = b'{"execution_state":"idle"}'
_STARTING = b'{"execution_state":"starting"}'
_SHOWN = frozenset({"stream", "display_data", "execute_result", "error"})
_BULK = frozenset({"stream", "display_data", "update_display_data", "execute_result"})
_COMMS = frozenset({"comm_open", "comm_msg", "comm_close"})
_MAY_NAME_COMMS = _COMMS | {"display_data", "update_display_data", "execute_result"}

_CODE_DEAD = 1

_PROBE = Request("", _EMPTY, Channel.SHELL, [], "kernel_info_request")
"""Stands for the relay's own question to the interpreter; see `Relay._send_probe`."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A message of the main shell that waits behind a host cell."""

    request: Request
    parts: Sequence[bytes | memoryview]
    cell: HostCell | UsageProblem | None


@dataclass(frozen=True, slots=True)
class _Kept:
    """An output that no client could show."""

    msg_type: str
    content: bytes
    metadata: bytes
    buffers: Sequence[bytes | memoryview]


class Relay:
    """One relay, from attaching to its end.

    Parameters
    ----------
    sockets : Sockets
        Bound.
    link : Link
        Open, its interpreter started.
    info : KernelInfo
        What the runtime said about the interpreter.
    table : RequestTable
        With what a predecessor has left open.
    inherited : mapping or None
        The predecessor's journal.
    journal : Journal
        This kernel's.
    facts : Facts
        For hints.
    describe : callable
        Returns what ``%sandbox status`` says about the sandbox.
    policy : Policy
        What may pass.
    signals, parent
        What else the loop listens to.
    """

    def __init__(
        self,
        *,
        sockets: Sockets,
        link: Link,
        info: KernelInfo,
        table: RequestTable,
        inherited: Mapping[str, Any] | None,
        journal: Journal,
        facts: Facts,
        describe: Callable[[], str],
        policy: Policy,
        signals: Signals,
        parent: ParentWatch,
    ) -> None:
        self.sockets = sockets
        self.link = link
        self.table = table
        self.hostcomms = HostComms()
        self.exit_code: int | None = None
        self.shutdown: bool | None = None
        """The restart flag of a shutdown_request; None before one."""
        self._journal = journal
        self._facts = facts
        self._describe = describe
        self._policy = policy
        self._signals = signals
        self._parent = parent
        self._commands = {
            "sandbox": Commands(
                "sandbox",
                {
                    "status": Command(self._status, immediate=True),
                    "outputs": Command(self._outputs),
                    "restart": Command(self._restart),
                    "help": Command(lambda _: HELP, immediate=True),
                },
                "status",
            )
        }
        self._magics = frozenset(self._commands)
        self._poller = zmq.Poller()
        self._handlers: dict[Any, Callable[[], None]] = {}
        self._link_fd = -1
        self._link_events = 0
        self._reads_shell = True
        # --- the interpreter
        self._mark = ""
        self._prefix = ""
        self._ready = False
        self._count = 0
        self._wanted = 0
        # --- timers, all monotonic; None is off
        self._ack_at: float | None = None
        self._hold_until: float | None = None
        self._grace_until: float | None = None
        self._reconnect_at: float | None = None
        self._attempt = 0
        self._end_at: float | None = None
        self._leave_at: float | None = None
        self._retry_at: float | None = None
        self._full_since: float | None = None
        # --- what waits
        self._held: deque[_Held] = deque()
        self._host_request: Request | None = None
        self._text: tuple[bytes, bytes, list[bytes], int] | None = None
        self._text_size = 0
        self._parent_bytes = b""
        self._parent_request: Request | None = None
        self._lost: set[str] = set()
        self._probe: str | None = None
        self._kept: deque[_Kept] = deque()
        self._kept_size = 0
        self._dropped = 0
        self._journal_is_behind = False
        self._refused = 0
        self._notes: deque[str] = deque(maxlen=20)
        self._adopt(info)
        if inherited is not None:
            self._inherit(inherited)

    def __repr__(self) -> str:
        return f"<Relay {self.link!r} {self.table!r} held={len(self._held)}>"

    # --- the interpreter it serves ------------------------------------------------------------

    def _adopt(self, info: KernelInfo) -> None:
        """Serve this interpreter from now on."""
        self._mark = mark_of(info)
        # The same record gets the same id from every relay, so that a repeat can be recognised.
        self._prefix = f"{self.sockets.session}_{int(info.started_at * 1e3):x}{info.pid:x}_"
        self._ready = info.existing
        self.link.attach(info)

    def _inherit(self, inherited: Mapping[str, Any]) -> None:
        """Go on where a predecessor was killed."""
        now = time.monotonic()
        self._count = int(inherited.get("count") or 0)
        self._lost = {request.msg_id for request in self.table.open.values()}
        self._wanted = int(inherited.get("subscribers") or 0)
        self._hold_until = now + _SUBSCRIBER_WAIT
        self.sockets.hold_unroutable_until = now + _ROUTE_WAIT
        if self._lost:
            self._send_probe()

    def _send_probe(self) -> None:
        """Ask something that is answered after every open request, to learn which are over.

        A predecessor may have been killed between the last words of a request and its journal.
        """
        self._probe = self.sockets.new_id()
        header = write(
            {
                "msg_id": self._probe,
                "msg_type": "kernel_info_request",
                "session": self.sockets.session,
                "username": "relay",
                "version": "5.4",
                "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            }
        )
        self.link.send(Channel.SHELL, [b"relay"], [header, _EMPTY, _EMPTY, _EMPTY])

    # --- the loop -----------------------------------------------------------------------------

    def run(self) -> int:
        """Serve until the end; return the exit code."""
        self._watch(self.sockets.control, lambda: self._on_clients(Channel.CONTROL))
        self._watch(self._signals.fileno(), self._on_signals)
        self._watch(self.sockets.iopub, self._on_subscriptions)
        self._watch(self.sockets.shell, lambda: self._on_clients(Channel.SHELL))
        self._watch(self.sockets.stdin, lambda: self._on_clients(Channel.STDIN))
        self._watch(self.sockets.heartbeat, self.sockets.echo_heartbeats)
        if self._parent.fileno() >= 0:
            self._watch(self._parent.fileno(), self._on_parent_gone)
        handlers, poll = self._handlers, self._poller.poll
        while self.exit_code is None:
            self._watch_link()
            for source, events in poll(self._timeout()):
                if source == self._link_fd:
                    if events & zmq.POLLOUT:
                        self.link.flush()
                    if events & ~zmq.POLLOUT:
                        self._on_link()
                else:
                    handlers[source]()
                if self.exit_code is not None:
                    break
            else:
                self._on_time()
        return self.exit_code

    def _watch(self, source: Any, handler: Callable[[], None]) -> None:
        self._handlers[source] = handler
        self._poller.register(source, zmq.POLLIN)

    def _watch_link(self) -> None:
        """Listen to the link for exactly what can be done with it now."""
        descriptor = self.link.fileno()
        reading = self._hold_until is None and self._full_since is None
        events = (zmq.POLLIN if reading else 0) | (zmq.POLLOUT if self.link.wants_write else 0)
        if descriptor != self._link_fd:
            if self._link_events:
                self._poller.unregister(self._link_fd)
            self._link_fd, self._link_events = descriptor, 0
        if descriptor >= 0 and events != self._link_events:
            if events:
                self._poller.register(descriptor, events)
            else:
                self._poller.unregister(descriptor)
            self._link_events = events
        read_shell = self.link.queued < _QUEUE_LIMIT
        if read_shell != self._reads_shell:
            self._reads_shell = read_shell
            self._poller.modify(self.sockets.shell, zmq.POLLIN if read_shell else 0)

    def _timeout(self) -> int | None:
        times = [
            each
            for each in (
                self._ack_at,
                self._hold_until,
                self._grace_until,
                self._reconnect_at,
                self._end_at,
                self._leave_at,
                self._retry_at,
            )
            if each is not None
        ]
        if self._full_since is not None:
            times.append(time.monotonic() + 0.02)
        if self._parent.must_be_polled:
            times.append(time.monotonic() + ParentWatch.INTERVAL)
        if not times:
            return None
        return max(0, int((min(times) - time.monotonic()) * 1000 + 0.999))

    def _on_time(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        if self._ack_at is not None and now >= self._ack_at:
            self._ack_at = None
            self.link.acknowledge()
            if self._journal_is_behind and not self.table.open:
                self._save()
        if self._hold_until is not None:
            self._end_hold(now)
        if self._reconnect_at is not None and now >= self._reconnect_at:
            self._reconnect_at = None
            self._reconnect()
        if self._retry_at is not None and now >= self._retry_at:
            self.sockets.retry_unroutable()
            self._retry_at = now + _RETRY if now < self.sockets.hold_unroutable_until else None
        if self._full_since is not None:
            self._check_backlog(now)
        if self._end_at is not None and now >= self._end_at:
            self._end_at = None
            self.link.end(_END_GRACE)
            self._leave_at = now + _END_GRACE + 1.0
        if self._leave_at is not None and now >= self._leave_at:
            self.exit_code = 0
        if self._parent.must_be_polled and self._parent.is_gone():
            self._on_parent_gone()

    def _end_hold(self, now: float) -> None:
        """Begin to read once as many subscribers as before are there, or the wait is over.

        What is published before a client's socket has come back is lost to it.
        """
        if self._grace_until is None and self.sockets.subscribers >= max(1, self._wanted):
            self._grace_until = now + _SUBSCRIBER_GRACE
        if now >= min(self._hold_until or now, self._grace_until or now + 1.0):
            self._hold_until = self._grace_until = None
            self._retry_at = now

    # --- from the clients ---------------------------------------------------------------------

    def _on_subscriptions(self) -> None:
        for topic in self.sockets.take_subscriptions():
            self.sockets.publish(
                topic,
                "iopub_welcome",
                _EMPTY,
                write({"subscription": topic.decode("utf-8", "replace")}),
            )

    def _on_clients(self, channel: Channel) -> None:
        for _ in range(_MESSAGES_PER_TURN):
            try:
                message = self.sockets.receive(channel)
                if message is None:
                    return
                if channel is Channel.STDIN:
                    self._on_answer(message)
                else:
                    self._on_request(channel, message)
            except (UnreadableMessage, Refused) as reason:
                self._note(f"a client's message on {channel.name.lower()}: {reason}")
            if self.exit_code is not None:
                return

    def _on_answer(self, message: Incoming) -> None:
        if message.msg_type != "input_reply":
            raise Refused("a type that clients do not send here")
        parent = _read_client(bytes(message.parts[1]))
        question = self.table.take_answer(
            message.identities, str(message.values.get("session", "")), parent.get("msg_id")
        )
        header, _, *rest = message.parts
        # The sandbox knows its question by its own header, which no client has seen.
        self.link.send(Channel.STDIN, message.identities, [header, question.header, *rest])

    def _on_request(self, channel: Channel, message: Incoming) -> None:
        msg_type = message.msg_type
        if msg_type not in (SHELL_REQUESTS if channel is Channel.SHELL else CONTROL_REQUESTS):
            raise Refused("a type that clients do not send here")
        if self.hostcomms and msg_type in ("comm_msg", "comm_close"):
            content = _read_client(message.content)
            if content.get("comm_id") in self.hostcomms:
                self._on_host_comm(message, content)
                return
        request = Request(
            message.msg_id,
            message.header,
            channel,
            message.identities,
            msg_type,
            session=str(message.values.get("session", "")),
            subshell=message.values.get("subshell_id") is not None,
        )
        if msg_type == "interrupt_request":
            self._answer(request, self._interrupt)
        elif msg_type == "shutdown_request":
            self._shut_down(request, _read_client(message.content).get("restart") is True, message)
        elif request.is_execute:
            self._on_cell(request, message)
        elif self._must_wait(request):
            self._held.append(_Held(request, message.parts, None))
        else:
            self._forward(request, message.parts)

    def _must_wait(self, request: Request) -> bool:
        """Whether a host cell comes before this message."""
        return request.is_on_main_shell and (bool(self._held) or self._host_request is not None)

    def _on_cell(self, request: Request, message: Incoming) -> None:
        content = _read_client(message.content)
        request.code = str(content.get("code", ""))
        request.allow_stdin = content.get("allow_stdin") is True
        request.silent = content.get("silent") is True
        request.stop_on_error = content.get("stop_on_error", True) is True
        cell: HostCell | UsageProblem | None
        try:
            cell = parse(request.code, self._magics)
        except UsageProblem as problem:
            cell = problem
        if cell is None and not self._must_wait(request):
            self._forward(request, message.parts)
            return
        if isinstance(cell, HostCell) and self._is_immediate(cell):
            self._run_host_cell(request, cell)
            return
        self._held.append(_Held(request, message.parts, cell))
        self._release_held()

    def _forward(self, request: Request, parts: Sequence[bytes | memoryview]) -> None:
        try:
            self.link.send(request.channel, request.identities, parts)
        except ValueError as error:
            self.table.add(request)
            self._fail(request, "MessageTooLarge", f"The sandbox takes no such message: {error}.")
            return
        self.table.add(request)
        if request.is_execute:
            # The interpreter is at work already, so this costs the cell nothing.
            self._save()

    # --- interrupt and shutdown ---------------------------------------------------------------

    def _interrupt(self) -> dict[str, Any]:
        # Before the interpreter takes messages there is no cell to interrupt, and a signal would
        # end it in the middle of its imports.
        if self._ready:
            self.link.signal(2)
        return {"status": "ok"}

    def _answer(self, request: Request, act: Callable[[], dict[str, Any]]) -> None:
        """Answer a request here and now, with the statuses around it."""
        self._publish_own("status", request.header, _BUSY)
        content = write(act())
        self._reply(request, str(request.reply_type), content)
        self._publish_own("status", request.header, _IDLE)

    def _shut_down(self, request: Request, restart: bool, message: Incoming) -> None:  # noqa: FBT001
        self._answer(request, lambda: {"status": "ok", "restart": restart})
        self._publish_own(
            "shutdown_reply", request.header, write({"status": "ok", "restart": restart})
        )
        if self.shutdown is not None:
            return
        self.shutdown = restart
        self._journal.remove()
        now = time.monotonic()
        if not self._ready or self.link.fileno() < 0:
            self._end_at = now
            return
        # The interpreter gets the chance to end by itself, so that its atexit handlers run.
        self.link.send(Channel.CONTROL, request.identities, message.parts)
        self._end_at = now + (_IDLE_END if self.table.is_main_shell_free() else _BUSY_END)

    def _on_signals(self) -> None:
        for number in self._signals.take():
            if number == 2:
                self._interrupt()
            else:
                self._detach()

    def _on_parent_gone(self) -> None:
        self._detach()

    def _detach(self) -> None:
        """Leave; the interpreter stays. A shutdown under way goes on to its own end."""
        if self.shutdown is None:
            self.link.acknowledge()
            self._save()
            self.exit_code = 0

    # --- from the sandbox ---------------------------------------------------------------------

    def _on_link(self) -> None:
        for event in self.link.receive():
            if type(event) is Record:
                self._on_record(event)
            elif type(event) is Attached:
                self._attempt = 0
            elif type(event) is Started:
                self._on_started(event)
            elif type(event) is Ended:
                self._flush_text()
                self._on_ended(event)
            elif type(event) is Superseded:
                self._say("another relay has attached to this kernel; this one leaves.")
                self.exit_code = 0
            elif type(event) is Lost:
                self._flush_text()
                self._on_lost(event)
            if self.exit_code is not None:
                break
        self._flush_text()
        if self.link.unacked:
            if self.table.open:
                self.link.acknowledge()
            elif self._ack_at is None:
                # Nobody waits for anything; the next message or this timer takes the ack along.
                self._ack_at = time.monotonic() + _ACK_DELAY
        if self._full_since is None and self.sockets.backlog() > BACKLOG_LIMIT:
            self._full_since = time.monotonic()

    def _check_backlog(self, now: float) -> None:
        """Go on reading once the slowest subscriber has caught up a little.

        One that reads nothing at all must not hold the kernel for ever: after a while large
        outputs are dropped, with a notice, until it is back below the limit.
        """
        if self.sockets.backlog() < BACKLOG_LIMIT * 3 // 4:
            self._full_since = None
            if self._dropped:
                text = f"[{self._dropped} bytes of output dropped: a client does not read]\n"
                self._publish_own("stream", _EMPTY, write({"name": "stderr", "text": text}))
                self._dropped = 0
        elif now - (self._full_since or now) > _STUCK_READER:
            self._on_link()

    def _on_record(self, record: Record) -> None:
        channel, parts = record.channel, record.parts
        try:
            if channel is Channel.STREAM:
                self._on_text(parts, record.end)
                return
            if self._text is not None:
                self._flush_text()
            if channel is Channel.META:
                self._on_meta(parts)
                return
            if len(parts) < 4:
                raise Refused("it has too few parts")
            header = read(bytes(parts[0]))
            msg_type = header.get("msg_type") if isinstance(header, dict) else None
            if not isinstance(msg_type, str):
                raise Refused("it has no type")
            request = self._find_parent(bytes(parts[1]))
            msg_id = f"{self._prefix}{record.end:x}"
            if channel is Channel.IOPUB:
                self._on_broadcast(msg_type, request, parts, msg_id)
            elif channel is Channel.STDIN:
                self._on_question(msg_type, request, parts, msg_id)
            else:
                self._on_reply(msg_type, request, parts, msg_id)
        except Refused as reason:
            self._note(f"a message of the sandbox on {channel.name.lower()}: {reason}")

    def _find_parent(self, parent: bytes) -> Request | None:
        """Return the request a parent header names; the same bytes are not read twice."""
        if parent != self._parent_bytes:
            value = read(parent)
            msg_id = value.get("msg_id") if isinstance(value, dict) else None
            self._parent_request = self.table.find(msg_id)
            if self._parent_request is None and msg_id is not None and msg_id == self._probe:
                # Not remembered: the probe's table entry does not exist.
                self._parent_bytes = b""
                return _PROBE
            self._parent_bytes = parent
        return self._parent_request

    def _on_meta(self, parts: Sequence[memoryview]) -> None:
        value = read(bytes(parts[0])) if parts else None
        if not isinstance(value, dict) or value.get("op") != "ready":
            raise Refused("an unknown word of the interpreter")
        if self._ready:
            return
        self._ready = True
        if self._host_request is not None:
            request, self._host_request = self._host_request, None
            self._finish_host_cell(request, "A fresh interpreter is ready; files are kept.\n")

    def _on_text(self, parts: Sequence[memoryview], end: int) -> None:
        if len(parts) != 3:
            raise Refused("it has not three parts")
        name, parent, text = bytes(parts[0]), bytes(parts[1]), bytes(parts[2])
        if self._text is not None:
            if (
                self._text[0] == name
                and self._text[1] == parent
                and self._text_size + len(text) <= _STREAM_JOIN
            ):
                self._text[2].append(text)
                self._text_size += len(text)
                return
            self._flush_text()
        self._text = (name, parent, [text], end)
        self._text_size = len(text)

    def _flush_text(self) -> None:
        """Publish the joined text of a stream."""
        if self._text is None:
            return
        (name, parent, texts, end), self._text = self._text, None
        try:
            text = b"".join(texts).decode("utf-8", "replace")
            content = self._policy.publish("stream", {"name": name.decode("ascii"), "text": text})
            self._publish(
                "stream", self._find_parent(parent), content, {}, (), f"{self._prefix}{end:x}"
            )
        except (Refused, UnicodeDecodeError) as reason:
            self._note(f"text of the sandbox: {reason}")

    def _on_broadcast(
        self, msg_type: str, request: Request | None, parts: Sequence[memoryview], msg_id: str
    ) -> None:
        if request is _PROBE:
            return
        content = self._policy.publish(msg_type, read(bytes(parts[3])))
        if msg_type == "status":
            self._on_status(content["execution_state"], request, msg_id)
            return
        if msg_type == "execute_input":
            # The text is the client's own; the sandbox adds the number.
            content["code"] = self.table.mark_input_shown(request).code
            self._learn_count(content["execution_count"])
        elif msg_type == "error":
            content["traceback"] = self._with_hint(content)
        metadata = read(bytes(parts[2]))
        self._publish(
            msg_type,
            request,
            content,
            metadata if isinstance(metadata, dict) else {},
            parts[4:],
            msg_id,
        )

    def _publish(
        self,
        msg_type: str,
        request: Request | None,
        content: Mapping[str, Any],
        metadata: Mapping[str, Any],
        buffers: Sequence[memoryview],
        msg_id: str,
    ) -> None:
        encoded = write(content)
        if self.hostcomms and msg_type in _MAY_NAME_COMMS and self.hostcomms.mentioned_in(encoded):
            raise Refused("it names a comm of the host")
        if self._full_since is not None and msg_type in _BULK:
            self._dropped += len(encoded) + sum(map(len, buffers))
            return
        encoded_metadata = write(metadata) if metadata else _EMPTY
        if request is not None and request.msg_id in self._lost and msg_type in _SHOWN:
            self._keep(_Kept(msg_type, encoded, encoded_metadata, buffers))
        self.sockets.publish(
            b"kernel." + msg_type.encode(),
            msg_type,
            _EMPTY if request is None else request.header,
            encoded,
            metadata=encoded_metadata,
            buffers=buffers,
            msg_id=msg_id,
        )

    def _on_status(self, state: str, request: Request | None, msg_id: str) -> None:
        if state == "starting":
            self.sockets.publish(b"kernel.status", "status", _EMPTY, _STARTING, msg_id=msg_id)
            return
        if request is None:
            raise Refused("a status of no request")
        if state == "busy":
            self.table.mark_busy(request)
            self._publish_own("status", request.header, _BUSY, msg_id)
        elif self.table.mark_idle(request):
            self._publish_own("status", request.header, _IDLE, msg_id)
            self._after_idle()

    def _after_idle(self) -> None:
        if self._held:
            self._release_held()
        if not self.table.open:
            self._journal_is_behind = True

    def _on_reply(
        self, msg_type: str, request: Request | None, parts: Sequence[memoryview], msg_id: str
    ) -> None:
        if request is _PROBE:
            self._on_probe()
            return
        content = self._policy.reply(msg_type, read(bytes(parts[3])))
        metadata = read(bytes(parts[2]))
        # Everything is read before the table is touched, so that a refused reply changes nothing.
        request = self.table.mark_reply(request, msg_type)
        if content.get("status") == "error" and "traceback" in content:
            content["traceback"] = self._with_hint(content)
        if request.is_execute:
            self._learn_count(content.get("execution_count"))
        elif msg_type == "comm_info_reply" and self.hostcomms:
            for comm_id, target in self.hostcomms:
                content.setdefault("comms", {})[comm_id] = {"target_name": target}
        self._reply(
            request,
            msg_type,
            write(content),
            metadata=write(metadata) if metadata and isinstance(metadata, dict) else _EMPTY,
            buffers=parts[4:],
            msg_id=msg_id,
        )
        if self.table.idle_is_due(request):
            self._publish_own("status", request.header, _IDLE)
            self._after_idle()
        if request.is_execute and content.get("status") == "error" and request.stop_on_error:
            self._abort_held()

    def _reply(
        self,
        request: Request,
        msg_type: str,
        content: bytes,
        *,
        metadata: bytes = _EMPTY,
        buffers: Sequence[memoryview] = (),
        msg_id: str | None = None,
    ) -> None:
        self.sockets.send(
            request.channel,
            request.identities,
            msg_type,
            request.header,
            content,
            metadata=metadata,
            buffers=buffers,
            msg_id=msg_id,
        )

    def _on_question(
        self, msg_type: str, request: Request | None, parts: Sequence[memoryview], msg_id: str
    ) -> None:
        if msg_type != "input_request":
            raise Refused("a type the sandbox may not send here")
        content = write(self._policy.ask(read(bytes(parts[3]))))
        request = self.table.mark_asking(request, Question(msg_id, bytes(parts[0])))
        self.sockets.send(
            Channel.STDIN,
            request.identities,
            "input_request",
            request.header,
            content,
            msg_id=msg_id,
        )

    def _on_probe(self) -> None:
        """Close what a predecessor had answered without having noted it."""
        self._probe = None
        for request in list(self.table.open.values()):
            if request.msg_id in self._lost and request.is_on_main_shell:
                self.table.close(request)
        self._after_idle()

    def _learn_count(self, count: object) -> None:
        if isinstance(count, int) and not isinstance(count, bool):
            self._count = count

    def _with_hint(self, error: Mapping[str, Any]) -> list[str]:
        traceback: list[str] = error["traceback"]
        hint = hint_for(error["ename"], error["evalue"], self._facts)
        return traceback if hint is None else [*traceback, hint]

    # --- ends ---------------------------------------------------------------------------------

    def _on_ended(self, ended: Ended) -> None:
        self.link.acknowledge()
        if self.shutdown is not None:
            self.exit_code = 0
            return
        text, hint = death(ended.exit_code, ended.signal, ended.reason, self._facts)
        clean = ended.exit_code == 0 and ended.signal is None
        detail = [] if clean else [line for line in (ended.stderr.rstrip(), hint) if line]
        self._die(
            f"{text} Its variables are lost; files are kept.", detail, 0 if clean else _CODE_DEAD
        )

    def _on_lost(self, lost: Lost) -> None:
        if self.shutdown is not None:
            self.exit_code = 0
            return
        if not (lost.broken and self._try_again()):
            self._die(f"The interpreter cannot be reached: {lost.reason}.", [], _CODE_DEAD)

    def _try_again(self) -> bool:
        """Plan to reconnect; False when that was tried often enough."""
        if self._attempt == len(_RECONNECT_DELAYS):
            return False
        self._reconnect_at = time.monotonic() + _RECONNECT_DELAYS[self._attempt]
        self._attempt += 1
        return True

    def _reconnect(self) -> None:
        try:
            self.link.reconnect()
        except ContainerUnavailableError as error:
            if self._try_again():
                return
            self._die(
                f"The sandbox {error.context.get('sandbox_id', '')!r} has stopped"
                f" ({error.context.get('reason', 'no answer')}) and its interpreters with it."
                " Files in its workspace are kept.",
                [],
                _CODE_DEAD,
            )

    def _die(self, text: str, detail: list[str], code: int) -> None:
        """Tell everybody who waits, then leave, so that Jupyter starts a new relay."""
        for request in list(self.table.open.values()):
            self._fail(request, "InterpreterDied", text, detail)
        for held in self._held:
            self.table.add(held.request)
            self._fail(held.request, "InterpreterDied", text, detail)
        self._held.clear()
        self._journal.remove()
        self.exit_code = code

    def _fail(self, request: Request, ename: str, evalue: str, detail: Sequence[str] = ()) -> None:
        """Answer an open request with an error."""
        error = {"ename": ename, "evalue": evalue, "traceback": [f"{ename}: {evalue}", *detail]}
        if not request.replied:
            if not request.busy:
                self._publish_own("status", request.header, _BUSY)
            if request.is_execute and not request.silent:
                self._publish_own("error", request.header, write(error))
            count = {"execution_count": self._count} if request.is_execute else {}
            content = {"status": "error", **error, **count}
            self._reply(request, str(request.reply_type), write(content))
        self._publish_own("status", request.header, _IDLE)
        self.table.close(request)

    # --- cells and widgets of the host --------------------------------------------------------

    def _is_immediate(self, cell: HostCell) -> bool:
        try:
            return self._commands[cell.magic].find(cell)[0].immediate
        except UsageProblem:
            return False

    def _release_held(self) -> None:
        """Go on with what has waited, as far as it may."""
        while self._held and self._host_request is None:
            held = self._held[0]
            if held.cell is not None and not self.table.is_main_shell_free():
                return
            self._held.popleft()
            if held.cell is None:
                self._forward(held.request, held.parts)
            else:
                self._run_host_cell(held.request, held.cell)

    def _abort_held(self) -> None:
        """Do as an interpreter does: after an error, cells sent meanwhile are not run."""
        held, self._held = self._held, deque()
        for each in held:
            if each.request.is_execute:
                self._answer(each.request, lambda: {"status": "aborted"})
            else:
                self._forward(each.request, each.parts)

    def _run_host_cell(self, request: Request, cell: HostCell | UsageProblem) -> None:
        self._publish_own("status", request.header, _BUSY)
        if not request.silent:
            shown = {"code": request.code, "execution_count": self._count}
            self._publish_own("execute_input", request.header, write(shown))
        self._host_request = request
        try:
            if isinstance(cell, UsageProblem):
                raise cell
            command, words = self._commands[cell.magic].find(cell)
            text = command.run(words)
        except (UsageProblem, SandboxError) as error:
            name = "UsageError" if isinstance(error, UsageProblem) else type(error).__name__
            self._host_request = None
            self._finish_host_cell(request, "", (name, str(error)))
            return
        if text is not None:
            self._host_request = None
            self._finish_host_cell(request, text)

    def _finish_host_cell(
        self, request: Request, text: str, problem: tuple[str, str] | None = None
    ) -> None:
        if text and not request.silent:
            stream = {"name": "stdout", "text": text}
            self._publish_own("stream", request.header, write(stream))
        content: dict[str, Any] = {"execution_count": self._count}
        if problem is None:
            content |= {"status": "ok", "user_expressions": {}, "payload": []}
        else:
            name, value = problem
            error = {"ename": name, "evalue": value, "traceback": [f"{name}: {value}"]}
            self._publish_own("error", request.header, write(error))
            content |= {"status": "error", **error}
        self._reply(request, "execute_reply", write(content))
        self._publish_own("status", request.header, _IDLE)
        if problem is not None and request.stop_on_error:
            self._abort_held()
        self._release_held()

    def _status(self, words: list[str]) -> str:
        _no_words("status", words)
        info = self.link.info
        lines = [
            self._describe(),
            f"interpreter    {'ready' if self._ready else 'starting'}"
            + (f", process {info.pid} in the sandbox" if info is not None else ""),
            f"cells open     {sum(request.is_execute for request in self.table.pending())}",
        ]
        if self._kept:
            lines.append(f"kept outputs   {len(self._kept)} (%sandbox outputs)")
        if self._refused:
            lines.append(f"refused        {self._refused} messages; the last:")
            lines.extend(f"  {note}" for note in list(self._notes)[-5:])
        return "\n".join(lines) + "\n"

    def _outputs(self, words: list[str]) -> str:
        _no_words("outputs", words)
        request = self._host_request
        kept, self._kept, self._kept_size = self._kept, deque(), 0
        if not kept or request is None:
            return "No output was made while no client could show it.\n"
        for each in kept:
            msg_type, content = each.msg_type, each.content
            if msg_type == "execute_result":
                # A result belongs to its own cell's number; here it is a display.
                value = read(content)
                del value["execution_count"]
                msg_type, content = "display_data", write(value)
            self.sockets.publish(
                b"kernel." + msg_type.encode(),
                msg_type,
                request.header,
                content,
                metadata=each.metadata,
                buffers=each.buffers,
            )
        return f"({len(kept)} outputs from while no client could show them)\n"

    def _keep(self, output: _Kept) -> None:
        self._kept.append(output)
        self._kept_size += len(output.content)
        while len(self._kept) > _KEPT_OUTPUTS or self._kept_size > _KEPT_BYTES:
            self._kept_size -= len(self._kept.popleft().content)

    def _restart(self, words: list[str]) -> str | None:
        _no_words("restart", words)
        self._flush_text()
        for request in list(self.table.open.values()):
            self._fail(request, "InterpreterDied", "The interpreter is being replaced.")
        self._ready = False
        self._count = 0
        self.link.restart(StartKernelRequest(**{**vars(self.link.request), "fresh": True}))
        # Finished by the new interpreter's first word.
        return None

    def _on_started(self, started: Started) -> None:
        self._adopt(started.info)

    def _on_host_comm(self, message: Incoming, content: dict[str, Any]) -> None:
        self._publish_own("status", message.header, _BUSY)
        for answer in self.hostcomms.handle(message.msg_type, content, message.parts[4:]):
            self.publish_comm(answer, message.header)
        self._publish_own("status", message.header, _IDLE)

    def publish_comm(self, message: CommMessage, parent: bytes) -> None:
        """Publish a message of a host comm."""
        self.sockets.publish(
            b"kernel." + message.msg_type.encode(),
            message.msg_type,
            parent,
            write(message.content),
            metadata=write(message.metadata),
            buffers=message.buffers,
        )

    # --- small things -------------------------------------------------------------------------

    def _publish_own(
        self, msg_type: str, parent: bytes, content: bytes, msg_id: str | None = None
    ) -> None:
        self.sockets.publish(
            b"kernel." + msg_type.encode(), msg_type, parent, content, msg_id=msg_id
        )

    def _save(self) -> None:
        self._journal_is_behind = False
        self._journal.save(
            self._mark,
            {
                "session": self.sockets.session,
                "subscribers": self.sockets.subscribers,
                "count": self._count,
                "requests": self.table.dump(),
            },
        )

    def _note(self, text: str) -> None:
        """Remember that something was not passed on; shown by ``%sandbox status``."""
        self._refused += 1
        self._notes.append(text[:200])

    @staticmethod
    def _say(text: str) -> None:
        print(f"sandbox kernel: {text}", file=sys.stderr, flush=True)  # noqa: T201


def mark_of(info: KernelInfo) -> str:
    """Name one interpreter process, for the journal."""
    return f"{info.incarnation}-{info.pid}-{info.started_at!r}"


def _read_client(data: bytes) -> dict[str, Any]:
    """Return a JSON object a client sent; clients are trusted to mean what they sign."""
    value = read(data)
    if not isinstance(value, dict):
        raise Refused("its content is no object")
    return value


def _no_words(command: str, words: Sequence[str]) -> None:
    if words:
        raise UsageProblem(f"%sandbox {command} takes no further words.")
