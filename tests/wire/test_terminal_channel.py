"""The terminal channel: every frame means the same at both ends, and cursors only what we made."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.errors import (
    InvalidTerminalCursorError,
    ProtocolViolationError,
    ValidationFailedError,
)
from sandbox_kernel.wire import terminal
from sandbox_kernel.wire.record import RECORDS, Record
from sandbox_kernel.wire.rpc import FrameKind, FrameReader, encode_frame

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "terminal_channel.json").read_text())
INCARNATION = "0123456789abcdef"


def record_of(vector: dict[str, Any]) -> Record:
    fields = {
        name: bytes.fromhex(value) if name == "data" else value
        for name, value in vector["fields"].items()
    }
    return RECORDS[vector["record"]](**fields)


@pytest.mark.parametrize("vector", VECTORS["to_the_viewer"], ids=lambda vector: vector["name"])
def test_what_a_viewer_is_told(vector: dict[str, Any]) -> None:
    """The runtime makes these bytes of an event, and a viewer the event of the bytes."""
    record, data = record_of(vector), bytes.fromhex(vector["bytes"])
    if isinstance(record, terminal.Output):
        made = encode_frame(FrameKind.DATA, 0, terminal.output_head(record.offset), record.data)
    else:
        kind, payload = terminal.event(record)
        made = encode_frame(kind, 0, payload)

    assert made == data
    ((kind, _, seen),) = FrameReader().feed(data)
    assert terminal.viewer_event(kind, seen) == record


@pytest.mark.parametrize("vector", VECTORS["to_the_runtime"], ids=lambda vector: vector["name"])
def test_what_a_viewer_says(vector: dict[str, Any]) -> None:
    """A viewer makes these bytes of an order, and the runtime the order of the bytes."""
    record, data = record_of(vector), bytes.fromhex(vector["bytes"])
    if isinstance(record, terminal.Input):
        made = encode_frame(FrameKind.INPUT, 0, record.data)
    elif isinstance(record, terminal.Acknowledge):
        kind, payload = terminal.acknowledge(record.offset)
        made = encode_frame(kind, 0, payload)
    else:
        kind, payload = terminal.control(record)
        made = encode_frame(kind, 0, payload)

    assert made == data
    ((kind, _, seen),) = FrameReader().feed(data)
    assert terminal.order(kind, seen) == record


@pytest.mark.parametrize("vector", VECTORS["refused_orders"], ids=lambda vector: vector["name"])
def test_a_bad_order_is_told_and_does_no_harm(vector: dict[str, Any]) -> None:
    """It is the viewer's mistake, not a breach of the protocol."""
    with pytest.raises(ValidationFailedError):
        terminal.order(FrameKind.CONTROL, memoryview(vector["payload"].encode()))


def test_frames_out_of_place_are_violations() -> None:
    """What only the other side may send, and offsets that are none."""
    for kind, payload in (
        (FrameKind.DATA, b"12345678x"),
        (FrameKind.ACK, b"123"),
        (FrameKind.EVENT, b"{}"),
    ):
        with pytest.raises(ProtocolViolationError):
            terminal.order(kind, memoryview(payload))
    for kind, payload in (
        (FrameKind.INPUT, b"x"),
        (FrameKind.DATA, b"123"),
        (FrameKind.EVENT, b"[]"),
        (FrameKind.EVENT, b'{"type":"replay"}'),
    ):
        with pytest.raises(ProtocolViolationError):
            terminal.viewer_event(kind, payload)


def test_events_of_a_newer_runtime_are_let_pass() -> None:
    """A viewer ignores what it does not know, and fields that it does not know."""
    assert terminal.viewer_event(FrameKind.EVENT, b'{"type":"colour","of":"sky"}') is None
    assert terminal.viewer_event(FrameKind.EVENT, b'{"type":"live","new":1}') == terminal.Live()


@pytest.mark.parametrize("vector", VECTORS["cursors"], ids=lambda vector: vector["cursor"])
def test_cursors(vector: dict[str, Any]) -> None:
    """A cursor has one spelling."""
    cursor = terminal.encode_cursor(vector["incarnation"], vector["terminal_id"], vector["offset"])

    assert cursor == vector["cursor"]
    assert vector["offset"] == terminal.decode_cursor(
        cursor, vector["incarnation"], vector["terminal_id"], vector["offset"]
    )


@given(st.text(min_size=1, max_size=128), st.integers(0, 2**64 - 1))
def test_a_cursor_gives_its_offset_back(terminal_id: str, offset: int) -> None:
    """Whatever the terminal is called; it is safe in a URL."""
    cursor = terminal.encode_cursor(INCARNATION, terminal_id, offset)

    assert terminal.decode_cursor(cursor, INCARNATION, terminal_id, 2**64) == offset
    assert not set(cursor) & set("+/=%&?#")


@given(st.text(max_size=60))
def test_other_text_is_no_cursor(text: str) -> None:
    """Nothing but the typed error comes of it."""
    with pytest.raises(InvalidTerminalCursorError):
        terminal.decode_cursor(text, INCARNATION, "t-1", 2**64)


def test_foreign_cursors_are_refused() -> None:
    """Of another terminal, another incarnation, the future; padded, or with spare bits set."""
    cursor = terminal.encode_cursor(INCARNATION, "t-1", 7)
    assert terminal.decode_cursor(cursor, INCARNATION, "t-1", 7) == 7
    spare = cursor[:-1] + chr(ord(cursor[-1]) + 1)
    padded = base64.urlsafe_b64encode(base64.urlsafe_b64decode(cursor + "==")).decode()

    for text, incarnation, terminal_id, end in (
        (cursor, INCARNATION, "t-2", 7),
        (cursor, "f" * 16, "t-1", 7),
        (cursor, INCARNATION, "t-1", 6),
        (padded, INCARNATION, "t-1", 7),
        (spare, INCARNATION, "t-1", 7),
        (cursor[:10], INCARNATION, "t-1", 7),
        (cursor + "\n", INCARNATION, "t-1", 7),
        ("x" * 5000, INCARNATION, "t-1", 7),
        ("é", INCARNATION, "t-1", 7),
    ):
        with pytest.raises(InvalidTerminalCursorError):
            terminal.decode_cursor(text, incarnation, terminal_id, end)
