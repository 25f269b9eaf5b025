"""Records as the bodies and queries of REST: strict on what comes in, whole in what goes out.

Bytes travel as text where they are UTF-8, else in base64; a field beside them says so: ``encoding``
for the field ``data``, ``NAME_encoding`` for any other one.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from sandbox_kernel.errors import ValidationFailedError
from sandbox_kernel.wire.codec import decode
from sandbox_kernel.wire.record import Record

__all__ = [
    "PATHS",
    "encoding_field",
    "is_optional",
    "load_object",
    "record_of",
    "record_of_query",
    "to_json",
]

R = TypeVar("R", bound=Record)

PATHS = frozenset(("path", "new_path", "target", "cwd", "target_dir"))
"""Fields that hold paths, whose bytes need be no UTF-8."""

_BYTES = ("bytes", "bytes | None")
_WHOLE = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][-+]?[0-9]{1,3})?", re.ASCII)
_TRUTH = {"true": True, "1": True, "false": False, "0": False}
_SHOWN = 80


def encoding_field(name: str) -> str:
    """Return the name of the field that says how the bytes of `name` are written."""
    return "encoding" if name == "data" else f"{name}_encoding"


def is_optional(kind: str) -> bool:
    """Whether a field of this annotation may be null."""
    return kind.endswith(" | None")


# --- in ---------------------------------------------------------------------------------------


def _unlike(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        # Readers differ in which of the two they take, and that is how checks are got round.
        raise ValueError("a name comes twice")
    return made


def _refused(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


_decoder = json.JSONDecoder(object_pairs_hook=_unlike, parse_constant=_refused)


def load_object(data: bytes | bytearray) -> dict[str, Any]:
    """Return the JSON object of a body; an empty body is an empty object.

    Raises
    ------
    ValidationFailedError
        It is no JSON object in UTF-8, holds NaN or an infinity, has a name twice, or nests too
        deeply.
    """
    try:
        text = data.decode()
        if not text.strip(" \t\r\n"):
            return {}
        value = _decoder.decode(text)
    except RecursionError:
        raise ValidationFailedError("body", "nests too deeply") from None
    except ValueError as error:
        # json's own words hold nothing of the body but positions; decode's hold bytes.
        reason = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else "is not valid JSON"
        raise ValidationFailedError("body", reason) from None
    if not isinstance(value, dict):
        raise ValidationFailedError("body", "must be a JSON object")
    return value


def record_of(
    cls: type[R], body: Mapping[str, Any], given: Mapping[str, Any], hidden: Collection[str] = ()
) -> R:
    """Build a request from a body.

    Parameters
    ----------
    given : mapping
        Fields that are known already, as from the address; the body may not hold them.
    hidden : collection of str
        Fields that callers may not set.

    Raises
    ------
    ValidationFailedError
        A field is unknown, missing or has the wrong type.
    """
    known = cls.FIELDS.keys() - given.keys() - set(hidden)
    value: dict[str, Any] = {}
    data = b""
    encodings = {}
    for name in known:
        if cls.FIELDS[name] in _BYTES:
            encodings[encoding_field(name)] = name
    for name, item in body.items():
        if name in encodings:
            continue
        if name not in known:
            raise ValidationFailedError(_shown(name), "is unknown")
        if cls.FIELDS[name] not in _BYTES:
            value[name] = item
    for encoding, name in encodings.items():
        taken = _bytes(name, body.get(name), body.get(encoding))
        if taken is not None:
            value["body"], data = True, taken
    return decode(cls, {**value, **given}, data)


def _bytes(name: str, value: Any, encoding: Any) -> bytes | None:
    if encoding not in (None, "utf-8", "base64"):
        raise ValidationFailedError(encoding_field(name), 'must be "utf-8" or "base64"')
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValidationFailedError(name, "must be text")
    try:
        return base64.b64decode(value, validate=True) if encoding == "base64" else value.encode()
    except binascii.Error:
        raise ValidationFailedError(name, "is not valid base64") from None
    except UnicodeEncodeError:
        raise ValidationFailedError(name, "holds a lone surrogate") from None
    except ValueError:
        raise ValidationFailedError(name, "is not valid base64") from None


def record_of_query(
    cls: type[R],
    query: Mapping[str, Sequence[bytes]],
    given: Mapping[str, Any],
    hidden: Collection[str] = (),
) -> R:
    """Build a request from the query of an address; lists are names that come again and again.

    Raises
    ------
    ValidationFailedError
        A name is unknown, missing, comes twice where it may not, or has the wrong type.
    """
    value: dict[str, Any] = {}
    for name, texts in query.items():
        kind = cls.FIELDS.get(name)
        if kind is None or name in given or name in hidden:
            raise ValidationFailedError(_shown(name), "is unknown")
        plain = kind.removesuffix(" | None")
        if plain == "list[str]":
            value[name] = [_text(name, text) for text in texts]
        elif len(texts) > 1:
            raise ValidationFailedError(name, "comes twice")
        else:
            value[name] = _of_text(name, plain, _text(name, texts[0]))
    return decode(cls, {**value, **given})


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode(errors="surrogateescape" if name in PATHS else "strict")
    except UnicodeDecodeError:
        raise ValidationFailedError(name, "is not valid UTF-8") from None


def _of_text(name: str, kind: str, text: str) -> Any:
    match kind:
        case "str":
            return text
        case "int" if _WHOLE.fullmatch(text):
            return int(text)
        case "float" if _NUMBER.fullmatch(text):
            return float(text)
        case "bool" if text in _TRUTH:
            return _TRUTH[text]
    raise ValidationFailedError(name, f"must be of type {kind}")


def _shown(name: str) -> str:
    return name[:_SHOWN].encode(errors="replace").decode()


# --- out --------------------------------------------------------------------------------------


def to_json(item: Any) -> Any:
    """Return a record, or what is in one, as a JSON value; nothing is left out."""
    if isinstance(item, Record):
        value: dict[str, Any] = {}
        for name, kind in item.FIELDS.items():
            part = getattr(item, name)
            if kind not in _BYTES:
                value[name] = to_json(part)
            elif part is not None:
                _put_bytes(value, name, part)
        return value
    if isinstance(item, list | tuple):
        return [to_json(each) for each in item]
    if isinstance(item, dict):
        return {key: to_json(each) for key, each in item.items()}
    return item


def _put_bytes(value: dict[str, Any], name: str, data: bytes) -> None:
    try:
        value[name] = data.decode()
    except UnicodeDecodeError:
        value[name] = base64.b64encode(data).decode("ascii")
        value[encoding_field(name)] = "base64"
