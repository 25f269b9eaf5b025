"""The one table of routes below ``<base_url>sandbox/api/``.

The handlers, the OpenAPI document and the tests are made from it: a route is a row here and nothing
else.  A row without a handler of its own does the operation of its name in the sandbox.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jupyter_ext import (
    openapi,
    protection,
    rest_commands,
    rest_files,
    rest_sandboxes,
    terminal_ws,
)
from jupyter_ext.rest import RestHandler, UnknownHandler
from jupyter_ext.route import Action, Page, Raw, Route
from sandbox_kernel.wire.file_operations import FileEntry
from sandbox_kernel.wire.operations import ExecResult, OutputEvent

__all__ = ["ROUTES", "handlers"]

READ, WRITE, EXECUTE = Action.READ, Action.WRITE, Action.EXECUTE

_BOX = "sandboxes/{sandbox_id}"
_BYTES = "application/octet-stream"

ROUTES: list[Route] = [
    Route(
        method="GET",
        path="openapi.json",
        name="get_openapi",
        summary="This document.",
        action=READ,
        does=openapi.serve,
        gives=Raw(media_type="application/json", summary="The OpenAPI document."),
        tag="api",
    ),
    Route(
        method="GET",
        path="protection",
        name="get_protection",
        summary="Say what of a locked server holds on this one.",
        action=READ,
        does=protection.protection,
        request=protection.ProtectionRequest,
        result=protection.Protection,
        tag="api",
    ),
    # --- sandboxes ---
    Route(
        method="GET",
        path="sandboxes",
        name="list_sandboxes",
        summary="List every sandbox, running or not; starts nothing.",
        action=READ,
        does=rest_sandboxes.list_sandboxes,
        request=rest_sandboxes.SandboxRequest,
        result=rest_sandboxes.SandboxList,
        page=Page(items="sandboxes", key=("sandbox_id",)),
        tag="sandboxes",
    ),
    Route(
        method="GET",
        path=_BOX,
        name="get_sandbox",
        summary="Say what is known of a sandbox; starts nothing.",
        action=READ,
        does=rest_sandboxes.inspect,
        request=rest_sandboxes.SandboxRequest,
        result=rest_sandboxes.SandboxDescription,
        tag="sandboxes",
    ),
    # --- commands ---
    Route(
        method="POST",
        path=f"{_BOX}/exec",
        name="exec",
        summary="Run a command to its end; whoever leaves ends it.",
        action=EXECUTE,
        does=rest_commands.execute,
        request=rest_commands.ExecCommand,
        result=rest_commands.ExecAnswer,
        event=OutputEvent,
        end=ExecResult,
        event_name="output",
        tag="commands",
    ),
    # --- processes ---
    Route(
        method="GET",
        path=f"{_BOX}/processes/{{process_id}}",
        name="get_process",
        summary="Say what is known of a process.",
        action=READ,
        does="process.get",
    ),
    # --- terminals ---
    Route(
        method="GET",
        path=f"{_BOX}/terminals",
        name="list_terminals",
        summary="List the terminals of the present container.",
        action=READ,
        does="terminal.list",
        page=Page(items="terminals", key=("created_at", "terminal_id")),
    ),
    Route(
        method="POST",
        path=f"{_BOX}/terminals",
        name="create_terminal",
        summary="Start a command on a terminal of its own.",
        action=EXECUTE,
        does="terminal.create",
        status=201,
        also={200: "The session has this terminal already."},
        key_field="terminal_id",
    ),
    Route(
        method="GET",
        path=f"{_BOX}/terminals/{{terminal_id}}",
        name="get_terminal",
        summary="Say what is known of a terminal, and what its screen shows.",
        action=READ,
        does="terminal.snapshot",
    ),
    Route(
        method="DELETE",
        path=f"{_BOX}/terminals/{{terminal_id}}",
        name="terminate_terminal",
        summary="End a terminal and all that was started in it; what it has written stays.",
        action=EXECUTE,
        does="terminal.terminate",
    ),
    Route(
        method="GET",
        path=f"{_BOX}/terminals/{{terminal_id}}/output",
        name="get_terminal_output",
        summary="Stream what a terminal writes, from a cursor.",
        action=READ,
        does="terminal.output",
        event_name="output",
        is_endless=True,
    ),
    Route(
        method="POST",
        path=f"{_BOX}/terminals/{{terminal_id}}/input",
        name="write_terminal",
        summary="Type into a terminal.",
        action=EXECUTE,
        does="terminal.write",
        starts=False,
    ),
    Route(
        method="POST",
        path=f"{_BOX}/terminals/{{terminal_id}}/resize",
        name="resize_terminal",
        summary="Set a terminal's size.",
        action=EXECUTE,
        does="terminal.resize",
        starts=False,
    ),
    Route(
        method="POST",
        path=f"{_BOX}/terminals/{{terminal_id}}/interrupt",
        name="interrupt_terminal",
        summary="Interrupt what runs in a terminal's foreground.",
        action=EXECUTE,
        does="terminal.interrupt",
        starts=False,
    ),
    Route(
        method="GET",
        path=f"{_BOX}/terminals/{{terminal_id}}/connect",
        name="connect_terminal",
        summary="Open a WebSocket to a terminal.",
        action=EXECUTE,
        websocket=terminal_ws.TerminalHandler,
        request=terminal_ws.TerminalSocketRequest,
    ),
    Route(
        method="GET",
        path=f"{_BOX}/terminal",
        name="connect_session_terminal",
        summary="Open a WebSocket to the terminal of a session, which is made if there is none.",
        action=EXECUTE,
        websocket=terminal_ws.SessionTerminalHandler,
        request=terminal_ws.SessionSocketRequest,
        tag="terminals",
    ),
    # --- files ---
    Route(
        method="GET",
        path=f"{_BOX}/files/{{path}}",
        name="read_file",
        summary="Read a file, or with Range a part of it.",
        action=READ,
        does=rest_files.read,
        request=rest_files.ReadFile,
        gives=Raw(media_type=_BYTES, summary="The content."),
        also={206: "The part that was asked for."},
    ),
    Route(
        method="PUT",
        path=f"{_BOX}/files/{{path}}",
        name="write_file",
        summary="Write a file, all at once, however large it is.",
        action=WRITE,
        does=rest_files.write,
        request=rest_files.PutFile,
        result=FileEntry,
        takes=Raw(media_type=_BYTES, summary="The content."),
    ),
]


def handlers(routes: Iterable[Route] = ROUTES) -> list[tuple[str, type[Any], dict[str, Any]]]:
    """Return the handlers of a table for tornado: one for each path, and one for all others."""
    made: list[tuple[str, type[Any], dict[str, Any]]] = []
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        if route.websocket is not None:
            made.append((route.pattern, route.websocket, {}))
            continue
        methods = by_path.setdefault(route.pattern, {})
        if route.method in methods:
            raise ValueError(f"{route.method} {route.path} is there twice")
        methods[route.method] = route
    made += [(pattern, RestHandler, {"routes": methods}) for pattern, methods in by_path.items()]
    return [*made, (r"/sandbox/api(?:/.*)?", UnknownHandler, {"routes": {}})]
