"""PROTOCOL.md says all of it: operations, fields, frame kinds, limits, error codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sandbox_kernel.wire
from sandbox_kernel import errors
from sandbox_kernel.wire.kernel import MAX_PARTS, MAX_RECORD, Channel
from sandbox_kernel.wire.operations import OPERATIONS, Kind, Operation
from sandbox_kernel.wire.port_operations import PIECE
from sandbox_kernel.wire.record import RECORDS
from sandbox_kernel.wire.rpc import (
    INITIAL_CREDIT,
    MAX_CHANNEL_FRAME,
    MAX_FIRST_FRAME,
    MAX_FRAME,
    FrameKind,
)
from sandbox_runtime.kernels import LONGEST_RING, RING
from sandbox_runtime.ports import MOST_CONNECTIONS

PAGE = (Path(str(sandbox_kernel.wire.__file__)).parent / "PROTOCOL.md").read_text()


def section(operation: Operation) -> str:
    found = re.search(
        rf"^### {re.escape(operation.name)} \((\w+)\)$(.*?)(?=^###|\Z)",
        PAGE,
        re.MULTILINE | re.DOTALL,
    )
    assert found, f"{operation.name} is not described"
    assert Kind(found[1]) is operation.kind
    return found[2]


@pytest.mark.parametrize("name", list(OPERATIONS))
def test_every_operation_is_described_with_its_fields(name: str) -> None:
    """Each has a section with its kind and names every field of its request."""
    operation = OPERATIONS[name]
    text = section(operation)

    for field in operation.request.FIELDS:
        assert f"`{field}" in text, f"{name} does not describe {field}"


@pytest.mark.parametrize(
    "name",
    [
        "Health",
        "OutputEvent",
        "ExecResult",
        "ProcessInfo",
        "SessionInfo",
        "KernelInfo",
        "OutputEnd",
        "TerminalInfo",
        "TerminalScreen",
        "TerminalOutputEvent",
        "TerminalOutputEnd",
        "PortState",
        "ListeningPort",
        "PortList",
        "PortReady",
        "PortConnection",
    ],
)
def test_every_field_of_an_answer_is_described(name: str) -> None:
    """Answers are described with name and type of each field."""
    for field, kind in RECORDS[name].FIELDS.items():
        plain = kind.removesuffix(" | None")
        plain = re.sub(r"list\[(\w+)\]", r"list of \1", plain)
        assert f"`{field}: {plain}" in PAGE, f"{name}.{field}: {plain}"


def test_no_operation_is_described_that_does_not_exist() -> None:
    """The page invents nothing."""
    described = re.findall(r"^### (\S+) \(", PAGE, re.MULTILINE)

    assert described == list(OPERATIONS)


def test_every_frame_kind_has_its_number() -> None:
    """Number and name stand in the table."""
    for kind in FrameKind:
        assert f"| {int(kind)} | {kind.name} |" in PAGE


def test_every_channel_has_its_number() -> None:
    """So do the channels of kernel records."""
    for channel in Channel:
        assert f"{int(channel)} {channel.name.lower()}" in PAGE


@pytest.mark.parametrize(
    "limit",
    [
        MAX_FIRST_FRAME,
        MAX_FRAME,
        MAX_CHANNEL_FRAME,
        INITIAL_CREDIT,
        MAX_RECORD,
        MAX_PARTS,
        RING,
        LONGEST_RING,
        PIECE,
        MOST_CONNECTIONS,
    ],
)
def test_every_limit_is_said(limit: int) -> None:
    """Limits are part of the contract."""
    assert str(limit) in PAGE


def test_every_code_it_names_exists() -> None:
    """Error codes on the page are codes of the tree."""
    named = set(re.findall(r"`([A-Z][A-Z_]{5,})`", PAGE))
    known = {
        each.code
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.SandboxError)
    }

    assert named <= known
