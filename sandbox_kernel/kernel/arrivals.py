"""What comes out of the sandbox: taken apart, judged, routed by the request table, built anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sandbox_kernel.kernel.comms import COMM_MESSAGES, Comms
from sandbox_kernel.kernel.hints import Facts, hint_for, network_hint, tells_of_no_network
from sandbox_kernel.kernel.hostcomms import HostComms
from sandbox_kernel.kernel.jsontext import Refused, read, write
from sandbox_kernel.kernel.link import Record
from sandbox_kernel.kernel.notes import Notes
from sandbox_kernel.kernel.outputs import KeptOutputs, Output
from sandbox_kernel.kernel.policy import Policy
from sandbox_kernel.kernel.requests import Question, Request, RequestTable
from sandbox_kernel.kernel.sockets import Sockets
from sandbox_kernel.kernel.speaker import EMPTY, Speaker
from sandbox_kernel.wire.kernel import Channel

__all__ = ["Arrivals"]

_STREAM_JOIN = 256 << 10
"""Bytes up to which neighbouring texts of one stream and parent become one message."""

_MOST_HEADER = 1 << 20
"""Bytes of a header; those of interpreters have a few hundred."""

# All that a cell can send without end.
_BULK = frozenset(
    {
        "clear_output",
        "comm_close",
        "comm_msg",
        "comm_open",
        "debug_event",
        "display_data",
        "error",
        "execute_result",
        "stream",
        "update_display_data",
    }
)
_MAY_NAME_COMMS = frozenset(
    {
        "comm_close",
        "comm_msg",
        "comm_open",
        "display_data",
        "execute_result",
        "update_display_data",
    }
)

_OUTPUTS = frozenset({"display_data", "error", "execute_result", "update_display_data"})
_MOST_NOTED = 1000

_PROBE = Request("", EMPTY, Channel.SHELL, [], "kernel_info_request")
"""Stands for the relay's own question to the interpreter."""


