"""A real runtime as a plain child process, and a small blocking client of its frame door."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import sandbox_kernel
import sandbox_runtime
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.transports.local_doors import SCHEME, connect_here
from sandbox_kernel.wire.codec import decode, encode
from sandbox_kernel.wire.operations import OPERATIONS
from sandbox_kernel.wire.record import Record
from sandbox_kernel.wire.rpc import (
    INITIAL_CREDIT,
    ChannelFrame,
    ClientConnection,
    End,
    Failed,
    FrameKind,
    Item,
    Result,
    Welcome,
)

TOKEN = "token-of-a-test"
DEADLINE = 20.0


class RuntimeChild:
    """A runtime started in `folder`; `stop` ends it.  A program to run it `under` gets its command."""

    def __init__(
        self,
        folder: Path,
        *,
        pass_fds: Sequence[int] = (),
        stderr: int | None = None,
        under: Sequence[str] = (),
        **config: Any,
    ) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        self.workspace.mkdir(exist_ok=True)
        # The two packages side by side, as an engine shows them in the sandbox.
        packages = folder / "packages"
        packages.mkdir(exist_ok=True)
        for module in (sandbox_kernel, sandbox_runtime):
            source = Path(str(module.__file__)).parent
            link = packages / source.name
            if not link.exists():
                link.symlink_to(source)
        self.socket_path = str(folder / "runtime.sock")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.socket_path)
        listener.listen(128)
        read, write = os.pipe()
        settings = {
            "sandbox_id": "test",
            "token": TOKEN,
            "listen": {"fd": listener.fileno()},
            "sleep_after": None,
            "cwd": str(self.workspace),
            "env": {"PATH": os.environ["PATH"], "BASE": "from the config"},
            "spool_dir": str(folder),
            "python": sys.executable,
            **config,
        }
        self.log_path = folder / "runtime.log"
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    *under,
                    str(packages / "sandbox_runtime" / "__main__.py"),
                    "--config-fd",
                    str(read),
                ],
                pass_fds=(listener.fileno(), read, *pass_fds),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log if stderr is None else stderr,
                start_new_session=True,
                env={"OF_THE_RUNTIME": "must not be seen"},
            )
        os.close(read)
        listener.close()
        with os.fdopen(write, "w") as file:
            json.dump(settings, file)

    @property
    def pid(self) -> int:
        return self.process.pid

    def connect(self, token: str = TOKEN) -> Client:
        return Client(self.socket_path, token)

    def log(self) -> str:
        return self.log_path.read_text()

    def wait_exit(self, timeout: float = DEADLINE) -> int:
        return self.process.wait(timeout)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        assert "fault in the runtime" not in self.log()
        assert "Traceback" not in self.log()


def _connected(path: str) -> socket.socket:
    if path.startswith(SCHEME):
        return connect_here(path)
    is_tcp = path.startswith("tcp://")
    made = socket.socket(socket.AF_INET if is_tcp else socket.AF_UNIX)
    try:
        if is_tcp:
            host, _, port = path.removeprefix("tcp://").rpartition(":")
            made.connect((host, int(port)))
        else:
            made.connect(path)
    except OSError:
        made.close()
        raise
    return made


class Client:
    """Blocking calls over one connection; streams of it are read one at a time or by id."""

    def __init__(self, path: str, token: str = TOKEN) -> None:
        self.protocol = ClientConnection()
        self.socket = _connected(path)
        self.events: list[Any] = []
        self.send(self.protocol.hello(token, "test"))
        self.operations: dict[int, str] = {}
        self.granting = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def next_event(self, timeout: float = DEADLINE) -> Any:
        """Return the next event; `EOFError` when the runtime has closed the connection."""
        deadline = time.monotonic() + timeout
        while not self.events:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                raise TimeoutError(f"no event within {timeout} s")
            data = self.socket.recv(1 << 20)
            if not data:
                raise EOFError
            self.events.extend(self.protocol.receive(data))
        return self.events.pop(0)

    def welcome(self) -> Welcome:
        event = self.next_event()
        if isinstance(event, Failed):
            raise event.error  # type: ignore[misc]
        assert isinstance(event, Welcome)
        self.welcome_seen = event
        return event

    def begin(
        self,
        operation: str,
        *,
        incarnation: str | None = None,
        credit: int = INITIAL_CREDIT,
        **fields: Any,
    ) -> int:
        request = OPERATIONS[operation].request(**fields)
        params, body = encode(request)
        call, data = self.protocol.call(
            operation, params, body, incarnation=incarnation, credit=credit
        )
        self.operations[call] = operation
        self.send(data)
        return call

    def event_of(self, call: int, timeout: float = DEADLINE) -> Any:
        """Return the next event of one call; those of others wait."""
        passed = []
        try:
            while True:
                event = self.next_event(timeout)
                if isinstance(event, Failed) and event.call == 0:
                    raise event.error  # type: ignore[misc]
                if not isinstance(event, Welcome) and event.call == call:
                    return event
                if not isinstance(event, Welcome):
                    passed.append(event)
        finally:
            self.events[:0] = passed

    def event_within(self, call: int, timeout: float) -> Any | None:
        """Return the next event of a call, or None if there is none for so long."""
        try:
            return self.event_of(call, timeout)
        except TimeoutError:
            return None

    def finish(self, call: int, timeout: float = DEADLINE) -> Any:
        """Return the result of a call, or of a stream (events, end); raises its error."""
        items: list[Any] = []
        operation = OPERATIONS[self.operations[call]]
        while True:
            event = self.event_of(call, timeout)
            if isinstance(event, Failed):
                assert isinstance(event.error, SandboxError)
                raise event.error
            if isinstance(event, Result):
                return decode(operation.result, event.value, event.body)
            if isinstance(event, End):
                return items, decode(operation.result, event.value, event.body)
            assert isinstance(event, Item)
            assert operation.event is not None
            items.append(decode(operation.event, event.value, event.body))
            if self.granting:
                self.send(self.protocol.grant(call, event.size))

    def call(self, operation: str, **fields: Any) -> Any:
        return self.finish(self.begin(operation, **fields))

    def run(self, *argv: str, **fields: Any) -> tuple[bytes, bytes, Any]:
        """exec: return (stdout, stderr, ExecResult)."""
        items, end = self.call("exec", argv=list(argv), **fields)
        return join(items, "stdout"), join(items, "stderr"), end


def join(items: list[Any], stream: str) -> bytes:
    return b"".join(each.data for each in items if each.stream == stream)


class Channel:
    """A relay's end of a kernel channel."""

    def __init__(self, client: Client, kernel_id: str) -> None:
        self.client = client
        call = client.begin("kernel.connect", kernel_id=kernel_id)
        client.protocol.become_channel()
        self.info: Record = client.finish(call)
        self.offset: int | None = None
        self.data = b""
        self.told: list[dict[str, Any]] = []
        self.taken = 0

    def input(self, data: bytes) -> None:
        self.client.send(self.client.protocol.channel_frame(FrameKind.INPUT, data))

    def ack(self, offset: int) -> None:
        self.client.send(
            self.client.protocol.channel_frame(FrameKind.ACK, offset.to_bytes(8, "big"))
        )

    def control(self, **order: Any) -> None:
        self.client.send(
            self.client.protocol.channel_frame(FrameKind.CONTROL, json.dumps(order).encode())
        )

    def step(self, timeout: float = DEADLINE) -> None:
        """Take one frame."""
        frame = self.client.next_event(timeout)
        assert isinstance(frame, ChannelFrame)
        payload = bytes(frame.payload)  # type: ignore[call-overload]
        if frame.kind is FrameKind.EVENT:
            self.told.append(json.loads(payload))
            return
        if frame.kind is FrameKind.ACK:
            self.taken = int.from_bytes(payload, "big")
            return
        assert frame.kind is FrameKind.DATA
        offset = int.from_bytes(payload[:8], "big")
        if self.offset is None:
            self.offset = offset
        assert offset == self.offset + len(self.data), "a gap or a repeat"
        self.data += payload[8:]

    @property
    def end(self) -> int:
        return (self.offset or 0) + len(self.data)

    def read_until(self, wanted: bytes, timeout: float = DEADLINE) -> bytes:
        deadline = time.monotonic() + timeout
        while wanted not in self.data:
            self.step(max(0.01, deadline - time.monotonic()))
        return self.data

    def event(self, timeout: float = DEADLINE) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while not self.told:
            self.step(max(0.01, deadline - time.monotonic()))
        return self.told.pop(0)
