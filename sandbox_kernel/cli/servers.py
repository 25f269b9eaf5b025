"""The Jupyter servers of this user that run here, and what of a locked one holds on each."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox_kernel.engines.doctor import Finding
from sandbox_kernel.manager.settings import data_folder

__all__ = ["Server", "look_at", "running_servers"]

_TIMEOUT = 5.0
_ELSEWHERE = "http://elsewhere.invalid"
_LOCK = (
    "To have nothing on the server run outside of sandboxes: c.JupyterSandbox.locked = True in"
    " jupyter_server_config.py; see docs/security.md."
)
_SANITIZER = "lab/api/settings/@jupyterlab/apputils-extension:sanitizer"


@dataclass(frozen=True)
class Server:
    """A server, as its own file in Jupyter's runtime folder describes it."""

    port: int
    base_url: str
    token: str
    secure: bool

    def get(self, path: str, *, is_known: bool = True, origin: str | None = None) -> _Answer:
        """Ask it by loopback.

        Raises
        ------
        OSError, http.client.HTTPException
            There is no answer.
        """
        connection = self._connection()
        headers = {"Authorization": f"token {self.token}"} if is_known and self.token else {}
        if origin:
            headers["Origin"] = origin
        try:
            connection.request("GET", f"{self.base_url}{path}", headers=headers)
            answer = connection.getresponse()
            return _Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if not self.secure:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=_TIMEOUT)
        # Its certificate is for the name that others reach it by.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=_TIMEOUT, context=context
        )


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:  # what the server says
        try:
            return json.loads(self.body)
        except ValueError:
            return None


def running_servers() -> Iterator[Server]:
    """Yield each server of this user that listens by TCP and whose process is there."""
    folder = Path(os.environ.get("JUPYTER_RUNTIME_DIR") or data_folder() / "runtime")
    for file in sorted(folder.glob("jpserver-*.json")):
        try:
            told = json.loads(file.read_bytes())
            pid, port = told["pid"], told["port"]
            if os.stat(f"/proc/{pid:d}").st_uid != os.geteuid() or told.get("sock"):
                continue
            yield Server(
                port=int(port),
                base_url=str(told.get("base_url") or "/"),
                token=str(told.get("token") or ""),
                secure=bool(told.get("secure")),
            )
        except (OSError, ValueError, LookupError, TypeError):
            continue  # half written, or of a server that has gone


def look_at(server: Server) -> list[Finding]:
    """Return what of a locked server holds on this one; nothing is started to find out."""
    try:
        found = list(_look_at(server))
    except (OSError, http.client.HTTPException) as error:
        found = [("answer", False, f"none ({type(error).__name__})")]
    name = f"server on port {server.port}"
    findings: list[Finding] = []
    for what, holds, detail in found:
        # Once is enough.
        is_first = not holds and all(each.ok for each in findings)
        findings.append(
            Finding(
                name=f"{name}: {what}",
                ok=holds,
                detail=detail,
                mend=_LOCK if is_first else "",
                required=False,
            )
        )
    return findings


def _look_at(server: Server) -> Iterator[tuple[str, bool, str]]:
    told = server.get("sandbox/api/protection")
    if told.status != 200 or not isinstance(told.json, dict):
        why = "refuses this token" if told.status in (401, 403) else "does not load jupyter_ext"
        yield "answer", False, f"it {why} ({told.status})"
        return
    facts: dict[str, Any] = told.json
    kernels = [str(name) for name in facts.get("host_kernels", ())]
    if facts.get("external_kernels"):
        kernels.append("external ones")
    detail = f"started: {', '.join(kernels)}" if kernels else "refused, by name too"
    yield "host kernels", not kernels, detail

    terminals = server.get("api/terminals").status
    yield "host terminals", terminals == 404, "off" if terminals == 404 else "on"

    page = server.get("lab")
    policy = page.headers.get("Content-Security-Policy") or ""
    is_strict = "script-src 'self'" in policy and "script-src 'self' 'unsafe-inline'" not in policy
    yield "page policy", is_strict, "scripts of its own" if is_strict else "any script may run"

    frames = facts.get("serves_frames") is True
    yield "frames", frames, "documents of the server" if frames else "documents in outputs"

    sanitizer = server.get(_SANITIZER).json
    linker = _command_linker(sanitizer) if sanitizer else None
    if linker is not None:
        yield "commands in outputs", not linker, "on" if linker else "off"

    is_open = server.get("api/kernels", is_known=False).status == 200
    yield "login", not is_open, "anyone may come in" if is_open else "asked for"

    # Whoever knows the token may ask from anywhere.
    asked = server.get("api", is_known=False, origin=_ELSEWHERE)
    allowed = asked.headers.get("Access-Control-Allow-Origin")
    detail = f"let in ({allowed})" if allowed else "kept out"
    yield "pages from elsewhere", not allowed, detail

    root = facts.get("is_superuser") is True
    yield "user", not root, "root" if root else "an ordinary one"

    others = [str(name) for name in facts.get("other_extensions", ())]
    yield "other extensions", not others, f"not known: {', '.join(others)}" if others else "none"


def _command_linker(sanitizer: Any) -> bool | None:  # the answer of JupyterLab's settings
    try:
        default = sanitizer["schema"]["properties"]["allowCommandLinker"]["default"]
        return bool((sanitizer.get("settings") or {}).get("allowCommandLinker", default))
    except (LookupError, TypeError, AttributeError):
        return None
