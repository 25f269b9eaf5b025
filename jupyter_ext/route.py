"""What a row of the table of routes says."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tornado.websocket import WebSocketHandler

from sandbox_kernel.wire.operations import OPERATIONS, Empty, Kind, Operation
from sandbox_kernel.wire.record import Record

if TYPE_CHECKING:
    from jupyter_ext.rest import RestHandler

__all__ = ["Action", "Does", "Page", "Raw", "Route"]

_PARAMETER = re.compile(r"\{([a-z_]+)\}")

Does = Callable[["RestHandler", Any], Awaitable[Record | None]]
"""A handler of its own: gets the request's record, and returns the answer's.

It may answer by itself and return None, set another status or a header, and raise `SandboxError`.
"""


class Action(StrEnum):
    """What jupyter_server's authoriser is asked about, for the resource ``sandboxes``."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"


@dataclass(frozen=True, kw_only=True)
class Page:
    """An answer that comes in pages.

    Parameters
    ----------
    items : str
        The field of the answer that holds the list.
    key : tuple of str
        Fields of an item by which the list is ordered; no two items may have all of them alike.
    """

    items: str
    key: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Raw:
    """A body or an answer that is bytes, of any size, and no JSON."""

    media_type: str
    summary: str


@dataclass(frozen=True, kw_only=True)
class Route:
    """One row: a method of a path, who may use it, and what it does.

    Parameters
    ----------
    method : str
        ``GET``, ``HEAD``, ``POST``, ``PUT``, ``PATCH`` or ``DELETE``.
    path : str
        Below ``<base_url>sandbox/api/``, with parameters in braces.  ``{sandbox_id}`` is the
        sandbox, ``{path}`` takes slashes too; the others are fields of the request.
    name : str
        Names it in the OpenAPI document.
    summary : str
        One sentence.
    action : Action
        What its user must be allowed.
    does : str or callable
        The name of an operation of the table, or a handler of its own.
    websocket : type of WebSocketHandler, optional
        What serves it in the place of both, if it opens a WebSocket.
    request : type of Record, optional
        Its parameters: those which are not in the path stand in the query of GET, HEAD and DELETE
        and of routes that take raw bytes, else in the body.  By default the operation's.
    result : type of Record, optional
        What it answers; by default the operation's.  ``Empty`` is an answer without content.
    status : int
        Of an answer that went well; 204 without content.
    also : mapping of int to str
        Further statuses of answers that went well, and what they mean.
    given : mapping of str to object
        Fields of the request that have this value, whoever asks.
    key_field : str, optional
        Of a route that makes something: the field of its id.  Left out, it follows from the header
        ``Idempotency-Key``, if there is one.
    finds : str, optional
        Of such a route: the operation that tells what has that id already.
    starts : bool, optional
        Whether it starts a sandbox that does not run; by default what POST and PUT do.
    event : type of Record, optional
        What it streams before its end, to those who accept a stream; by default the operation's.
    end : type of Record, optional
        The last word of the stream; by default `result`.
    event_name : str
        What such an event is called.
    is_endless : bool
        Whether it only streams: there is no JSON answer.
    page : Page, optional
        Of an answer that comes in pages.
    pages : bool
        Whether its own handler makes pages, by ``limit`` and ``after``; else `page` does.
    takes, gives : Raw, optional
        Of a body, or an answer, that is no JSON.
    tag : str, optional
        The part of the API it belongs to; by default what follows the sandbox's id in the path.
    """

    method: str
    path: str
    name: str
    summary: str
    action: Action
    does: str | Does = ""
    websocket: type[WebSocketHandler] | None = None
    request: type[Record] | None = None
    result: type[Record] | None = None
    status: int = 200
    also: Mapping[int, str] = field(default_factory=dict)
    given: Mapping[str, object] = field(default_factory=dict)
    key_field: str | None = None
    finds: str | None = None
    starts: bool | None = None
    event: type[Record] | None = None
    end: type[Record] | None = None
    event_name: str = "event"
    is_endless: bool = False
    page: Page | None = None
    pages: bool = False
    takes: Raw | None = None
    gives: Raw | None = None
    tag: str | None = None

    @property
    def operation(self) -> Operation | None:
        """The operation that it does, if it has no handler of its own."""
        return OPERATIONS[self.does] if isinstance(self.does, str) and self.does else None

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names in braces, in their order."""
        return tuple(_PARAMETER.findall(self.path))

    @property
    def pattern(self) -> str:
        """The regular expression of its path, below ``<base_url>``."""
        parts = _PARAMETER.split(self.path)
        for at in range(1, len(parts), 2):
            rest = ".*" if parts[at] == "path" else "[^/]+"
            # Handlers of WebSockets take theirs in their order.
            parts[at] = f"({rest})" if self.websocket else f"(?P<{parts[at]}>{rest})"
        return "/sandbox/api/" + "".join(
            part if at % 2 else re.escape(part) for at, part in enumerate(parts)
        )

    @property
    def asked(self) -> type[Record]:
        """The record of its parameters."""
        operation = self.operation
        return self.request or (operation.request if operation else Empty)

    @property
    def answered(self) -> type[Record]:
        """The record of its answer."""
        operation = self.operation
        return self.result or (operation.result if operation else Empty)

    @property
    def streamed(self) -> type[Record] | None:
        """The record of the events of its stream; None if it has none."""
        operation = self.operation
        if self.event is None and operation is not None and operation.kind is Kind.STREAM:
            return operation.event
        return self.event

    @property
    def has_pages(self) -> bool:
        """Whether it answers with a part of a list."""
        return self.pages or self.page is not None

    @property
    def has_query(self) -> bool:
        """Whether its parameters stand in the address and not in the body."""
        return self.method in ("GET", "HEAD", "DELETE") or self.takes is not None

    @property
    def may_start(self) -> bool:
        """Whether it starts a sandbox that does not run."""
        return self.method in ("POST", "PUT") if self.starts is None else self.starts
