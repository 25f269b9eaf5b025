"""What a visitor of a preview sees in the place of a page: JSON, or a small page for people."""

from __future__ import annotations

import html

import orjson

from sandbox_kernel.errors import PortError, SandboxError

__all__ = ["refusal"]

_TITLES = {
    404: "No such preview",
    410: "This preview has ended",
    502: "The program does not answer as it should",
    504: "The program does not answer",
}
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:15vh auto;padding:0 1rem;
color-scheme:light dark}}code{{opacity:.7}}</style>
<h1>{title}</h1><p>{message}</p><p>{hint}</p><p><code>{code}</code></p></html>
"""


def refusal(error: SandboxError, accept: str) -> tuple[str, bytes]:
    """Return the type and the text that say an error, to a visitor who accepts this.

    A visitor may be anybody who has the address: what has to do with this machine is not said.
    """
    message, hint = error.message, error.hint or ""
    if not isinstance(error, PortError):
        message, hint = "The sandbox cannot be asked.", "The server's log says why."
    if "text/html" in accept.lower():
        page = _PAGE.format(
            title=_TITLES.get(error.http_status, "This preview cannot be shown"),
            message=html.escape(message),
            hint=html.escape(hint),
            code=html.escape(error.code),
        )
        return "text/html; charset=utf-8", page.encode()
    said = {"code": error.code, "message": message, "hint": hint, "http_status": error.http_status}
    return "application/json", orjson.dumps(said)
