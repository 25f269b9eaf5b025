"""A Docker daemon for one test, on a small disk of its own: it may be ended, filled up and killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from sandbox_kernel.engines import docker_daemon
from sandbox_kernel.engines.docker import DockerEngine
from tests.support.docker import BARE, client, need_docker

__all__ = ["OwnDaemon"]

_DISK = 700 << 20
_PATIENCE = 30.0


class OwnDaemon:
    """A second daemon; use it in ``with``, which skips the test where there can be none."""

    image = BARE

    def __init__(self) -> None:
        need_docker()
        if os.geteuid() != 0 or shutil.which("dockerd") is None:
            pytest.skip("only root can start a daemon")
        # Short: the path of a socket has 107 bytes at most.
        self.folder = Path(tempfile.mkdtemp(prefix="dockerd-", dir="/run"))
        self.data = self.folder / "data"
        self.host = f"unix://{self.folder}/docker.sock"
        self.pid_file = self.folder / "pid"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        (self.folder / "daemon.json").write_text("{}")
        self.data.mkdir()
        disk = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "none", str(self.data)]
        subprocess.run(disk, check=True)
        try:
            self.start()
            with client() as theirs, contextlib.closing(self.client()) as its:
                its.load_image(theirs.get_image(self.image))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        subprocess.run(["umount", "-R", str(self.data)], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def client(self) -> Any:
        """Return a connection to it, which the caller closes."""
        return docker_daemon.connect(self.host)

    def start(self) -> None:
        """Start it, and return when it answers."""
        self._spawn()
        deadline = time.monotonic() + _PATIENCE
        while not self._answers():
            assert time.monotonic() < deadline, (self.folder / "log").read_text()[-3000:]
            time.sleep(0.02)

    def _answers(self) -> bool:
        probe = DockerEngine(host=self.host, image="none").probe()
        return probe.cause.startswith("there is no")

    def _spawn(self) -> None:
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    # A daemon without a bridge removes that of every other: it gets a network of its own.
                    *("unshare", "--net"),
                    *("dockerd", "--host", self.host, "--data-root", str(self.data)),
                    *("--exec-root", str(self.folder / "exec")),
                    *("--pidfile", str(self.pid_file), "--bridge", "none"),
                    *("--iptables=false", "--config-file", str(self.folder / "daemon.json")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def stop(self) -> None:
        """End it in an orderly way."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_PATIENCE)
            self._process = None

    @contextlib.contextmanager
    def kept_running(self) -> Iterator[None]:
        """Start it anew whenever it has ended, until the end of the block."""
        is_over = threading.Event()

        def keep() -> None:
            while not is_over.is_set():
                process = self._process
                assert process is not None
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.1)
                    self._spawn()

        keeper = threading.Thread(target=keep)
        keeper.start()
        try:
            yield
        finally:
            is_over.set()
            keeper.join()
            # The last one may have come up a moment ago, and takes a signal when it answers.
            deadline = time.monotonic() + _PATIENCE
            while not self._answers() and time.monotonic() < deadline:
                time.sleep(0.05)
