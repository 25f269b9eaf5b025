"""The loop of a relay: clients on one side, an interpreter in a sandbox on the other.

Everything happens on one thread in one poll.  What a client sends is checked for its signature and
type and passed on; what the sandbox sends goes through `arrivals`.  Nothing is forwarded unread.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import zmq

from sandbox_kernel.errors import ContainerUnavailableError, SandboxError
from sandbox_kernel.kernel.arrivals import Arrivals
from sandbox_kernel.kernel.hints import Facts, death, lacks_kernel
from sandbox_kernel.kernel.hostcells import Commands
from sandbox_kernel.kernel.hostcomms import CommMessage, HostComm, HostComms
from sandbox_kernel.kernel.journal import Inheritance, Journal
from sandbox_kernel.kernel.jsontext import Refused, read, write
from sandbox_kernel.kernel.lifecycle import SUPERSEDED, ParentWatch, Signals
from sandbox_kernel.kernel.link import (
    Attached,
    Ended,
    Event,
    Link,
    Lost,
    Record,
    Started,
    Superseded,
    end_kernel,
)
from sandbox_kernel.kernel.notes import Notes
from sandbox_kernel.kernel.outputs import KeptOutputs
from sandbox_kernel.kernel.policy import CONTROL_REQUESTS, SHELL_REQUESTS, Policy
from sandbox_kernel.kernel.requests import Request, RequestTable
from sandbox_kernel.kernel.sandboxmagic import sandbox_commands
from sandbox_kernel.kernel.sockets import BACKLOG_LIMIT, Incoming, Sockets, UnreadableMessage
from sandbox_kernel.kernel.speaker import EMPTY, Speaker
from sandbox_kernel.kernel.turns import Turns
from sandbox_kernel.wire.kernel import Channel
from sandbox_kernel.wire.operations import KernelInfo, StartKernelRequest

__all__ = ["Relay", "mark_of"]

_MESSAGES_PER_TURN = 64
_SLICE_RECORDS = 1000
_SLICE_TIME = 0.02
"""Records and seconds of the sandbox's output after which the clients are looked at again."""

_QUEUE_LIMIT = 64 << 20
"""Bytes that may wait for the sandbox; above it the shell is not read."""

_ACK_DELAY = 0.005
_LEAVE_TIME = 0.01
"""Seconds after which a message that is not followed counts as sent by ZMQ's own thread."""

_FOLLOW_TIME = 0.001
"""Seconds that one which is followed takes to leave, about."""

_MOST_UNACKED = 32 << 20
"""Bytes of output that wait to be acknowledged, half of what the runtime keeps.  With a subscriber
that is further behind, more is acknowledged than has left, and lost if this relay is killed."""

_SUBSCRIBER_WAIT = 3.0
_SUBSCRIBER_GRACE = 0.15

_FIRST_SUBSCRIBER_WAIT = 0.5
"""Seconds that the first requests wait for somebody to hear what they publish.  Clients are there
before the relay, and their sockets find it in any order, 100 ms apart at the default of ZMQ."""
_ROUTE_WAIT = 10.0
_RETRY = 0.05
_RECONNECT_DELAYS = (0.0, 0.02, 0.1, 0.3, 0.6, 1.0)
_IDLE_END = 1.0
_BUSY_END = 0.25
_END_GRACE = 0.5
_BACKLOG_LOOK = 0.02
_STUCK_READER = 30.0
_LAST_WORDS = 0.25
_SIGINT = 2
_CODE_DEAD = 1
_DEATH = "InterpreterDied"
"""The name of the error that cells end with when their interpreter does."""


def mark_of(info: KernelInfo) -> str:
    """Name one interpreter process, for the journal."""
    return f"{info.incarnation}-{info.pid}-{info.started_at!r}"


