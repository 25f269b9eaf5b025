"""The routes of REST under requests made up from their own description: no fault of the server.

Each answer is one that the document describes, and what the document does not allow is refused.
"""

from __future__ import annotations

import os
import time
import warnings

import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis import checks as known
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks as openapi_checks

from jupyter_ext import openapi
from jupyter_ext.routes import ROUTES
from tests.support.jupyter_home import JupyterHome
from tests.support.rest_client import RestClient
from tests.support.ws_connection import JupyterServer

_EXAMPLES = int(os.environ.get("REST_FUZZ_EXAMPLES", "8"))
_TIME = 4.0
"""Seconds for one route and one way of making requests up; what is left is left out."""

_ANSWER_TIME = 3.0
_TIMED = frozenset(("timeout", "grace", "fallback_timeout"))
_ENDING = frozenset(("stop_sandbox", "destroy_sandbox", "start_sandbox", "ensure_sandbox"))
_CHECKS = [
    known.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_headers_conformance,
    openapi_checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = JupyterHome(tmp_path_factory.mktemp("h")).create()
    try:
        with JupyterServer(home) as made:
            yield made
            assert " failed\n" not in made.log, made.log
            assert "Traceback" not in made.log, made.log
    finally:
        home.destroy_named_sandboxes()


@pytest.fixture(scope="module")
def there(server):
    """Names of things that are there, so that requests come further than to their absence."""
    rest = RestClient(server)
    box = "sandboxes/fuzz"
    assert rest("PUT", box, {}).status == 201
    process = rest("POST", f"{box}/processes", {"argv": ["sh", "-c", "echo a; sleep 600"]})
    terminal = rest("POST", f"{box}/terminals", {"argv": ["cat"]})
    rest("POST", f"{box}/sessions", {"session_id": "s"})
    rest("PUT", f"{box}/files/workspace/f", raw=b"content")
    return {
        "sandbox_id": "fuzz",
        "process_id": process.value["process_id"],
        "terminal_id": terminal.value["terminal_id"],
        "session_id": "s",
        "port": 8000,
        "path": "workspace/f",
    }


def _operations():
    schema = schemathesis.openapi.from_dict(openapi.document(ROUTES))
    for result in schema.get_all_operations():
        operation = result.ok()
        if "101" not in operation.definition.raw["responses"]:
            yield operation


OPERATIONS = list(_operations())


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=str)
@pytest.mark.parametrize(
    "operation", OPERATIONS, ids=lambda each: each.definition.raw["operationId"]
)
def test_no_request_brings_the_server_into_trouble(server, there, operation, mode):
    """Neither those that the document allows nor those that it does not."""
    until = time.monotonic() + _TIME
    name = operation.definition.raw["operationId"]
    checks = list(_CHECKS)
    if mode is GenerationMode.NEGATIVE:
        checks.append(openapi_checks.negative_data_rejection)

    @hypothesis.settings(
        max_examples=_EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(
        case=operation.as_strategy(generation_mode=mode), at=hypothesis.strategies.integers(0, 9)
    )
    def run(case, at):
        if time.monotonic() > until:
            return
        is_mended = _place(case, there, name, anywhere=at == 0)
        try:
            answer = case.call(
                base_url=f"{server.base}/sandbox/api",
                headers={**(case.headers or {}), "Authorization": f"token {server.token}"},
                timeout=_ANSWER_TIME,
            )
        except (requests.Timeout, requests.ConnectionError):
            # Waits and streams without an end, and heads that no server takes.
            return
        wanted = [
            each
            for each in checks
            if not (is_mended and each is openapi_checks.negative_data_rejection)
        ]
        case.validate_response(answer, checks=wanted)

    with warnings.catch_warnings():
        # Of how hypothesis comes to its examples.
        warnings.simplefilter("ignore")
        run()


def _place(case, there, name, *, anywhere) -> bool:
    """Have a request mean things that are there, and not wait long; whether that may mend it."""
    path = case.meta.components.get(ParameterLocation.PATH)
    is_odd = path is not None and path.mode is GenerationMode.NEGATIVE
    for parameter in case.path_parameters or {}:
        if parameter in there and not anywhere:
            case.path_parameters[parameter] = there[parameter]
    if name in _ENDING and "sandbox_id" in (case.path_parameters or {}):
        case.path_parameters["sandbox_id"] = "fuzz-other"
    changed = False
    if isinstance(case.body, dict):
        for field in _TIMED & case.body.keys():
            if isinstance(case.body[field], int | float):
                case.body[field] = 0.1
                changed = True
    return is_odd or changed


@schemathesis.serializer("application/x-tar")
def _as_it_is(_context, value):
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
