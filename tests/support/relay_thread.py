"""A relay on a thread of the test, between real sockets and a runtime that the test plays."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.session import Session

from sandbox_kernel.kernel.connection import ConnectionInfo
from sandbox_kernel.kernel.hints import Facts
from sandbox_kernel.kernel.hostcells import Command, Commands
from sandbox_kernel.kernel.journal import Journal
from sandbox_kernel.kernel.lifecycle import ParentWatch, Signals
from sandbox_kernel.kernel.link import Link
from sandbox_kernel.kernel.policy import Policy
from sandbox_kernel.kernel.relay import Relay
from sandbox_kernel.kernel.requests import Request
from sandbox_kernel.kernel.sockets import Sockets
from sandbox_kernel.wire.operations import StartKernelRequest
from tests.support.fake_runtime import FakeRuntime

__all__ = ["Client", "relay_on_a_thread"]

KEY = b"key"


class StoppableSignals(Signals):
    """Signals of a relay on a thread, where Python delivers none."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def stop(self) -> None:
        os.write(self._write, bytes([signal.SIGTERM]))

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


class Client:
    """Sends on shell and hears shell and iopub."""

    def __init__(
        self, context: zmq.Context[Any], info: ConnectionInfo, *, is_slow: bool, listens: bool
    ) -> None:
        self.session = Session(key=KEY)
        self.shell = context.socket(zmq.DEALER)
        self.iopub = context.socket(zmq.SUB)
        self.iopub.subscribe = b""
        if is_slow:
            self.iopub.rcvhwm = 1
            self.iopub.rcvbuf = 4096
        for each in (self.shell, self.iopub):
            each.linger = 0
        self._ports = info.ports
        self.shell.connect(f"tcp://127.0.0.1:{info.ports['shell_port']}")
        if listens:
            self.listen()

    def listen(self) -> None:
        """Subscribe to everything."""
        self.iopub.connect(f"tcp://127.0.0.1:{self._ports['iopub_port']}")
        self.hear("iopub_welcome", None)

    def close(self) -> None:
        self.shell.close()
        self.iopub.close()

    def send(self, msg_type: str, content: dict[str, Any]) -> str:
        message = self.session.msg(msg_type, content)
        self.session.send(self.shell, message)
        return str(message["header"]["msg_id"])

    def hear(self, msg_type: str, parent: str | None) -> dict[str, Any]:
        """Wait for a broadcast of this type and parent; return its content."""
        return self._wait(self.iopub, msg_type, parent)

    def reply(self, msg_type: str, parent: str) -> dict[str, Any]:
        return self._wait(self.shell, msg_type, parent)

    def _wait(self, source: Any, msg_type: str, parent: str | None) -> dict[str, Any]:
        deadline = time.monotonic() + 10
        while source.poll(max(0, (deadline - time.monotonic()) * 1000)):
            _, message = self.session.recv(source)
            assert message is not None
            if message["msg_type"] == msg_type and (
                parent is None or message["parent_header"].get("msg_id") == parent
            ):
                content: dict[str, Any] = message["content"]
                return content
        raise AssertionError(f"no {msg_type}")


def free_ports() -> dict[str, int]:
    names = ("shell_port", "control_port", "stdin_port", "iopub_port", "hb_port")
    with contextlib.ExitStack() as stack:
        bound = {name: stack.enter_context(socket.socket()) for name in names}
        for each in bound.values():
            each.bind(("127.0.0.1", 0))
        return {name: each.getsockname()[1] for name, each in bound.items()}


@contextlib.contextmanager
def relay_on_a_thread(
    folder: Path,
    runtime: FakeRuntime,
    show: Callable[[Relay, Request], str] = lambda *_: "",
    *,
    is_slow: bool = False,
    listens: bool = True,
) -> Iterator[Client]:
    """Run a relay until the block ends; yield a client of it.

    Parameters
    ----------
    folder : Path
        Where its journal goes.
    runtime : FakeRuntime
        Its runtime; the relay is attached when the block begins.
    show : callable
        What ``%widget`` does, given the relay and the cell's request.
    is_slow : bool
        Let hardly anything wait at the client's end of iopub.
    listens : bool
        Subscribe the client.
    """
    info = ConnectionInfo(
        transport="tcp", ip="127.0.0.1", ports=free_ports(), key=KEY, digest="sha256"
    )
    signals = StoppableSignals()

    def serve() -> None:
        sockets = Sockets(info)
        link = Link(runtime.endpoint, StartKernelRequest(kernel_id="k"))
        link.open()
        journal = Journal(str(folder), "k")
        command = Command(lambda request, _words: show(relay, request))
        relay = Relay(
            sockets=sockets,
            link=link,
            info=link.wait_until_started(timeout=10),
            inheritance=None,
            journal=journal,
            facts=Facts(),
            describe=list,
            policy=Policy(),
            signals=signals,
            parent=ParentWatch({}),
            magics={"widget": Commands("widget", {"show": command}, "show")},
        )
        relay.run()
        link.close()
        sockets.close()
        journal.remove()

    thread = threading.Thread(target=serve)
    thread.start()
    runtime.accept()
    with zmq.Context() as context:
        client = Client(context, info, is_slow=is_slow, listens=listens)
        yield client
        client.close()
        signals.stop()
        thread.join(10)
        assert not thread.is_alive()
    signals.close()
