"""What the sandbox may answer: one validator per reply type, pure.

Each builds the reply anew from the fields that the Jupyter message specification gives it, with the
types that clients take for granted: a server reads the protocol version of a kernel_info_reply, a
notebook keeps its language, converters look names up by it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from sandbox_kernel.kernel import fields
from sandbox_kernel.kernel.fields import Content
from sandbox_kernel.kernel.jsontext import Refused

__all__ = ["HOST_COMM_PREFIX", "REPLIES"]

HOST_COMM_PREFIX = "host-"
"""Comm ids that begin so belong to the relay; the sandbox may not name them."""

_STATES = ("ok", "error", "aborted", "abort")
_LINE = 200
"""Longest name, version or title."""
_MAX_BANNER = 10_000
_MAX_LINKS = 50
_PROTOCOL = "5.3"
_PROTOCOLS = re.compile(r"5\.\d{1,3}")
# Names only: a converter imports whatever a dotted one points to, and puts the extension behind the
# name of the file that it writes.
_EXPORTER = re.compile(r"[A-Za-z0-9_-]{1,40}")
_EXTENSION = re.compile(r"\.[A-Za-z0-9_+-]{1,20}")
_LINK = re.compile(r"https?://", re.IGNORECASE)
_TYPES = "_jupyter_types_experimental"
_IMAGES = ("image/png", "image/jpeg", "image/gif")


def _answer(build: Callable[[Content], Content]) -> Callable[[Content], Content]:
    """Return a validator of replies with a status; `build` looks at those that went well."""

    def check(content: Content) -> Content:
        status = content.get("status")
        if status not in _STATES:
            raise Refused("a reply of unknown status")
        if status == "ok":
            return {"status": status, **build(content)}
        told = fields.error(content) if status == "error" else {}
        if "execution_count" in content:
            told["execution_count"] = fields.count(content)
        if status == "error" and "payload" in content:
            told["payload"] = content["payload"]
        return {"status": status, **told}

    return check


def _nothing(_: Content) -> Content:
    return {}


def _execute(content: Content) -> Content:
    return {
        "execution_count": fields.count(content),
        "payload": content.get("payload"),
        "user_expressions": {
            name: _expression(value)
            for name, value in fields.obj(content, "user_expressions").items()
            if isinstance(value, dict)
        },
    }


def _expression(value: Content) -> Content:
    if value.get("status") == "ok":
        return {"status": "ok", **fields.bundle(value)}
    return {"status": "error", **fields.error(value)}


def _complete(content: Content) -> Content:
    metadata: Content = {}
    kinds = fields.obj(content, "metadata").get(_TYPES)
    if isinstance(kinds, list):
        metadata[_TYPES] = [_completion(each) for each in kinds if isinstance(each, dict)]
    return {
        "matches": fields.texts(content.get("matches")),
        "cursor_start": fields.count(content, "cursor_start"),
        "cursor_end": fields.count(content, "cursor_end"),
        "metadata": metadata,
    }


def _completion(value: Content) -> Content:
    known = {name: fields.text(value, name) for name in ("text", "type", "signature")}
    places = {name: fields.count(value, name) for name in ("start", "end")}
    return {name: each for name, each in {**known, **places}.items() if name in value}


def _inspect(content: Content) -> Content:
    # Pages draw every form but the plain one, some of them with whatever acts in it.
    data = fields.plain_only(fields.obj(content, "data"))
    return {"found": content.get("found") is True, "data": data, "metadata": {}}


def _history(content: Content) -> Content:
    entries = content.get("history")
    kept = [each for each in entries if _is_entry(each)] if isinstance(entries, list) else []
    return {"history": kept}


def _is_entry(entry: object) -> bool:
    """Whether it is (session, line, input), the input perhaps with its output."""
    if not isinstance(entry, list) or len(entry) != 3:
        return False
    *numbers, told = entry
    if any(isinstance(each, bool) or not isinstance(each, int) for each in numbers):
        return False
    if isinstance(told, str):
        return True
    return (
        isinstance(told, list)
        and len(told) == 2
        and isinstance(told[0], str)
        and (told[1] is None or isinstance(told[1], str))
    )


def _is_complete(content: Content) -> Content:
    status = content.get("status")
    if status not in ("complete", "incomplete", "invalid", "unknown"):
        raise Refused("an is_complete_reply of unknown status")
    if status != "incomplete":
        return {"status": status}
    return {"status": status, "indent": fields.text(content, "indent")}


def _comm_info(content: Content) -> Content:
    return {
        "comms": {
            comm_id: {"target_name": fields.text(info, "target_name")}
            for comm_id, info in fields.obj(content, "comms").items()
            if isinstance(info, dict) and not comm_id.startswith(HOST_COMM_PREFIX)
        }
    }


def _comm_info_reply(content: Content) -> Content:
    # Kernels of an older protocol leave the status out.
    return _answer(_comm_info)({"status": "ok", **content})


def _kernel_info(content: Content) -> Content:
    version = content.get("protocol_version")
    is_known = isinstance(version, str) and _PROTOCOLS.fullmatch(version)
    told: Content = {
        # Clients would take an older number as an order to speak that protocol.
        "protocol_version": version if is_known else _PROTOCOL,
        "implementation": fields.text(content, "implementation", at_most=_LINE),
        "implementation_version": fields.text(content, "implementation_version", at_most=_LINE),
        "language_info": _language(fields.obj(content, "language_info")),
        "banner": fields.text(content, "banner", at_most=_MAX_BANNER),
        "help_links": _links(content.get("help_links")),
    }
    if "debugger" in content:
        told["debugger"] = content["debugger"] is True
    if "supported_features" in content:
        features = fields.texts(content["supported_features"])[:_MAX_LINKS]
        told["supported_features"] = [each[:_LINE] for each in features]
    return told


def _language(info: Content) -> Content:
    told: Content = {
        name: fields.text(info, name, at_most=_LINE)
        for name in ("name", "version", "mimetype", "pygments_lexer")
        if name in info
    }
    for name, form in (("nbconvert_exporter", _EXPORTER), ("file_extension", _EXTENSION)):
        value = info.get(name)
        if isinstance(value, str) and form.fullmatch(value):
            told[name] = value
    mode = info.get("codemirror_mode")
    if isinstance(mode, str):
        told["codemirror_mode"] = mode[:_LINE]
    elif isinstance(mode, dict):
        told["codemirror_mode"] = {
            key[:_LINE]: value[:_LINE] if isinstance(value, str) else value
            for key, value in list(mode.items())[:_MAX_LINKS]
            if isinstance(value, str | int | float | bool)
        }
    return told


def _links(value: object) -> list[Content]:
    """Return the links of the Help menu that lead to pages of the web."""
    links = []
    for each in value if isinstance(value, list) else []:
        if not isinstance(each, dict):
            continue
        title, url = each.get("text"), each.get("url")
        if isinstance(title, str) and isinstance(url, str) and _LINK.match(url):
            links.append({"text": title[:_LINE], "url": url[:2000]})
    return links[:_MAX_LINKS]


def _connect(_: Content) -> Content:
    # Ports that a sandbox names would be looked for on the host.
    return {"status": "ok"}


def _usage(content: Content) -> Content:
    told: Content = {
        name: fields.number(content[name])
        for name in ("pid", "kernel_cpu", "kernel_memory", "host_cpu_percent", "cpu_count")
        if name in content
    }
    if "hostname" in content:
        told["hostname"] = fields.text(content, "hostname", at_most=_LINE)
    if "host_virtual_memory" in content:
        memory = list(fields.obj(content, "host_virtual_memory").items())[:_MAX_LINKS]
        told["host_virtual_memory"] = {key[:_LINE]: fields.number(value) for key, value in memory}
    return told


def _debug(content: Content) -> Content:
    """Return a response of the Debug Adapter Protocol; it has no status of Jupyter's."""
    if not content:
        return {}
    command = fields.text(content, "command", at_most=_LINE)
    told: Content = {
        "type": "response",
        "command": command,
        "success": content.get("success") is True,
        **{name: fields.count(content, name) for name in ("seq", "request_seq") if name in content},
    }
    if "message" in content:
        told["message"] = fields.text(content, "message", at_most=_MAX_BANNER)
    body = content.get("body")
    if command == "richInspectVariables" and isinstance(body, dict):
        # The one answer that is drawn as an output is.
        data = fields.obj(body, "data")
        images = {name: data[name] for name in _IMAGES if isinstance(data.get(name), str)}
        told["body"] = {"data": {**fields.plain_only(data), **images}, "metadata": {}}
    elif isinstance(body, dict):
        told["body"] = body
    return told


def _subshell(content: Content) -> Content:
    return {"subshell_id": fields.text(content, "subshell_id", at_most=_LINE)}


def _subshells(content: Content) -> Content:
    return {"subshell_id": fields.texts(content.get("subshell_id"))}


REPLIES: Mapping[str, Callable[[Content], Any]] = {
    "comm_info_reply": _comm_info_reply,
    "complete_reply": _answer(_complete),
    "connect_reply": _connect,
    "create_subshell_reply": _answer(_subshell),
    "debug_reply": _debug,
    "delete_subshell_reply": _answer(_nothing),
    "execute_reply": _answer(_execute),
    "history_reply": _answer(_history),
    "inspect_reply": _answer(_inspect),
    "is_complete_reply": _is_complete,
    "kernel_info_reply": _answer(_kernel_info),
    "list_subshell_reply": _answer(_subshells),
    "usage_reply": _usage,
}
