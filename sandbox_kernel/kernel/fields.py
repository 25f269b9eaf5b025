"""What a field of a sandbox's message may hold; each reader returns its value or refuses it."""

from __future__ import annotations

import math
from typing import Any

from sandbox_kernel.kernel.jsontext import Refused

__all__ = ["Content", "bundle", "count", "error", "number", "obj", "plain_only", "text", "texts"]

Content = dict[str, Any]  # JSON values of any shape below the checked fields

_PLAIN = "text/plain"


def text(content: Content, name: str, *, at_most: int | None = None) -> str:
    """Return a text; nothing stands for an empty one, and what is too long is cut."""
    value = content.get(name, "")
    if not isinstance(value, str):
        raise Refused(f"{name} is no text")
    return value if at_most is None else value[:at_most]


def texts(value: object) -> list[str]:
    """Return the texts of a list; whatever else is in it is left out."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def obj(content: Content, name: str) -> Content:
    """Return an object; null and nothing stand for an empty one."""
    value = content.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refused(f"{name} is no object")
    return value


def count(content: Content, name: str = "execution_count") -> int | None:
    """Return a whole number, none below zero, or null."""
    value = content.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Refused(f"{name} is no count")
    return value


def number(value: object) -> float | None:
    """Return a finite number, or null in the place of anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None  # type: ignore[arg-type, return-value]


def bundle(content: Content) -> Content:
    """Return the data and metadata of something that is shown; what they hold is not judged."""
    return {"data": obj(content, "data"), "metadata": obj(content, "metadata")}


def plain_only(data: Content) -> Content:
    """Return of several forms of a thing the one that no page interprets."""
    value = data.get(_PLAIN)
    return {_PLAIN: value} if isinstance(value, str) else {}


def error(content: Content) -> Content:
    """Return what tells of an error."""
    return {
        "ename": text(content, "ename"),
        "evalue": text(content, "evalue"),
        "traceback": texts(content.get("traceback")),
    }
