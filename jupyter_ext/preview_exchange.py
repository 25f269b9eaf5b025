"""One request to a program in a sandbox, and its answer, over a connection just made.

HTTP/1.1 by h11, which is strict with what comes from inside; its events meet asyncio's streams.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import h11

from sandbox_kernel.errors import PreviewAnswerError

__all__ = ["Answer", "Exchange"]

_READ_BYTES = 256 << 10
_MOST_OF_HEAD = 64 << 10
_MOST_INTERIM = 10
"""Answers of the kind 1xx that may come before the one that counts."""
_TARGET = re.compile(r"[\x21-\x7e\x80-\xff]+")
_PLACEHOLDER = b"/"


Event = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The head of an answer."""

    status: int
    reason: str
    headers: list[tuple[str, str]]
    length: int | None
    """Bytes of the body, if it says so."""

    @property
    def is_upgraded(self) -> bool:
        """Whether what follows is no HTTP any more."""
        return self.status == 101


class Exchange:
    """A request on its way, and its answer.

    Parameters
    ----------
    port : int
        For errors.
    reader, writer
        The connection; closed by who has made it.
    """

    def __init__(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._port = port
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_OF_HEAD)
        self._is_asking = True
        self._answer: Answer | None = None

    @property
    def is_over(self) -> bool:
        """Whether both sides have said all, and may begin again on this connection."""
        http = self._http
        return (
            http.our_state is h11.DONE
            and http.their_state is h11.DONE
            and not http.trailing_data[0]
        )

    def begin_again(self) -> None:
        """Be a new exchange, after one that is over."""
        self._http.start_next_cycle()
        self._is_asking = True
        self._answer = None

    # --- asking ---

    async def ask(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        *,
        length: int | None = None,
        is_chunked: bool = False,
        upgrade: str | None = None,
        expects: bool = False,
        closes: bool = True,
    ) -> None:
        """Send the head of the request.

        Parameters
        ----------
        target : str
            Sent as it is.
        length : int, optional
            Bytes of the body that will follow.
        is_chunked : bool
            A body of unknown length will follow.
        upgrade : str, optional
            The protocol to change to.
        closes : bool
            It is the last one on the connection.
        expects : bool
            Ask whether the body is wanted, see `is_wanted`.
        """
        if _TARGET.fullmatch(target) is None:
            raise PreviewAnswerError(self._port, "cannot be asked for such an address")
        given = [*headers]
        if upgrade is not None:
            given += [("Connection", "Upgrade"), ("Upgrade", upgrade)]
        elif closes:
            given.append(("Connection", "close"))
        if length is not None:
            given.append(("Content-Length", str(length)))
        elif is_chunked:
            given.append(("Transfer-Encoding", "chunked"))
        if expects:
            given.append(("Expect", "100-continue"))
        request = h11.Request(
            method=method,
            target=_PLACEHOLDER,
            headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in given],
        )
        # h11 takes ASCII only, where browsers and servers of today take any letter.
        head = self._sent(request)
        begin = len(method) + 1
        self._writer.write(
            head[:begin] + target.encode("latin-1") + head[begin + len(_PLACEHOLDER) :]
        )
        if not is_chunked and not length:
            self.end()
        await self._drain()

    async def send(self, data: bytes) -> None:
        """Send some of the body; when the program has gone or answered, it is dropped."""
        if self._is_asking:
            self._writer.write(self._sent(h11.Data(data=data)))
            await self._drain()

    def end(self) -> None:
        """Say that the body is complete."""
        if self._is_asking:
            self._is_asking = False
            if rest := self._sent(h11.EndOfMessage()):
                self._writer.write(rest)

    def _sent(self, event: h11.Request | h11.Data | h11.EndOfMessage) -> bytes:
        data = self._http.send(event)
        assert data is not None  # noqa: S101  only of the end of a connection
        return data

    async def _drain(self) -> None:
        try:
            await self._writer.drain()
        except ConnectionError:
            # It may have answered before; if not, reading tells.
            self._is_asking = False

    # --- the answer ---

    async def is_wanted(self) -> bool:
        """Whether the program wants the body it was asked about; False if it has answered."""
        event = await self._event()
        if isinstance(event, h11.InformationalResponse) and event.status_code != 101:
            return True
        self._answer = self._read(event)
        return False

    async def answer(self) -> Answer:
        """Return the head of the answer.

        Raises
        ------
        PreviewAnswerError
            What the program has sent is no answer.
        """
        for _ in range(_MOST_INTERIM):
            if self._answer is not None:
                return self._answer
            event = await self._event()
            if isinstance(event, h11.InformationalResponse) and event.status_code != 101:
                continue
            self._answer = self._read(event)
        raise PreviewAnswerError(self._port, "has sent no end of interim answers")

    def _read(self, event: Event) -> Answer:
        if not isinstance(event, h11.Response | h11.InformationalResponse):
            raise PreviewAnswerError(self._port, "has closed the connection without an answer")
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in event.headers.raw_items()
        ]
        lengths = [value for name, value in event.headers if name == b"content-length"]
        if lengths and any(name == b"transfer-encoding" for name, _ in event.headers):
            raise PreviewAnswerError(self._port, "has sent two lengths of one answer")
        return Answer(
            status=event.status_code,
            reason=bytes(event.reason).decode("latin-1"),
            headers=[each for each in headers if each[0].lower() != "content-length"],
            length=int(lengths[0]) if lengths else None,
        )

    async def body(self) -> AsyncIterator[bytes | bytearray]:
        """Yield the body as it comes.

        Raises
        ------
        PreviewAnswerError
            It is not what its head says, or cut.
        OSError, SandboxError
            The connection has broken.
        """
        while True:
            event = await self._event()
            if isinstance(event, h11.Data):
                yield event.data
            else:
                return

    async def _event(self) -> Event:
        try:
            while True:
                event = self._http.next_event()
                if event is not h11.NEED_DATA:
                    return event
                self._http.receive_data(await self._reader.read(_READ_BYTES))
        except h11.RemoteProtocolError as error:
            raise PreviewAnswerError(self._port, f"does not keep to HTTP: {error}") from error

    # --- after an upgrade ---

    def take_over(self) -> bytes:
        """Return what has come behind the head; the streams are the caller's from then on."""
        return bytes(self._http.trailing_data[0])
