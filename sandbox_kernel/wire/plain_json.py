"""JSON text to values and back, strictly, through the accelerator behind `json`.

The `json` package imports `re`, which costs 6 to 8 ms of every start of a sandbox; the C functions
that do its work need neither.  Where an interpreter has them not, or they changed, `json` serves.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["dumps", "dumps_ascii", "loads"]

_SPACE = " \t\n\r"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _refuse_value(value: object) -> None:
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _accelerated() -> tuple[Callable[[Any], str], Callable[[Any], str], Callable[[str], Any]]:
    from _json import (  # noqa: PLC0415
        encode_basestring,
        encode_basestring_ascii,
        make_encoder,
        make_scanner,
    )

    class Rules:
        """What a scanner asks of its decoder; any object with these will do."""

        strict = True
        object_hook = None
        object_pairs_hook = None
        parse_float = float
        parse_int = int
        parse_constant = staticmethod(_refuse_constant)

    scan = make_scanner(Rules)  # type: ignore[arg-type]
    encode, encode_ascii = (
        make_encoder(None, _refuse_value, text, None, ":", ",", False, False, False)
        for text in (encode_basestring, encode_basestring_ascii)
    )

    def load(text: str) -> Any:
        text = text.strip(_SPACE)
        try:
            value, end = scan(text, 0)
        except StopIteration as stop:
            raise ValueError(f"no JSON value at {stop.value}") from None
        except SystemError:
            # Its own errors are made by a module that it does not find: see above.
            raise ValueError("a JSON value that is malformed") from None
        if end != len(text):
            raise ValueError(f"more than one JSON value at {end}")
        return value

    def dump(value: Any) -> str:
        return "".join(encode(value, 0))

    def dump_ascii(value: Any) -> str:
        return "".join(encode_ascii(value, 0))

    sample = {"a": [1, 2.5, None, True, "é\n"]}
    if load(dump(sample)) != sample or load(dump_ascii(sample)) != sample:
        raise ImportError("the accelerator of json speaks another dialect")
    return dump, dump_ascii, load


def _standard() -> tuple[Callable[[Any], str], Callable[[Any], str], Callable[[str], Any]]:
    import json  # noqa: PLC0415

    def dump(value: Any) -> str:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    def dump_ascii(value: Any) -> str:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)

    def load(text: str) -> Any:
        return json.loads(text, parse_constant=_refuse_constant)

    return dump, dump_ascii, load


try:
    dumps, dumps_ascii, loads = _accelerated()
except (ImportError, AttributeError, TypeError, ValueError):
    dumps, dumps_ascii, loads = _standard()
