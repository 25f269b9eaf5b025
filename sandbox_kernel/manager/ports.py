"""Ports that are exposed: their tokens, and in which start of the sandbox they may be used.

A token lasts as long as its sandbox: it is kept over sleep and stop, and gone with destroy or
`PortTokens.unexpose`.  It opens its port only while that start of the sandbox lasts in which the
port was exposed last: what listens on the port after another start may be another program.  Nothing
here starts anything.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import secrets
import string
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sandbox_kernel.errors import (
    InvalidPortError,
    InvalidPortTokenError,
    InvalidSandboxIdError,
    PreviewTokenError,
    StalePreviewUrlError,
    ValidationFailedError,
)
from sandbox_kernel.manager.identity import check_sandbox_id
from sandbox_kernel.manager.jupyter_address import jupyter_address
from sandbox_kernel.manager.lifecycle import State
from sandbox_kernel.manager.preview_label import TOKEN, preview_label
from sandbox_kernel.manager.registry import Entry, PortEntry, Registry
from sandbox_kernel.wire.port_operations import check_port

__all__ = ["ExposedPort", "PortTokens", "PreviewFrame", "check_exposure", "new_port_token"]

_ALPHABET = string.ascii_lowercase + string.digits + "_"
_TOKEN_LENGTH = 16
_LONGEST_NAME = 100


@dataclass(frozen=True, kw_only=True)
class ExposedPort:
    """A port that whoever has its token may reach."""

    sandbox_id: str
    port: int
    token: str = field(repr=False)
    """16 random characters of a-z, 0-9 and _, or 1 to 16 chosen ones."""
    name: str | None = None
    """What people call it."""
    incarnation: str = ""
    """The container in which it was exposed last."""
    exposed_at: float = 0.0
    """When that was, in seconds since the epoch."""

    @property
    def label(self) -> str:
        """The host label ``PORT-SANDBOX-TOKEN``.

        Raises
        ------
        PortError
            It would be longer than a host name allows.
        """
        return preview_label(self.port, self.sandbox_id, self.token)

    @property
    def path(self) -> str:
        """Where the port's preview is below a Jupyter server's address; it has the token in it."""
        return f"sandbox/preview/{self.port}-{self.sandbox_id}-{self.token}/"

    @property
    def url(self) -> str | None:
        """The preview's address for a browser on this machine; None if no server is known.

        The server is the one that runs this kernel, else the only one of this user.  Its browser's
        own address is made by ``_repr_html_``, wherever the browser is.
        """
        address = jupyter_address()
        return None if address is None else address.url + self.path

    def __str__(self) -> str:
        return self.url or self.path

    def _repr_html_(self) -> str:
        address = jupyter_address()
        what = html.escape(self.name or f"port {self.port} of {self.sandbox_id}")
        if address is None:
            return f"{what}: <code>{html.escape(self.path)}</code> at a Jupyter server of yours"
        link = html.escape(address.base_url + self.path)
        return f'<a href="{link}" target="_blank" rel="noopener noreferrer">{what}</a>'

    def frame(self, *, width: str | int = "100%", height: int = 480) -> PreviewFrame:
        """Return what shows the preview in the page of a notebook, as the last value of a cell.

        Parameters
        ----------
        width : str or int
            Pixels, or text such as ``"100%"``.
        height : int
            Pixels.
        """
        address = jupyter_address()
        source = None if address is None else address.base_url + self.path
        return PreviewFrame(source=source, width=str(width), height=int(height))


@dataclass(frozen=True, kw_only=True)
class PreviewFrame:
    """A preview in the page of a notebook; see `ExposedPort.frame`."""

    source: str | None = field(repr=False)
    width: str
    height: int

    def _repr_html_(self) -> str:
        if self.source is None:
            return "No Jupyter server is known that could show this."
        # The program may do in its frame what it likes, and nothing to the page around it.
        allowed = "allow-downloads allow-forms allow-modals allow-popups allow-same-origin"
        return (
            f'<iframe src="{html.escape(self.source)}" width="{html.escape(self.width)}"'
            f' height="{self.height}" style="border: 0" sandbox="{allowed} allow-scripts"'
            ' referrerpolicy="no-referrer"></iframe>'
        )


def new_port_token() -> str:
    """Return a fresh token of 83 bits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(_TOKEN_LENGTH))


