"""The OpenAPI document: valid, the routes and nothing but the routes, and the one in docs."""

from __future__ import annotations

import json
import os
import re
from dataclasses import fields
from pathlib import Path

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from jupyter_ext import openapi
from jupyter_ext.rest import UnknownHandler
from jupyter_ext.rest_sandboxes import SandboxWishes
from jupyter_ext.routes import ROUTES, handlers
from sandbox_kernel.client.options import SandboxOptions
from sandbox_kernel.engines.base import SandboxSpec
from sandbox_kernel.wire.operations import OPERATIONS

_WRITTEN = Path(__file__).parents[2] / "docs" / "openapi.json"
_NOT_OVER_REST = {
    # What REST does in another way, or is of the kernel's relay and the manager.
    *("exec", "process.output", "file.read", "file.write", "file.begin_write", "file.write_part"),
    *("file.end_write", "file.abort_write", "file.list", "file.pack", "file.unpack", "file.delete"),
    *("runtime.health", "runtime.configure", "runtime.shutdown", "port.connect"),
    *("kernel.start", "kernel.connect", "kernel.end", "terminal.connect", "terminal.get"),
    *("terminal.wait",),
}


def _operations(document):
    return {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_it_is_a_valid_document():
    """A library made for it finds no fault, and neither in the examples of names."""
    document = openapi.document(ROUTES)

    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []
    names = [each["operationId"] for each in _operations(document).values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("base_url", ["/", "/user/alice/"])
async def test_it_describes_every_route_of_a_server_and_no_other(start_server, base_url):
    """Each route of tornado's below sandbox/api is described, and each description is a route."""
    async with start_server(f"--ServerApp.base_url={base_url}") as server:
        prefix = re.escape(f"{base_url}sandbox/api")
        served: set[tuple[str, str]] = set()
        for rule in _rules(server.app.web_app.default_router):
            pattern = rule.matcher.regex.pattern
            if not pattern.startswith((prefix, f"{base_url}sandbox/api")):
                continue
            if rule.target is UnknownHandler:
                continue
            methods = rule.target_kwargs.get("routes", {"GET": None})
            tail = pattern.removeprefix(prefix).removeprefix(f"{base_url}sandbox/api")
            served |= {(method, tail.removesuffix("$")) for method in methods}
    document = openapi.document_of_server(base_url)
    described = {
        (route.method, route.pattern.removeprefix("/sandbox/api")): route for route in ROUTES
    }

    assert served == set(described)
    assert set(_operations(document)) == {(each.method, "/" + each.path) for each in ROUTES}
    assert document["servers"][0]["url"] == f"{base_url}sandbox/api"


def _rules(router):
    for rule in router.rules:
        if hasattr(rule.target, "rules"):
            yield from _rules(rule.target)
        elif hasattr(rule.matcher, "regex"):
            yield rule


def test_every_operation_of_the_sdk_is_there():
    """A new operation gets a route, or a word here on why it has none."""
    routed = {route.does for route in ROUTES if isinstance(route.does, str)}
    families = {name for name in OPERATIONS if not name.startswith("pool.")}

    assert families - routed == _NOT_OVER_REST


def test_a_sandbox_may_be_wished_as_in_python():
    """Each option of `get_sandbox` is one of REST."""
    assert set(SandboxWishes.FIELDS) == set(SandboxOptions.__annotations__)
    specification = {each.name: each.default for each in fields(SandboxSpec)}
    for name, default in SandboxWishes.DEFAULTS.items():
        if name not in ("env", "limits"):
            assert default == specification[name], name


def test_every_part_is_described():
    """Each operation says what it does, and each name in its address what it is."""
    for (method, path), operation in _operations(openapi.document(ROUTES)).items():
        assert operation["summary"].endswith("."), path
        assert operation["x-action"] in ("read", "write", "execute")
        named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert named == set(re.findall(r"{(\w+)}", path)), path
        if method in ("GET", "HEAD"):
            # A link, a picture or a page that is fetched ahead must not act.
            is_socket = "101" in operation["responses"]
            assert operation["x-action"] == ("execute" if is_socket else "read"), path


def test_types_defaults_and_texts_are_those_of_the_records():
    """What a record says of a field stands in the document."""
    paths = openapi.document(ROUTES)["paths"]
    body = paths["/sandboxes/{sandbox_id}/processes"]["post"]["requestBody"]
    schema = body["content"]["application/json"]["schema"]
    assert schema["properties"]["timeout"] == {"type": ["number", "null"], "default": None}
    assert schema["additionalProperties"] is False
    assert "outlives the connection" in schema["description"]
    create = paths["/sandboxes/{sandbox_id}/terminals"]["post"]["requestBody"]
    size = create["content"]["application/json"]["schema"]["properties"]["buffer_size"]
    assert size["default"] == 1 << 20
    assert size["description"] == "Bytes of output that are kept for exact replay."


def test_no_route_is_there_twice():
    """Two rows for one method of one path are refused."""
    with pytest.raises(ValueError, match="twice"):
        handlers([*ROUTES, ROUTES[0]])


def test_the_document_in_docs_is_the_present_one():
    """`make openapi` writes it."""
    text = json.dumps(openapi.document(ROUTES), indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("WRITE_OPENAPI"):
        _WRITTEN.write_text(text)

    assert _WRITTEN.read_text() == text, "run: make openapi"
