"""JSON of the interpreter inside, and messages as records."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from sandbox_kernel.wire.kernel import Channel
from sandbox_runtime import kernel_session
from sandbox_runtime.kernel_session import Outlet, Record, RecordSession, to_json


@pytest.fixture(params=["orjson", "standard library"])
def packer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both packers must say the same."""
    if request.param != "orjson":
        monkeypatch.setattr(kernel_session, "orjson", None)
    return str(request.param)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": [1, 2.5, None, True, "é"]}, {"a": [1, 2.5, None, True, "é"]}),
        ({"n": float("nan"), "l": [float("inf"), 1]}, {"n": None, "l": [None, 1]}),
        ({"big": 1 << 80}, {"big": 1 << 80}),
        ({1: "key", None: 2}, {"1": "key", "null": 2}),
        ({"s": "a\udcffb\ud800"}, {"s": "a\ufffdb\ufffd"}),
        ({"b": b"bytes"}, {"b": "Ynl0ZXM="}),
        ({"t": (1, 2)}, {"t": [1, 2]}),
    ],
)
def test_json_of_anything(packer: str, value: Any, said: Any) -> None:
    """Whatever a program puts into a message becomes valid UTF-8 JSON."""
    assert json.loads(to_json(value).decode()) == said


def test_dates(packer: str) -> None:
    """Dates become ISO 8601 with their zone."""
    said = json.loads(to_json({"d": dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)}))["d"]
    assert dt.datetime.fromisoformat(said) == dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


class Pipe:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[tuple[int, list[bytes], list[bytes]]] = []
        self.releases = 0

    def put(self, channel: int, identities: Any, parts: Any) -> None:
        self.records.append((channel, list(identities), [bytes(part) for part in parts]))

    def release(self) -> None:
        self.releases += 1


def request() -> Record:
    header = b'{"msg_id": "m",  "msg_type": "execute_request", "date": "2024-01-01T00:00:00.000Z"}'
    return Record([b"who"], [header, b"{}", b"{}", b'{"code": "1"}', b"buffer"])


def test_a_request_becomes_the_parent_in_its_own_bytes(packer: str) -> None:
    """The header of a request is not written anew when it is the parent of an answer."""
    session, pipe = RecordSession(), Pipe()
    identities, record = session.feed_identities(request())
    message = session.deserialize(record)
    assert message["content"] == {"code": "1"}
    assert message["buffers"] == [b"buffer"]
    assert message["header"]["date"] == dt.datetime(2024, 1, 1, tzinfo=dt.UTC)

    shell: Any = Outlet(pipe, Channel.SHELL)  # type: ignore[arg-type]
    session.send(shell, "execute_reply", {"status": "ok"}, message, identities)
    [(channel, to, parts)] = pipe.records
    assert (channel, to) == (Channel.SHELL, [b"who"])
    assert parts[1] == request().parts[0]


def test_idle_is_released_and_topics_are_dropped(packer: str) -> None:
    """The end of a request goes at once; broadcasts bear no identity."""
    session, pipe = RecordSession(), Pipe()
    iopub: Any = Outlet(pipe, Channel.IOPUB)  # type: ignore[arg-type]
    session.send(iopub, "status", {"execution_state": "busy"}, ident=b"topic")
    assert pipe.releases == 0
    session.send(iopub, "status", {"execution_state": "idle"}, ident=b"topic")
    assert pipe.releases == 1
    assert [identities for _, identities, _ in pipe.records] == [[], []]


def test_messages_of_a_socket(packer: str) -> None:
    """What is sent as to a socket, signature and all, arrives as a record."""
    pipe = Pipe()
    outlet = Outlet(pipe, Channel.SHELL)  # type: ignore[arg-type]
    outlet.send_multipart([b"who", b"<IDS|MSG>", b"signature", b"{}", b"{}", b"{}", b"{}", b"x"])
    assert pipe.records == [(Channel.SHELL, [b"who"], [b"{}", b"{}", b"{}", b"{}", b"x"])]
