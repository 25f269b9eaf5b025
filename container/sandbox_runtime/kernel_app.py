"""A real ipykernel whose channels are the two pipes of the kernel process; no sockets, no network."""

from __future__ import annotations

import asyncio
import builtins
import faulthandler
import os
import queue
import signal
import sys
import threading
from contextlib import contextmanager
from functools import partial

import zmq
from IPython.core import ultratb  # noqa: F401 - a fork server wants it loaded
from ipykernel.control import ControlThread
from ipykernel.iostream import IOPubThread
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from ipykernel.subshell_manager import UnknownSubshellError
from sandbox_kernel.wire.kernel import Channel
from sandbox_runtime.kernel_pipe import KernelPipe
from sandbox_runtime.kernel_session import Outlet, Record, RecordSession
from sandbox_runtime.kernel_streams import OutStream
from sandbox_runtime.kernel_subshells import Dispatcher, Subshells
from tornado.ioloop import IOLoop
from traitlets import Type, default
from zmq.eventloop.zmqstream import ZMQStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

__all__ = ["SandboxKernel", "SandboxKernelApp"]


class _Stream(ZMQStream, Outlet):  # type: ignore[misc]
    """A channel of the kernel in the shape of a ZMQStream, which ipykernel's traits ask for."""

    send_multipart = Outlet.send_multipart
    flush = Outlet.flush
    close = Outlet.close
    closed = False

    def __init__(self, pipe: KernelPipe, channel: int, io_loop: Any) -> None:
        Outlet.__init__(self, pipe, channel)
        self.io_loop = io_loop
        self.handle: Any = None

    def on_recv(self, callback: Any, copy: bool = True) -> None:  # noqa: FBT001, FBT002 - ZMQStream's
        """Take the handler of requests."""
        self.handle = callback


class _DebugpyStream(ZMQStream):
    """The stream to the debugger's own socket; nothing of it exists before somebody debugs."""

    def __init__(self, io_loop: Any) -> None:
        self.io_loop = io_loop
        self._on_recv: tuple[Any, ...] = ()
        self._stream: ZMQStream | None = None

    def on_recv(self, callback: Any, copy: bool = True) -> None:  # noqa: FBT001, FBT002 - ZMQStream's
        """Take the handler of what the debugger says."""
        self._on_recv = (callback, copy)

    def _open(self) -> ZMQStream:
        if self._stream is None:
            socket = zmq.Context.instance().socket(zmq.STREAM)
            socket.linger = 1000
            self._stream = ZMQStream(socket, self.io_loop)
            if self._on_recv:
                self._stream.on_recv(*self._on_recv)
        return self._stream

    @property
    def socket(self) -> Any:
        """The socket, opened by the first who asks."""
        return self._open().socket

    def send_multipart(self, *args: Any, **kwargs: Any) -> Any:
        """Send to the debugger."""
        return self._open().send_multipart(*args, **kwargs)


class _DebugShell(Outlet):
    """The debugger's own client of the main shell: sends one request, waits for its reply."""

    identity = b"debugger"

    def __init__(self, submit: Callable[[Record], object]) -> None:
        self._submit = submit
        self._replies: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()

    def getsockopt(self, _option: int) -> bytes:
        """Return the identity that requests bear."""
        return self.identity

    def send_parts(self, identities: Sequence[bytes], parts: Sequence[Any]) -> None:
        """Give the request to the main shell."""
        self._submit(Record(identities, parts))

    def answer(self, identities: Sequence[bytes], parts: Sequence[Any]) -> None:
        """Take the reply."""
        self._replies.put([*identities, b"<IDS|MSG>", b"", *parts])

    def recv_multipart(self, *_: Any, **__: Any) -> list[Any]:
        """Wait for the reply."""
        return self._replies.get()


class _ShellOutlet(Outlet):
    """Replies of the shell; those to the debugger's client stay inside."""

    debugger: _DebugShell

    def send_parts(self, identities: Sequence[bytes], parts: Sequence[Any]) -> None:
        """Queue a reply."""
        if identities and identities[0] == _DebugShell.identity:
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


class SandboxKernel(IPythonKernel):
    """IPython's kernel; requests come from a `Dispatcher` and input replies from a queue."""

    pipe: KernelPipe

    def __init__(self, **kwargs: Any) -> None:
        self._pending_inputs: dict[str, queue.SimpleQueue[Any]] = {}
        self._interrupted = False
        super().__init__(**kwargs)

    # Requests

    def route(self, channel: Channel, identities: list[Any], parts: list[Any]) -> None:
        """Take a record; on the pipe's thread."""
        try:
            record = Record(identities, parts)
            if channel == Channel.STDIN:
                self._take_input(record)
            elif channel == Channel.CONTROL:
                self._control_dispatcher.submit(self.dispatch_control, record)
            elif channel == Channel.SHELL:
                if record.header["msg_type"] == "execute_request":
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
            session = self.session
            message = session.deserialize(record, content=False)
            self._send_unknown_subshell_reply(record.identities, message, error)

    def start(self) -> None:
        """Register the handlers; on the main thread."""
        super().start()
        self._control_dispatcher = Dispatcher(self.control_thread.io_loop.asyncio_loop)
        self._subshells = self.shell_channel_thread.manager

    # stop_on_error

    def _abort_queues(self, subshell_id: str | None = None) -> None:
        """Refuse the execute requests that have come by now, in the pipe or out of it."""
        self._set_aborting(subshell_id, aborting=True)
        self.pipe.call(
            partial(self._subshells.submit, subshell_id, self._stop_aborting, subshell_id)
        )

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
        asked = from_parent(record)
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


def from_parent(record: Record) -> str | None:
    """Return the id of the message that a record answers, if it names one."""
    from sandbox_runtime.kernel_session import from_json

    parent = from_json(record.parts[1])
    return parent.get("msg_id") if isinstance(parent, dict) else None


class SandboxKernelApp(IPKernelApp):
    """Puts ipykernel's parts together around the kernel's pipe."""

    kernel_class = Type(SandboxKernel, klass="ipykernel.kernelbase.Kernel").tag(config=True)
    pipe: KernelPipe
    original_stderr: int

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
        self.debug_shell_socket = _DebugShell(partial(deliver, None))
        self.shell_socket.debugger = self.debug_shell_socket

    def init_io(self) -> None:
        """Let everything that is printed go to the pipe."""
        for name, fd in (("stdout", 1), ("stderr", 2)):
            stream = OutStream(self.session, self.pipe, name, fd)
            setattr(sys, name, stream)
            self.pipe.watch(stream.capture.read_fd, stream.capture.drain)
        from ipykernel.displayhook import ZMQDisplayHook

        self.displayhook = ZMQDisplayHook(self.session, self.iopub_socket)
        sys.displayhook = self.displayhook
        self.patch_io()

    def init_kernel(self) -> None:
        """Make the kernel."""
        pipe = self.pipe
        loop = self.control_thread.io_loop
        self.control_thread.start()
        self.kernel = self.kernel_class.instance(
            parent=self,
            session=self.session,
            control_stream=_Stream(pipe, Channel.CONTROL, loop),
            debugpy_stream=_DebugpyStream(loop),
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
