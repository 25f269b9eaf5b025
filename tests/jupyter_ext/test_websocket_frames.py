"""Frames as a server reads them, whatever way they come; judged by another implementation."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import ProtocolError
from websockets.frames import Close, Frame, Opcode

from jupyter_ext.websocket_frames import (
    CLOSE,
    PING,
    PONG,
    FrameError,
    FrameParser,
    close_payload,
    read_close,
)

MOST = 100_000
MESSAGES = st.one_of(st.text(max_size=300), st.binary(max_size=70_000))


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True) -> bytes:
    return Frame(Opcode(opcode), payload, fin).serialize(mask=True)


def fed(data: bytes, cuts: list[int], most: int = MOST) -> list[object]:
    parser, found, at = FrameParser(most), [], 0
    for cut in [*sorted(cuts), len(data)]:
        if cut > at:
            found += parser.feed(data[at:cut])
            at = cut
        if found and isinstance(found[-1], FrameError):
            break
    return found


@given(st.lists(st.tuples(MESSAGES, st.lists(st.integers(0, 70_000), max_size=3))), st.data())
def test_messages_come_out_whatever_cuts_them(
    messages: list[tuple[str | bytes, list[int]]], data: st.DataObject
) -> None:
    """Reads and fragments cut anywhere, and control frames come in between."""
    sent, expected = b"", []
    for message, fragments in messages:
        payload = message.encode() if isinstance(message, str) else message
        opcode = 1 if isinstance(message, str) else 2
        bounds = [0, *sorted(min(each, len(payload)) for each in fragments), len(payload)]
        for number, (begin, end) in enumerate(itertools.pairwise(bounds)):
            sent += frame(
                0 if number else opcode, payload[begin:end], fin=number == len(bounds) - 2
            )
            if number % 2:
                sent += frame(PING, b"?")
                expected.append((PING, b"?"))
        expected.append(message)
    cuts = data.draw(st.lists(st.integers(0, len(sent)), max_size=8))

    found = fed(sent, cuts)

    controls = [each for each in expected if isinstance(each, tuple)]
    assert [each for each in found if isinstance(each, tuple)] == controls
    rest = [each for each in expected if not isinstance(each, tuple)]
    assert [each for each in found if not isinstance(each, tuple)] == rest


def wrong() -> Iterator[tuple[str, bytes, int]]:
    key = b"\x01\x02\x03\x04"
    yield "no mask", b"\x82\x01x", 1002
    for bit in (0x40, 0x20, 0x10):
        yield f"reserved bit {bit}", bytes((0x82 | bit, 0x81)) + key + b"x", 1002
    for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15):
        yield f"opcode {opcode}", bytes((0x80 | opcode, 0x80)) + key, 1002
    yield "ping in fragments", b"\x09\x80" + key, 1002
    yield "long ping", b"\x89\xfe\x00\x7e" + key + bytes(126), 1002
    yield "nothing to continue", b"\x80\x80" + key, 1002
    yield "new message among fragments", frame(2, b"a", fin=False) + frame(1, b"b"), 1002
    yield "two bytes for a short length", b"\x82\xfe\x00\x7d" + key + bytes(125), 1002
    yield "eight bytes for a short length", b"\x82\xff" + bytes(6) + b"\xff\xff" + key, 1002
    yield "too long", b"\x82\xff" + (MOST + 1).to_bytes(8, "big"), 1009
    yield "length with its highest bit", b"\x82\xff\x80" + bytes(7), 1002
    yield "too long together", frame(2, bytes(60_000), fin=False) + frame(0, bytes(60_000)), 1009
    yield "no UTF-8", frame(1, b"\xff"), 1007
    yield "half a character", frame(1, b"\xe6\xb2"), 1007


@pytest.mark.parametrize(
    ("data", "code"), [each[1:] for each in wrong()], ids=[e[0] for e in wrong()]
)
@pytest.mark.parametrize("bytewise", [False, True])
def test_what_breaks_the_protocol_is_refused(data: bytes, code: int, bytewise: bool) -> None:  # noqa: FBT001
    """It is the last of what came, behind what was right, and has the code to close with."""
    whole = frame(2, b"right") + data
    found = fed(whole, list(range(len(whole))) if bytewise else [])

    assert found[0] == b"right"
    assert isinstance(found[-1], FrameError)
    assert found[-1].code == code


def test_a_length_that_is_refused_is_not_waited_for() -> None:
    """No byte of a message that is too long need come."""
    found = FrameParser(10).feed(b"\x82\x8b")

    assert isinstance(found[0], FrameError)


def test_fragments_without_content_cost_no_memory() -> None:
    """Any number of them is nothing."""
    parser = FrameParser(MOST)
    parser.feed(frame(2, b"", fin=False))
    for _ in range(1000):
        assert parser.feed(frame(0, b"", fin=False) * 10) == []
    assert parser.feed(frame(0, b"end")) == [b"end"]


def test_noise_never_raises() -> None:
    """Whatever comes, there are messages or one error."""
    chance = random.Random(3)  # noqa: S311  the same noise each time
    for _ in range(3000):
        good = frame(chance.choice((1, 2, 8, 9, 10)), b"x" * chance.randrange(120))
        data = bytearray(good * 2 + os.urandom(chance.randrange(20)))
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        found = fed(bytes(data), [chance.randrange(len(data)) for _ in range(3)])
        errors = [each for each in found if isinstance(each, FrameError)]
        assert errors in ([], found[-1:])


@given(st.binary(max_size=125))
def test_closes_are_read_as_another_implementation_does(payload: bytes) -> None:
    """Code and reason, or a refusal."""
    try:
        expected = Close.parse(payload)
    except (ProtocolError, UnicodeDecodeError):
        with pytest.raises(FrameError):
            read_close(payload)
    else:
        assert read_close(payload) == (expected.code, expected.reason)


@given(st.sampled_from([1000, 1001, 1008, 1011, 4000]), st.text(max_size=200))
def test_a_close_has_room_for_its_reason(code: int, reason: str) -> None:
    """What does not fit is cut between characters."""
    payload = close_payload(code, reason)
    found, said = read_close(payload)

    assert len(payload) <= 125
    assert found == code
    assert reason.startswith(said)


def test_control_frames_keep_their_kind() -> None:
    """Each with its content."""
    data = frame(PING, b"a") + frame(PONG, b"b") + frame(CLOSE, b"\x03\xe8")

    assert FrameParser(MOST).feed(data) == [(PING, b"a"), (PONG, b"b"), (CLOSE, b"\x03\xe8")]
