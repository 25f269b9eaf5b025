"""Previews: programs in sandboxes that speak HTTP, in the browser.

A preview is never at an origin that could act for the user: it has a host of its own
(``PORT-SANDBOX-TOKEN.localhost``, or below a domain that is set), or it stands below a path of
Jupyter's in a page whose origin is nobody's.  `docs/preview.md` says what programs see.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import socket
import struct
import time
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.serverapp import ServerApp
from tornado import httputil, web
from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream, StreamClosedError
from traitlets import Float, Int, TraitError, Unicode, validate
from traitlets.config import Configurable

from jupyter_ext.handles import handle
from jupyter_ext.preview_exchange import Answer, Exchange
from jupyter_ext.preview_headers import (
    Place,
    Visitor,
    answer_headers,
    is_own_origin,
    request_headers,
    request_target,
    shared_out,
    without_secret,
)
from jupyter_ext.preview_kept import Connection, KeptConnections
from jupyter_ext.preview_pages import refusal
from jupyter_ext.preview_place import (
    PATH,
    Hosts,
    PathName,
    make_ticket,
    path_name,
    ticket_holds,
)
from sandbox_kernel.client.sandbox import Sandbox
from sandbox_kernel.errors import (
    PortError,
    PreviewAnswerError,
    PreviewTimeoutError,
    PreviewTokenError,
    SandboxError,
)
from sandbox_kernel.manager.preview_label import PreviewLabel

__all__ = ["HANDLERS", "SandboxPreview", "serve_hosts"]

_SETTINGS, _HOSTS, _LOCKED = "sandbox_preview", "sandbox_preview_hosts", "sandbox_locked"
_KEPT = "sandbox_preview_kept"
_METHODS = (
    *("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
    *("PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH"),
    *("QUERY", "PURGE"),
)
_NO_LIMIT = 1 << 62
_PIECE = 256 << 10
_UNTIL_WANTED = 1.0
"""Seconds in which a program may say whether it wants a body; many never say so."""
_LINGER = 2.0
"""Seconds for which what a browser still sends is taken, once the answer is there."""
_AT_ONCE = struct.pack("ii", 1, 0)  # struct linger: on, for no time
_AS_CODE = frozenset({"script", "style", "worker", "sharedworker", "serviceworker", "xslt"})
"""What a page of Jupyter's may not load from below a path of its own origin (Sec-Fetch-Dest)."""


class SandboxPreview(Configurable):
    """How programs in sandboxes are shown in the browser."""

    host = Unicode(
        "*.localhost",
        help=(
            "The hosts of previews, [https://]*.DOMAIN[:PORT]: each exposed port has one of its"
            " own, that leads to this server. Those of *.localhost are known to browsers by"
            " themselves and used by who has come to localhost; empty: previews stand below the"
            " server's own address only, as pages that can keep nothing."
        ),
    ).tag(config=True)

    port = Int(
        -1,
        help=(
            "A port of 127.0.0.1 that serves nothing but previews, for a server whose own port is"
            " of TLS or behind something; 0 for a free one, -1 for none."
        ),
    ).tag(config=True)

    answer_timeout = Float(
        300.0,
        help="Seconds in which a program must begin its answer; 0 for any time.",
    ).tag(config=True)

    @validate("host")
    def _is_host(self, proposal: Any) -> str:
        try:
            Hosts.of_setting(proposal["value"])
        except ValueError as error:
            raise TraitError(f"SandboxPreview.host: {error}") from None
        return str(proposal["value"])


