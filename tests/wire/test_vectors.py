"""Golden bytes: what version 1 looks like, for ever.  Other languages read the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.wire.kernel import Channel, RecordReader, encode_record
from sandbox_kernel.wire.rpc import FrameKind, FrameReader, encode_frame

FOLDER = Path(__file__).parents[1] / "vectors"
FRAMES = json.loads((FOLDER / "frames.json").read_text())["vectors"]
RECORDS = json.loads((FOLDER / "kernel_records.json").read_text())["vectors"]
CONVERSATION = json.loads((FOLDER / "conversation.json").read_text())["vectors"]


@pytest.mark.parametrize("vector", FRAMES, ids=lambda vector: vector["name"])
def test_frames(vector: dict[str, Any]) -> None:
    """Encoding gives the bytes, and the bytes give the frame."""
    kind, payload = FrameKind[vector["kind"]], bytes.fromhex(vector["payload"])
    data = bytes.fromhex(vector["bytes"])

    assert encode_frame(kind, vector["call"], payload) == data
    ((seen_kind, call, seen),) = FrameReader().feed(data)
    assert (seen_kind, call, bytes(seen)) == (kind, vector["call"], payload)


@pytest.mark.parametrize("vector", RECORDS, ids=lambda vector: vector["name"])
def test_kernel_records(vector: dict[str, Any]) -> None:
    """Likewise for kernel records."""
    channel = Channel[vector["channel"]]
    identities = [bytes.fromhex(each) for each in vector["identities"]]
    parts = [bytes.fromhex(each) for each in vector["parts"]]
    data = bytes.fromhex(vector["bytes"])

    assert encode_record(channel, identities, parts) == data
    ((seen, seen_identities, seen_parts),) = RecordReader().feed(data)
    assert seen is channel
    assert [bytes(each) for each in seen_identities] == identities
    assert [bytes(each) for each in seen_parts] == parts


@pytest.mark.parametrize("vector", CONVERSATION, ids=lambda vector: vector["name"])
def test_both_ends_say_exactly_this(vector: dict[str, Any]) -> None:
    """Each message of a whole conversation is made of these bytes."""
    from sandbox_kernel.errors import SandboxError
    from sandbox_kernel.wire.rpc import ClientConnection, ServerConnection

    client, server = ClientConnection(), ServerConnection()
    say: dict[str, Any] = {
        "hello": lambda: client.hello("secret", "vectors"),
        "welcome": lambda: server.welcome(1, "dev", "0123456789abcdef"),
        "call": lambda: client.call("exec", {"argv": ["cat"], "body": True}, b"in")[1],
        "item": lambda: server.item(
            1, {"stream": "stdout", "cursor": "c-1", "timestamp": 1.5, "body": True}, b"\x00\xff"
        ),
        "end": lambda: server.end(1, {"process_id": "p-1", "exit_code": 0, "duration": 0.25}),
        "error": lambda: server.failed(2, SandboxError("No.", hint="Why not?", context={"a": 1})),
        "cancel": lambda: client.cancel(3),
        "credit": lambda: client.grant(1, 65536),
    }

    assert say[vector["name"]]() == bytes.fromhex(vector["bytes"])
