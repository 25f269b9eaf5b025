"""Who asked what: the relay's own table, from which every answer is routed; pure.

A request is *pending* until its reply has passed and *open* until its idle has passed too.  The
sandbox names the request an answer belongs to and nothing else: channel, client and parent header
come from here.  What does not fit is refused without a change to the table, so that a forged
answer cannot use up the request of the true one.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NamedTuple

from sandbox_kernel.kernel.jsontext import Refused, read
from sandbox_kernel.kernel.policy import reply_type
from sandbox_kernel.wire.kernel import Channel

__all__ = ["Question", "Request", "RequestTable"]

_KEPT_EXECUTES = 4096
_KEPT_OTHERS = 512
_JOURNALLED_EXECUTES = 32


class Question(NamedTuple):
    """An input_request that a client has been sent.

    Parameters
    ----------
    msg_id : str
        Its id as the client knows it.
    header : bytes
        Its header as the sandbox made it, by which the sandbox knows the answer.
    """

    msg_id: str
    header: bytes


class Progress(NamedTuple):
    """What of a request's answers has passed."""

    busy: bool
    replied: bool
    input_shown: bool


class Request:
    """One message of a client.

    Parameters
    ----------
    msg_id : str
        The client's id of it.
    header : bytes
        The client's own bytes; the parent header of every answer.
    channel : Channel
        Where it came in, and where its reply goes.
    identities : list of bytes
        The client's address on that socket.
    msg_type : str
        Its type.
    session : str
        The client's session, to know its other channels.
    subshell : bool
        Whether it runs beside the main shell.
    code : str
        What an execute_request runs, as the client sent it.
    allow_stdin, silent, stop_on_error : bool
        The execute_request's own options.
    """

    __slots__ = (
        "allow_stdin",
        "asking",
        "busy",
        "came_at",
        "channel",
        "code",
        "header",
        "identities",
        "idle",
        "idle_waits",
        "input_shown",
        "msg_id",
        "msg_type",
        "replied",
        "reply_type",
        "session",
        "settled",
        "silent",
        "stop_on_error",
        "subshell",
    )

    def __init__(
        self,
        msg_id: str,
        header: bytes,
        channel: Channel,
        identities: list[bytes],
        msg_type: str,
        *,
        session: str = "",
        subshell: bool = False,
        code: str = "",
        allow_stdin: bool = False,
        silent: bool = False,
        stop_on_error: bool = True,
    ) -> None:
        self.msg_id = msg_id
        self.header = header
        self.channel = channel
        self.identities = identities
        self.msg_type = msg_type
        self.session = session
        self.subshell = subshell
        self.code = code
        self.allow_stdin = allow_stdin
        self.silent = silent
        self.stop_on_error = stop_on_error
        self.reply_type = reply_type(msg_type)
        self.came_at = time.time()
        """When it came, or was read again by a successor, in seconds since the epoch."""
        self.busy = False
        self.idle = False
        self.idle_waits = False
        self.replied = self.reply_type is None
        self.asking: Question | None = None
        self.input_shown = False
        self.settled = Progress(self.busy, self.replied, self.input_shown)
        """How far it has come by what has certainly reached the clients."""

    def __repr__(self) -> str:
        marks = [name for name in ("busy", "replied", "idle", "asking") if getattr(self, name)]
        return f"<Request {self.msg_type} {self.msg_id} {' '.join(marks)}>"

    @property
    def is_execute(self) -> bool:
        """Whether it runs code."""
        return self.msg_type == "execute_request"

    @property
    def is_on_main_shell(self) -> bool:
        """Whether it takes its turn among the cells."""
        return self.channel is Channel.SHELL and not self.subshell


