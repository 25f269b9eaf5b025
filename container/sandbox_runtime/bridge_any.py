"""Runs any Jupyter kernel as the runtime runs its own: ``... bridge_any [--tcp] -- ARGV``.

The kernel gets a connection file and sockets that nobody else can see; records on 0 and 1 become
messages on these sockets and back.  ``--tcp`` is for kernels that know no other sockets.
"""

# ruff: noqa: PLC0415 - the descriptors are set up before anything slow is imported

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque

from sandbox_kernel.wire.kernel import Channel
from sandbox_runtime.kernel_main import claim_descriptors, forget_package_path
from sandbox_runtime.kernel_pipe import KernelPipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["Bridge", "main"]

_DELIMITER = b"<IDS|MSG>"
_IDENTITY = b"bridge"
_PORTS = {"shell": 1, "iopub": 2, "stdin": 3, "control": 4, "hb": 5}
_ASK_AGAIN = 0.5
_ASK_MOST = 5
"""Questions after which an answer is enough, though the kernel broadcasts nothing about them."""

_REST = 0.1
"""Seconds of silence after which an ended kernel has nothing more to say."""


def main() -> None:
    """Run the kernel named by the arguments; ends as the kernel ends."""
    # Not "ignore", which a child would inherit: the interrupt is the kernel's, not ours.
    signal.signal(signal.SIGINT, lambda *_: None)
    at = sys.argv.index("--")
    argv = sys.argv[at + 1 :]
    in_fd, out_fd, stderr_fd = claim_descriptors()
    os.close(stderr_fd)
    forget_package_path()
    folder = tempfile.mkdtemp(prefix="kernel-")
    try:
        status = Bridge(argv, folder, tcp="--tcp" in sys.argv[:at]).run(in_fd, out_fd)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if status < 0:
        with contextlib.suppress(OSError):  # some signals have no handler to take away
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    # Nothing here needs an orderly end, and the pipe's thread might hold one up.
    os._exit(status)


