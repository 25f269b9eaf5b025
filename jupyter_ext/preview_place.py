"""Where previews are: on hosts of their own where that can be, and below a path of Jupyter's.

Pure: which origin a visitor is sent to, and tickets for pages that show no cookie.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass

from sandbox_kernel.manager.preview_label import LONGEST_LABEL, PreviewLabel, parse_preview_label

__all__ = ["PATH", "TICKET_TIME", "Hosts", "PathName", "make_ticket", "path_name", "ticket_holds"]

PATH = "/sandbox/preview/"

TICKET_TIME = 86400.0
"""Seconds for which a page may load its parts; opening it anew gives a new ticket."""

_LOCAL = "localhost"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_SETTING = re.compile(r"(?:(https?)://)?\*\.([a-z0-9.-]+?)(?::([0-9]{1,5}))?", re.IGNORECASE)
_HOST = re.compile(r"(.+?)(?::([0-9]+))?")


@dataclass(frozen=True, kw_only=True)
class PathName:
    """The part of a path that names a preview."""

    label: str
    ticket: str
    target: PreviewLabel


def path_name(segment: str) -> PathName | None:
    """Return what ``PORT-SANDBOX-TOKEN[.TICKET]`` names, or None if it is nothing of that kind."""
    label, _, ticket = segment.partition(".")
    target = parse_preview_label(label, longest=None)
    if target is None or label != label.lower():
        return None
    return PathName(label=label, ticket=ticket, target=target)


# --- tickets --------------------------------------------------------------------------------------


def make_ticket(secret: bytes, label: str, now: float) -> str:
    """Return what shows, in the address of a preview, that a user of this server has opened it.

    The page's origin is nobody's, and what it loads comes without the user's cookies.
    """
    until = format(int(now + TICKET_TIME), "x")
    return f"{until}-{_seal(secret, label, until)}"


def ticket_holds(secret: bytes, label: str, ticket: str, now: float) -> bool:
    """Whether a ticket is of this preview, of this server, and not too old."""
    until, _, seal = ticket.partition("-")
    if not re.fullmatch("[0-9a-f]{1,12}", until) or not seal.isascii():
        return False
    return hmac.compare_digest(seal, _seal(secret, label, until)) and now < int(until, 16)


def _seal(secret: bytes, label: str, until: str) -> str:
    digest = hmac.new(secret, f"preview {label} {until}".encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest[:18]).decode()


# --- hosts ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """On which hosts previews have origins of their own.

    Parameters
    ----------
    scheme, domain, port
        Of the setting; `domain` is empty where previews have no hosts.
    is_local : bool
        The domain is that of this machine, which nobody has to set up; only who has come to this
        machine's own name without a proxy is sent there.
    own_port : int, optional
        A port of this machine that serves nothing but previews.
    """

    scheme: str | None = None
    domain: str = ""
    port: int | None = None
    is_local: bool = False
    own_port: int | None = None

    @classmethod
    def of_setting(cls, value: str, *, own_port: int | None = None) -> Hosts:
        """Return what ``[https://]*.DOMAIN[:PORT]`` stands for; empty for none.

        Raises
        ------
        ValueError
            It is not of that form.
        """
        if not value:
            return cls()
        found = _SETTING.fullmatch(value.strip())
        if found is None:
            raise ValueError(f"{value!r} is not of the form *.preview.example")
        domain = found[2].lower()
        return cls(
            scheme=found[1] and found[1].lower(),
            domain=domain,
            port=int(found[3]) if found[3] else None,
            is_local=domain == _LOCAL,
            own_port=own_port,
        )

    @property
    def pattern(self) -> str | None:
        """The hosts of previews, as a regular expression; only what can be one is taken."""
        if not self.domain:
            return None
        return rf"[1-9][0-9]{{3,4}}-[a-z0-9_-]+-[a-z0-9_]+\.{re.escape(self.domain)}$"

    def label_of(self, host_name: str) -> PreviewLabel | None:
        """Return what a host of a preview names."""
        label, _, domain = host_name.partition(".")
        return parse_preview_label(label) if domain.lower() == self.domain else None

    def origin_for(self, label: str, *, scheme: str, host: str, is_proxied: bool) -> str | None:
        """Return the origin at which a visitor of Jupyter sees a preview; None: at Jupyter's path.

        Parameters
        ----------
        scheme, host : str
            Under which the visitor has come to Jupyter, port included.
        is_proxied : bool
            Whether something stands in between that knows nothing of our hosts.
        """
        if not self.domain or len(label) > LONGEST_LABEL:
            return None
        found = _HOST.fullmatch(host.lower())
        if found is None:
            return None
        port = self.port or (int(found[2]) if found[2] else None)
        if self.is_local:
            if found[1] not in _LOOPBACK or is_proxied:
                return None
            if self.own_port is not None:
                scheme, port = "http", self.own_port
            elif scheme != "http":
                return None  # no certificate is for such names
        else:
            scheme = self.scheme or scheme
        return f"{scheme}://{label}.{self.domain}{'' if port is None else f':{port}'}"
