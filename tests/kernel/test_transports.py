"""How clients reach a relay: encrypted or not, over TCP or local sockets, signed in any case."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from jupyter_client.manager import KernelManager
from jupyter_client.session import Session

from tests.kernel.conftest import RelayConnection
from tests.support.jupyter_home import JupyterHome
from tests.support.kernel_driver import KERNEL, Kernel
from tests.support.plain_engine import REFERENCE

_REPOSITORY = str(Path(__file__).resolve().parents[2])


@pytest.fixture(params=["tcp", "ipc", "curve"])
def manager(home: JupyterHome, request: pytest.FixtureRequest) -> Iterator[KernelManager]:
    manager = KernelManager(
        kernel_name=KERNEL,
        connection_file=str(home.runtime / "k.json"),
        transport="ipc" if request.param == "ipc" else "tcp",
        transport_encryption="required" if request.param == "curve" else "disabled",
    )
    manager.start_kernel(
        env=home.env(SANDBOX_ENGINE=REFERENCE, PYTHONPATH=_REPOSITORY), cwd=str(home.work)
    )
    yield manager
    manager.shutdown_kernel(now=False)
    manager.context.destroy(linger=0)


def test_every_way_to_a_relay_works(manager: KernelManager) -> None:
    """A cell, its outputs and the heartbeat, as jupyter_client itself does them."""
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    seen: list[str] = []
    reply = client.execute_interactive(
        "print('hello')", timeout=30, output_hook=lambda m: seen.append(m["msg_type"])
    )

    assert reply["content"]["status"] == "ok"
    # A print is sometimes two messages: the text and its newline.
    assert list(dict.fromkeys(seen[:-1])) == ["status", "execute_input", "stream"]
    assert seen[-1] == "status"
    assert client.hb_channel.is_beating()
    client.stop_channels()
    if manager.transport_encryption == "required":
        plain_sockets_get_nothing(manager.connection_file)


def plain_sockets_get_nothing(connection_file: str) -> None:
    """A client without the key hears nothing and gets no heartbeat back."""
    with open(connection_file) as file:
        info = json.load(file)
    with zmq.Context() as context, context.socket(zmq.REQ) as heartbeat:
        heartbeat.linger = 0
        heartbeat.connect(f"tcp://127.0.0.1:{info['hb_port']}")
        heartbeat.send(b"ping")
        assert not heartbeat.poll(500)


def test_unsigned_wrongly_signed_and_repeated_messages_are_dropped(
    shared_kernel: Kernel, shared_connection: RelayConnection
) -> None:
    """None of them reaches the interpreter, and the relay goes on."""
    with open(shared_connection.connection_file) as file:
        info = json.load(file)
    session = Session(key=info["key"].encode(), signature_scheme=info["signature_scheme"])
    content = {"code": "forged = 1", "silent": False, "store_history": False}
    good = session.serialize(session.msg("execute_request", content))
    with zmq.Context() as context, context.socket(zmq.DEALER) as shell:
        shell.linger = 0
        shell.connect(f"tcp://127.0.0.1:{info['shell_port']}")
        for frames in (
            [good[0], b"", *good[2:]],
            [good[0], b"0" * 64, *good[2:]],
            [*good[:-1], good[-1].replace(b"forged", b"forces")],
            [b"<IDS|MSG>"],
            [b"nonsense"],
            [b"", b""],
            [good[0], good[1]],
        ):
            shell.send_multipart(frames)
        assert not shell.poll(500)
        assert shared_kernel.value("'forged' in dir(), 'forces' in dir()") == (False, False)

        shell.send_multipart(good)
        assert shell.poll(10_000)
        shell.recv_multipart()
        shell.send_multipart(good)
        assert not shell.poll(500)
    assert shared_kernel.value("forged") == 1


def test_the_key_is_never_shown(shared_connection: RelayConnection) -> None:
    """It stays in the file that only its owner may read."""
    from sandbox_kernel.kernel.connection import read_connection_file

    info = read_connection_file(str(shared_connection.connection_file))

    assert info.key.decode() not in repr(info)
    assert os.stat(shared_connection.connection_file).st_mode & 0o077 == 0