class Arrivals:
    """Takes the interpreter's records and passes on what may pass.

    Attributes
    ----------
    is_ready : bool
        Whether the interpreter takes messages.
    cell_failed : bool
        Set when a cell that stops those behind it has failed; the relay resets it.
    probe_id : str or None
        The id of the relay's own question; None once it is answered.
    drops_bulk : bool
        While set, outputs are counted in `dropped` instead of published.
    comms : Comms
        The interpreter's.
    """

    def __init__(
        self,
        *,
        sockets: Sockets,
        table: RequestTable,
        speaker: Speaker,
        policy: Policy,
        hostcomms: HostComms,
        outputs: KeptOutputs,
        facts: Facts,
        notes: Notes,
        remember_comm: Callable[[str, str | None], None] = lambda *_: None,
    ) -> None:
        self.is_ready = False
        self.cell_failed = False
        self.probe_id: str | None = None
        self.drops_bulk = False
        self.dropped = 0
        self._sockets = sockets
        self._table = table
        self._speaker = speaker
        self._policy = policy
        self._hostcomms = hostcomms
        self._outputs = outputs
        self._facts = facts
        self._notes = notes
        self.comms = Comms(policy.wall, notes, remember_comm)
        # Cells that run and whose output says that the network is missing.
        self._offline: set[str] = set()
        # Cells that have been told of an output that was left out.
        self._told: dict[str, str] = {}
        # Requests whose reply was refused, and why.
        self._without_reply: dict[str, str] = {}
        # Whether the interpreter has served a relay before; then it may end what only that knew.
        self._has_past = False
        self._prefix = ""
        self._text: list[bytes] = []
        self._text_key = (b"", b"")
        self._text_size = 0
        self._text_end = 0
        self._seams: frozenset[int] = frozenset()
        self._last_seam = 0
        self._deadly: int | None = None
        self._may_start = True
        self._parent_bytes = b""
        self._parent_request: Request | None = None

    def begin(
        self,
        prefix: str,
        *,
        is_ready: bool,
        seams: Iterable[int] = (),
        deadly: int | None = None,
        comms: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Listen to an interpreter from now on.

        Parameters
        ----------
        prefix : str
            Of message ids: with a record's offset it makes the same id in every relay, so that a
            record which is read twice can be recognised.
        is_ready : bool
            Whether it takes messages already.
        seams : iterable of int
            Where a predecessor has ended its joining.  What it may have sent is joined as it did,
            so that the same text comes under the same id.
        deadly : int, optional
            The end of a record that predecessors have ended on; it is left out.
        comms : iterable of (str, str)
            What predecessors have told `remember_comm`.
        """
        self._prefix = prefix
        self.is_ready = self._has_past = is_ready
        self._seams = frozenset(seams)
        self._last_seam = max(self._seams, default=0)
        self._deadly = deadly
        self._may_start = not is_ready
        self.comms.begin(comms)

    def repeats(self, offset: int) -> bool:
        """Whether a predecessor has read further than this offset, and joins texts across it."""
        return offset < self._last_seam

    def take(self, record: Record) -> None:
        """Pass a record on, or note why not; nothing the sandbox sends raises.

        That holds for faults of the judging code too: a record that ended this relay would be read
        again by the next one, and end that as well.
        """
        try:
            if record.end == self._deadly:
                self._notes.add("a message of the sandbox: relays have ended on it")
                self.flush()
            elif record.channel is Channel.STREAM:
                self._take_text(record)
            else:
                self.flush()
                self._take_message(record)
            if record.end in self._seams:
                self.flush()
        except Refused as reason:
            self._notes.add(f"a message of the sandbox on {record.channel.name.lower()}: {reason}")
        except Exception as error:  # noqa: BLE001  see above
            self._notes.add(
                f"a message of the sandbox on {record.channel.name.lower()}:"
                f" it could not be judged ({type(error).__name__})"
            )

    def _take_message(self, record: Record) -> None:
        channel, parts = record.channel, record.parts
        if channel is Channel.META:
            self._take_meta(parts)
            return
        if len(parts) < 4:
            # Nothing is smaller, so nothing comes in such numbers: it costs as little as it can.
            self._notes.add("a message of the sandbox: it has too few parts")
            return
        header = read(bytes(parts[0]), at_most=_MOST_HEADER)
        msg_type = header.get("msg_type") if isinstance(header, dict) else None
        if not isinstance(msg_type, str):
            raise Refused("it has no type")
        request = self._find_parent(bytes(parts[1]))
        msg_id = f"{self._prefix}{record.end:x}"
        if request is _PROBE:
            if channel is Channel.SHELL:
                self._take_probe()
        elif channel is Channel.IOPUB:
            self._take_broadcast(msg_type, request, parts, msg_id)
        elif channel is Channel.STDIN:
            self._take_question(msg_type, request, parts, msg_id)
        else:
            self._take_reply(msg_type, request, parts, msg_id)

    def _find_parent(self, parent: bytes) -> Request | None:
        """Return the request that a parent header names; the same bytes are not read twice."""
        known = self._parent_request
        if (
            known is not None
            and parent == self._parent_bytes
            and self._table.open.get(known.msg_id) is known
        ):
            return known
        value = read(parent, at_most=_MOST_HEADER)
        msg_id = value.get("msg_id") if isinstance(value, dict) else None
        if msg_id is not None and msg_id == self.probe_id:
            return _PROBE
        self._parent_request = self._table.find(msg_id)
        self._parent_bytes = parent
        return self._parent_request

    def _take_meta(self, parts: Sequence[memoryview]) -> None:
        value = read(bytes(parts[0]), at_most=_MOST_HEADER) if parts else None
        if not isinstance(value, dict) or value.get("op") != "ready":
            raise Refused("an unknown word of the interpreter")
        self.is_ready = True
        self._may_start = False

    # --- text ---------------------------------------------------------------------------------

    def _take_text(self, record: Record) -> None:
        if len(record.parts) != 3:
            raise Refused("it has not three parts")
        name, parent, text = map(bytes, record.parts)
        if self._text and (
            self._text_key != (name, parent) or self._text_size + len(text) > _STREAM_JOIN
        ):
            self.flush()
        self._text.append(text)
        self._text_key = name, parent
        self._text_size += len(text)
        self._text_end = record.end

    def flush(self, *, follow: bool = False) -> bool:
        """Publish the text that was held back to be joined; return whether there was any.

        Parameters
        ----------
        follow : bool
            Whether it will be asked when it has left.
        """
        if not self._text:
            return False
        joined = b"".join(self._text) if len(self._text) > 1 else self._text[0]
        self._text, self._text_size = [], 0
        name, parent = self._text_key
        try:
            content = self._policy.publish(
                "stream",
                {
                    "name": name.decode("ascii", "replace"),
                    "text": joined.decode("utf-8", "replace"),
                },
            )
            request = self._find_parent(parent)
            if request is not _PROBE:
                self._watch_for_network(request, joined)
                self._publish(
                    "stream",
                    request,
                    content,
                    msg_id=f"{self._prefix}{self._text_end:x}",
                    follow=follow,
                )
        except Refused as reason:
            self._notes.add(f"text of the sandbox: {reason}")
        except Exception as error:  # noqa: BLE001  as in `take`
            self._notes.add(f"text of the sandbox: it could not be judged ({type(error).__name__})")
        return True

    def _watch_for_network(self, request: Request | None, text: bytes) -> None:
        """Remember a cell whose program wrote that there is no network: nothing else tells."""
        if (
            not self._facts.network
            and request is not None
            and request.is_execute
            and not request.replied
            and tells_of_no_network(text)
        ):
            self._offline.add(request.msg_id)

    # --- iopub --------------------------------------------------------------------------------

    def _take_broadcast(
        self, msg_type: str, request: Request | None, parts: Sequence[memoryview], msg_id: str
    ) -> None:
        self._policy.check_type(msg_type)
        try:
            content = self._policy.publish(msg_type, self._read(parts[3]))
        except Exception as error:
            if msg_type in _OUTPUTS:
                self._tell_left_out(request, error, msg_id)
            raise
        if msg_type in COMM_MESSAGES:
            self._take_comm(msg_type, request, content, parts, msg_id)
            return
        if msg_type == "status":
            self._take_status(content["execution_state"], request, msg_id)
            return
        if msg_type == "execute_input":
            # The text is the client's own; the sandbox adds the number.
            content["code"] = self._table.mark_input_shown(request).code
            self._table.learn_count(content["execution_count"])
        elif msg_type == "error":
            content["traceback"] = self._with_hint(content)
        else:
            self.comms.mend(content)
        self._publish(
            msg_type,
            request,
            content,
            metadata=_metadata(parts[2]),
            buffers=parts[4:],
            msg_id=msg_id,
        )

    def _take_status(self, state: str, request: Request | None, msg_id: str) -> None:
        if state == "starting":
            if not self._may_start:
                raise Refused("a second start")
            self._may_start = False
            self._speaker.status("starting", EMPTY, msg_id)
        elif request is None:
            if not self._has_past:
                raise Refused("a status of no request")
        elif state == "busy":
            self._table.mark_busy(request)
            self._speaker.status("busy", request.header, msg_id)
        elif self._table.mark_idle(request):
            self._speaker.status("idle", request.header, msg_id)
        elif request.msg_id in self._without_reply:
            self._answer_refused(request)

    def _read(self, part: memoryview) -> Any:
        limits = self._policy.limits
        return read(bytes(part), at_most=limits.message_bytes, depth=limits.depth)

    def _tell_left_out(self, request: Request | None, error: Exception, msg_id: str) -> None:
        """Say once in a cell that it has outputs which are not shown."""
        if (
            request is None
            or request is _PROBE
            or not request.is_execute
            or request.silent
            or request.msg_id in self._told
        ):
            return
        _remember(self._told, request.msg_id, msg_id)
        text = {"name": "stderr", "text": f"[An output was left out: {_reason(error)}.]\n"}
        self._publish("stream", request, text, msg_id=f"{msg_id}r")

    def _answer_refused(self, request: Request) -> None:
        """End a request whose own end has come, and whose reply could not pass."""
        reason = self._without_reply.pop(request.msg_id)
        self._speaker.fail(request, "ReplyRefused", f"The sandbox's reply was refused: {reason}.")
        if request.is_execute and request.stop_on_error:
            self.cell_failed = True

    def _take_comm(
        self,
        msg_type: str,
        request: Request | None,
        content: dict[str, Any],
        parts: Sequence[memoryview],
        msg_id: str,
    ) -> None:
        try:
            passed = self.comms.judge(msg_type, content, parts[4:])
        except Refused as reason:
            if msg_type == "comm_open":
                self._tell_withheld(content, request, msg_id)
            elif self.comms.is_widget(content["comm_id"]):
                self._tell_left_out(request, reason, msg_id)
            raise
        if passed is not None:
            self._publish(
                msg_type,
                request,
                {**content, "data": passed.data},
                metadata=self.comms.metadata(_metadata(parts[2])),
                buffers=passed.buffers,
                msg_id=msg_id,
            )

    def _tell_withheld(
        self, opening: Mapping[str, Any], request: Request | None, msg_id: str
    ) -> None:
        text = self.comms.tell_withheld(opening)
        if text is not None:
            told = {"name": "stderr", "text": f"{text}\n"}
            self._publish("stream", request, told, msg_id=f"{msg_id}w")

    def _publish(
        self,
        msg_type: str,
        request: Request | None,
        content: Mapping[str, Any],
        *,
        metadata: bytes = EMPTY,
        buffers: Sequence[memoryview] = (),
        msg_id: str,
        follow: bool = False,
    ) -> None:
        encoded = write(content)
        if (
            self._hostcomms
            and msg_type in _MAY_NAME_COMMS
            and self._hostcomms.mentioned_in(encoded)
        ):
            raise Refused("it names a comm of the host")
        if self.drops_bulk and msg_type in _BULK:
            self.dropped += len(encoded) + len(metadata) + sum(map(len, buffers))
            return
        if request is not None:
            self._outputs.offer(request, Output(msg_type, encoded, metadata, buffers))
        self._speaker.publish(
            msg_type,
            EMPTY if request is None else request.header,
            encoded,
            metadata=metadata,
            buffers=buffers,
            msg_id=msg_id,
            follow=follow,
        )

    # --- replies and questions ----------------------------------------------------------------

    def _take_reply(
        self, msg_type: str, request: Request | None, parts: Sequence[memoryview], msg_id: str
    ) -> None:
        pending = self._table.check_reply(request, msg_type)
        try:
            content = self._policy.reply(msg_type, self._read(parts[3]))
            metadata = _metadata(parts[2])
        except Exception as error:
            # The true one may still come: a request is over when its idle has come as well.
            _remember(self._without_reply, pending.msg_id, _reason(error))
            if pending.idle_waits:
                self._answer_refused(pending)
            raise
        self._without_reply.pop(pending.msg_id, None)
        # Everything is read before the table is touched, so that a refused reply changes nothing.
        request = self._table.mark_reply(request, msg_type)
        failed = content.get("status") == "error"
        if request.msg_id in self._offline:
            self._offline.discard(request.msg_id)
            if not ("traceback" in content and self._hint(content)):
                text = {"name": "stderr", "text": f"{network_hint(self._facts)}\n"}
                self._publish("stream", request, text, msg_id=f"{msg_id}n")
        if failed and "traceback" in content:
            content["traceback"] = self._with_hint(content)
        if request.is_execute:
            self._table.learn_count(content.get("execution_count"))
        elif msg_type == "comm_info_reply":
            own = {comm_id: {"target_name": target} for comm_id, target in self._hostcomms}
            # The policy has looked at the comms of a good answer only.
            comms = content["comms"] if content["status"] == "ok" else {}
            content["comms"] = {**self.comms.listed(comms), **own}
        self._speaker.reply(
            request,
            write(content),
            metadata=metadata,
            buffers=parts[4:],
            msg_id=msg_id,
        )
        if self._table.idle_is_due(request):
            self._speaker.status("idle", request.header, f"{msg_id}i")
        if failed and request.is_execute and request.stop_on_error:
            self.cell_failed = True

    def _take_question(
        self, msg_type: str, request: Request | None, parts: Sequence[memoryview], msg_id: str
    ) -> None:
        if msg_type != "input_request":
            raise Refused("a type the sandbox may not send here")
        content = write(self._policy.ask(read(bytes(parts[3]), at_most=_MOST_HEADER)))
        request = self._table.mark_asking(request, Question(msg_id, bytes(parts[0])))
        self._sockets.send(
            Channel.STDIN,
            request.identities,
            "input_request",
            request.header,
            content,
            msg_id=msg_id,
        )

    def _take_probe(self) -> None:
        """Close what a predecessor had answered without having written it down."""
        self.probe_id = None
        for request in list(self._table.open.values()):
            if request.msg_id in self._outputs.of and request.is_on_main_shell:
                self._table.close(request)

    def _hint(self, error: Mapping[str, Any]) -> str | None:
        return hint_for(error["ename"], error["evalue"], self._facts)

    def _with_hint(self, error: Mapping[str, Any]) -> list[str]:
        traceback: list[str] = error["traceback"]
        hint = self._hint(error)
        return traceback if hint is None else [*traceback, hint]


def _remember(known: dict[str, str], msg_id: str, value: str) -> None:
    known[msg_id] = value
    if len(known) > _MOST_NOTED:
        del known[next(iter(known))]


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, Refused) else "it could not be judged"


def _metadata(part: memoryview) -> bytes:
    """Return a message's metadata, encoded anew."""
    data = bytes(part)
    if data == EMPTY:
        return EMPTY
    value = read(data)
    return write(value) if isinstance(value, dict) else EMPTY
