"""Records to JSON and back: exact for what is legal, one error class for what is not."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.errors import ProtocolViolationError, ValidationFailedError
from sandbox_kernel.wire.codec import body_field, decode, dump_json, encode, load_json, pack, unpack
from sandbox_kernel.wire.operations import OPERATIONS, ExecRequest
from sandbox_kernel.wire.record import RECORDS, Record

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
TEXT = st.text(max_size=12)


def values_of(kind: str) -> st.SearchStrategy[Any]:
    """Legal values of an annotation."""
    if kind.endswith(" | None"):
        return st.none() | values_of(kind[: -len(" | None")])
    if kind.startswith("list["):
        return st.lists(values_of(kind[5:-1]), max_size=3)
    if kind.startswith("dict[str, "):
        return st.dictionaries(TEXT, values_of(kind[10:-1]), max_size=3)
    simple: dict[str, st.SearchStrategy[Any]] = {
        "str": TEXT,
        "int": st.integers(-(2**63), 2**63 - 1),
        "float": st.floats(allow_nan=False, allow_infinity=False),
        "bool": st.booleans(),
        "bytes": st.binary(max_size=40),
        "JSON": JSON_VALUES,
    }
    return simple[kind] if kind in simple else records_of(RECORDS[kind])


def records_of(cls: type[Record]) -> st.SearchStrategy[Record]:
    return st.fixed_dictionaries(
        {name: values_of(kind) for name, kind in cls.FIELDS.items() if name not in cls.DEFAULTS},
        optional={
            name: values_of(kind) for name, kind in cls.FIELDS.items() if name in cls.DEFAULTS
        },
    ).map(lambda fields: cls(**fields))


MESSAGES = sorted(
    {
        each
        for row in OPERATIONS.values()
        for each in (row.request, row.result, row.event)
        if each is not None
    },
    key=lambda cls: cls.__name__,
)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
@settings(max_examples=30)
@given(data=st.data())
def test_every_message_of_the_table_survives_the_wire(
    cls: type[Record], data: st.DataObject
) -> None:
    """What is encoded, packed, unpacked and decoded is what it was."""
    record = data.draw(records_of(cls))

    head, body = unpack(pack(*encode(record)))

    assert decode(cls, head, body) == record


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_at_most_one_field_is_bytes(cls: type[Record]) -> None:
    """A message has one body."""
    kinds = [kind for kind in cls.FIELDS.values() if kind in ("bytes", "bytes | None")]

    assert len(kinds) == (body_field(cls) is not None)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
@settings(max_examples=30)
@given(value=JSON_VALUES, body=st.binary(max_size=8))
def test_any_json_value_is_a_record_or_one_error(
    cls: type[Record], value: Any, body: bytes
) -> None:
    """A peer can send what it likes; the answer is a record or ValidationFailedError."""
    try:
        record = decode(cls, value, body)
    except ValidationFailedError:
        return
    assert isinstance(record, cls)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_one_error(payload: bytes) -> None:
    """Garbage never raises anything but ProtocolViolationError."""
    try:
        head, body = unpack(payload)
    except ProtocolViolationError:
        return
    assert isinstance(head, dict)
    assert isinstance(body, bytes)


@given(JSON_VALUES)
def test_json_survives(value: Any) -> None:
    """Every JSON value comes back."""
    assert load_json(dump_json(value)) == value


def test_names_that_are_no_text_survive() -> None:
    """Python's form of undecodable file names travels as escapes, and the bytes stay UTF-8."""
    name = os.fsdecode(b"caf\xe9 \xff")

    text = dump_json({"name": name, "other": "é😀"})

    assert load_json(text) == {"name": name, "other": "é😀"}
    assert os.fsencode(load_json(text)["name"]) == b"caf\xe9 \xff"
    text.decode()


@pytest.mark.parametrize(
    "text",
    [b"NaN", b"[Infinity]", b"-Infinity", b"", b"{", b"\xff", b"[" * 100_000, b'"\x01"', b"1 2"],
)
def test_what_is_no_json_is_a_violation(text: bytes) -> None:
    """NaN, nonsense, bad UTF-8 and endless nesting are one error."""
    with pytest.raises(ProtocolViolationError):
        load_json(text)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")]])
def test_we_do_not_send_what_is_no_json(value: object) -> None:
    """Our own mistakes are told to us."""
    with pytest.raises(ValueError, match="JSON"):
        dump_json(value)


def test_no_body_and_an_empty_body_differ() -> None:
    """stdin of None is the null device, empty stdin is an empty pipe."""
    without = ExecRequest(argv=["x"])
    empty = ExecRequest(argv=["x"], stdin=b"")

    assert encode(without) == ({"argv": ["x"]}, b"")
    assert encode(empty) == ({"argv": ["x"], "body": True}, b"")
    assert decode(ExecRequest, *encode(empty)).stdin == b""
    assert decode(ExecRequest, *encode(without)).stdin is None


def test_unknown_fields_are_ignored() -> None:
    """A newer peer may say more."""
    assert decode(ExecRequest, {"argv": ["x"], "of_the_future": {}}) == ExecRequest(argv=["x"])


@pytest.mark.parametrize("text", ["9" * 400, "-" + "9" * 400, "1e999", "-1e999"])
def test_floats_are_finite(text: str) -> None:
    """A number that no float can hold is a bad field, however it is written."""
    value = load_json(b'{"process_id": "p", "timeout": %s}' % text.encode())
    with pytest.raises(ValidationFailedError, match="'timeout' must be a finite number"):
        decode(OPERATIONS["process.wait"].request, value)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_none_are_not_sent(number: float) -> None:
    """Whoever gives one is told which parameter it is."""
    with pytest.raises(ValidationFailedError, match="'timeout' must be a finite number"):
        encode(OPERATIONS["process.wait"].request(process_id="p", timeout=number))


@pytest.mark.parametrize("number", [1, 2**63, 10**308, -1.5])
def test_any_finite_number_may_be_a_float(number: float) -> None:
    """Whole ones, too."""
    request = OPERATIONS["process.wait"].request
    assert decode(request, {"process_id": "p", "timeout": number}).timeout == float(number)  # type: ignore[attr-defined]


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_integers_have_64_bits(number: int) -> None:
    """Larger ones are refused rather than rounded by somebody else."""
    with pytest.raises(ValidationFailedError, match="signal"):
        decode(OPERATIONS["process.signal"].request, {"process_id": "p", "signal": number})
