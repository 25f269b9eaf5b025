"""The OpenAPI document, made from the table of routes and the records that it names.

Types and defaults are those of the records; descriptions are their docstrings and the texts under
their fields.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from jupyter_ext.record_json import encoding_field, is_optional, to_json
from jupyter_ext.rest_pages import DEFAULT_LIMIT, MAX_LIMIT
from jupyter_ext.rest_stream import Format
from sandbox_kernel.wire.codec import dump_json
from sandbox_kernel.wire.operations import Empty
from sandbox_kernel.wire.record import RECORDS, Record

if TYPE_CHECKING:
    from jupyter_ext.rest import RestHandler
    from jupyter_ext.route import Route

__all__ = ["document", "serve"]

_VERSION = "1"
_INT64 = 2**63

_PLAIN: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "bytes": {"type": "string"},
    "int": {"type": "integer", "minimum": -_INT64, "maximum": _INT64 - 1},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "JSON": {},
}

_RULES: dict[tuple[str, str], dict[str, Any]] = {
    ("SandboxWishes", "sleep_after"): {"type": ["number", "string", "null"]},
    ("CreateSandbox", "sleep_after"): {"type": ["number", "string", "null"]},
}
"""What a field may be beyond its type, by record and field."""


async def serve(handler: RestHandler, _: Record) -> None:
    """Answer with the document."""
    handler.finish(dump_json(document_of_server(handler.base_url)))


@functools.cache
def document_of_server(base_url: str) -> dict[str, Any]:
    """Return the document of a server with this prefix."""
    from jupyter_ext.routes import ROUTES  # noqa: PLC0415  the table names us

    return document(ROUTES, base_url)


def document(routes: Iterable[Route], base_url: str = "/") -> dict[str, Any]:
    """Return the document of a table of routes."""
    schemas = _Schemas()
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault("/" + route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sandboxes of a Jupyter server",
            "version": _VERSION,
            "description": _ABOUT,
        },
        "servers": [{"url": f"{base_url}sandbox/api"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.made.items())),
            "securitySchemes": {
                "token": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "The word `token`, a blank, and the server's token. A browser's"
                    " cookie does as well, with the header X-XSRFToken where something is changed.",
                }
            },
            "responses": {
                "Error": {
                    "description": "What went wrong.",
                    "content": {"application/json": {"schema": _ERROR}},
                }
            },
        },
    }


_ABOUT = (
    "Everything that `get_sandbox` offers in Python. Looking starts nothing; what is done in a"
    " sandbox starts it. Names are those of Python. Times are seconds, timestamps seconds since"
    " the epoch, sizes bytes."
)

_ERROR = {
    "type": "object",
    "required": ["code", "message", "hint", "context", "http_status", "timestamp"],
    "additionalProperties": False,
    "properties": {
        "code": {"type": "string", "description": "Stable, for programs."},
        "message": {"type": "string", "description": "What failed."},
        "hint": {"type": "string", "description": "What to do about it; may be empty."},
        "context": {"type": "object", "description": "The facts."},
        "http_status": {"type": "integer"},
        "timestamp": {"type": "string"},
    },
}

_EVENT_KEYS = {
    "event": {"type": "string"},
    "id": {"type": "string", "description": "A cursor to go on from."},
    "data": {},
}


def _operation(route: Route, schemas: _Schemas) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [_tag(route)],
        "parameters": list(_parameters(route, schemas)),
        "x-action": route.action.value,
    }
    text = inspect.getdoc(route.asked) if route.asked is not Empty else None
    if text:
        made["description"] = _prose(text)
    if route.takes is not None:
        made["requestBody"] = {
            "required": True,
            "description": route.takes.summary,
            "content": {route.takes.media_type: {"schema": {}}},
        }
    elif not route.has_query:
        hidden = {*route.parameters, *route.given}
        made["requestBody"] = {
            "required": any(
                name not in route.asked.DEFAULTS and name not in hidden
                for name in route.asked.FIELDS
            ),
            "content": {"application/json": {"schema": schemas.request(route.asked, hidden)}},
        }
    made["responses"] = dict(_responses(route, schemas))
    return made


def _tag(route: Route) -> str:
    if route.tag is not None:
        return route.tag
    parts = route.path.split("/")
    return parts[2] if len(parts) > 2 else parts[0]


def _parameters(route: Route, schemas: _Schemas) -> Iterable[dict[str, Any]]:
    asked = route.asked
    for name in route.parameters:
        schema: dict[str, Any] = {"type": "string", "minLength": 1}
        described = ""
        if name in asked.FIELDS:
            schema = schemas.field(asked, name)
            described = schema.pop("description", "")
            if schema.get("type") == "string":
                schema["minLength"] = 1
            schema.pop("default", None)
        if name == "sandbox_id":
            described = "Names the sandbox."
        if name == "path":
            described = "An absolute path in the sandbox without its first slash; may have slashes."
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "schema": schema,
            **({"description": described} if described else {}),
        }
    if route.has_query:
        for name in asked.FIELDS:
            if name in route.parameters or name in route.given:
                continue
            schema = schemas.field(asked, name)
            described = schema.pop("description", "")
            if isinstance(schema.get("type"), list):
                # Nothing is null in an address: it is left out.
                schema["type"] = next(each for each in schema["type"] if each != "null")
                schema.pop("default", None)
            yield {
                "name": name,
                "in": "query",
                "required": name not in asked.DEFAULTS,
                "schema": schema,
                **({"description": described} if described else {}),
            }
    if route.streamed is not None and "since" in asked.FIELDS:
        yield {
            "name": "Last-Event-ID",
            "in": "header",
            "description": "The same as `since`, as browsers say it.",
            "schema": {"type": "string"},
        }
    if route.has_pages:
        yield {
            "name": "limit",
            "in": "query",
            "description": "How many to answer with.",
            "schema": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_LIMIT,
                "default": DEFAULT_LIMIT,
            },
        }
        yield {
            "name": "after",
            "in": "query",
            "description": "The `next` of the page before.",
            "schema": {"type": "string"},
        }
    if route.key_field is not None:
        yield {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "Makes the same thing once, however often it is asked for.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        }


def _responses(route: Route, schemas: _Schemas) -> Iterable[tuple[str, dict[str, Any]]]:
    if route.websocket is not None:
        yield "101", {"description": "A WebSocket; docs/terminals.md says what is spoken on it."}
    elif route.answered is Empty and route.gives is None and route.streamed is None:
        yield "204", {"description": "It is done."}
    else:
        content = _content(route, schemas)
        yield str(route.status), {"description": "It is done.", "content": content}
        for status, meaning in route.also.items():
            yield str(status), {"description": meaning, "content": content}
    yield "4XX", {"$ref": "#/components/responses/Error"}
    yield "5XX", {"$ref": "#/components/responses/Error"}


def _content(route: Route, schemas: _Schemas) -> dict[str, Any]:
    if route.gives is not None:
        schema = {} if route.gives.media_type != "application/json" else {"type": "object"}
        return {route.gives.media_type: {"schema": schema}}
    content: dict[str, Any] = {}
    if not route.is_endless:
        answer = schemas.answer(route.answered)
        if route.page is not None:
            answer = {
                "allOf": [
                    answer,
                    {
                        "type": "object",
                        "required": ["next"],
                        "properties": {
                            "next": {
                                "type": ["string", "null"],
                                "description": "The `after` of the next page; null at the end.",
                            }
                        },
                    },
                ]
            }
        content[Format.JSON.value] = {"schema": answer}
    if route.streamed is not None:
        event = schemas.answer(route.streamed)
        end = schemas.answer(route.end or route.answered)
        content[Format.EVENTS.value] = {
            "schema": {
                "type": "string",
                "description": f"Events `{route.event_name}` with the data {_named(event)}, then"
                f" one event `end` with the data {_named(end)}, or `error`.",
            }
        }
        content[Format.LINES.value] = {
            "schema": {
                "type": "string",
                "description": "The same events as JSON objects, one on each line, with the keys"
                " `event`, `id` and `data`; empty lines mean nothing.",
            }
        }
    return content


def _named(reference: dict[str, Any]) -> str:
    return f"`{reference['$ref'].rpartition('/')[2]}`"


class _Schemas:
    """The schemas of records, each made once and named as its record."""

    def __init__(self) -> None:
        self.made: dict[str, Any] = {}

    def answer(self, cls: type[Record]) -> dict[str, Any]:
        """Return a reference to the schema of a record that we send."""
        name = cls.__name__
        if name not in self.made:
            self.made[name] = {}
            self.made[name] = self._object(cls, frozenset(), is_answer=True)
        return {"$ref": f"#/components/schemas/{name}"}

    def request(self, cls: type[Record], hidden: Iterable[str]) -> dict[str, Any]:
        """Return the schema of a body."""
        return self._object(cls, frozenset(hidden), is_answer=False)

    def _object(
        self, cls: type[Record], hidden: frozenset[str], *, is_answer: bool
    ) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        required = []
        for name, kind in cls.FIELDS.items():
            if name in hidden:
                continue
            properties[name] = self.field(cls, name, is_answer=is_answer)
            is_bytes = kind in ("bytes", "bytes | None")
            if is_bytes:
                properties[encoding_field(name)] = {
                    "type": "string",
                    "enum": ["base64"] if is_answer else ["utf-8", "base64"],
                    "description": f"How `{name}` is written, where it is not plain text.",
                }
            if (is_answer and kind != "bytes | None") or name not in cls.DEFAULTS:
                required.append(name)
        made: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            made["required"] = required
        if not is_answer:
            made["additionalProperties"] = False
        text = inspect.getdoc(cls)
        if text:
            made["description"] = _prose(text)
        return made

    def field(self, cls: type[Record], name: str, *, is_answer: bool = False) -> dict[str, Any]:
        """Return the schema of a field."""
        kind = cls.FIELDS[name]
        schema = self._of(kind, is_answer=is_answer)
        schema.update(_RULES.get((cls.__name__, name), {}))
        text = _texts_of(cls).get(name)
        if text:
            schema["description"] = _prose(text)
        if name in cls.DEFAULTS and not is_answer and not kind.startswith("bytes"):
            schema["default"] = to_json(cls.DEFAULTS[name])
        return schema

    def _of(self, kind: str, *, is_answer: bool) -> dict[str, Any]:
        if is_optional(kind):
            inner = self._of(kind.removesuffix(" | None"), is_answer=is_answer)
            if "type" in inner and isinstance(inner["type"], str):
                return {**inner, "type": [inner["type"], "null"]}
            return {"anyOf": [inner, {"type": "null"}]} if inner else {}
        if kind.startswith("list["):
            return {"type": "array", "items": self._of(kind[5:-1], is_answer=is_answer)}
        if kind.startswith("dict[str, "):
            inner = self._of(kind[10:-1], is_answer=is_answer)
            return {"type": "object", "additionalProperties": inner}
        if kind in RECORDS:
            cls = RECORDS[kind]
            return self.answer(cls) if is_answer else self.request(cls, ())
        return dict(_PLAIN[kind])


def _prose(text: str) -> str:
    """Return a docstring as Markdown: numpydoc's code marks are another dialect."""
    return text.replace("``", "`")


def _texts_of(cls: type[Record]) -> dict[str, str]:
    """Return the texts that stand under the fields of a class, and of those it derives from."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base in (object, Record) or not issubclass(base, Record):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError, SyntaxError):
            continue
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for field, text in itertools.pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                found[field.target.id] = inspect.cleandoc(text.value.value)
    return found
