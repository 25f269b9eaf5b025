"""What a preview changes in the heads of requests and answers; pure functions.

The program in the sandbox sees a visitor of ``localhost:PORT``, without what only Jupyter shall
see; the browser sees addresses and cookies of the preview alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import unquote_plus

__all__ = [
    "Place",
    "Visitor",
    "answer_headers",
    "is_own_origin",
    "public_address",
    "request_headers",
    "request_target",
    "shared_out",
    "without_secret",
]

Headers = list[tuple[str, str]]

_HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
"""Headers of one connection (RFC 9110, 7.6.1); what a body is framed by is said anew."""

_SAID_ANEW = frozenset(
    {
        *("host", "content-length", "expect", "cookie", "origin", "referer", "forwarded"),
        *("x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-forwarded-prefix"),
        *("x-forwarded-proto", "x-forwarded-protocol", "x-forwarded-scheme", "x-forwarded-server"),
        *("x-forwarded-ssl", "x-original-uri", "x-original-url", "x-real-ip", "x-rewrite-url"),
        *("x-scheme", "front-end-https", "x-script-name"),
    }
)
"""Who a visitor is and where it goes is what we say, not what it claims."""

_OF_JUPYTER = frozenset({"authorization", "x-xsrftoken", "x-csrftoken"})
"""What pages at Jupyter's own origin send."""

_FOR_ORIGIN = frozenset(
    {
        *("accept-ch", "alt-svc", "clear-site-data", "critical-ch", "nel", "origin-agent-cluster"),
        *("origin-trial", "public-key-pins", "report-to", "reporting-endpoints"),
        *("service-worker-allowed", "strict-transport-security", "www-authenticate"),
    }
)
"""Headers of answers that reach past their page, to all of an origin that is Jupyter's as well."""

_LOCATIONS = frozenset({"location", "content-location"})
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "0.0.0.0"})  # noqa: S104  compared
_ADDRESS = re.compile(r"(?:(https?|wss?):)?//([^/?#\\]*)", re.IGNORECASE)
_ABSOLUTE = re.compile(r"^https?://[^/?#]*", re.IGNORECASE)
_REFRESH = re.compile(r"(\s*[0-9.]+\s*[;,]\s*(?:url\s*=\s*)?['\"]?)(.*)", re.IGNORECASE | re.DOTALL)
_CLIMBS = re.compile(r"\.\.|%2e", re.IGNORECASE)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_SAFE_REFERRERS = frozenset({"no-referrer", "same-origin"})
_SANDBOX = (
    "sandbox allow-downloads allow-forms allow-modals allow-pointer-lock allow-popups"
    " allow-popups-to-escape-sandbox allow-scripts"
)
"""Everything but ``allow-same-origin``: the page's origin is then nobody's."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A preview as its visitors and its program know it."""

    port: int
    origin: str
    """``http://HOST[:PORT]`` of the browser."""
    prefix: str = ""
    """What the path begins with in front of the program's own; empty on a host of its own."""
    cookie_prefix: str = ""
    """What the program's cookies are called in front of their names."""

    @property
    def is_shared(self) -> bool:
        """Whether the origin is Jupyter's, too."""
        return bool(self.prefix)

    @property
    def host(self) -> str:
        """What the program takes for its own host, for requests of every kind."""
        return f"localhost:{self.port}"


@dataclass(frozen=True, kw_only=True)
class Visitor:
    """Where a request comes from."""

    address: str
    scheme: str
    host: str


# --- to the program -------------------------------------------------------------------------------


def request_target(uri: str, place: Place, *, secret: str = "") -> str:
    """Return what to ask the program for: the rest of the address, untouched.

    Parameters
    ----------
    uri : str
        Path and query as the browser has sent them.
    secret : str
        Jupyter's token; a parameter ``token`` of this value is left out.
    """
    if uri == "*":
        return uri
    # A client may name the whole address (RFC 9112, 3.2.2).
    target = _ABSOLUTE.sub("", uri)[len(place.prefix) :]
    if not target.startswith("/"):
        target = f"/{target}"
    return without_secret(target, secret)


