"""A runtime's frame door without a runtime: one kernel whose every byte the test decides."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.transports.endpoint import Endpoint
from sandbox_kernel.wire.codec import dump_json, encode
from sandbox_kernel.wire.kernel import Channel, RecordReader
from sandbox_kernel.wire.operations import KernelInfo
from sandbox_kernel.wire.rpc import Call, ChannelFrame, FrameKind, Hello, ServerConnection

__all__ = ["FakeRuntime"]

_TIMEOUT = 10.0


class FakeRuntime:
    """Serves one connection at a time, in step with the test; nothing runs by itself.

    Parameters
    ----------
    folder : Path
        Where its socket is made.
    """

    def __init__(self, folder: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(_TIMEOUT)
        self._listener.bind(str(folder / "fake.sock"))
        self._listener.listen()
        self.endpoint = Endpoint(sandbox_id="fake", socket=str(folder / "fake.sock"), token="t")
        self.acked = 0
        self.taken = 0
        self.orders: list[dict[str, Any]] = []
        self.input = RecordReader()
        self._connection: socket.socket | None = None
        self.protocol = ServerConnection()

    def close(self) -> None:
        self.drop()
        self._listener.close()

    def drop(self) -> None:
        """Break the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def stop_listening(self) -> None:
        """End as a runtime ends: its address stays, and nobody is there."""
        self.drop()
        self._listener.close()

    def info(self, **changes: Any) -> KernelInfo:
        known = {
            "kernel_id": "k",
            "pid": 7,
            "existing": False,
            "acked": self.acked,
            "taken": self.taken,
            "started_at": 1.5,
            "incarnation": "i",
        }
        return KernelInfo(**{**known, **changes})

    def accept(self, *, started: SandboxError | None = None) -> None:
        """Take the next connection to where it is a channel, or its first call is refused."""
        self._connection, _ = self._listener.accept()
        self._connection.settimeout(_TIMEOUT)
        self.protocol = ServerConnection()
        while not self.protocol.is_channel:
            for event in self._events():
                if isinstance(event, Hello):
                    self._send(self.protocol.welcome(1, "fake", "i"))
                elif isinstance(event, Call) and started is not None:
                    self._send(self.protocol.failed(event.call, started))
                    return
                elif isinstance(event, Call):
                    self._send(self.protocol.result(event.call, encode(self.info())[0]))
                    if event.operation == "kernel.connect":
                        self.protocol.become_channel()

    def _events(self) -> Iterator[Any]:
        """Read once; what is not welcome yet may send short frames only, so one event at a time."""
        assert self._connection is not None
        data = self._connection.recv(1 << 20)
        if not data:
            raise EOFError
        yield from self.protocol.receive(data)

    def _send(self, data: bytes) -> None:
        assert self._connection is not None
        self._connection.sendall(data)

    def data(self, offset: int, data: bytes) -> None:
        """Send output of the kernel."""
        self._send(self.protocol.channel_frame(FrameKind.DATA, offset.to_bytes(8, "big"), data))

    def tell_taken(self) -> None:
        """Say how many frames have been taken."""
        self._send(self.protocol.channel_frame(FrameKind.ACK, self.taken.to_bytes(8, "big")))

    def event(self, **value: Any) -> None:
        """Send word of the kernel's fate."""
        self._send(self.protocol.channel_frame(FrameKind.EVENT, dump_json(value)))

    def take(self) -> list[tuple[Channel, list[bytes]]]:
        """Read once; return the records that came, after noting acknowledgements and orders."""
        records: list[tuple[Channel, list[bytes]]] = []
        for event in self._events():
            assert isinstance(event, ChannelFrame)
            payload = event.payload
            assert isinstance(payload, memoryview)
            if event.kind is FrameKind.ACK:
                self.acked = int.from_bytes(payload, "big")
                continue
            self.taken += 1
            if event.kind is FrameKind.CONTROL:
                import json

                self.orders.append(json.loads(bytes(payload)))
            else:
                records += [
                    (c, [bytes(p) for p in parts]) for c, _, parts in self.input.feed(payload)
                ]
        return records

    def in_background(self, *steps: Any) -> threading.Thread:
        """Do steps in a thread, for a client that waits."""

        def run() -> None:
            with contextlib.suppress(OSError, EOFError):
                for step in steps:
                    step()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread
