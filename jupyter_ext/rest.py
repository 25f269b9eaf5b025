"""The one handler behind every route of REST: who may, what is asked, and how it is answered.

jupyter_server authenticates, checks the XSRF token and asks its authoriser before a byte of the
body is taken.  Errors are JSON: ``code``, ``message``, ``hint``, ``context``, ``http_status`` and
``timestamp``.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import traceback
from collections.abc import Awaitable, Mapping
from http.client import responses
from typing import TYPE_CHECKING, Any

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.base.handlers import APIHandler
from tornado import web
from tornado.httputil import HTTPHeaders

from jupyter_ext.handles import handle
from jupyter_ext.record_json import load_object, record_of, record_of_query, to_json
from jupyter_ext.rest_body import RequestBody
from jupyter_ext.rest_errors import CODES, error_json, told_json
from jupyter_ext.rest_pages import PAGE_NAMES, one_page
from jupyter_ext.rest_stream import Format, pour, wanted_format
from sandbox_kernel.client.by_name import call_by_name, stream_by_name
from sandbox_kernel.errors import (
    KernelNotFoundError,
    ProcessNotFoundError,
    SandboxError,
    SandboxNotRunningError,
    SessionAlreadyExistsError,
    SessionNotFoundError,
    TerminalNotFoundError,
    ValidationFailedError,
)
from sandbox_kernel.manager.activity import acting_as, os_user
from sandbox_kernel.wire.codec import dump_json
from sandbox_kernel.wire.operations import OPERATIONS, Empty
from sandbox_kernel.wire.record import Record

if TYPE_CHECKING:
    from jupyter_ext.route import Action, Route
    from sandbox_kernel.client.sandbox import Sandbox

__all__ = ["MAX_JSON", "RestHandler", "UnknownHandler"]

MAX_JSON = 16 << 20
"""Bytes of the longest body that is JSON."""

_MADE_UP = re.compile("[0-9a-f]{32}")
_EVERYWHERE = frozenset(("token", "_xsrf", "no_track_activity", "_"))
"""Names that jupyter_server and pages put into the query of any address."""

_Missing = (
    type[KernelNotFoundError]
    | type[ProcessNotFoundError]
    | type[SessionNotFoundError]
    | type[TerminalNotFoundError]
)

_NOT_FOUND: Mapping[str, _Missing] = {
    "kernel_id": KernelNotFoundError,
    "process_id": ProcessNotFoundError,
    "session_id": SessionNotFoundError,
    "terminal_id": TerminalNotFoundError,
}
"""What is not there while the sandbox does not run."""

_PREFIX = {"process_id": "p-", "session_id": "s-", "terminal_id": "t-", "sandbox_id": "s-"}

_LONGEST_KEY = 255

_SHORT = 1 << 20

_BODY_TIME = 120.0
"""Seconds in which a body that is JSON must have come."""

_LATE = 16 << 20
"""Bytes that are read and thrown away after an upload has failed, before the client is cut off."""

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


@web.stream_request_body
class RestHandler(APIHandler):
    """Serves the routes of one path.

    Parameters
    ----------
    routes : mapping of str to Route
        By their methods.
    """

    auth_resource = "sandboxes"

    route: Route
    sandbox_id: str
    said: frozenset[str] = frozenset()
    """Names in the body, for whom a name that is left out differs from null."""

    is_keyed = False
    """Whether the id of what is to be made follows from the request's key."""

    def initialize(self, routes: Mapping[str, Route]) -> None:
        """Take the routes; called by tornado."""
        self._routes = routes
        self._names = {name for route in routes.values() for name in route.parameters}
        self._taken: RequestBody | None = None
        self._work: asyncio.Task[Any] | None = None
        self._is_gone = False
        self._has_status = False
        self._late = 0
        self._refusal: web.HTTPError | None = None

    # --- before anything is done ---

    def decode_argument(self, value: bytes, name: str | None = None) -> str:
        """Return a part of the path as text; which bytes it may hold is checked later."""
        if name in self._names:
            return value.decode(errors="surrogateescape")
        return super().decode_argument(value, name)

    async def prepare(self) -> None:  # type: ignore[override]  # as the base
        """Decide who may do what, before the body comes."""
        try:
            await self._prepare()
        except web.HTTPError as error:
            # A short body is heard to its end first: to hang up on it can lose the answer.
            is_short = self._announced <= _SHORT
            if "Transfer-Encoding" in self.request.headers or not is_short:
                raise
            self._refusal = error
            self._taken = RequestBody(0)

    async def _prepare(self) -> None:
        # Whatever is longer than we take is refused by us, in JSON.
        connection: Any = self.request.connection  # of HTTP/1, which is all that tornado serves
        connection.set_max_body_size(1 << 62)
        await APIHandler.prepare(self)
        method = self.request.method or ""
        if method == "OPTIONS":
            self._taken = RequestBody(0)
            return
        if self.current_user is None:
            raise web.HTTPError(403)
        route = self._routes.get(method)
        if route is None:
            raise web.HTTPError(405)
        if not await self.may(route.action):
            raise web.HTTPError(
                403, "User is not authorized to %s on resource: sandboxes", route.action.value
            )
        self.route = route
        self._taken = RequestBody(MAX_JSON if route.takes is None else None)
        if route.takes is None and self._announced > MAX_JSON:
            raise web.HTTPError(413, "The body is longer than %s bytes", MAX_JSON)
        if route.takes is None:
            connection.set_body_timeout(_BODY_TIME)
        else:
            # Its bytes are used as they come: tornado calls the method when all have come.
            taken = self._taken
            self._work = asyncio.create_task(self._do(dict(self.path_kwargs)))
            self._work.add_done_callback(lambda _: taken.discard())

    async def may(self, action: Action) -> bool:
        """Whether who asks may do things of this kind."""
        return bool(
            await ensure_async(
                self.authorizer.is_authorized(
                    self, self.current_user, action.value, self.auth_resource
                )
            )
        )

    @property
    def _announced(self) -> int:
        text = self.request.headers.get("Content-Length", "0")
        return int(text) if text.isdecimal() and len(text) < 20 else 0

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Take a piece of the body; what is awaited holds the next one back."""
        work = self._work
        if work is not None and work.done() and not self._finished:
            # It has failed.  A client that sends on is heard for a while: many take the answer only
            # when they have sent all.
            self._late += len(chunk)
            error = None if work.cancelled() else work.exception()
            if self._late > _LATE and isinstance(error, Exception):
                self._handle_request_exception(error)
            return None
        return None if self._taken is None else self._taken.put(chunk)

    def on_connection_close(self) -> None:
        """Give up what is under way: nobody waits for it."""
        super().on_connection_close()
        self._is_gone = True
        if self._taken is not None:
            self._taken.break_off()
        if self._work is not None:
            self._work.cancel()

    # --- one request ---

    @web.authenticated
    async def get(self, *_: str, **names: str) -> None:
        """Do what the route says."""
        if self._refusal is not None:
            raise self._refusal
        assert self._taken is not None  # noqa: S101  as prepared
        self._taken.end()
        if self._work is None:
            self._work = asyncio.create_task(self._do(names))
        if self._finished:
            return
        try:
            await self._work
        except asyncio.CancelledError:
            if not self._is_gone:
                raise

    head = post = put = patch = delete = get

    @allow_unauthenticated
    def options(self, *args: Any, **kwargs: Any) -> None:
        """Say what is there, also to browsers that ask before they ask."""
        super().options(*args, **kwargs)
        self.set_header("Allow", self._allowed)

    @property
    def _allowed(self) -> str:
        return ", ".join([*(name for name in _METHODS if name in self._routes), "OPTIONS"])

    async def _do(self, names: dict[str, str]) -> None:
        with acting_as(who_asks(self)):
            await self._do_as_asked(names)

    async def _do_as_asked(self, names: dict[str, str]) -> None:
        request = await self._request(names)
        route = self.route
        if route.finds is not None and self.is_keyed:
            found = await self._found(route.finds, request)
            if found is not None:
                self.answer(found, 200)
                return
        if not isinstance(route.does, str):
            result = await route.does(self, request)
        elif route.streamed is not None:
            result = await self._streamed(route.does, request)
        else:
            result = await self._called(route.does, request)
        if result is not None:
            self.answer(result)

    async def _called(self, operation: str, request: Record) -> Record:
        """Do an operation; what does not run has nothing in it."""
        route = self.route
        try:
            return await call_by_name(self.sandbox, operation, request, starts=route.may_start)
        except SandboxNotRunningError:
            if route.page is not None:
                return route.answered(**{route.page.items: []})
            raise self._nowhere(request) from None
        except (ValidationFailedError, SessionAlreadyExistsError):
            # Somebody has made it, with the same key, since we looked.
            if route.finds is not None and self.is_keyed:
                found = await self._found(route.finds, request)
                if found is not None:
                    self.says(200)
                    return found
            raise

    async def _found(self, operation: str, request: Record) -> Record | None:
        """Return what has the id that follows from the request's key."""
        field = self.route.key_field or ""
        what = OPERATIONS[operation].request(**{field: getattr(request, field)})
        try:
            return await call_by_name(self.sandbox, operation, what, starts=False)
        except (SandboxNotRunningError, *_NOT_FOUND.values()):
            return None

    def _nowhere(self, request: Record) -> SandboxError:
        """Return what to say of something in a sandbox that does not run."""
        for name, error in _NOT_FOUND.items():
            if name in self.route.parameters:
                return error(getattr(request, name))
        return SandboxNotRunningError(self.sandbox_id)

    async def _request(self, names: dict[str, str]) -> Record:
        """Return the request's parameters as its record."""
        route = self.route
        for name, value in names.items():
            _check_name(name, value)
        self.sandbox_id = names.pop("sandbox_id", "")
        given: dict[str, Any] = {**route.given}
        for name, value in names.items():
            given[name] = _as_declared(route.asked, name, value)
        query = {
            name: texts
            for name, texts in self.request.query_arguments.items()
            if name not in _EVERYWHERE and not (route.has_pages and name in PAGE_NAMES)
        }
        last = self.request.headers.get("Last-Event-ID")
        if last and route.streamed is not None and "since" in route.asked.FIELDS:
            # A browser that was cut off goes on where it was, whatever the address says.
            query["since"] = [last.encode("latin-1", "replace")]
        if route.has_query:
            return record_of_query(route.asked, query, given)
        for name in query:
            raise ValidationFailedError(name[:80], "is unknown here; parameters are in the body")
        assert self._taken is not None  # noqa: S101  as prepared
        body = load_object(await self._taken.all())
        self.said = frozenset(body)
        if route.key_field is not None and body.get(route.key_field) is None:
            made = key_id(self.request.headers, self.request.path, _PREFIX[route.key_field])
            if made is not None:
                self.is_keyed = True
                body = {**body, route.key_field: made}
        return record_of(route.asked, body, given)

    @property
    def sandbox(self) -> Sandbox:
        """The handle on the sandbox of the path."""
        return handle(self.sandbox_id)

    @property
    def body(self) -> RequestBody:
        """The body of a route that takes bytes."""
        assert self._taken is not None  # noqa: S101  as prepared
        return self._taken

    # --- answers ---

    async def _streamed(self, operation: str, request: Record) -> Record | None:
        """Answer with the events of an operation and its end, or with its end alone."""
        route = self.route
        chosen = self.wanted_format(is_endless=route.is_endless)
        try:
            async with stream_by_name(
                self.sandbox, operation, request, starts=route.may_start
            ) as events:
                if chosen is Format.JSON:
                    async for _ in events:
                        pass
                    return events.end
                await pour(self, events, lambda: events.end, chosen, route.event_name)
                return None
        except SandboxNotRunningError:
            raise self._nowhere(request) from None

    def wanted_format(self, *, is_endless: bool = False) -> Format:
        """Return how the client wants its answer."""
        return wanted_format(self.request.headers.get("Accept", ""), is_endless=is_endless)

    def says(self, status: int) -> None:
        """Choose the status of the answer."""
        self._has_status = True
        self.set_status(status)

    def answer(self, result: Record, status: int | None = None) -> None:
        """End the request with a record."""
        route = self.route
        if isinstance(result, Empty) and route.answered is Empty:
            self.set_status(204)
            self.finish()
            return
        value = to_json(result)
        if route.page is not None:
            value = one_page(route.page, value, self.request.query_arguments)
        if status is not None:
            self.set_status(status)
        elif self.get_status() == 200 and not self._has_status:
            self.set_status(route.status)
        self.finish(dump_json(value))

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Tell of an error; an answer that has begun is broken off: it must not look whole."""
        if not self._headers_written:
            super().send_error(status_code, **kwargs)
            return
        self._finished = True
        connection: Any = self.request.connection
        connection.close()

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """End the request with an error; of faults of ours it says that there was one."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, SandboxError):
            told = error_json(error)
            status_code = told["http_status"]
        else:
            message = responses.get(status_code, "Unknown error")
            if isinstance(error, web.HTTPError) and error.log_message:
                message = error.get_message() or message
            code = CODES.get(status_code, "UNKNOWN_ERROR")
            told = told_json(code, message, "", {}, status_code)
        if status_code == 405:
            self.set_header("Allow", self._allowed)
        self.set_status(status_code)
        self.finish(dump_json(told))

    def log_exception(self, *exc_info: Any) -> None:
        """Log our own faults with their traceback, and what was refused with a line."""
        error = exc_info[1]
        if isinstance(error, SandboxError):
            self.log.debug("%s %s: %s", self.request.method, self.request.path, error.code)
        elif isinstance(error, web.HTTPError):
            super().log_exception(*exc_info)
        else:
            self.log.error(
                "%s %s failed\n%s",
                self.request.method,
                self.request.path,
                "".join(traceback.format_exception(error)),
            )


