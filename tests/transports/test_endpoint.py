"""Connecting to a runtime, wherever it listens."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from sandbox_kernel.errors import ContainerUnavailableError
from sandbox_kernel.transports.endpoint import Endpoint, connect


def endpoint(where: str) -> Endpoint:
    return Endpoint(sandbox_id="box", socket=where, token="secret")


def test_by_tcp() -> None:
    """What is written goes out at once, and the socket blocks whatever the time limit was."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        with connect(endpoint(f"tcp://127.0.0.1:{port}"), timeout=5) as client:
            assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert client.gettimeout() is None
    with pytest.raises(ContainerUnavailableError, match="refused"):
        connect(endpoint(f"tcp://127.0.0.1:{port}"), timeout=5)


def test_by_a_long_path(tmp_path: Path) -> None:
    """An address holds 107 bytes of a path; ours may have more."""
    folder = tmp_path / ("deep" * 30)
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        short = tmp_path / "short"
        short.symlink_to(folder)
        listener.bind(f"{short}/s")
        listener.listen()

        connect(endpoint(f"{folder}/s"), timeout=5).close()


def test_the_secret_is_not_shown() -> None:
    """An endpoint ends up in messages and logs."""
    assert "secret" not in repr(endpoint("tcp://127.0.0.1:1"))
