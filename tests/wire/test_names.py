"""Constants that look like enums."""

from __future__ import annotations

import copy
import pickle

import pytest

from sandbox_kernel.wire.kernel import Channel
from sandbox_kernel.wire.operations import Kind
from sandbox_kernel.wire.rpc import FrameKind


def test_numbers_are_integers_with_names() -> None:
    """They compare and count as integers and know what they are called."""
    number: object = FrameKind.DATA
    assert number == 17
    assert isinstance(FrameKind.DATA, int)
    assert (FrameKind.DATA.name, FrameKind.DATA.value) == ("DATA", 17)
    assert f"{FrameKind.DATA!r}" == "<FrameKind.DATA: 17>"
    assert f"{FrameKind.DATA} {FrameKind.DATA!s}" == "17 17"
    assert {17: "x"}[FrameKind.DATA] == "x"


def test_members_are_found_by_number_and_name() -> None:
    """There is one object of each, also after copying."""
    assert Channel(4) is Channel.IOPUB
    assert Channel["IOPUB"] is Channel.IOPUB
    assert next(iter(Channel)) is Channel.SHELL
    assert len(Channel) == 6
    for each in (Channel.META, Kind.CALL):
        assert copy.deepcopy(each) is each
        assert pickle.loads(pickle.dumps(each)) is each  # noqa: S301
    with pytest.raises(ValueError, match="99"):
        Channel(99)


def test_names_are_only_themselves() -> None:
    """Names are no strings."""
    assert Kind.CALL.value == "call"
    assert Kind("call") is Kind.CALL
    assert Kind.CALL not in ("call", Kind.STREAM)


def test_members_stay_what_they_are() -> None:
    """A constant cannot be replaced."""
    with pytest.raises(AttributeError):
        Channel.SHELL = 7  # type: ignore[misc]
