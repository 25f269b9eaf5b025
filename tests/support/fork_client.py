"""Kernels of a fork server: the same records, another way to start."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.support.record_kernel import RecordConnection, kernel_env

__all__ = ["ForkServer", "ForkedConnection"]


class ForkServer:
    """A fork server and the runtime's end of its socket."""

    def __init__(self, cwd: Path) -> None:
        self.socket, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-Xfrozen_modules=off",
                "-m",
                "sandbox_runtime.forkserver",
                "--fd",
                str(theirs.fileno()),
            ],
            cwd=cwd,
            env=kernel_env(cwd),
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()

    def ask(self, request: Any, fds: Sequence[int]) -> dict[str, Any]:
        """Send a request with its descriptors; return the answer."""
        socket.send_fds(self.socket, [json.dumps(request).encode() + b"\n"], fds)
        self.socket.settimeout(30.0)
        answer = b""
        while not answer.endswith(b"\n"):
            answer += self.socket.recv(4096)
        found: dict[str, Any] = json.loads(answer)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()
        self.process.wait(10.0)


class ForkedConnection(RecordConnection):
    """Speaks to a kernel that a fork server has forked."""

    def __init__(self, server: ForkServer, cwd: Path, env: dict[str, str] | None = None) -> None:
        self.server = server
        super().__init__(cwd, (), env)

    def _spawn(self, cwd: Path, argv: Sequence[str], env: dict[str, str]) -> tuple[int, int, int]:
        in_read, in_write = os.pipe()
        out_read, out_write = os.pipe()
        fds = [in_read, out_write, self.errors.fileno()]
        request = {"env": kernel_env(cwd) | env, "cwd": str(cwd), "kernel_id": "k"}
        answer = self.server.ask(request, fds)
        os.close(in_read)
        os.close(out_write)
        return answer["pid"], in_write, out_read

    def is_alive(self) -> bool:
        """Whether it runs; whoever adopts orphans here may not have reaped it yet."""
        try:
            with open(f"/proc/{self.pid}/stat") as stat:
                return stat.read().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False

    def end(self) -> None:
        deadline = time.monotonic() + 5.0
        while self.is_alive() and time.monotonic() < deadline:
            self.receive(0.05)
            time.sleep(0.01)
        if self.is_alive():
            os.killpg(self.pid, signal.SIGKILL)
