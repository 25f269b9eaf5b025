"""Answers that go on: server-sent events, or a JSON object on each line.

Either way there are events with a name, maybe an id (a cursor to go on from), and data; the last
one is ``end`` or ``error``.  The next event is asked for when the client has taken the last one.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tornado import iostream, web

from jupyter_ext.record_json import to_json
from jupyter_ext.rest_errors import error_json
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.wire.codec import dump_json
from sandbox_kernel.wire.record import Record

if TYPE_CHECKING:
    from jupyter_ext.rest import RestHandler

__all__ = ["KEEP_ALIVE", "Format", "media_types", "pour", "wanted_format", "whole_characters"]

KEEP_ALIVE = 15.0
"""Seconds after which something that means nothing is sent, so that proxies keep the connection."""

_PATIENCE = 0.25
"""Seconds that a refusal has to come before the answer begins as a stream."""


class Format(StrEnum):
    """How an answer is written."""

    JSON = "application/json"
    EVENTS = "text/event-stream"
    LINES = "application/x-ndjson"


def media_types(*, is_endless: bool) -> list[Format]:
    """Return what a route that streams can answer with; the first one unless asked otherwise."""
    return [Format.LINES, Format.EVENTS] if is_endless else list(Format)


def wanted_format(accept: str, *, is_endless: bool) -> Format:
    """Return the format that a client likes best.

    Raises
    ------
    tornado.web.HTTPError
        It takes none of them (406).
    """
    offered = media_types(is_endless=is_endless)
    if not accept.strip():
        return offered[0]
    best: tuple[float, int, Format] | None = None
    for each in accept.split(",")[:50]:
        kind, *parameters = (part.strip().lower() for part in each.split(";"))
        quality = 1.0
        for parameter in parameters:
            name, _, text = parameter.partition("=")
            if name.strip() == "q":
                with contextlib.suppress(ValueError):
                    quality = float(text)
        for at, form in enumerate(offered):
            # What is named outright counts before what a pattern allows.
            exact = 2 if kind == form.value else 1 if kind == form.value.split("/")[0] + "/*" else 0
            if (exact or kind == "*/*") and quality > 0:
                rank = (quality, exact * 10 - at, form)
                if best is None or rank[:2] > best[:2]:
                    best = rank
    if best is None:
        names = ", ".join(form.value for form in offered)
        raise web.HTTPError(406, "There are: %s", names)
    return best[2]


def _framed(form: Format, name: str, data: Any, cursor: str | None) -> bytes:
    if form is Format.EVENTS:
        head = f"event: {name}\n" if cursor is None else f"event: {name}\nid: {cursor}\n"
        return head.encode() + b"data: " + dump_json(data) + b"\n\n"
    line: dict[str, Any] = {"event": name}
    if cursor is not None:
        line["id"] = cursor
    return dump_json({**line, "data": data}) + b"\n"


async def pour(
    handler: RestHandler,
    events: AsyncIterator[Record],
    end: Callable[[], Record | None],
    form: Format,
    name: str,
) -> None:
    """Send events as they come, and how it ended; errors that come at once are raised."""
    async with contextlib.aclosing(whole_characters(events)) as whole:
        await _pour(handler, whole, end, form, name)


async def _pour(
    handler: RestHandler,
    events: AsyncIterator[Record],
    end: Callable[[], Record | None],
    form: Format,
    name: str,
) -> None:
    next_one: asyncio.Future[Record | None] = asyncio.ensure_future(_next(events))
    try:
        await asyncio.wait([next_one], timeout=_PATIENCE)
        if next_one.done():
            next_one.result()
        handler.set_header("Content-Type", form.value)
        handler.set_header("Cache-Control", "no-store")
        handler.set_header("X-Accel-Buffering", "no")
        await handler.flush()
        while True:
            done, _ = await asyncio.wait([next_one], timeout=KEEP_ALIVE)
            if not done:
                handler.write(b": \n\n" if form is Format.EVENTS else b"\n")
                await handler.flush()
                continue
            try:
                event = next_one.result()
            except SandboxError as error:
                handler.write(_framed(form, "error", error_json(error), None))
                break
            if event is None:
                handler.write(_framed(form, "end", to_json(end()), None))
                break
            handler.write(_framed(form, name, to_json(event), getattr(event, "cursor", None)))
            await handler.flush()
            next_one = asyncio.ensure_future(_next(events))
        handler.finish(set_content_type=form.value)
    except iostream.StreamClosedError:
        return
    finally:
        if not next_one.done():
            next_one.cancel()
            await asyncio.wait([next_one])
        elif not next_one.cancelled():
            next_one.exception()


async def _next(events: AsyncIterator[Record]) -> Record | None:
    return await anext(events, None)


_JOINED = 256 << 10
_TORN_FOR = 0.05
"""Seconds that the rest of a character has to come."""


async def whole_characters(events: AsyncIterator[Record]) -> AsyncGenerator[Record, None]:
    """Join events that a character is torn over, so that text stays text.

    An event waits a moment for the next one of its stream, and is whole with it: the cursor after
    both is that of the latter, so that nothing is lost or doubled for who goes on from there.
    """
    held: Record | None = None
    coming = asyncio.ensure_future(_next(events))
    try:
        while True:
            if held is not None:
                await asyncio.wait([coming], timeout=_TORN_FOR)
                if not coming.done():
                    yield held
                    held = None
                    continue
            try:
                event = await asyncio.shield(coming)
            except SandboxError:
                if held is not None:
                    yield held
                raise
            if held is not None and (event is None or not _is_same_stream(held, event)):
                yield held
                held = None
            if event is None:
                return
            coming = asyncio.ensure_future(_next(events))
            if held is not None:
                event, held = _joined(held, event), None
            if _is_torn(event):
                held = event
            else:
                yield event
    finally:
        if not coming.done():
            coming.cancel()
            await asyncio.wait([coming])
        elif not coming.cancelled():
            coming.exception()


def _is_torn(event: Record) -> bool:
    """Whether the bytes end within a character, and are text until there."""
    data = getattr(event, "data", None)
    if not isinstance(data, bytes) or not data or data[-1] < 0x80 or len(data) > _JOINED:
        return False
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(data)
    except UnicodeDecodeError:
        return False
    return decoder.getstate()[0] != b""


def _is_same_stream(one: Record, other: Record) -> bool:
    return (
        type(one) is type(other)
        and getattr(one, "stream", None) == getattr(other, "stream", None)
        and getattr(one, "type", None) == getattr(other, "type", None)
        and isinstance(getattr(other, "data", None), bytes)
    )


def _joined(one: Record, other: Record) -> Record:
    data = getattr(one, "data") + getattr(other, "data")  # noqa: B009  records of several kinds
    fields = {name: getattr(other, name) for name in other.FIELDS}
    return type(other)(**{**fields, "data": data})