class RequestTable:
    """Every request that may still be answered, and the headers of those that were."""

    def __init__(self) -> None:
        self.open: dict[str, Request] = {}
        """Requests whose reply or idle has not passed yet, in the order of their coming."""
        self.execution_count = 0
        """The last one the sandbox told; cells of the host show it and do not count."""
        self._unsettled: dict[str, Request] = {}
        self._executes: OrderedDict[str, Request] = OrderedDict()
        self._others: OrderedDict[str, Request] = OrderedDict()

    def __repr__(self) -> str:
        known = len(self._executes) + len(self._others)
        return f"<RequestTable open={len(self.open)} known={known}>"

    def add(self, request: Request) -> None:
        """Enter a request; one that uses an id again takes the old one's place."""
        self.open.pop(request.msg_id, None)
        self.open[request.msg_id] = request
        kept, limit = (
            (self._executes, _KEPT_EXECUTES) if request.is_execute else (self._others, _KEPT_OTHERS)
        )
        kept[request.msg_id] = request
        kept.move_to_end(request.msg_id)
        if len(kept) > limit:
            kept.popitem(last=False)

    def find(self, msg_id: object) -> Request | None:
        """Return the request of this id, open or answered, or None."""
        if not isinstance(msg_id, str):
            return None
        return self.open.get(msg_id) or self._executes.get(msg_id) or self._others.get(msg_id)

    def pending(self) -> list[Request]:
        """Return the open requests that still want their reply, oldest first."""
        return [request for request in self.open.values() if not request.replied]

    def learn_count(self, count: object) -> None:
        """Take an execution count from the sandbox."""
        if isinstance(count, int) and not isinstance(count, bool):
            self.execution_count = count

    def is_main_shell_free(self) -> bool:
        """Whether no request holds the main shell, so that a host cell may run."""
        return not any(request.is_on_main_shell for request in self.open.values())

    def mark_busy(self, request: Request) -> None:
        """Take a busy status from the sandbox; refused unless the request is new."""
        if request.busy or request.msg_id not in self.open:
            raise Refused("a second busy")
        request.busy = True
        self._unsettled[request.msg_id] = request

    def mark_idle(self, request: Request) -> bool:
        """Take an idle status; return whether it may be published now.

        An idle that comes before the reply waits for it: clients take both together as the end.
        """
        if request.idle or request.msg_id not in self.open:
            raise Refused("a second idle")
        if not request.replied:
            request.idle_waits = True
            return False
        self._close(request)
        return True

    def mark_reply(self, request: Request | None, msg_type: str) -> Request:
        """Take a reply; return the request it answers.

        Raises
        ------
        Refused
            As by `check_reply`; the table is unchanged.
        """
        request = self.check_reply(request, msg_type)
        request.replied = True
        request.asking = None
        self._unsettled[request.msg_id] = request
        return request

    def check_reply(self, request: Request | None, msg_type: str) -> Request:
        """Return the request that a reply may answer.

        Raises
        ------
        Refused
            Nobody waits for it, or it is of another type than asked for.
        """
        if request is None or request.replied or request.msg_id not in self.open:
            raise Refused("a reply nobody waits for")
        if msg_type != request.reply_type:
            raise Refused(f"a {msg_type} to a {request.msg_type}")
        return request

    def idle_is_due(self, request: Request) -> bool:
        """Return whether an idle had waited for the reply that has just passed."""
        if not request.idle_waits:
            return False
        self._close(request)
        return True

    def close(self, request: Request) -> None:
        """End a request that the relay itself has answered."""
        request.busy = request.replied = True
        if request.msg_id in self.open:
            self._close(request)
            self._settle(request)

    def mark_input_shown(self, request: Request | None) -> Request:
        """Take an execute_input; refused unless its cell is waiting and it is the first."""
        if (
            request is None
            or not request.is_execute
            or request.replied
            or request.input_shown
            or request.msg_id not in self.open
        ):
            raise Refused("an execute_input of no running cell")
        request.input_shown = True
        self._unsettled[request.msg_id] = request
        return request

    def mark_asking(self, request: Request | None, question: Question) -> Request:
        """Take an input_request; return the cell, whose client is to be asked.

        Raises
        ------
        Refused
            No such cell is running, its client takes no questions, or one is open already.
        """
        if request is None or not request.is_execute or request.replied:
            raise Refused("an input_request without a running cell")
        if not request.allow_stdin:
            raise Refused("an input_request to a client that takes none")
        if request.asking is not None:
            raise Refused("a second input_request")
        request.asking = question
        return request

    def take_answer(self, identities: list[bytes], session: str, parent_id: object) -> Question:
        """Return the question that this client's input_reply answers, and close it.

        Parameters
        ----------
        identities : list of bytes
            The client's address on stdin.
        session : str
            Its session; many clients use one address on all channels, but need not.
        parent_id : object
            The id of the message the client says it answers, if it says so.

        Raises
        ------
        Refused
            This client was not asked, or its cell has ended.
        """
        for request in self.open.values():
            question = request.asking
            if question is None or (
                request.identities != identities and (not session or request.session != session)
            ):
                continue
            if parent_id not in (None, question.msg_id, request.msg_id):
                continue
            request.asking = None
            return question
        raise Refused("an input_reply nobody asked for")

    def _close(self, request: Request) -> None:
        request.idle = True
        request.idle_waits = False
        request.asking = None
        self._unsettled[request.msg_id] = request
        del self.open[request.msg_id]

    def settle(self) -> None:
        """Learn that all answers so far have reached the clients.

        Until then a successor may be given them again, and must be ready to pass them on.
        """
        for request in list(self._unsettled.values()):
            self._settle(request)

    def _settle(self, request: Request) -> None:
        self._unsettled.pop(request.msg_id, None)
        request.settled = Progress(request.busy, request.replied, request.input_shown)
        if request.idle:
            # Code and address of an answered request are not needed again; the header is.
            request.code = ""

    # --- what a successor needs ---------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """Return the open requests and the headers of the last cells as JSON values."""
        recent: Iterable[Request] = list(self._executes.values())[-_JOURNALLED_EXECUTES:]
        closed = [each for each in self._unsettled.values() if each.msg_id not in self.open]
        return {
            "answered": [
                request.header.decode("utf-8", "replace")
                for request in recent
                if request.msg_id not in self.open and request.msg_id not in self._unsettled
            ],
            "open": [
                {
                    "header": request.header.decode("utf-8", "replace"),
                    "channel": int(request.channel),
                    "identities": [identity.hex() for identity in request.identities],
                    "subshell": request.subshell,
                    "allow_stdin": request.allow_stdin,
                    "silent": request.silent,
                    "code": request.code,
                    **request.settled._asdict(),
                }
                for request in (*closed, *self.open.values())
            ],
        }

    def load(self, dumped: object) -> None:
        """Enter what a predecessor's `dump` returned; what makes no sense is left out."""
        if not isinstance(dumped, dict):
            return
        for header in dumped.get("answered", ()):
            request = _restored({"header": header})
            if request is not None:
                self.add(request)
                self.close(request)
        for entry in dumped.get("open", ()):
            request = _restored(entry)
            if request is not None:
                self.add(request)


def _restored(entry: dict[str, Any]) -> Request | None:
    try:
        header = read(entry["header"].encode())
        request = Request(
            str(header["msg_id"]),
            entry["header"].encode(),
            Channel(entry.get("channel", Channel.SHELL)),
            [bytes.fromhex(identity) for identity in entry.get("identities", ())],
            str(header["msg_type"]),
            session=str(header.get("session", "")),
            subshell=entry.get("subshell") is True,
            code=str(entry.get("code", "")),
            allow_stdin=entry.get("allow_stdin") is True,
            silent=entry.get("silent") is True,
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    request.busy = entry.get("busy") is True
    request.replied = request.replied or entry.get("replied") is True
    request.input_shown = entry.get("input_shown") is True
    request.settled = Progress(request.busy, request.replied, request.input_shown)
    return request