class _Proxy(web.RequestHandler):
    """A request to a program in a sandbox; see `_HostHandler` and `PathHandler` for which one.

    What the browser sends goes to the program as it comes, and the other way round: each side waits
    for the other one to take it.
    """

    SUPPORTED_METHODS = _METHODS

    _exchange: Exchange | None = None
    _work: asyncio.Task[None] | None = None
    _is_received = False  # the whole of the request
    _has_begun = False  # an answer

    def check_xsrf_cookie(self) -> None:
        """Check nothing: the address has a secret in it, and the program's forms are its own."""

    def _cross_origin_protection(self) -> None:
        """Likewise."""

    @property
    def secret(self) -> str:
        """Jupyter's token, which no program is told."""
        return str(getattr(self.settings["serverapp"].identity_provider, "token", "") or "")

    # --- the request ---

    async def pass_on(self, target: PreviewLabel, place: Place) -> None:
        """Begin to pass the request on; returns when its body may come."""
        if _asks_for_websocket(self.request) and self._is_foreign(place):
            self.forbid("A page from elsewhere may not connect to a preview")
            return
        self._target, self._place = target, place
        self.request.connection.set_max_body_size(_NO_LIMIT)  # type: ignore[union-attr]
        self._received = asyncio.Event()
        self._is_open = asyncio.Event()
        self._work = asyncio.create_task(self._carry())
        opened = asyncio.create_task(self._is_open.wait())
        try:
            await asyncio.wait({opened, self._work}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()

    def _is_foreign(self, place: Place) -> bool:
        """Whether a page of another origin asks, that nobody has allowed."""
        origin = self.request.headers.get("Origin")
        if origin is None or is_own_origin(origin, place):
            return False
        server = self.settings["serverapp"]
        pattern = server.allow_origin_pat
        return not (
            server.allow_origin in ("*", origin)
            or (pattern and re.match(pattern, origin) is not None)
        )

    async def data_received(self, chunk: bytes) -> None:
        """Send on some of the body."""
        if self._exchange is not None:
            with contextlib.suppress(SandboxError, OSError):
                await self._exchange.send(chunk)

    async def serve(self, *_: str) -> None:
        """End the request, whose body has come, when the answer has gone."""
        if self._work is None:
            return
        if self._exchange is not None:
            self._exchange.end()
        self._received.set()
        with contextlib.suppress(asyncio.CancelledError):
            await self._work

    def on_connection_close(self) -> None:
        """Let the program see that nobody waits any more."""
        if self._work is not None:
            self._work.cancel()

    async def _carry(self) -> None:
        target = self._target
        try:
            sandbox = handle(target.sandbox_id)
            if not await self._repeats(sandbox):
                await self._use(await Connection.open(sandbox, target))
        except (SandboxError, OSError) as error:
            self._failed(error)
        except asyncio.CancelledError:
            if not self._finished:
                self._break_off()
        except Exception:  # noqa: BLE001  of ours; the visitor must not wait for ever
            self.settings["serverapp"].log.exception("preview of %s failed", target.sandbox_id)
            self._failed(PreviewAnswerError(target.port, "could not be shown"))
        finally:
            self._is_open.set()

    async def _repeats(self, sandbox: Sandbox) -> bool:
        """Use a connection that is kept; False if there is none, or it had ended just then."""
        if not self._may_repeat:
            return False
        connection = await self._kept.take(sandbox, self._target)
        if connection is None:
            return False
        try:
            await self._use(connection)
        except PreviewTimeoutError:
            raise
        except (SandboxError, OSError):
            if self._has_begun:
                raise
            return False
        return True

    async def _use(self, connection: Connection) -> None:
        try:
            await self._converse(connection)
        except BaseException as error:
            await connection.give_up(error)
            raise
        if not self._kept.keep(self._target, connection):
            await connection.aclose()

    @property
    def _kept(self) -> KeptConnections:
        kept: KeptConnections = self.settings[_KEPT]
        return kept

    @property
    def _may_repeat(self) -> bool:
        """Whether it does no harm to ask twice (RFC 9110, 9.2.2), and can be done."""
        return (
            self.request.method in ("GET", "HEAD")
            and not _asks_for_websocket(self.request)
            and not _has_body(self.request)
        )

    async def _converse(self, connection: Connection) -> None:
        request, given = self.request, self.request.headers
        exchange = connection.exchange
        upgrade = "websocket" if _asks_for_websocket(request) else None
        length = given.get("Content-Length")
        is_chunked = "Transfer-Encoding" in given
        expects = given.get("Expect", "").lower() == "100-continue"
        asked = request_target(request.uri or "/", self._place, secret=self.secret)
        visitor = Visitor(
            address=str(request.remote_ip), scheme=request.protocol, host=request.host
        )
        await exchange.ask(
            str(request.method),
            asked,
            request_headers(
                given.get_all(),
                self._place,
                visitor,
                secret=self.secret,
                jupyter_cookies=_of_jupyter,
            ),
            length=int(length) if length is not None and not is_chunked else None,
            is_chunked=is_chunked,
            upgrade=upgrade,
            expects=expects,
            closes=not self._may_repeat,
        )
        self._exchange = exchange
        if expects:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_UNTIL_WANTED):
                    await exchange.is_wanted()
        if upgrade is None:
            self._is_open.set()
        answer = await self._answer(exchange)
        if answer.is_upgraded:
            await self._tunnel(connection, answer)
            return
        self._is_open.set()
        await self._reply(exchange, answer, asked)

    async def _answer(self, exchange: Exchange) -> Answer:
        timeout = self.settings[_SETTINGS].answer_timeout
        asking = asyncio.ensure_future(exchange.answer())
        try:
            # The time begins when the program has been asked all.
            if _has_body(self.request):
                received = asyncio.ensure_future(self._received.wait())
                try:
                    await asyncio.wait({asking, received}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    received.cancel()
            try:
                async with asyncio.timeout(timeout or None):
                    return await asking
            except TimeoutError:
                raise PreviewTimeoutError(self._target.port, timeout) from None
        finally:
            asking.cancel()

    # --- the answer ---

    async def _reply(self, exchange: Exchange, answer: Answer, asked: str) -> None:
        connection: Any = self.request.connection  # of HTTP/1, as all of tornado's servers
        headers = httputil.HTTPHeaders()
        made = answer_headers(
            answer.headers,
            self._place,
            target=asked,
            origin=self.request.headers.get("Origin"),
        )
        for name, value in made:
            headers.add(name, value)
        if answer.length is not None:
            headers["Content-Length"] = str(answer.length)
        self._has_begun = True
        self.set_status(answer.status, answer.reason or "Unknown")
        # Small pieces must not wait for acknowledgements of those before them.
        connection.stream.set_nodelay(True)
        line = httputil.ResponseStartLine("HTTP/1.1", answer.status, answer.reason)
        await connection.write_headers(line, headers)
        async for piece in exchange.body():
            await connection.write(piece)
        if not self._received.is_set() and "Expect" not in self.request.headers:
            # A connection that is closed with something unread would take the answer with it.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LINGER):
                    await self._received.wait()
        connection.finish()
        self._done()

    def _done(self) -> None:
        self._finished = True
        self._log()
        self.on_finish()

    def _failed(self, error: Exception) -> None:
        if self._finished:
            return
        if self._has_begun:
            self._break_off()
        elif isinstance(error, SandboxError):
            self.refuse(error)
        else:
            self.refuse(PreviewAnswerError(self._target.port, "has broken the connection"))

    def _break_off(self) -> None:
        """End the connection so that nobody takes what came for the whole."""
        stream = getattr(self.request.connection, "stream", None)
        if stream is not None and not stream.closed():
            _reset(stream)
        if not self._finished:
            self._done()

    def refuse(self, error: SandboxError) -> None:
        """Answer with an error."""
        if not isinstance(error, PortError):
            self.settings["serverapp"].log.warning("preview: %s", error)
        kind, text = refusal(error, self.request.headers.get("Accept", ""))
        self.clear()
        self.set_status(error.http_status)
        self.set_header("Content-Type", kind)
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header(
            "Content-Security-Policy", "sandbox; default-src 'none'; style-src 'unsafe-inline'"
        )
        with contextlib.suppress(StreamClosedError):
            self.finish(text)

    def forbid(self, reason: str) -> None:
        """Answer that this is not allowed."""
        self.set_status(403)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"403: {reason}\n")

    # --- WebSockets ---

    async def _tunnel(
        self,
        connection: Connection,
        answer: Answer,
    ) -> None:
        """Pass bytes both ways: whatever the two agreed on is theirs."""
        self.set_status(101)
        self._done()
        stream = self.request.connection.detach()  # type: ignore[union-attr]
        self._is_open.set()
        stream.set_nodelay(True)
        lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"{name}: {value}" for name, value in answer_headers(answer.headers, self._place)]
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        try:
            await stream.write(head + connection.exchange.take_over())
            async with asyncio.TaskGroup() as group:
                inward = group.create_task(_inward(stream, connection.writer))
                await _outward(connection.reader, stream)
                inward.cancel()
        except* (StreamClosedError, SandboxError, OSError):
            _reset(stream)
        finally:
            stream.close()

    # --- what is written down ---

    def log_exception(self, *exc_info: Any) -> None:
        """Write down faults of ours; what is refused is no news, and its address is secret."""
        if not isinstance(exc_info[1], web.HTTPError):
            self.settings["serverapp"].log.error("preview failed", exc_info=exc_info)

    def _log(self) -> None:
        # The address has the token in it.
        target = getattr(self, "_target", None)
        what = f"{target.sandbox_id}:{target.port}" if target is not None else "-"
        status = self.get_status()
        log = self.settings["serverapp"].log
        (log.debug if status < 400 else log.info)(
            "preview of %s: %s %d, %.1f ms",
            what,
            self.request.method,
            status,
            1e3 * self.request.request_time(),
        )


