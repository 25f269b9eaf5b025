"""A kernel of the sandbox without its sandbox: records over two pipes, no relay in between."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sandbox_kernel
import sandbox_runtime
from sandbox_kernel.wire.kernel import Channel, RecordReader, encode_record
from tests.support.kernel_driver import Kernel, Message

__all__ = ["KERNEL_MAIN", "RecordConnection", "package_path", "start"]

KERNEL_MAIN = [sys.executable, "-Xfrozen_modules=off", "-m", "sandbox_runtime.kernel_main"]

_NAMES = {
    Channel.SHELL: "shell",
    Channel.CONTROL: "control",
    Channel.STDIN: "stdin",
    Channel.IOPUB: "iopub",
}
_NUMBERS = {name: number for number, name in _NAMES.items()}


def package_path() -> str:
    """Return the PYTHONPATH under which the runtime's packages are found."""
    roots = (Path(module.__file__ or "").parents[1] for module in (sandbox_runtime, sandbox_kernel))
    return os.pathsep.join(map(str, roots))


class RecordConnection:
    """Starts a program that speaks records on its standard input and output.

    Parameters
    ----------
    cwd : path
        Where it runs; also its home.
    argv : list of str
        The program.
    env : dict
        More environment variables.
    """

    def __init__(
        self, cwd: Path, argv: Sequence[str] = KERNEL_MAIN, env: dict[str, str] | None = None
    ) -> None:
        self.session = uuid.uuid4().hex
        self.identity = b"client"
        self.reader = RecordReader()
        self.meta: list[dict[str, Any]] = []
        self.first: Channel | None = None
        self.raw: list[tuple[Channel, list[bytes], list[bytes]]] = []
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self.is_ended = False
        self.pid, self.to_kernel, self.from_kernel = self._spawn(cwd, argv, env or {})

    def _spawn(self, cwd: Path, argv: Sequence[str], env: dict[str, str]) -> tuple[int, int, int]:
        in_read, in_write = os.pipe()
        out_read, out_write = os.pipe()
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=kernel_env(cwd) | env,
            stdin=in_read,
            stdout=out_write,
            stderr=self.errors,
            start_new_session=True,
        )
        os.close(in_read)
        os.close(out_write)
        return self.process.pid, in_write, out_read

    def send(self, channel: str, message: Message) -> None:
        """Write a request as a relay does."""
        parts = [
            json.dumps(message[part]).encode()
            for part in ("header", "parent_header", "metadata", "content")
        ]
        self.write(encode_record(_NUMBERS[channel], [self.identity], [*parts, *message["buffers"]]))

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.to_kernel, view) :]

    def receive(self, timeout: float) -> list[Message]:
        """Wait at most `timeout` seconds for records; return those that are messages."""
        if self.is_ended:
            time.sleep(timeout)
            return []
        messages: list[Message] = []
        while not messages and select.select([self.from_kernel], [], [], timeout)[0]:
            data = os.read(self.from_kernel, 1 << 20)
            if not data:
                self.is_ended = True
                break
            for channel, identities, parts in self.reader.feed(data):
                record = (channel, [bytes(i) for i in identities], [bytes(p) for p in parts])
                self.first = self.first or channel
                self.raw.append(record)
                if channel == Channel.META:
                    self.meta.append(json.loads(record[2][0]))
                else:
                    messages.append(message_of(*record))
        return messages

    def interrupt(self) -> None:
        """Signal the process group, as the runtime does."""
        os.killpg(self.pid, signal.SIGINT)

    def restart(self) -> None:
        raise NotImplementedError

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def wait(self, timeout: float = 10.0) -> int:
        """Wait for the end of the process; return its exit code."""
        return self.process.wait(timeout)

    def said(self) -> str:
        """Return what it wrote to its own stderr."""
        self.errors.seek(0)
        return self.errors.read().decode()

    def close(self) -> None:
        if self.errors.closed:
            return
        os.close(self.to_kernel)
        self.end()
        os.close(self.from_kernel)
        self.errors.close()

    def end(self) -> None:
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill_group()
            self.process.wait()

    def kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def kernel_env(home: Path) -> dict[str, str]:
    """Return the environment of a kernel: nothing of the user who runs the tests."""
    return {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "PYTHONPATH": package_path(),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }


def message_of(channel: Channel, identities: list[bytes], parts: list[bytes]) -> Message:
    """Return a record as the message that a relay makes of it; everything must be valid JSON."""
    if channel == Channel.STREAM:
        name, parent, text = parts
        return {
            "channel": "iopub",
            "identities": identities,
            "header": {"msg_type": "stream"},
            "parent_header": json.loads(parent),
            "metadata": {},
            "content": {"name": name.decode(), "text": text.decode()},
            "buffers": [],
        }
    header, parent, metadata, content = (json.loads(part.decode()) for part in parts[:4])
    return {
        "channel": _NAMES[channel],
        "identities": identities,
        "header": header,
        "parent_header": parent,
        "metadata": metadata,
        "content": content,
        "buffers": parts[4:],
    }


def start(connection: RecordConnection) -> Kernel:
    """Return a client of a kernel that takes messages by now."""
    kernel = Kernel(connection)
    kernel.wait_until(lambda: bool(connection.meta), 30.0, "the first record")
    return kernel
