"""A real ipykernel whose channels are the two pipes of its process: no sockets, no network."""

# mypy: disable-error-code="no-untyped-call, union-attr, assignment, attr-defined, override"
# ipykernel is annotated in part; what it takes and gives is proved by tests instead.

from __future__ import annotations

import faulthandler
import io
import os
import sys
from functools import partial
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
from sandbox_runtime.kernel_debug import DebugpyStream, DebugShell
from sandbox_runtime.kernel_ipython import SandboxKernel
from sandbox_runtime.kernel_pipe import KernelPipe
from sandbox_runtime.kernel_session import Outlet, RecordSession
from sandbox_runtime.kernel_streams import OutStream
from sandbox_runtime.kernel_subshells import Subshells

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

__all__ = ["SandboxKernelApp"]


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
            self.pipe.watch(stream.capture.read_fd, stream.capture.drain_if_free)
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
