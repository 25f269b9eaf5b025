"""From an operation's name to its handler, and from an exception to the error on the wire."""

from __future__ import annotations

from sandbox_kernel.errors import (
    KernelNotFoundError,
    OperationError,
    OperationInterruptedError,
    SandboxError,
    SessionNotFoundError,
    StalePreviewUrlError,
    StaleProcessHandleError,
    StaleTerminalHandleError,
    ValidationFailedError,
)
from sandbox_kernel.wire.codec import decode
from sandbox_kernel.wire.operations import (
    OPERATIONS,
    Empty,
    KernelList,
    ProcessList,
    TerminalList,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sandbox_kernel.wire.record import Record
    from sandbox_kernel.wire.rpc import Call
    from sandbox_runtime.connection import Exchange
    from sandbox_runtime.workshop import Workshop

    # The request's class is the table's; the codec has checked it.
    Handler = Callable[[Workshop, Any, Exchange], Record | None]

__all__ = ["HANDLERS", "answer_with", "dispatch"]


def dispatch(workshop: Workshop, call: Call, exchange: Exchange) -> None:
    """Begin the operation a call asks for; every failure is told through the exchange."""

    def begin() -> Record | None:
        operation = OPERATIONS.get(call.operation)
        handler = _handler(call.operation)
        if operation is None or handler is None:
            raise ValidationFailedError("op", f"is no operation: {call.operation[:80]!r}")
        request = decode(operation.request, call.params, call.body)
        if call.incarnation not in (None, workshop.incarnation):
            _refuse_stale(request)
        return handler(workshop, request, exchange)

    answer_with(exchange, begin, workshop.log)


def _handler(operation: str) -> Handler | None:
    """Return an operation's handler; a family's module is loaded at the first of its operations."""
    family = operation.partition(".")[0]
    if family in _FAMILIES:
        module = __import__(_FAMILIES.pop(family), fromlist=["HANDLERS"])
        HANDLERS.update(module.HANDLERS)
    return HANDLERS.get(operation)


def answer_with(
    exchange: Exchange, begin: Callable[[], Record | None], log: Callable[[str], None]
) -> None:
    """Answer a call with what `begin` returns or raises; with None it is answered later."""
    try:
        answer = begin()
    except SandboxError as error:
        exchange.fail(error)
    except Exception as error:  # noqa: BLE001  the one border where our own faults become an answer
        import traceback  # noqa: PLC0415  never needed while all is well

        log(traceback.format_exc())
        exchange.fail(
            OperationError(
                f"The operation failed inside the runtime ({type(error).__name__}).",
                hint="The sandbox's log has the details.",
            )
        )
    else:
        if answer is not None:
            exchange.result(answer)


def _refuse_stale(request: Record) -> None:
    """Refuse handles of an earlier container; what names nothing in it has none."""
    process_id = request.__dict__.get("process_id")
    if process_id is not None:
        raise StaleProcessHandleError(process_id)
    kernel_id = request.__dict__.get("kernel_id")
    if kernel_id is not None:
        raise KernelNotFoundError(kernel_id)
    terminal_id = request.__dict__.get("terminal_id")
    if terminal_id is not None:
        raise StaleTerminalHandleError(terminal_id)
    port = request.__dict__.get("port")
    if port is not None:
        raise StalePreviewUrlError(port)
    session_id = request.__dict__.get("session_id") or request.__dict__.get("session")
    if session_id is not None:
        raise SessionNotFoundError(session_id)


def _exec(workshop: Workshop, request: Any, exchange: Exchange) -> None:
    _check_command(request)
    if request.command is not None and request.session is not None:
        workshop.sessions.exec(request, exchange)
        return
    if request.session is not None and request.session != "default":
        workshop.sessions.get(request.session)

    def start() -> None:
        cwd, env = workshop.session_state(request.session)
        workshop.processes.exec(request, exchange, cwd=cwd, base_env=env)

    _in_session(workshop, request, exchange, start)


def _check_command(request: Any) -> None:
    if request.command is not None and request.argv:
        raise ValidationFailedError("command", "and argv exclude each other")


def _start_process(workshop: Workshop, request: Any, exchange: Exchange) -> None:
    _check_command(request)

    def start() -> Record:
        cwd, env = workshop.session_state(request.session)
        return workshop.processes.start(request, cwd=cwd, base_env=env)

    _in_session(workshop, request, exchange, start)


def _create_terminal(workshop: Workshop, request: Any, exchange: Exchange) -> None:
    def create() -> Record:
        cwd, env = workshop.session_state(request.session)
        return workshop.terminals.create(request, session_cwd=cwd, session_env=env)

    _in_session(workshop, request, exchange, create)


def _in_session(
    workshop: Workshop, request: Any, exchange: Exchange, begin: Callable[[], Record | None]
) -> None:
    """Begin with a session's folder and environment, as new as they can be had without waiting."""
    if request.session is None:
        answer_with(exchange, begin, workshop.log)
        return

    def go_on() -> None:
        if exchange.cancelled:
            exchange.fail(OperationInterruptedError("the call", "it was cancelled"))
        else:
            answer_with(exchange, begin, workshop.log)

    workshop.look_at_session(request.session, go_on)


def _signal(workshop: Workshop, request: Any, _exchange: Exchange) -> Record:
    workshop.processes.signal(request)
    return Empty()


def _kernel_list(workshop: Workshop, _request: Any, _exchange: Exchange) -> Record:
    return KernelList(kernels=workshop.kernels.living())


def _process_list(workshop: Workshop, _request: Any, _exchange: Exchange) -> Record:
    return ProcessList(processes=workshop.processes.known())


def _terminal_list(workshop: Workshop, _request: Any, _exchange: Exchange) -> Record:
    return TerminalList(terminals=workshop.terminals.known())


_FAMILIES: dict[str, str] = {
    "file": "sandbox_runtime.file_handlers",
    "git": "sandbox_runtime.git_handlers",
    "session": "sandbox_runtime.session_handlers",
    "pool": "sandbox_runtime.pool_handlers",
    "port": "sandbox_runtime.port_handlers",
}
"""Modules with more handlers, by the part of the operations' names before the dot."""

HANDLERS: dict[str, Handler] = {
    "runtime.health": lambda workshop, _request, _exchange: workshop.health(),
    "runtime.configure": lambda workshop, request, _exchange: workshop.configure(request),
    "runtime.shutdown": lambda workshop, request, _exchange: workshop.shut_down(request),
    "exec": _exec,
    "process.start": _start_process,
    "process.get": lambda workshop, request, _: workshop.processes.get(request.process_id),
    "process.list": _process_list,
    "process.output": lambda workshop, request, exchange: workshop.processes.output(
        request, exchange
    ),
    "process.write_stdin": lambda workshop, request, exchange: workshop.processes.write_stdin(
        request, exchange
    ),
    "process.signal": _signal,
    "process.kill_all": lambda workshop, request, exchange: workshop.processes.kill_all(
        request, exchange
    ),
    "process.wait": lambda workshop, request, exchange: workshop.processes.wait(request, exchange),
    "kernel.start": lambda workshop, request, exchange: workshop.kernels.start(request, exchange),
    "kernel.connect": lambda workshop, request, exchange: workshop.kernels.connect(
        request, exchange
    ),
    "kernel.list": _kernel_list,
    "kernel.end": lambda workshop, request, exchange: workshop.kernels.end(request, exchange),
    "terminal.create": _create_terminal,
    "terminal.get": lambda workshop, request, _exchange: workshop.terminals.get(request),
    "terminal.list": _terminal_list,
    "terminal.snapshot": lambda workshop, request, _: workshop.terminals.snapshot(request),
    "terminal.write": lambda workshop, request, exchange: workshop.terminals.write(
        request, exchange
    ),
    "terminal.resize": lambda workshop, request, _exchange: workshop.terminals.resize(request),
    "terminal.interrupt": lambda workshop, request, _: workshop.terminals.interrupt(request),
    "terminal.terminate": lambda workshop, request, exchange: workshop.terminals.terminate(
        request, exchange
    ),
    "terminal.wait": lambda workshop, request, exchange: workshop.terminals.wait(request, exchange),
    "terminal.output": lambda workshop, request, exchange: workshop.terminals.output(
        request, exchange
    ),
    "terminal.connect": lambda workshop, request, exchange: workshop.terminals.connect(
        request, exchange
    ),
}
"""One handler for each operation: it returns the answer, or None and answers later."""
