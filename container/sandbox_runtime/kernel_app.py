"""A real ipykernel whose channels are the two pipes of its process: no sockets, no network."""

# mypy: disable-error-code="no-untyped-call, union-attr, assignment, attr-defined, override"
# ipykernel is annotated in part; what it takes and gives is proved by tests instead.

from __future__ import annotations

import asyncio
import faulthandler
import io
import os
import queue
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from functools import partial, wraps
from logging import StreamHandler

from ipykernel import zmqshell
from ipykernel.control import ControlThread
from ipykernel.displayhook import ZMQDisplayHook
from ipykernel.iostream import IOPubThread
from ipykernel.kernelapp import IPKernelApp
from tornado.ioloop import IOLoop
from traitlets import Type, default
from zmq.eventloop.zmqstream import ZMQStream

from sandbox_kernel.wire.kernel import Channel
from sandbox_runtime.kernel_commands import system
from sandbox_runtime.kernel_debug import DebugpyStream, DebugShell, LazyDebugger
from sandbox_runtime.kernel_pipe import KernelPipe
from sandbox_runtime.kernel_session import Outlet, Record, RecordSession, from_json
from sandbox_runtime.kernel_streams import OutStream
from sandbox_runtime.kernel_subshells import Dispatcher, Subshells, UnknownSubshellError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

__all__ = ["SandboxKernel", "SandboxKernelApp"]

_HISTORY = 2.0
"""Seconds after a cell's end at which the history is written to disk."""


class _Stream(ZMQStream, Outlet):
    """A channel of the kernel in the shape of a ZMQStream, which ipykernel's traits ask for."""

    send_multipart = Outlet.send_multipart
    flush = Outlet.flush
    close = Outlet.close
    closed = False

    def __init__(self, pipe: KernelPipe, channel: int, io_loop: Any) -> None:
        Outlet.__init__(self, pipe, channel)
        self.io_loop = io_loop

    def on_recv(self, *_: Any, **__: Any) -> None:
        """Do nothing: requests come from the kernel's pipe."""


class _ShellOutlet(Outlet):
    """Replies of the shell; those to the debugger's client stay inside."""

    debugger: DebugShell

    def send_parts(self, identities: Sequence[bytes], parts: Sequence[Any]) -> None:
        """Queue a reply."""
        if identities and identities[0] == DebugShell.identity:
            self.debugger.answer(identities, parts)
        else:
            super().send_parts(identities, parts)