class _Turn(NamedTuple):
    """One turn of reading, all of it handed to ZMQ."""

    offset: int  # of the stream, after it
    published: int  # bytes on iopub, after it
    followed: bool  # whether its last message is
    sent_at: float  # monotonic


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
    inheritance : Inheritance or None
        What a predecessor has left.
    journal : Journal
        Where this one leaves it.
    facts : Facts
        For hints.
    describe : callable
        Returns rows of name and value about the sandbox, for ``%sandbox status``.
    policy : Policy
        What may pass.
    signals : Signals
        Taken over from the start.
    parent : ParentWatch
        Who must live.
    magics : mapping of str to Commands, optional
        Further magics that the host answers.
    expose : callable, optional
        Exposes a port of this incarnation, for ``%sandbox preview``.
    answered : callable, optional
        Told of each request that is answered, with the content of the reply.
    """

    def __init__(
        self,
        *,
        sockets: Sockets,
        link: Link,
        info: KernelInfo,
        inheritance: Inheritance | None,
        journal: Journal,
        facts: Facts,
        describe: Callable[[], list[tuple[str, str]]],
        policy: Policy,
        signals: Signals,
        parent: ParentWatch,
        magics: Mapping[str, Commands] | None = None,
        expose: Callable[[int, str], tuple[str, str]] | None = None,
        answered: Callable[[Request, bytes], None] | None = None,
    ) -> None:
        self.exit_code: int | None = None
        self.shutdown: bool | None = None
        """The restart flag of a shutdown_request; None before one."""
        self.lacks_kernel = False
        """Whether the sandbox has nothing that could be an interpreter."""
        self.sockets = sockets
        self.link = link
        self.table = RequestTable()
        self.hostcomms = HostComms()
        self.notes = Notes()
        self.outputs = KeptOutputs()
        self.speaker = Speaker(sockets, self.table, answered)
        self.arrivals = Arrivals(
            sockets=sockets,
            table=self.table,
            speaker=self.speaker,
            policy=policy,
            hostcomms=self.hostcomms,
            outputs=self.outputs,
            facts=facts,
            notes=self.notes,
            remember_comm=journal.comms.note,
        )
        magic = sandbox_commands(
            describe=lambda: [*describe(), *self._describe()],
            restart=self._restart,
            expose=None if expose is None else lambda port: expose(port, self._incarnation()),
            outputs=self.outputs,
            notes=self.notes,
            speaker=self.speaker,
        )
        commands = {"sandbox": magic, **(magics or {})}
        self.turns = Turns(self.table, self.speaker, commands, self._forward)
        self._journal = journal
        self._facts = facts
        self._signals = signals
        self._parent = parent
        self._mark = ""
        self._orphans: list[Request] = []
        self._wanted_subscribers = 0
        self._poller = zmq.Poller()
        self._handlers: dict[Any, Callable[[], None]] = {}  # sockets and descriptors
        self._link_fd = -1
        self._link_events = 0
        self._reads_shell = True
        self._is_heard = False
        self._journal_is_behind = False
        self._attempt = 0
        self._read: deque[Event] = deque()
        """What is left of the turn of reading that is under way."""
        self._routed_before = 0
        self._read_from = 0
        self._handed: deque[_Turn] = deque()
        """Turns that have not been acknowledged."""
        # Moments of the monotonic clock; None is never.
        self._ack_at: float | None = None
        self._hold_until: float | None = None
        self._grace_until: float | None = None
        self._reconnect_at: float | None = None
        self._end_at: float | None = None
        self._leave_at: float | None = None
        self._leave_code = 0
        self._death: tuple[str, list[str]] | None = None
        self._retry_at: float | None = None
        self._heard_by: float | None = None
        self._full_since: float | None = None
        self._adopt(info)
        if inheritance is not None:
            self._inherit(inheritance)

    def __repr__(self) -> str:
        return f"<Relay {self.link!r} {self.table!r} waiting={len(self.turns)}>"

    def is_over(self) -> bool:
        """Whether an exit code has been decided."""
        return self.exit_code is not None

    # --- the interpreter it serves ------------------------------------------------------------

    def _incarnation(self) -> str:
        return "" if self.link.info is None else self.link.info.incarnation

    def _adopt(self, info: KernelInfo) -> None:
        """Serve this interpreter from now on."""
        self._mark = mark_of(info)
        prefix = f"{self.sockets.session}_{int(info.started_at * 1e3):x}{info.pid:x}_"
        seams = self._journal.seams.follow(self._mark)
        self.arrivals.begin(
            prefix,
            is_ready=info.existing,
            seams=seams,
            deadly=self._journal.seams.deadly,
            comms=self._journal.comms.follow(self._mark),
        )
        self._handed.clear()
        self.link.attach(info)

    def _inherit(self, inheritance: Inheritance) -> None:
        """Go on where a predecessor was killed."""
        now = time.monotonic()
        self._is_heard = True  # the hold below waits for all of them
        self._wanted_subscribers = inheritance.subscribers
        self._hold_until = now + _SUBSCRIBER_WAIT
        self.sockets.hold_unroutable_until = now + _ROUTE_WAIT
        self.table.load(inheritance.requests)
        if inheritance.mark == self._mark:
            self.outputs.of = set(self.table.open)
            if self.outputs.of:
                self._send_probe()
        else:
            # Their interpreter has ended while no relay was there to say so.
            self._orphans = list(self.table.open.values())

    def _send_probe(self) -> None:
        """Ask something that is answered after every open request, to learn which are over.

        A predecessor may have been killed between the last words of a request and its journal.
        """
        self.arrivals.probe_id = self.sockets.new_id()
        header = {
            "msg_id": self.arrivals.probe_id,
            "msg_type": "kernel_info_request",
            "session": self.sockets.session,
            "username": "relay",
            "version": "5.4",
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        self.link.send(Channel.SHELL, [b"relay"], [write(header), EMPTY, EMPTY, EMPTY])

    def _describe(self) -> list[tuple[str, str]]:
        info = self.link.info
        state = "ready" if self.arrivals.is_ready else "starting"
        cells = sum(request.is_execute for request in self.table.open.values())
        return [
            ("interpreter", f"{state}, process {info.pid}" if info is not None else state),
            ("cells", f"{cells} running or queued, {len(self.turns)} behind a host cell"),
        ]

    def _restart(self) -> None:
        """Replace the interpreter; the host cell that asked ends with the new one's first word."""
        self.arrivals.flush()
        self._read.clear()
        for request in list(self.table.open.values()):
            self.speaker.fail(request, _DEATH, "The interpreter is being replaced.")
        try:
            self.link.restart(StartKernelRequest(**{**vars(self.link.request), "fresh": True}))
        except ContainerUnavailableError:
            # The cell is told; whether the sandbox has gone for good shows soon.
            self._try_again()
            raise
        self.arrivals.is_ready = False
        self.table.execution_count = 0

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
            self._watch(self._parent.fileno(), self._detach)
        elif self._parent.is_gone():
            self._detach()
        while not self.is_over():
            self._watch_link()
            for source, events in self._poller.poll(self._timeout()):
                if source != self._link_fd:
                    self._handlers[source]()
                else:
                    if events & zmq.POLLOUT:
                        self.link.flush()
                    if events & ~zmq.POLLOUT:
                        self._on_link()
                if self.is_over():
                    break
            else:
                if self._read:
                    self._take_slice()
                self._on_time()
        return self.exit_code or 0

    def _watch(self, source: Any, handler: Callable[[], None]) -> None:
        self._handlers[source] = handler
        self._poller.register(source, zmq.POLLIN)

    def _watch_link(self) -> None:
        """Listen to the link for exactly what can be done with it now."""
        descriptor = self.link.fileno()
        reading = self._hold_until is None and self._full_since is None and not self._read
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
        reads_shell = self.link.queued < _QUEUE_LIMIT and self._heard_by is None
        if reads_shell != self._reads_shell:
            self._reads_shell = reads_shell
            self._poller.modify(self.sockets.shell, zmq.POLLIN if reads_shell else 0)

    def _timeout(self) -> int | None:
        """Return the milliseconds until something is due."""
        if self._read:
            return 0
        moments = [
            each
            for each in (
                self._ack_at,
                self._hold_until,
                self._grace_until,
                self._reconnect_at,
                self._end_at,
                self._leave_at,
                self._retry_at,
                self._heard_by,
            )
            if each is not None
        ]
        if self._full_since is not None:
            moments.append(time.monotonic() + _BACKLOG_LOOK)
        if self._parent.must_be_polled:
            moments.append(time.monotonic() + ParentWatch.INTERVAL)
        if not moments:
            return None
        return max(0, int((min(moments) - time.monotonic()) * 1000 + 0.999))

    def _on_time(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        if self._ack_at is not None and now >= self._ack_at:
            self._ack_at = None
            self._settle()
            self.link.acknowledge()
            if self._handed:
                self._ack_at = now + _LEAVE_TIME
            elif self._journal_is_behind and not self.table.open:
                self._save()
        if self._hold_until is not None:
            self._check_hold(now)
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
            self.exit_code = self._leave_code
        if self._heard_by is not None and now >= self._heard_by:
            self._is_heard, self._heard_by = True, None
        if self._parent.must_be_polled and self._parent.is_gone():
            self._detach()

    def _check_hold(self, now: float) -> None:
        """Begin to read once as many subscribers as before are there, or the wait is over.

        What is published before a client's socket has come back is lost to it.
        """
        if self._grace_until is None and self.sockets.subscribers >= max(
            1, self._wanted_subscribers
        ):
            self._grace_until = now + _SUBSCRIBER_GRACE
        limits = (self._hold_until, self._grace_until)
        if now >= min(limit for limit in limits if limit is not None):
            self._hold_until = self._grace_until = None
            self._retry_at = now
            text = "The interpreter ended while its kernel process was being replaced."
            for request in self._orphans:
                self.speaker.fail(request, _DEATH, text)

    # --- from the clients ---------------------------------------------------------------------

    def _on_subscriptions(self) -> None:
        for topic in self.sockets.take_subscriptions():
            self._is_heard, self._heard_by = True, None
            self.speaker.welcome(topic)

    def _on_clients(self, channel: Channel) -> None:
        if channel is Channel.SHELL and not self._is_heard:
            if self._heard_by is None:
                self._heard_by = time.monotonic() + _FIRST_SUBSCRIBER_WAIT
            return
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
                self.notes.add(f"a client's message on {channel.name.lower()}: {reason}")
            if self.is_over():
                return

    def _on_answer(self, message: Incoming) -> None:
        if message.msg_type != "input_reply":
            raise Refused("a type that clients do not send here")
        parent = _object(bytes(message.parts[1]))
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
        request = Request(
            message.msg_id,
            message.header,
            channel,
            message.identities,
            msg_type,
            session=str(message.values.get("session", "")),
            subshell=message.values.get("subshell_id") is not None,
        )
        self.outputs.heard(request.session, self.table.open)
        if msg_type in ("comm_open", "comm_close"):
            self.arrivals.comms.hear(msg_type, _object(message.content))
        if msg_type == "interrupt_request":
            self._interrupt()
            self.speaker.answer(request, {"status": "ok"})
        elif msg_type == "shutdown_request":
            self._shut_down(request, message)
        elif self._death is not None:
            self.table.add(request)
            self._tell_death(request)
        elif self.hostcomms and msg_type in ("comm_msg", "comm_close"):
            content = _object(message.content)
            if content.get("comm_id") in self.hostcomms:
                self._on_host_comm(message, content)
            else:
                self.turns.take(request, message.parts)
        else:
            if request.is_execute:
                content = _object(message.content)
                request.code = str(content.get("code", ""))
                request.allow_stdin = content.get("allow_stdin") is True
                request.silent = content.get("silent") is True
                request.stop_on_error = content.get("stop_on_error", True) is True
            self.turns.take(request, message.parts)

    def _forward(self, request: Request, parts: Sequence[bytes | memoryview]) -> None:
        """Send a client's message to the sandbox."""
        self.table.add(request)
        try:
            self.link.send(request.channel, request.identities, parts)
        except ValueError as error:
            self.speaker.fail(request, "MessageTooLarge", f"The sandbox does not take {error}.")
            return
        if request.is_execute:
            # The interpreter is at work already, so this costs the cell nothing.
            self._save()

    def _on_host_comm(self, message: Incoming, content: dict[str, Any]) -> None:  # JSON
        self.speaker.status("busy", message.header)
        for answer in self.hostcomms.handle(message.msg_type, content, message.parts[4:]):
            self.publish_comm(answer, message.header)
        self.speaker.status("idle", message.header)

    def open_comm(self, comm: HostComm, parent: bytes) -> str:
        """Open a comm of the host at the clients; return its id."""
        comm_id, opening = self.hostcomms.open(comm)
        self.publish_comm(opening, parent)
        return comm_id

    def publish_comm(self, message: CommMessage, parent: bytes) -> None:
        """Publish a message of a host comm."""
        self.speaker.publish(
            message.msg_type,
            parent,
            write(message.content),
            metadata=write(message.metadata),
            buffers=message.buffers,
        )

    # --- interrupts and ends from outside -----------------------------------------------------

    def _interrupt(self) -> None:
        # Before the interpreter takes messages there is no cell to interrupt, and a signal would
        # end it in the middle of its imports.
        if self.arrivals.is_ready:
            self.link.signal(_SIGINT)

    def _shut_down(self, request: Request, message: Incoming) -> None:
        restart = _object(message.content).get("restart") is True
        content = {"status": "ok", "restart": restart}
        self.speaker.status("busy", request.header)
        self.speaker.reply(request, write(content))
        self.speaker.publish("shutdown_reply", request.header, write(content))
        self.speaker.status("idle", request.header)
        if self.shutdown is not None or self._death is not None:
            return
        self.shutdown = restart
        self._journal.remove()
        self._end_at = time.monotonic()
        if self.arrivals.is_ready and self.link.fileno() >= 0:
            # It may end by itself first, so that its exit handlers run.
            self.link.send(Channel.CONTROL, request.identities, message.parts)
            self._end_at += _IDLE_END if self.table.is_main_shell_free() else _BUSY_END

    def _on_signals(self) -> None:
        for number in self._signals.take():
            if number == _SIGINT:
                self._interrupt()
            else:
                self._detach()

    def _detach(self) -> None:
        """Leave; the interpreter stays.  A shutdown under way goes on to its own end."""
        while self._read and not self.is_over():
            self._take_slice()
        if self.is_over():
            return
        if self._death is not None:
            self.exit_code = self._leave_code
        elif self.shutdown is None:
            if not self.arrivals.repeats(self.link.offset):
                self.arrivals.flush()
                self._acknowledge_all()
            self._save()
            self.exit_code = 0

    # --- from the sandbox ---------------------------------------------------------------------

    def _on_link(self) -> None:
        """Begin a turn of reading; what is too much for one slice waits in `_read`."""
        if not self._read:
            self._read_from, self._routed_before = self.link.offset, self.sockets.routed
            self._read.extend(self.link.receive())
            if self._is_seam() and self.link.offset > self._read_from:
                self._journal.seams.note(self.link.offset)
        self._take_slice()

    def _is_seam(self) -> bool:
        """Whether texts may be cut where the turn ends.

        While what a predecessor has read comes again, its seams are those to keep.
        """
        return not self.arrivals.repeats(self.link.offset)

    def _take_slice(self) -> None:
        """Pass on what was read, until its end or until the clients must be looked at.

        A turn is joined, noted and acknowledged as a whole, however many slices it takes.
        """
        seams, is_seam = self._journal.seams, self._is_seam()
        until, left = time.monotonic() + _SLICE_TIME, _SLICE_RECORDS
        while self._read and left and time.monotonic() < until:
            event = self._read.popleft()
            left -= 1
            if type(event) is Record:
                seams.enter(event.end)
                self.arrivals.take(event)
            else:
                if is_seam:
                    self.arrivals.flush()
                seams.leave()
                self._on_event(event)
            if self.is_over():
                return
        if is_seam and not self._read:
            is_followed = (
                self.arrivals.flush(follow=True) and self.sockets.routed == self._routed_before
            )
            if self.link.offset > self._read_from:
                self._handed.append(
                    _Turn(
                        self.link.offset,
                        self.sockets.published,
                        is_followed,
                        time.monotonic(),
                    )
                )
        seams.leave()
        self._after_arrivals()

    def _settle(self) -> None:
        """Have acknowledged what has left for the clients.

        What ZMQ still holds goes with this process when it is killed; a successor must be given it
        again.
        """
        now, reached = time.monotonic(), self.sockets.reached()
        too_far = self.link.offset - _MOST_UNACKED
        while self._handed:
            turn = self._handed[0]
            may_wait = turn.published > reached or (
                not turn.followed and now < turn.sent_at + _LEAVE_TIME
            )
            if may_wait and turn.offset > too_far:
                return
            self._handed.popleft()
            self.link.done_with(turn.offset)
        if self._is_seam() and not self._read:
            self.table.settle()

    def _acknowledge_all(self) -> None:
        self._handed.clear()
        self.table.settle()
        self.link.done_with(self.link.offset)
        self.link.acknowledge()

    def _after_arrivals(self) -> None:
        """Do what follows from the messages that have just been passed on."""
        if self.arrivals.cell_failed:
            self.arrivals.cell_failed = False
            self.turns.abort()
        if self.turns.running is not None and self.arrivals.is_ready:
            self.turns.finish("A fresh interpreter is ready; files are kept.\n")
        self.turns.release()
        self._settle()
        if self.link.unacked and self.table.open:
            self.link.acknowledge()
        if self._ack_at is None and (self._handed or self.link.unacked):
            # If nobody waits for anything, the next message or this timer takes the ack along.
            delay = _ACK_DELAY
            if self._handed:
                delay = _FOLLOW_TIME if self._handed[-1].followed else _LEAVE_TIME
            self._ack_at = time.monotonic() + delay
        if self._full_since is None and self.sockets.backlog() > BACKLOG_LIMIT:
            self._full_since = time.monotonic()

    def _check_backlog(self, now: float) -> None:
        """Go on reading once the slowest subscriber has caught up a little.

        One that reads nothing at all must not hold the kernel for ever: after a while large
        outputs are dropped, with a notice, until it is back below the limit.
        """
        if self.sockets.backlog() < BACKLOG_LIMIT * 3 // 4:
            self._full_since = None
            self.arrivals.drops_bulk = False
            if self.arrivals.dropped:
                text = (
                    f"[{self.arrivals.dropped} bytes of output dropped: a client reads nothing]\n"
                )
                self.speaker.publish("stream", EMPTY, write({"name": "stderr", "text": text}))
                self.arrivals.dropped = 0
        elif now - (self._full_since or now) > _STUCK_READER:
            self.arrivals.drops_bulk = True
            self._on_link()

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Attached):
            self._attempt = 0
        elif isinstance(event, Started):
            self._adopt(event.info)
        elif isinstance(event, Ended):
            self._on_ended(event)
        elif isinstance(event, Superseded):
            message = (
                "sandbox kernel: another relay has attached to this kernel; this one leaves.\n"
            )
            sys.stderr.write(message)
            self.exit_code = SUPERSEDED
        elif isinstance(event, Lost):
            self._on_lost(event)

    def _on_ended(self, ended: Ended) -> None:
        self.arrivals.flush()
        self._acknowledge_all()
        if self.shutdown is not None:
            self.exit_code = 0
            return
        text, hint = death(
            ended.exit_code, ended.signal, ended.reason, self._facts, stderr=ended.stderr
        )
        clean = ended.exit_code == 0 and ended.signal is None
        self.lacks_kernel = not clean and lacks_kernel(ended.stderr)
        detail = [] if clean else [line for line in (ended.stderr.rstrip(), hint) if line]
        text = f"{text} Its variables are lost; files are kept."
        self._die(text, detail, 0 if clean else _CODE_DEAD)

    def _on_lost(self, lost: Lost) -> None:
        if self.shutdown is not None:
            self.exit_code = 0
        elif not (lost.broken and self._try_again()):
            self._die(f"The interpreter cannot be reached: {lost.reason}.", [], _CODE_DEAD)
        if lost.unreadable:
            self._end_unreadable()

    def _end_unreadable(self) -> None:
        """End an interpreter whose output is broken; the next relay would read the same bytes."""
        try:
            end_kernel(self.link.endpoint, self.link.request.kernel_id, grace=_END_GRACE)
        except SandboxError as error:
            sys.stderr.write(f"sandbox kernel: the interpreter could not be ended: {error}\n")

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
            if not self._try_again():
                text = "The sandbox has stopped, and its interpreters with it; files are kept."
                self._die(text, [error.message], _CODE_DEAD)

    def _die(self, text: str, detail: list[str], code: int) -> None:
        """Tell everybody who waits, and soon leave, so that Jupyter starts a new relay."""
        self._death = (text, detail)
        for request in self.turns.give_up():
            self.table.add(request)
        for request in list(self.table.open.values()):
            self._tell_death(request)
        self._journal.remove()
        self.link.close()
        # What clients have just sent would be lost with the sockets; it is answered too.
        self._leave_at = time.monotonic() + _LAST_WORDS
        self._leave_code = code

    def _tell_death(self, request: Request) -> None:
        """Answer an open request with the reason why nobody else will."""
        if self._death is None:
            return
        if request.msg_type == "kernel_info_request":
            # Clients take any answer to this one for a living kernel; they look at the process.
            self.table.close(request)
        else:
            self.speaker.fail(request, _DEATH, *self._death)

    # --- the journal --------------------------------------------------------------------------

    def _save(self) -> None:
        self._journal_is_behind = bool(self.table.open)
        self._journal.save(
            Inheritance(
                mark=self._mark,
                session=self.sockets.session,
                subscribers=self.sockets.subscribers,
                requests=self.table.dump(),
            )
        )


def _object(data: bytes) -> dict[str, Any]:
    """Return a client's JSON object."""
    value = read(data)
    if not isinstance(value, dict):
        raise Refused("it holds no object")
    return value