class PortTokens:
    """The exposed ports of every sandbox of a registry.

    Parameters
    ----------
    registry : Registry
        Where they are kept.
    is_there : callable
        Whether there is a registry at all; looking must not make one.
    is_alive : callable
        Whether an entry's sandbox runs.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        is_there: Callable[[], bool],
        is_alive: Callable[[Entry], bool],
    ) -> None:
        self._registry = registry
        self._is_there = is_there
        self._is_alive = is_alive

    def expose(
        self,
        sandbox_id: str,
        port: int,
        *,
        secret: str,
        incarnation: str,
        token: str | None = None,
        name: str | None = None,
    ) -> ExposedPort | None:
        """Let whoever has the token reach a port, for as long as this incarnation runs.

        Parameters
        ----------
        secret, incarnation : str
            The token of the runtime that was asked about the port, and its id.
        token : str, optional
            By default the one the port has, else a random one.
        name : str, optional
            By default the one it has.

        Returns
        -------
        ExposedPort or None
            None if that incarnation has ended meanwhile; nothing was changed then.

        Raises
        ------
        InvalidSandboxIdError, InvalidPortError, InvalidPortTokenError, ValidationFailedError
            An argument cannot be used.
        """
        sandbox = check_sandbox_id(sandbox_id)
        check_exposure(port, token=token, name=name)
        entry = self._entry(sandbox)
        if entry is None:
            return None
        given = PortEntry(
            lifetime=entry.lifetime,
            port=port,
            token=token if token is not None else new_port_token(),
            name=name,
            incarnation=incarnation,
            start=_mark(secret),
            exposed_at=time.time(),
        )
        kept = self._registry.put_port(given, secret, is_chosen=token is not None)
        return None if kept is None else _exposed(sandbox, kept)

    def unexpose(self, sandbox_id: str, port: int) -> None:
        """Revoke the token of a port; one that is not exposed is fine."""
        entry = self._entry(check_sandbox_id(sandbox_id))
        if entry is not None and any(
            each.port == check_port(port) for each in self._registry.ports(entry.lifetime)
        ):
            self._registry.remove_port(entry.lifetime, port)

    def exposed(self, sandbox_id: str) -> list[ExposedPort]:
        """Return the ports that can be used now, the lowest first."""
        sandbox = check_sandbox_id(sandbox_id)
        entry = self._entry(sandbox)
        if entry is None or not self._runs(entry):
            return []
        ports = self._registry.ports(entry.lifetime)
        return [_exposed(sandbox, each) for each in ports if _is_of(each, entry)]

    def check(self, sandbox_id: str, port: int, token: str) -> ExposedPort:
        """Return the exposed port that a token opens.

        A wrong token takes as long whatever is wrong with it, and whether or not there is such a
        sandbox or port is not to be seen from the error.

        Raises
        ------
        PreviewTokenError
            The token is not that of this port of this sandbox.
        StalePreviewUrlError
            It is, and the sandbox does not run, or runs anew.
        """
        try:
            sandbox = check_sandbox_id(sandbox_id)
            number = check_port(port)
        except (InvalidSandboxIdError, InvalidPortError) as error:
            raise PreviewTokenError from error
        entry = self._entry(sandbox)
        known = self._registry.ports(entry.lifetime) if entry is not None else []
        found = next((each for each in known if each.port == number), None)
        # Something is compared in any case, and digests are of one length.
        expected = found.token if found is not None else new_port_token()
        is_right = hmac.compare_digest(_digest(token), _digest(expected))
        if entry is None or found is None or not is_right:
            raise PreviewTokenError
        if not _is_of(found, entry) or not self._runs(entry):
            raise StalePreviewUrlError(number)
        return _exposed(sandbox, found)

    def _entry(self, sandbox_id: str) -> Entry | None:
        entry = self._registry.get(sandbox_id) if self._is_there() else None
        return None if entry is None or entry.state is State.DESTROYING else entry

    def _runs(self, entry: Entry) -> bool:
        return entry.state is State.RUNNING and self._is_alive(entry)


def check_exposure(port: object, *, token: object, name: object) -> None:
    """Refuse what no port can be exposed with.

    Raises
    ------
    InvalidPortError, InvalidPortTokenError, ValidationFailedError
        The port, the token or the name cannot be used.
    """
    number = check_port(port)
    if token is not None and (not isinstance(token, str) or TOKEN.fullmatch(token) is None):
        raise InvalidPortTokenError(number, "it is not 1 to 16 of a-z, 0-9 and _")
    if name is not None and (
        not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable()
    ):
        raise ValidationFailedError("name", f"must be 1 to {_LONGEST_NAME} printable characters")


def _exposed(sandbox_id: str, entry: PortEntry) -> ExposedPort:
    return ExposedPort(
        sandbox_id=sandbox_id,
        port=entry.port,
        token=entry.token,
        name=entry.name,
        incarnation=entry.incarnation,
        exposed_at=entry.exposed_at,
    )


def _is_of(port: PortEntry, entry: Entry) -> bool:
    """Whether a port was exposed in the present start of its sandbox."""
    return entry.token is not None and hmac.compare_digest(port.start, _mark(entry.token))


def _mark(secret: str) -> str:
    """Return what names a start of a sandbox: its secret is new each time, and not kept twice."""
    return hashlib.sha256(b"start " + secret.encode()).hexdigest()[:32]


def _digest(token: object) -> bytes:
    # What is no text is like text that is wrong: no token is empty.
    text = token if isinstance(token, str) else ""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