def without_secret(address: str, secret: str) -> str:
    """Return an address without Jupyter's token in its query, else untouched."""
    path, mark, query = address.partition("?")
    if not mark or not secret or "token" not in unquote_plus(query):
        return address
    kept = [part for part in query.split("&") if not _gives(part, secret)]
    return f"{path}?{'&'.join(kept)}" if kept else path


def _gives(parameter: str, secret: str) -> bool:
    name, _, value = parameter.partition("=")
    return unquote_plus(name) == "token" and unquote_plus(value) == secret


def request_headers(
    headers: Iterable[tuple[str, str]],
    place: Place,
    visitor: Visitor,
    *,
    secret: str = "",
    jupyter_cookies: Callable[[str], bool] = lambda _: False,
) -> Headers:
    """Return what the program is told, but for the framing of the body.

    Parameters
    ----------
    headers : iterable of (str, str)
        What the browser has sent.
    secret : str
        Jupyter's token, which is not passed on.
    jupyter_cookies : callable
        Whether a cookie of this name is Jupyter's, on a host of the preview's own.
    """
    given = list(headers)
    dropped = _HOP_BY_HOP | _SAID_ANEW | _named_by_connection(given)
    if place.is_shared:
        dropped |= _OF_JUPYTER
    made: Headers = [("Host", place.host)]
    cookies: list[str] = []
    for name, value in given:
        low = name.lower()
        if low == "cookie":
            cookies += _cookies(value, place, jupyter_cookies)
        elif low == "origin":
            made.append((name, _origin(value, place)))
        elif low == "referer":
            inside = _referer(value, place)
            if inside is not None:
                made.append((name, inside))
        elif low == "authorization" and secret and secret in value:
            continue
        elif low not in dropped:
            made.append((name, value))
    if cookies:
        made.append(("Cookie", "; ".join(cookies)))
    made += [
        ("X-Forwarded-For", visitor.address),
        ("X-Forwarded-Proto", visitor.scheme),
        ("X-Forwarded-Host", visitor.host),
    ]
    if place.prefix:
        made.append(("X-Forwarded-Prefix", place.prefix))
    return made


def _named_by_connection(headers: Iterable[tuple[str, str]]) -> frozenset[str]:
    return frozenset(
        each.strip().lower()
        for name, value in headers
        if name.lower() == "connection"
        for each in value.split(",")
    )


def _cookies(value: str, place: Place, is_jupyters: Callable[[str], bool]) -> list[str]:
    kept = []
    for each in value.split(";"):
        cookie = each.strip(" \t")
        name = cookie.partition("=")[0].strip()
        if place.is_shared:
            if name.startswith(place.cookie_prefix):
                kept.append(cookie[len(place.cookie_prefix) :])
        elif cookie and not is_jupyters(name):
            kept.append(cookie)
    return kept


def is_own_origin(value: str, place: Place) -> bool:
    """Whether an origin is that of the preview's pages; of which scheme, a proxy may hide."""
    if place.is_shared:
        return value == "null"
    return value.lower().rpartition("//")[2] == place.origin.lower().rpartition("//")[2]


def _origin(value: str, place: Place) -> str:
    """Return the origin that the program sees: its own one for pages of the preview."""
    return f"http://{place.host}" if is_own_origin(value, place) else value


def _referer(value: str, place: Place) -> str | None:
    public = place.origin.rpartition("//")[2] + place.prefix
    _, _, address = value.partition("//")
    rest = address[len(public) :]
    if not address.startswith(public) or rest[:1] not in ("", "/", "?", "#"):
        return None  # it may hold what is none of the program's business
    return f"http://{place.host}{rest or '/'}"


# --- to the browser -------------------------------------------------------------------------------