class UnknownHandler(RestHandler):
    """Answers where there is no route, to those who are logged in."""

    async def _prepare(self) -> None:
        await APIHandler.prepare(self)
        self._taken = RequestBody(0)
        if self.request.method != "OPTIONS":
            raise web.HTTPError(403 if self.current_user is None else 404)


def who_asks(handler: APIHandler) -> str:
    """Return whom a request acts for, as the activity log names them.

    A server without user names makes some up for its sessions; then it is the server's own user.
    """
    user = handler.current_user
    is_made_up = _MADE_UP.fullmatch(user.username) and user.name.startswith("Anonymous ")
    return f"{os_user() if is_made_up else user.username[:100]} (rest)"


def key_id(headers: HTTPHeaders, path: str, prefix: str) -> str | None:
    """Return the id that follows from the header ``Idempotency-Key``, if there is one.

    The same key is the same id, whichever server process is asked: nothing has to be remembered.

    Raises
    ------
    ValidationFailedError
        The key is empty, too long, or holds what cannot be printed.
    """
    key = headers.get("Idempotency-Key")
    if key is None:
        return None
    if not 1 <= len(key) <= _LONGEST_KEY or not key.isprintable():
        raise ValidationFailedError(
            "Idempotency-Key", f"must be 1 to {_LONGEST_KEY} printable characters"
        )
    text = f"{path}\n{key}".encode("utf-8", "surrogateescape")
    return prefix + hashlib.sha256(text).hexdigest()[:24]


def _check_name(name: str, value: str) -> None:
    if "\0" in value:
        raise ValidationFailedError(name, "holds a NUL")
    if name == "path":
        return
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValidationFailedError(name, "is not valid UTF-8") from None


def _as_declared(cls: type[Record], name: str, value: str) -> Any:
    kind = cls.FIELDS[name].removesuffix(" | None")
    if kind == "int":
        if not value.isascii() or not value.isdecimal() or len(value) > 18:
            raise ValidationFailedError(name, "must be of type int")
        return int(value)
    return value
