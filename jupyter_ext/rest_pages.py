"""Answers in pages: a part of a list, and where the next part begins."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandbox_kernel.errors import ValidationFailedError
from sandbox_kernel.wire.codec import dump_json
from sandbox_kernel.wire.plain_json import loads

if TYPE_CHECKING:
    from jupyter_ext.route import Page

__all__ = ["DEFAULT_LIMIT", "MAX_LIMIT", "PAGE_NAMES", "cursor_of", "one_page", "wishes"]

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
PAGE_NAMES = frozenset(("limit", "after"))


def one_page(
    page: Page, value: dict[str, Any], query: Mapping[str, Sequence[bytes]]
) -> dict[str, Any]:
    """Return the answer with one page of its list, in the order of the page's key.

    What is added or goes meanwhile moves nothing else from one page to another.
    """
    limit, after = wishes(query, page.key)
    keyed = [([item[name] for name in page.key], item) for item in value[page.items]]
    keyed.sort(key=lambda each: each[0])
    try:
        rest = [each for each in keyed if after is None or each[0] > after]
    except TypeError:
        raise ValidationFailedError("after", "is no cursor of this list") from None
    part = rest[:limit]
    more = len(rest) > limit
    return {
        **value,
        page.items: [item for _, item in part],
        "next": cursor_of(part[-1][0]) if more else None,
    }


def wishes(
    query: Mapping[str, Sequence[bytes]], key: Sequence[str]
) -> tuple[int, list[Any] | None]:
    """Return how many are wanted, and after which one.

    Raises
    ------
    ValidationFailedError
        One of both is malformed.
    """
    for name in PAGE_NAMES:
        if len(query.get(name, ())) > 1:
            raise ValidationFailedError(name, "comes twice")
    limit = DEFAULT_LIMIT
    if "limit" in query:
        text = query["limit"][0]
        limit = int(text) if text.isdigit() and len(text) < 5 else 0
        if not 1 <= limit <= MAX_LIMIT:
            raise ValidationFailedError("limit", f"must be 1 to {MAX_LIMIT}")
    if "after" not in query:
        return limit, None
    try:
        after = loads(base64.b64decode(query["after"][0], altchars=b"-_", validate=True).decode())
    except (ValueError, binascii.Error, RecursionError):
        after = None
    if not isinstance(after, list) or len(after) != len(key):
        raise ValidationFailedError("after", "is no cursor of this list")
    return limit, after


def cursor_of(key: Sequence[Any]) -> str:
    """Return the key of the last item as the opaque text that the next page is asked for with."""
    return base64.urlsafe_b64encode(dump_json(list(key))).decode("ascii")