class Bridge:
    """One kernel process, the sockets to it, and the pipe to the runtime.

    Parameters
    ----------
    argv : list of str
        The kernel's command; ``{connection_file}`` is replaced.
    folder : str
        A private folder.
    tcp : bool
        Use ports of the loopback device instead of sockets in the folder.
    """

    def __init__(self, argv: Sequence[str], folder: str, *, tcp: bool) -> None:
        # Whoever may enter the folder is trusted; ports are open to every process of the sandbox.
        self._key = secrets.token_hex(16).encode() if tcp else b""
        ports = _free_ports() if tcp else _PORTS
        place = "127.0.0.1" if tcp else os.path.join(folder, "s")
        form = "tcp://{}:{}" if tcp else "ipc://{}-{}"
        self._addresses = {name: form.format(place, port) for name, port in ports.items()}
        self._connection_file = os.path.join(folder, "kernel.json")
        connection = {
            "transport": "tcp" if tcp else "ipc",
            "ip": place,
            "key": self._key.decode(),
            "signature_scheme": "hmac-sha256",
            "kernel_name": "",
            **{f"{name}_port": port for name, port in ports.items()},
        }
        with open(self._connection_file, "w") as file:
            json.dump(connection, file)
        self._argv = [each.replace("{connection_file}", self._connection_file) for each in argv]
        self._requests: deque[tuple[Channel, list[Any], list[Any]]] = deque()
        self._requests_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ended = False

    def run(self, in_fd: int, out_fd: int) -> int:
        """Carry messages until the kernel ends; returns its exit status, negative for a signal."""
        import zmq

        # In our process group: a signal to the group is a signal to the kernel.
        process = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL)
        exit_fd = os.pidfd_open(process.pid)
        context = zmq.Context()
        self._sockets = {
            Channel.SHELL: self._connect(context, zmq.DEALER, "shell"),
            Channel.CONTROL: self._connect(context, zmq.DEALER, "control"),
            Channel.STDIN: self._connect(context, zmq.DEALER, "stdin"),
            Channel.IOPUB: self._connect(context, zmq.SUB, "iopub"),
        }
        self._poller = zmq.Poller()
        self._poller.register(exit_fd, zmq.POLLIN)
        for each in self._sockets.values():
            self._poller.register(each, zmq.POLLIN)
        self._pipe = pipe = KernelPipe(in_fd, out_fd, lambda _: b"{}")
        if self._wait_until_ready(exit_fd):
            self._poller.register(self._requests_fd, zmq.POLLIN)
            pipe.put(Channel.META, (), (b'{"op":"ready"}',))
            pipe.start(self._take, self._end)
            pipe.release()
            self._carry(exit_fd)
        if self._ended:
            process.terminate()
            try:
                process.wait(1.0)
            except subprocess.TimeoutExpired:
                process.kill()
        status = process.wait()
        pipe.flush(5.0)
        return status

    def _connect(self, context: Any, kind: int, name: str) -> Any:
        import zmq

        each = context.socket(kind)
        # Nothing is dropped for being too much: the pipe makes the kernel wait, in the end.
        each.sndhwm = each.rcvhwm = 0
        each.linger = 0
        each.reconnect_ivl = 5
        if kind == zmq.SUB:
            each.subscribe = b""
        else:
            # One identity on all: the kernel asks for input whoever sent the shell request.
            each.routing_id = _IDENTITY
        each.connect(self._addresses[name])
        return each

    def _take(self, channel: Channel, identities: list[Any], parts: list[Any]) -> None:
        """Note a request; on the pipe's thread, which may not use the sockets."""
        self._requests.append((channel, identities, parts))
        os.eventfd_write(self._requests_fd, 1)

    def _end(self, _status: int, _why: str) -> None:
        """Note that the runtime has gone; on the pipe's thread."""
        self._ended = True
        os.eventfd_write(self._requests_fd, 1)

    def _wait_until_ready(self, exit_fd: int) -> bool:
        """Ask until shell and iopub both work; False if the kernel ends before.

        A subscription that comes after the first output loses it, and only an output tells.
        """
        shell, iopub = self._sockets[Channel.SHELL], self._sockets[Channel.IOPUB]
        number = 0
        while True:
            number += 1
            header = {
                "msg_id": f"bridge-{number}",
                "msg_type": "kernel_info_request",
                "username": "bridge",
                "session": "bridge",
                "date": time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime()),
                "version": "5.3",
            }
            self._send(Channel.SHELL, [], [json.dumps(header).encode(), b"{}", b"{}", b"{}"])
            answered = heard = False
            deadline = time.monotonic() + _ASK_AGAIN * min(number, 10)
            while not (answered and heard) and (left := deadline - time.monotonic()) > 0:
                for source, _ in self._poller.poll(int(left * 1000) + 1):
                    if source == exit_fd:
                        return False
                    parts = source.recv_multipart()
                    answered = answered or (
                        source is shell and header["msg_id"].encode() in parts[3]
                    )
                    heard = heard or (
                        source is iopub and header["msg_id"].encode() in b"".join(parts)
                    )
            if answered and (heard or number >= _ASK_MOST):
                self._forget_answers()
                return True

    def _forget_answers(self) -> None:
        """Drop what is left of our own questions."""
        deadline = time.monotonic() + _REST
        while (left := deadline - time.monotonic()) > 0:
            for source, _ in self._poller.poll(int(left * 1000) + 1):
                if not hasattr(source, "recv_multipart"):
                    return
                if b'"idle"' in b"".join(source.recv_multipart()):
                    return

    def _carry(self, exit_fd: int) -> None:
        channels = {each: channel for channel, each in self._sockets.items()}
        running = True
        while not self._ended:
            ready = self._poller.poll(None if running else int(_REST * 1000))
            if not ready:
                return
            for source, _ in ready:
                if source == exit_fd:
                    self._poller.unregister(exit_fd)
                    running = False
                elif source == self._requests_fd:
                    os.eventfd_read(source)
                    while self._requests:
                        self._send(*self._requests.popleft())
                else:
                    self._receive(channels[source], source)

    def _send(self, channel: Channel, identities: list[Any], parts: list[Any]) -> None:
        if channel in self._sockets and channel != Channel.IOPUB:
            frames = [*identities, _DELIMITER, self._sign(parts[:4]), *parts]
            self._sockets[channel].send_multipart(frames)

    def _sign(self, parts: Sequence[Any]) -> bytes:
        if not self._key:
            return b""
        digest = hmac.new(self._key, digestmod=hashlib.sha256)
        for part in parts:
            digest.update(part)
        return digest.hexdigest().encode()

    def _receive(self, channel: Channel, source: Any) -> None:
        """Take what a socket has, but not for ever: the others have something too."""
        import zmq

        for _ in range(64):
            try:
                frames = source.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            at = frames.index(_DELIMITER)
            parts = frames[at + 2 :]
            if channel == Channel.IOPUB:
                if b"iopub_welcome" in parts[0]:
                    continue
                # Idle ends a request; nothing is gained by waiting for more.
                self._pipe.put(channel, (), parts)
                if b'"idle"' in parts[3]:
                    self._pipe.release()
            else:
                self._pipe.put(channel, frames[:at], parts)
                self._pipe.release()


def _free_ports() -> dict[str, int]:
    """Return ports that are free at the moment."""
    sockets = {name: socket.create_server(("127.0.0.1", 0)) for name in _PORTS}
    ports = {name: each.getsockname()[1] for name, each in sockets.items()}
    for each in sockets.values():
        each.close()
    return ports


if __name__ == "__main__":
    main()