class _IOPub(IOPubThread):
    """Stands where ipykernel has a thread for broadcasts: here each thread queues its own."""

    def __init__(self, pipe: KernelPipe) -> None:
        self.background_socket = Outlet(pipe, Channel.IOPUB)
        self.socket = self.background_socket
        self.thread = pipe.thread

    def schedule(self, f: Callable[[], object]) -> None:
        """Call at once."""
        f()

    def send_multipart(self, *args: Any, **kwargs: Any) -> None:
        """Queue a message."""
        self.background_socket.send_multipart(*args, **kwargs)

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class SandboxKernel(LazyDebugger):
    """IPython's kernel; requests come from a `Dispatcher` and input replies from a queue."""

    pipe: KernelPipe

    def __init__(self, **kwargs: Any) -> None:
        self._pending_inputs: dict[str, queue.SimpleQueue[Any]] = {}
        self._interrupted = False
        self._idle_handler: Any = signal.SIG_IGN
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
        asked = answered_id(record)
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

    def _save_history_when_idle(self) -> None:
        """Write the history to disk a while after a cell, not between two."""
        if self._history_timer is None:
            self._history_timer = self.io_loop.call_later(_HISTORY, self._save_history)

    def _save_history(self) -> None:
        self._history_timer = None
        flag = self.shell.history_manager.save_flag
        if flag is not None:
            flag.set()

    # Interrupts

    def pre_handler_hook(self) -> None:
        """Note interrupts; only the cell itself may be interrupted by an exception."""
        if threading.current_thread() is threading.main_thread():
            self._interrupted = False
            self._idle_handler = signal.signal(signal.SIGINT, self._note_interrupt)
            if self.get_parent("shell").get("msg_type") != "execute_request":
                signal.signal(signal.SIGINT, signal.default_int_handler)

    def post_handler_hook(self) -> None:
        """Ignore interrupts again."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._idle_handler)
            self._save_history_when_idle()

    def _note_interrupt(self, *_: object) -> None:
        self._interrupted = True

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            if self._interrupted:
                raise KeyboardInterrupt
            yield
        finally:
            signal.signal(signal.SIGINT, self._note_interrupt)

    @contextmanager
    def _cancel_on_sigint(self, future: Any) -> Iterator[None]:
        with super()._cancel_on_sigint(future):
            cancel: Any = signal.getsignal(signal.SIGINT)
            loop = asyncio.get_running_loop()

            def cancel_and_wake(*args: Any) -> None:
                cancel(*args)
                # The base schedules the cancelling as code on the loop does, which wakes no loop
                # that is waiting: it would be met at the next event only.
                loop.call_soon_threadsafe(_do_nothing)

            signal.signal(signal.SIGINT, cancel_and_wake)
            yield

    async def do_execute(self, code: str, silent: bool, *args: Any, **kwargs: Any) -> Any:  # noqa: FBT001 - the base's signature
        """Run a cell; an interrupt always ends in a reply."""
        try:
            with self._interruptible():
                return await super().do_execute(code, silent, *args, **kwargs)
        except KeyboardInterrupt:
            return self._interrupted_reply()

    def _interrupted_reply(self) -> dict[str, Any]:
        """Say that the interrupt came where no traceback could be made of it."""
        traceback = ["\x1b[31mKeyboardInterrupt\x1b[39m: "]
        error = {"ename": "KeyboardInterrupt", "evalue": "", "traceback": traceback}
        self.send_response(self.iopub_socket, "error", error)
        self.shell.payload_manager.clear_payload()
        return {
            "status": "error",
            **error,
            "execution_count": self.shell.execution_count - 1,
            "user_expressions": {},
            "payload": [],
        }


def _do_nothing() -> None:
    """Be called."""


def answered_id(record: Record) -> str | None:
    """Return the id of the message that a record answers, if it names one."""
    parent = from_json(record.parts[1])
    return parent.get("msg_id") if isinstance(parent, dict) else None


class SandboxKernelApp(IPKernelApp):
    """Puts ipykernel's parts together around the kernel's pipe."""

    kernel_class = Type(SandboxKernel, klass="ipykernel.kernelbase.Kernel").tag(config=True)
    pipe: KernelPipe
    stderr_fd: int
    """The error output the process was started with; the runtime keeps its tail."""

    @default("session")
    def _default_session(self) -> RecordSession:
        return RecordSession(parent=self)

    def init_connection_file(self) -> None:
        """Do without: nobody can connect."""

    def write_connection_file(self, **_: Any) -> None:
        """Do without."""

    def cleanup_connection_file(self) -> None:
        """Do without."""

    def log_connection_info(self) -> None:
        """Do without."""
        self._ports = {}

    def init_poller(self) -> None:
        """Do without: the end of the record pipe is the end of the kernel."""

    def init_heartbeat(self) -> None:
        """Do without: the relay answers."""

    def init_sockets(self) -> None:
        """Put outlets where sockets would be."""
        pipe = self.pipe
        self.configure_tornado_logger()
        self.shell_socket = _ShellOutlet(pipe, Channel.SHELL)
        self.stdin_socket = Outlet(pipe, Channel.STDIN)
        self.shell_channel_thread = Subshells(self.shell_socket)
        self.control_thread = ControlThread(daemon=True)
        self.iopub_thread = _IOPub(pipe)
        self.iopub_socket = self.iopub_thread.background_socket
        deliver = self.shell_channel_thread.manager.deliver
        self.debug_shell_socket = DebugShell(partial(deliver, None))
        self.shell_socket.debugger = self.debug_shell_socket

    def init_io(self) -> None:
        """Let everything that is printed go to the pipe."""
        self._streams = []
        for name, fd in (("stdout", 1), ("stderr", 2)):
            stream = OutStream(self.session, self.pipe, name, fd)
            setattr(sys, name, stream)
            self._streams.append(stream)
            self.pipe.watch(stream.capture.read_fd, stream.capture.drain)
        os.register_at_fork(after_in_child=self._become_child)
        self.displayhook = ZMQDisplayHook(self.session, self.iopub_socket)
        sys.displayhook = self.displayhook
        self.patch_io()

    def _become_child(self) -> None:
        self.pipe.disown()
        for stream in self._streams:
            stream.after_fork()

    def patch_io(self) -> None:
        """Send crash reports and log lines where they survive the process."""
        stderr = io.TextIOWrapper(io.FileIO(self.stderr_fd, "w", closefd=False), write_through=True)
        for handler in self.log.handlers:
            if isinstance(handler, StreamHandler):
                handler.setStream(stderr)
        enable, register = faulthandler.enable, faulthandler.register

        def enable_on_stderr(file: Any = stderr, all_threads: bool = True, **kwargs: Any) -> None:  # noqa: FBT001, FBT002 - faulthandler's
            enable(file, all_threads, **kwargs)

        def register_on_stderr(
            signum: int,
            file: Any = stderr,
            all_threads: bool = True,  # noqa: FBT001, FBT002 - faulthandler's
            chain: bool = False,  # noqa: FBT001, FBT002 - faulthandler's
            **kwargs: Any,
        ) -> None:
            register(signum, file, all_threads, chain, **kwargs)

        faulthandler.enable = enable_on_stderr
        faulthandler.register = register_on_stderr
        faulthandler.enable()
        zmqshell.system = system

    def init_kernel(self) -> None:
        """Make the kernel."""
        pipe = self.pipe
        loop = self.control_thread.io_loop
        self.control_thread.start()
        self.kernel = self.kernel_class.instance(
            parent=self,
            session=self.session,
            control_stream=_Stream(pipe, Channel.CONTROL, loop),
            debugpy_stream=DebugpyStream(loop),
            debug_shell_socket=self.debug_shell_socket,
            shell_stream=_Stream(pipe, Channel.SHELL, IOLoop.current()),
            control_thread=self.control_thread,
            shell_channel_thread=self.shell_channel_thread,
            iopub_thread=self.iopub_thread,
            iopub_socket=self.iopub_socket,
            stdin_socket=self.stdin_socket,
            log=self.log,
            profile_dir=self.profile_dir,
            user_ns=self.user_ns,
        )
        self.kernel.pipe = pipe
        kernel = self.kernel
        self.displayhook.get_execution_count = lambda: kernel.execution_count

    def close(self) -> None:
        """Do nothing: there are no sockets."""
