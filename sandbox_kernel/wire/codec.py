"""Records to and from JSON values: strict on what we send, tolerant of fields we do not know.

A field's annotation is one of ``str``, ``int``, ``float``, ``bool``, ``bytes``, ``JSON``, the name
of a record, ``list[T]``, ``dict[str, T]``, or any of these followed by ``| None``.  At most one
field of a record is ``bytes``: on framed transports it travels beside the JSON, untouched.
"""

from __future__ import annotations

from sandbox_kernel.errors import ProtocolViolationError, ValidationFailedError
from sandbox_kernel.wire.plain_json import dumps, dumps_ascii, loads
from sandbox_kernel.wire.record import RECORDS, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    R = TypeVar("R", bound=Record)

__all__ = ["body_field", "decode", "dump_json", "encode", "load_json", "pack", "unpack"]

_MAX_DEPTH = 64
_MAX_FLOAT = 1.7976931348623157e308


def dump_json(value: object) -> bytes:
    """Encode a JSON value compactly; NaN and infinities are refused with `ValueError`."""
    try:
        return dumps(value).encode()
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form, but Python's names of odd files hold them; JSON's own
        # escapes carry them unharmed.
        return dumps_ascii(value).encode("ascii")


def load_json(data: bytes) -> Any:
    """Decode a JSON value.

    Raises
    ------
    ProtocolViolationError
        The bytes are not UTF-8 JSON, hold NaN or infinities, or nest too deeply.
    """
    try:
        return loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ProtocolViolationError("a message is not valid JSON") from error


def body_field(cls: type[Record]) -> str | None:
    """Return the name of the class's ``bytes`` field, or None."""
    for name, kind in cls.FIELDS.items():
        if kind in ("bytes", "bytes | None"):
            return name
    return None


def encode(record: Record) -> tuple[dict[str, Any], bytes]:
    """Split a record into its JSON object and the bytes that travel beside it.

    Fields that hold their default are left out.  A body of None and an empty body differ: None is
    left out, an empty body is announced by ``"body": true`` in the object.

    Raises
    ------
    ValidationFailedError
        A number is infinite, or none: JSON has no such.
    """
    value: dict[str, Any] = {}
    body = b""
    for name, kind in record.FIELDS.items():
        item = record.__dict__[name]
        if kind in ("bytes", "bytes | None"):
            if item is not None:
                value["body"] = True
                body = item
            continue
        if name in record.DEFAULTS and item == record.DEFAULTS[name]:
            continue
        if isinstance(item, float) and not -_MAX_FLOAT <= item <= _MAX_FLOAT:
            raise ValidationFailedError(name, "must be a finite number")
        value[name] = _to_json(item)
    return value, body


def _to_json(item: object) -> Any:
    if isinstance(item, Record):
        value, body = encode(item)
        if body:
            raise TypeError(f"{type(item).__name__} carries bytes and cannot be nested")
        return value
    if isinstance(item, list | tuple):
        return [_to_json(each) for each in item]
    if isinstance(item, dict):
        return {key: _to_json(each) for key, each in item.items()}
    return item


def decode(cls: type[R], value: object, body: bytes = b"") -> R:
    """Build a record from a peer's JSON object, checking every field's type.

    Raises
    ------
    ValidationFailedError
        A field is missing, has the wrong type, or nests too deeply.  Unknown fields are ignored.
    """
    if not isinstance(value, dict):
        raise ValidationFailedError(cls.__name__, "must be an object")
    fields: dict[str, Any] = {}
    for name, kind in cls.FIELDS.items():
        if kind in ("bytes", "bytes | None"):
            if value.get("body") is True:
                fields[name] = body
            elif name not in cls.DEFAULTS:
                raise ValidationFailedError(name, "is missing")
        elif name in value:
            fields[name] = _check(name, kind, value[name], 0)
        elif name not in cls.DEFAULTS:
            raise ValidationFailedError(name, "is missing")
    return cls(**fields)


def _check(name: str, kind: str, value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ValidationFailedError(name, "nests too deeply")
    if kind.endswith(" | None"):
        return None if value is None else _check(name, kind[: -len(" | None")], value, depth)
    if kind == "JSON":
        return value
    if kind == "bool":
        if isinstance(value, bool):
            return value
    elif kind == "int":
        if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            raise ValidationFailedError(name, "must be a number of 64 bits")
    elif kind == "float":
        # JSON's numbers have no bound: what is beyond a float is refused, here and as infinity.
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and -_MAX_FLOAT <= value <= _MAX_FLOAT
        ):
            return float(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise ValidationFailedError(name, "must be a finite number")
    elif kind == "str":
        if isinstance(value, str):
            return value
    elif kind.startswith("list["):
        if isinstance(value, list):
            return [_check(name, kind[5:-1], each, depth + 1) for each in value]
    elif kind.startswith("dict[str, "):
        if isinstance(value, dict):
            return {key: _check(name, kind[10:-1], each, depth + 1) for key, each in value.items()}
    elif kind in RECORDS:
        return decode(RECORDS[kind], value)
    else:
        raise TypeError(f"the codec does not know the annotation {kind!r}")
    raise ValidationFailedError(name, f"must be of type {kind}, not {type(value).__name__}")


def pack(head: dict[str, Any], body: bytes = b"") -> bytes:
    """Join a JSON object and a body: u32 length of the JSON, the JSON, the body."""
    text = dump_json(head)
    return b"".join((len(text).to_bytes(4, "big"), text, body))


def unpack(payload: bytes | memoryview) -> tuple[dict[str, Any], bytes]:
    """Take apart what `pack` joined.

    Raises
    ------
    ProtocolViolationError
        The payload is shorter than it says, or its head is not a JSON object.
    """
    view = memoryview(payload)
    if len(view) < 4:
        raise ProtocolViolationError("a message is shorter than its own length field")
    size = int.from_bytes(view[:4], "big")
    if size > len(view) - 4:
        raise ProtocolViolationError("a message is shorter than it says")
    head = load_json(bytes(view[4 : 4 + size]))
    if not isinstance(head, dict):
        raise ProtocolViolationError("the head of a message is not an object")
    return head, bytes(view[4 + size :])
