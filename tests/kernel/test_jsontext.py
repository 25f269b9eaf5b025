"""JSON from a sandbox is read within limits and written so that every client can read it."""

from __future__ import annotations

import json
import math

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.kernel.jsontext import MAX_DEPTH, MAX_ELEMENTS, Refused, read, write


def _is_clean(value: object) -> bool:
    if isinstance(value, dict):
        return all(_is_clean(key) and _is_clean(item) for key, item in value.items())
    if isinstance(value, list):
        return all(_is_clean(item) for item in value)
    if isinstance(value, str):
        return value == value.encode("utf-8", "replace").decode()
    return not isinstance(value, int) or isinstance(value, bool) or -(2**63) <= value < 2**64


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Nothing the sandbox writes raises anything but a refusal, and what is read can be written."""
    try:
        value = read(data)
    except Refused:
        return

    json.loads(write(value))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
        max_leaves=20,  # to make them is what takes the time
    )
)
def test_whatever_a_kernel_encodes_arrives_clean(value: object) -> None:
    """NaN, huge integers and lone surrogates become what every JSON parser takes."""
    arrived = read(json.dumps(value).encode())

    assert _is_clean(arrived)
    assert orjson.loads(write(arrived)) is not NotImplemented


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_is_bounded(opening: str) -> None:
    """A message one level deeper than the limit is refused, on the fast and on the slow path."""
    closing = {"[": "]", '{"a":': "}"}[opening]
    deepest = (opening * MAX_DEPTH + "1" + closing * MAX_DEPTH).encode()
    deeper = (opening * (MAX_DEPTH + 1) + "1" + closing * (MAX_DEPTH + 1)).encode()

    read(deepest)
    read(deepest.replace(b"1", b"NaN"))
    with pytest.raises(Refused):
        read(deeper)
    with pytest.raises(Refused):
        read(deeper.replace(b"1", b"NaN"))
    with pytest.raises(Refused):
        read((opening * 100_000).encode())


def test_a_wide_message_is_not_taken_for_a_deep_one() -> None:
    """Many small containers side by side pass."""
    assert read(b"[" + b",".join([b"[1]"] * 1000) + b"]") == [[1]] * 1000


def test_what_is_no_json_number_becomes_null_or_a_float() -> None:
    assert read(b"[NaN, Infinity, -Infinity]") == [None, None, None]
    assert read(b"123456789012345678901234567890") == pytest.approx(1.2345678901234568e29)
    assert write(math.inf) == b"null"


def test_the_last_of_two_equal_keys_counts_for_us_and_for_clients() -> None:
    """A message is judged by the same value that is sent on."""
    value = read(b'{"msg_type":"stream","msg_type":"display_data"}')

    assert write(value) == b'{"msg_type":"display_data"}'


@pytest.mark.parametrize(
    "data",
    [
        b"[" + b"[]," * MAX_ELEMENTS + b"1]",
        b"[" + b'"",' * MAX_ELEMENTS + b"1]",
        b'["\\\\",' + b'"\\"",' * MAX_ELEMENTS + b"1]",
        b"[" + b"1, " * MAX_ELEMENTS + b"1]",
        b"[" + b"[]," * 300_000 + b"NaN]",
        b'["' + b"x" * (17 << 20) + b'", NaN]',
        b'"' + b"x" * (128 << 20) + b'"',
    ],
    ids=["lists", "strings", "escapes", "numbers", "slow", "slow and long", "long"],
)
def test_what_takes_long_to_read_is_refused_unread(data: bytes) -> None:
    """An element takes fifty times its own size in memory, and time; few on the slow path."""
    with pytest.raises(Refused, match="JSON text of more than"):
        read(data)


@pytest.mark.parametrize("text", ["x" * (60 << 20), '{"a":[1,2]}\\' * 400_000])
def test_a_large_image_or_page_passes(text: str) -> None:
    """Strings are cheap, whatever is in them."""
    assert read(orjson.dumps({"data": {"text/html": text}})) == {"data": {"text/html": text}}


def test_a_figure_of_a_million_points_passes() -> None:
    assert len(read(b"[" + b"1.25, " * 1_900_000 + b"1]")) == 1_900_001


def test_only_what_stands_alone_of_a_pair_is_replaced() -> None:
    """Halves of characters, on the path that NaN leads to."""
    assert read(b'["\\ud83d\\ude00 \\ud800\\ud83dx\\ude00", NaN]') == [
        "\N{GRINNING FACE} \ufffd\ufffdx\ufffd",
        None,
    ]
