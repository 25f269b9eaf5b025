"""IPython's kernel behind a pipe: how requests reach it, and what it asks its clients."""

# mypy: disable-error-code="no-untyped-call, union-attr, assignment, attr-defined, override"
# ipykernel is annotated in part; what it takes and gives is proved by tests instead.

from __future__ import annotations

import inspect
import os
import queue
import sys
import threading
from contextlib import suppress
from contextvars import Context
from functools import partial, wraps

from sandbox_kernel.wire.kernel import Channel
from sandbox_runtime.kernel_interrupts import InterruptibleCells
from sandbox_runtime.kernel_pipe import KernelPipe
from sandbox_runtime.kernel_session import Record, from_json
from sandbox_runtime.kernel_subshells import Dispatcher, UnknownSubshellError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["SandboxKernel"]

_HISTORY = 2.0
"""Seconds after a request's end at which the history is written to disk."""


class SandboxKernel(InterruptibleCells):
    """IPython's kernel; requests come from a `Dispatcher` and input replies from a queue."""

    pipe: KernelPipe

    def __init__(self, **kwargs: Any) -> None:
        self._pending_inputs: dict[str, queue.SimpleQueue[Any]] = {}
        self._history_timer: object = None
        self._shutdown_done: threading.Event | None = None
        super().__init__(**kwargs)
        self._end_children_of_cells()

    # Requests

    def route(self, channel: Channel, identities: list[Any], parts: list[Any]) -> None:
        """Take a record; on the pipe's thread."""
        try:
            record = Record(identities, parts)
            if channel == Channel.STDIN:
                self._take_input(record)
            elif channel == Channel.CONTROL:
                self.pipe.cork()
                self._control_dispatcher.submit(self.dispatch_control, record)
            elif channel == Channel.SHELL:
                self.pipe.cork()
                self._route_shell(record)
            elif channel == Channel.META:
                _take_environment(from_json(record.parts[0]))
        except Exception:
            self.log.exception("A record that is no message")

    def _route_shell(self, record: Record) -> None:
        header = record.header
        subshell_id = header.get("subshell_id")
        if header["msg_type"] in ("comm_msg", "comm_close"):
            # The answer of a widget's page goes to the subshell that asked it.
            content = record.load_content()
            comm = self.comm_manager.get_comm(content.get("comm_id"))
            find = getattr(comm, "_reply_subshell_for", None)
            if find is not None:
                subshell_id = find(content.get("data"), subshell_id)
        manager = self.shell_channel_thread.manager
        try:
            manager.deliver(subshell_id, record)
        except UnknownSubshellError as error:
            self._refuse(record, error)

    def _refuse(self, record: Record, error: Exception) -> None:
        """Answer a request that no subshell can take; on the pipe's thread."""
        session: Any = self.session
        message = session.deserialize(record, content=False)
        self._publish_status("busy", "shell", parent=message)
        content = {
            "status": "error",
            "ename": type(error).__name__,
            "evalue": str(error),
            "traceback": [],
        }
        kind = record.header["msg_type"].rpartition("_")[0] + "_reply"
        session.send(self.shell_stream, kind, content, message, record.identities)
        self._publish_status("idle", "shell", parent=message)

    def start(self) -> None:
        """Register the handlers; on the main thread."""
        super().start()
        self._control_dispatcher = Dispatcher(self.control_thread.io_loop.asyncio_loop)
        self._subshells = self.shell_channel_thread.manager

    def set_parent(self, ident: Any, parent: Any, channel: str = "shell") -> None:
        """Remember the request that outputs belong to, but not its buffers.

        The last two requests are remembered until others come; their memory is wanted back before.
        """
        if parent.get("buffers"):
            parent = {**parent, "buffers": []}
        super().set_parent(ident, parent, channel)

    # stop_on_error

    def _abort_queues(self, subshell_id: str | None = None) -> None:
        """Refuse the execute requests that have come by now, in the pipe or out of it."""
        self._set_aborting(subshell_id, aborting=True)
        self.pipe.call(partial(self._submit_stop_aborting, subshell_id))

    def _submit_stop_aborting(self, subshell_id: str | None) -> None:
        with suppress(UnknownSubshellError):  # deleted meanwhile
            self._subshells.submit(subshell_id, self._stop_aborting, subshell_id)

    def _set_aborting(self, subshell_id: str | None, *, aborting: bool) -> None:
        if subshell_id is None:
            self._aborting = aborting
        else:
            self._subshells.set_subshell_aborting(subshell_id, aborting)

    async def _stop_aborting(self, subshell_id: str | None) -> None:
        lock = (
            self._main_asyncio_lock
            if subshell_id is None
            else self._subshells.get_subshell_asyncio_lock(subshell_id)
        )
        # Waits its turn behind the requests that are to be refused.
        async with lock:
            self._set_aborting(subshell_id, aborting=False)

    # Subshells

    async def create_subshell_request(self, socket: Any, ident: Any, parent: Any) -> None:
        """Start a subshell."""
        content = {"status": "ok", "subshell_id": self._subshells.create()}
        self.session.send(socket, "create_subshell_reply", content, parent, ident)

    async def delete_subshell_request(self, socket: Any, ident: Any, parent: Any) -> None:
        """Let a subshell end."""
        try:
            self._subshells.delete(parent["content"]["subshell_id"])
        except KeyError as error:
            content = {"status": "error", "evalue": str(error)}
        else:
            content = {"status": "ok"}
        self.session.send(socket, "delete_subshell_reply", content, parent, ident)

    async def list_subshell_request(self, socket: Any, ident: Any, parent: Any) -> None:
        """Name the subshells."""
        content = {"status": "ok", "subshell_id": self._subshells.list_subshell()}
        self.session.send(socket, "list_subshell_reply", content, parent, ident)

    # Input

    def _take_input(self, record: Record) -> None:
        """Give an input reply to the request that it answers; none asks: it is late, drop it."""
        asked = _answered_id(record)
        pending = self._pending_inputs
        if asked in pending:
            pending[asked].put(record)
        elif asked is None and pending:
            pending[next(reversed(pending))].put(record)

    def _input_request(
        self,
        prompt: str,
        ident: Any,
        parent: Any,
        password: bool = False,  # noqa: FBT001, FBT002 - the base's signature
    ) -> str:
        """Ask the client that sent `parent` for a line."""
        sys.stdout.flush()
        sys.stderr.flush()
        answers: queue.SimpleQueue[Record] = queue.SimpleQueue()
        message = self.session.msg(
            "input_request", {"prompt": prompt, "password": password}, parent
        )
        self._pending_inputs[message["msg_id"]] = answers
        try:
            self.session.send(self.stdin_socket, message, ident=ident)
            self.pipe.release()
            record = answers.get()
        except KeyboardInterrupt:
            msg = "Interrupted by user"
            raise KeyboardInterrupt(msg) from None
        finally:
            self._pending_inputs.pop(message["msg_id"], None)
        value = str((record.load_content() or {}).get("value", ""))
        if value == "\x04":
            raise EOFError
        return value

    # Forked children

    def _end_children_of_cells(self) -> None:
        """End a child that a cell forked where the cell ends.

        It would go on into the event loop otherwise, as a second kernel.
        """
        shell = self.shell
        pid = os.getpid()
        run = shell.run_cell_async

        @wraps(run)
        async def run_cell_async(*args: Any, **kwargs: Any) -> Any:
            result = await run(*args, **kwargs)
            if os.getpid() != pid:
                status = self._child_status(result.error_in_exec)
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
            return result

        # ipykernel looks at it for every cell, and would find it through both each time.
        run_cell_async.__signature__ = inspect.signature(run)
        # On the instance: the shell's class is one that programs ask for by name.
        shell.run_cell_async = run_cell_async

    def _child_status(self, error: BaseException | None) -> int:
        if error is None:
            return 0
        if isinstance(error, SystemExit) and not isinstance(error.code, str):
            return int(error.code or 0) & 0xFF
        traceback = self.shell._last_traceback or [str(error)]  # noqa: SLF001 - as ipykernel does
        sys.stderr.write("\n".join(traceback) + "\n")
        return 1

    # Shutdown

    async def shutdown_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """End the children of the kernel, answer, and stop the loops."""
        self._shutdown_done = threading.Event()
        try:
            await super().shutdown_request(stream, ident, parent)
        finally:
            self._shutdown_done.set()

    def wait_for_shutdown(self, timeout: float) -> None:
        """Wait for the end of a shutdown request, if there is one."""
        if self._shutdown_done is not None:
            self._shutdown_done.wait(timeout)

    def _process_children(self) -> list[Any]:
        """Name the living children in our group: nobody waits for those that have ended."""
        living = []
        for child in super()._process_children():
            with suppress(Exception):  # gone meanwhile
                if child.status() != "zombie":
                    living.append(child)
        return living

    # History

    def post_handler_hook(self) -> None:
        """Write the history to disk a while after a request, not between two."""
        super().post_handler_hook()
        if self._history_timer is None and threading.current_thread() is threading.main_thread():
            # In a context of its own: this one holds the message, and so its buffers, until then.
            self._history_timer = Context().run(
                self.io_loop.call_later, _HISTORY, self._save_history
            )

    def _save_history(self) -> None:
        self._history_timer = None
        flag = self.shell.history_manager.save_flag
        if flag is not None:
            flag.set()


def _take_environment(told: Any) -> None:
    """Take variables that were not known when this interpreter started."""
    if told.get("op") != "environment":
        return  # of a newer runtime
    for name, value in told["variables"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _answered_id(record: Record) -> str | None:
    """Return the id of the message that a record answers, if it names one."""
    parent = from_json(record.parts[1])
    return parent.get("msg_id") if isinstance(parent, dict) else None