for _method in _METHODS:
    setattr(_Proxy, _method.lower(), _Proxy.serve)


def _asks_for_websocket(request: httputil.HTTPServerRequest) -> bool:
    headers = request.headers
    return (
        request.method == "GET"
        and headers.get("Upgrade", "").lower() == "websocket"
        and "upgrade" in headers.get("Connection", "").lower()
        and not _has_body(request)
    )


def _has_body(request: httputil.HTTPServerRequest) -> bool:
    return "Content-Length" in request.headers or "Transfer-Encoding" in request.headers


def _of_jupyter(cookie: str) -> bool:
    """Whether a cookie that reaches all hosts of a domain is one of a hub."""
    return cookie.startswith("jupyterhub-")


async def _inward(stream: IOStream, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(await stream.read_bytes(_PIECE, partial=True))
        await writer.drain()


async def _outward(reader: asyncio.StreamReader, stream: IOStream) -> None:
    while data := await reader.read(_PIECE):
        await stream.write(data)


def _reset(stream: IOStream) -> None:
    with contextlib.suppress(OSError, AttributeError):
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    stream.close()


# --- hosts of their own ---------------------------------------------------------------------------


@web.stream_request_body
class HostHandler(_Proxy):
    """A preview on a host of its own: the token in its name is what lets visitors in."""

    async def prepare(self) -> None:
        """Pass the request on."""
        request = self.request
        target = self.settings[_HOSTS].label_of(request.host_name)
        if target is None:
            self.refuse(PreviewTokenError())
            return
        origin = f"{request.protocol}://{request.host}"
        await self.pass_on(target, Place(port=target.port, origin=origin))


# --- below a path of Jupyter's --------------------------------------------------------------------


@web.stream_request_body
class PathHandler(_Proxy, JupyterHandler):
    """``sandbox/preview/PORT-SANDBOX-TOKEN/``: always there, for users of this server.

    Visitors are sent on to a host of the preview's own where there is one.  Else the page is in a
    sandbox of the browser's: its origin is nobody's, it shows no cookies and keeps nothing.  What
    it loads shows a ticket in its address, which only a user of this server is given.
    """

    auth_resource = "sandboxes"

    async def prepare(self) -> None:  # type: ignore[override]  # as the base
        """Let users in, and pass the request on."""
        path = self.request.path
        begin = path.index(PATH) + len(PATH)
        segment, slash, _ = path[begin:].partition("/")
        name = path_name(segment)
        is_navigation = _is_navigation(self.request)
        now = time.time()
        secret = self.application.settings["cookie_secret"]
        has_ticket = name is not None and ticket_holds(secret, name.label, name.ticket, now)
        if not has_ticket or is_navigation:
            await self._let_in(to_login=is_navigation and not has_ticket, optional=has_ticket)
            if self._finished:
                return
        elif not self.check_host():
            self.forbid("Not the host of this server")
            return
        if name is None:
            self.refuse(PreviewTokenError())
            return
        prefix = path[: begin + len(segment)]
        if is_navigation and self._is_sent_on(
            name, path[:begin], path[begin + len(segment) :], has_ticket=has_ticket
        ):
            return
        if not slash:
            self._send_to(f"{prefix}/", 308)
            return
        await self._show(name, prefix)

    async def _let_in(self, *, to_login: bool, optional: bool) -> None:
        """Find out who the visitor is; send away who may not see previews."""
        try:
            await super().prepare(_redirect_to_login=to_login)
        except web.HTTPError:
            if not optional:
                raise
            return
        if self._finished or optional:
            return
        # The server may be one that leaves it to its handlers to ask for users.
        if self.current_user is None:
            if to_login:
                web.authenticated(lambda _: None)(self)
            else:
                self.forbid("Not logged in")
            return
        allowed = await ensure_async(
            self.authorizer.is_authorized(self, self.current_user, "execute", self.auth_resource)
        )
        if not allowed:
            self.forbid("Not allowed for this user")

    def set_cors_headers(self) -> None:
        """Add nothing: what the program allows is its own."""

    def _is_sent_on(self, name: PathName, before: str, rest: str, *, has_ticket: bool) -> bool:
        """Send who opens a page to where it is shown, unless it is here."""
        if self.request.method not in ("GET", "HEAD") or (has_ticket and self.current_user is None):
            return False
        hosts: Hosts = self.settings[_HOSTS]
        headers = self.request.headers
        is_framed = headers.get("Sec-Fetch-Dest", "") in ("iframe", "frame", "embed", "object")
        # Pages of a locked server show frames of its own origin only.
        stays = is_framed and self.settings[_LOCKED]
        origin = (
            None
            if stays
            else hosts.origin_for(
                name.label,
                scheme=self.request.protocol,
                host=self.request.host,
                is_proxied="X-Forwarded-For" in headers
                or "X-Forwarded-Host" in headers
                or "Forwarded" in headers,
            )
        )
        if origin is not None:
            self._send_to(f"{origin}{rest or '/'}", 302)
            return True
        if has_ticket:
            return False
        ticket = make_ticket(self.application.settings["cookie_secret"], name.label, time.time())
        self._send_to(f"{before}{name.label}.{ticket}{rest or '/'}", 302)
        return True

    def _send_to(self, path: str, status: int) -> None:
        query = self.request.query
        address = without_secret(f"{path}?{query}" if query else path, self.secret)
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_status(status)
        self.set_header("Location", address)
        self.finish()

    async def _show(self, name: PathName, prefix: str) -> None:
        request = self.request
        headers = request.headers
        destination = headers.get("Sec-Fetch-Dest", "")
        if headers.get("Sec-Fetch-Site", "") == "same-origin" and destination in _AS_CODE:
            self.forbid("No page of this server may run what a preview says")
            return
        asked_for = headers.get("Access-Control-Request-Method")
        if request.method == "OPTIONS" and headers.get("Origin") == "null" and asked_for:
            self._allow(asked_for)
            return
        origin = f"{request.protocol}://{request.host}"
        mark = hashlib.sha256(name.label.encode()).hexdigest()[:8]
        place = Place(
            port=name.target.port, origin=origin, prefix=prefix, cookie_prefix=f"sbx{mark}-"
        )
        await self.pass_on(name.target, place)

    def _allow(self, method: str) -> None:
        """Let a page ask its own program for more than a form could (CORS preflight)."""
        self.clear()
        self.set_status(204)
        for name, value in shared_out():
            self.set_header(name, value)
        self.set_header("Access-Control-Allow-Methods", method)
        wanted = self.request.headers.get("Access-Control-Request-Headers")
        if wanted:
            self.set_header("Access-Control-Allow-Headers", wanted)
        self.finish()


def _is_navigation(request: httputil.HTTPServerRequest) -> bool:
    """Whether somebody opens a page, rather than a page its parts."""
    mode = request.headers.get("Sec-Fetch-Mode")
    if mode is not None:
        return mode == "navigate"
    return "text/html" in request.headers.get("Accept", "")


# Nothing is captured: what the program is asked for need not be text.
HANDLERS = [(r"/sandbox/preview/[^/]+(?:/.*)?", PathHandler)]


# --- in the server --------------------------------------------------------------------------------


def serve_hosts(
    serverapp: ServerApp, settings: SandboxPreview, *, is_locked: bool = False
) -> HTTPServer | None:
    """Serve previews on their own hosts, in front of everything else the server has.

    Returns
    -------
    HTTPServer or None
        What listens at the port of previews alone, if there is to be one; the caller ends it.
    """
    application = serverapp.web_app
    listener = own_port = None
    if settings.port >= 0:
        listener = socket.create_server(("127.0.0.1", settings.port))
        listener.setblocking(False)
        own_port = int(listener.getsockname()[1])
    hosts = Hosts.of_setting(settings.host, own_port=own_port)
    ours: dict[str, Any] = {
        _SETTINGS: settings,
        _HOSTS: hosts,
        _KEPT: KeptConnections(),
        _LOCKED: is_locked,
        "serverapp": serverapp,
    }
    application.settings.update(ours)
    if hosts.pattern is None:
        return None
    # Other extensions take paths of every host.
    _route(application, hosts.pattern)
    if listener is None:
        return None
    alone = web.Application([(r".*", _NothingHandler)], log_function=lambda _: None, **ours)
    _route(alone, hosts.pattern)
    own = HTTPServer(alone)
    own.add_socket(listener)
    return own


def _route(application: web.Application, pattern: str) -> None:
    application.add_handlers(pattern, [(r".*", HostHandler)])
    rules = application.default_router.rules
    rules.insert(0, rules.pop(-2))


class _NothingHandler(web.RequestHandler):
    """What is no preview, on a port that serves nothing else."""

    def prepare(self) -> None:
        """Say so."""
        self.set_status(404)
        self.finish("404: this port shows previews of sandboxes only\n")
