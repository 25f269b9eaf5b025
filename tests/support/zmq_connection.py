"""A kernel of our own, started by jupyter_client and spoken to over its sockets."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.support.jupyter_home import JupyterHome
from tests.support.kernel_driver import Message

__all__ = ["ZmqConnection"]


class ZmqConnection:
    """Starts a kernelspec and owns the process.

    Parameters
    ----------
    kernel_name : str
        The kernelspec.
    home : JupyterHome
        Whose kernel it is.
    extra : str
        More environment variables of the kernel's process.
    """

    def __init__(self, kernel_name: str, home: JupyterHome, **extra: str) -> None:
        self.home = home
        self.stderr = tempfile.TemporaryFile(dir=home.root)  # noqa: SIM115 - closed by close()
        self.manager = KernelManager(
            kernel_name=kernel_name,
            connection_file=str(home.runtime / f"kernel-{id(self):x}.json"),
        )
        self.manager.start_kernel(env=home.env(**extra), cwd=str(home.work), stderr=self.stderr)
        self.open()

    def open(self) -> None:
        self.client = self.manager.client()
        self.attach()

    def attach(self) -> None:
        # Tests look at kernels of their own; a repeated signature is theirs to judge.
        self.client.session.digest_history_size = 0
        self.client.start_channels(hb=False)
        self.session = self.client.session.session
        self.sockets = {
            self.client.shell_channel.socket: "shell",
            self.client.iopub_channel.socket: "iopub",
            self.client.stdin_channel.socket: "stdin",
            self.client.control_channel.socket: "control",
        }
        self.poller = zmq.Poller()
        for socket in self.sockets:
            self.poller.register(socket, zmq.POLLIN)

    @contextlib.contextmanager
    def second_client(self) -> Iterator[ZmqConnection]:
        """Connect once more, with a session of its own; the kernel stays with the first."""
        other = object.__new__(ZmqConnection)
        other.home, other.stderr, other.manager = self.home, self.stderr, self.manager
        other.client = BlockingKernelClient(connection_file=str(self.connection_file))
        other.client.load_connection_file()
        other.client.session.session = uuid.uuid4().hex
        other.attach()
        yield other
        other.client.stop_channels()

    @property
    def connection_file(self) -> Path:
        return Path(self.manager.connection_file)

    @property
    def pid(self) -> int:
        """Process of the kernelspec: the relay, or a plain kernel itself."""
        provisioner: Any = self.manager.provisioner
        return int(provisioner.pid)

    def send(self, channel: str, message: Message) -> None:
        socket = {name: socket for socket, name in self.sockets.items()}[channel]
        session = self.client.session
        session.send(socket, message, buffers=message["buffers"] or None)

    def receive(self, timeout: float) -> list[Message]:
        messages = []
        for socket, _ in self.poller.poll(timeout * 1000):
            while True:
                try:
                    frames = socket.recv_multipart(zmq.NOBLOCK, copy=True)
                except zmq.Again:
                    break
                _, parts = self.client.session.feed_identities(frames)
                message = self.client.session.deserialize(parts)
                message["channel"] = self.sockets[socket]
                messages.append(message)
        return messages

    def interrupt(self) -> None:
        self.manager.interrupt_kernel()

    def interrupt_by_signal(self) -> None:
        """Signal the process group of the kernelspec's process, as older front ends do."""
        self.manager.signal_kernel(signal.SIGINT)

    def restart(self) -> None:
        self.manager.restart_kernel()

    def is_alive(self) -> bool:
        return bool(self.manager.is_alive())

    def said(self) -> str:
        """Return what the kernelspec's process wrote to its own stderr."""
        self.stderr.seek(0)
        return self.stderr.read().decode(errors="replace")

    def close(self) -> None:
        if self.stderr.closed:
            return
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=not self.manager.is_alive())
        self.client.context.destroy(linger=0)
        self.stderr.close()