def answer_headers(
    headers: Iterable[tuple[str, str]],
    place: Place,
    *,
    target: str = "/",
    origin: str | None = None,
) -> Headers:
    """Return what the browser is told, but for the framing of the body.

    Parameters
    ----------
    headers : iterable of (str, str)
        What the program has sent.
    target : str
        What the program was asked for.
    origin : str, optional
        What the request said of its origin.
    """
    given = list(headers)
    dropped = _HOP_BY_HOP | _named_by_connection(given)
    if place.is_shared:
        dropped |= _FOR_ORIGIN
    made: Headers = []
    referrer_policy = "same-origin"
    has_shared_out = False
    for name, value in given:
        low = name.lower()
        if low in dropped:
            continue
        if low in _LOCATIONS:
            made.append((name, public_address(value, place, target)))
        elif low == "refresh":
            made.append((name, _refresh(value, place, target)))
        elif low == "set-cookie":
            made.append((name, _confined(value, place)))
        elif low == "referrer-policy":
            if value.strip().lower() in _SAFE_REFERRERS:
                referrer_policy = value.strip().lower()
        else:
            has_shared_out |= low == "access-control-allow-origin"
            made.append((name, value))
    # The address has the token in it, and pages elsewhere would learn it.
    made.append(("Referrer-Policy", referrer_policy))
    if place.is_shared:
        made.append(("Content-Security-Policy", _SANDBOX))
        if origin == "null" and not has_shared_out:
            # To its own page the program is elsewhere; who else knows the address has the token.
            made += shared_out()
    return made


def shared_out() -> Headers:
    """Return what lets a page of nobody's origin see the answers of its own program."""
    return [
        ("Access-Control-Allow-Origin", "null"),
        ("Access-Control-Allow-Credentials", "true"),
    ]


def public_address(address: str, place: Place, target: str = "/") -> str:
    """Return the address under which the browser finds what the program calls `address`.

    Parameters
    ----------
    address : str
        As the program has it in an answer: absolute, or relative to `target`.
    target : str
        What the program was asked for.
    """
    found = _ADDRESS.match(address)
    if found is not None:
        if not _is_program(found[1], found[2], place):
            return address
        rest = address[found.end() :]
        if not rest.startswith("/"):
            rest = f"/{rest}"
        return _below(rest, place)
    if address[:1] in ("/", "\\"):
        return _below(address, place)
    if place.is_shared and _CLIMBS.search(address) and not _SCHEME.match(address):
        # A browser would climb on, past the program's own root.
        folder = target.partition("?")[0].rpartition("/")[0]
        return _below(f"{folder}/{address}", place)
    return address


def _is_program(scheme: str | None, authority: str, place: Place) -> bool:
    name, _, port = authority.lower().rpartition(":")
    if not port.isdigit():
        name, port = authority.lower(), "443" if scheme == "https" else "80"
    return name in _LOCAL_NAMES and port == str(place.port)


def _below(path: str, place: Place) -> str:
    if not place.prefix:
        return path
    if _CLIMBS.search(path):
        path = _without_dots(path)
    # A program that heeds X-Forwarded-Prefix has said it already.
    if path == place.prefix or path.startswith(f"{place.prefix}/"):
        return path
    return place.prefix + path


def _without_dots(address: str) -> str:
    """Return an address without dot segments, as from the program's root (RFC 3986, 5.2.4)."""
    end = min((at for at in map(address.find, "?#") if at >= 0), default=len(address))
    kept: list[str] = []
    *folders, last = re.split(r"[/\\]", address[:end])[1:]
    for segment in (*folders, last):
        plain = segment.replace("\t", "").lower().replace("%2e", ".")
        if plain == "..":
            del kept[-1:]
        elif plain != ".":
            kept.append(segment)
    if last.replace("\t", "").lower().replace("%2e", ".") in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept) + address[end:]


def _refresh(value: str, place: Place, target: str) -> str:
    found = _REFRESH.fullmatch(value)
    return value if found is None else found[1] + public_address(found[2], place, target)


def _confined(cookie: str, place: Place) -> str:
    """Return a cookie that the browser shows to the preview only."""
    pair, *attributes = cookie.split(";")
    made = [place.cookie_prefix + pair.strip() if place.is_shared else pair]
    path = ""
    for attribute in attributes:
        name, _, value = attribute.partition("=")
        match name.strip().lower():
            case "domain":
                continue
            case "path":
                path = value.strip()
                if place.is_shared:
                    continue
        made.append(attribute)
    if place.is_shared:
        inside = path if path.startswith("/") else "/"
        made.append(f" Path={place.prefix}{inside}")
    return ";".join(made)
