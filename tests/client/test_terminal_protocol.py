"""The dialects of browsers: golden messages, and what each event of the runtime becomes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox_kernel.client.terminal_protocol import (
    MAX_CONTROL_TEXT,
    Acknowledged,
    Close,
    Ping,
    Preview,
    Stable,
)
from sandbox_kernel.errors import (
    ContainerUnavailableError,
    InvalidTerminalCursorError,
    StaleTerminalHandleError,
    TerminalNotFoundError,
    ValidationFailedError,
)
from sandbox_kernel.wire.operations import TerminalInfo
from sandbox_kernel.wire.terminal import (
    Acknowledge,
    ChannelFailed,
    Exited,
    Interrupt,
    Live,
    Replay,
    Resize,
    Screen,
    Size,
    Terminate,
    View,
    encode_cursor,
)

_VECTORS = json.loads(
    (Path(__file__).parents[1] / "vectors" / "terminal_browser.json").read_text()
)["vectors"]
_CLIENT = [each for each in _VECTORS if each["direction"] == "client" and "text" in each]

INFO = TerminalInfo(
    terminal_id="t-3",
    pid=7,
    argv=["bash"],
    cwd="/workspace",
    status="running",
    cols=80,
    rows=24,
    created_at=1.0,
    cursor="",
    incarnation="00" * 8,
)


def at(offset: int) -> str:
    return encode_cursor("00" * 8, "t-3", offset)


def opened(dialect, *, cols=None, rows=None, **changes):
    dialect.request("t-3", cols, rows)
    info = TerminalInfo(**{**vars(INFO), **changes})
    return dialect, told(dialect.opened(info))


def told(messages):
    """Return messages with JSON decoded."""
    return [json.loads(each) if isinstance(each, str) else each for each in messages]


@pytest.mark.parametrize("vector", _CLIENT, ids=lambda vector: vector["name"])
def test_what_browsers_say_is_read_as_the_vectors_have_it(vector):
    """The same file is the addon's."""
    dialect, _ = opened(Acknowledged())
    dialect.output(1 << 40, memoryview(b"x"))
    dialect._sent = 1 << 41
    wanted = vector["event"]
    if wanted["type"] == "invalid":
        with pytest.raises(ValidationFailedError):
            dialect.order(vector["text"])
        return
    order = dialect.order(vector["text"])
    if wanted["type"] == "ack":
        assert order is None or isinstance(order, Acknowledge)
    elif wanted["type"] == "resize":
        assert order == Resize(cols=wanted["cols"], rows=wanted["rows"])
    elif wanted["type"] == "view":
        assert order == View(visible=wanted["visible"], focused=wanted["focused"])
    else:
        others = {"interrupt": Interrupt(), "terminate": Terminate(), "ping": Ping()}
        assert order == others[wanted["type"]]


def test_what_we_say_has_the_form_of_the_vectors():
    """Each event of the runtime becomes messages with the very fields the addon reads."""
    known = {}
    for each in _VECTORS:
        if each["direction"] == "server" and "text" in each and each["event"]["type"] != "invalid":
            value = json.loads(each["text"])
            known.setdefault(value["type"], set()).update(value)
    dialect, said = opened(Acknowledged("c"), cols=120, rows=40)
    for event in (
        Size(cols=80, rows=24),
        Replay(kind="exact", offset=5, truncated=True),
        Live(),
        Screen(offset=9),
        ChannelFailed(code="X", message="ungültig"),
        Exited(exit_code=137, signal=9, offset=9),
    ):
        said += told(dialect.event(event))
    said += told(dialect.output(9, b"x"))

    for each in said:
        if isinstance(each, dict):
            assert each.keys() <= known[each["type"]], each


def test_a_control_message_may_not_be_long_or_deep():
    """It is refused before it is read, and nothing recurses."""
    for text in ("{" * 100_000, "[" * 60_000, " " * MAX_CONTROL_TEXT + "{}"):
        with pytest.raises(ValidationFailedError):
            Stable().order(text)


def test_stable_shows_the_screen_before_ready():
    """Replay, ready, bytes as they are, exit with the signal's name, the end."""
    dialect, first = opened(Stable())

    assert first == []
    assert dialect.event(Size(cols=1, rows=1)) == []
    assert dialect.event(Replay(kind="screen", offset=3)) == []
    assert dialect.output(3, b"\x1bcabc") == [b"\x1bcabc"]
    assert told(dialect.event(Live())) == [{"type": "ready"}]
    assert dialect.event(Screen(offset=5)) == []
    assert told(dialect.event(Exited(exit_code=137, signal=9, offset=5))) == [
        {"type": "exit", "code": 137, "signal": "SIGKILL"},
        Close(1000),
    ]
    request = dialect.request("t-3", 80, 24)
    assert (request.strip_queries, request.acknowledges, request.cursor) == (True, False, None)


def test_stable_keeps_who_comes_after_the_end():
    """It would come again at each close, for ever."""
    dialect, _ = opened(Stable(), status="exited", exit_code=3)

    shown, said = told(dialect.event(Exited(exit_code=3, offset=5)))
    assert b"exited with code 3" in shown
    assert said == {"type": "exit", "code": 3}


def test_preview_announces_each_chunk():
    """Ready with the browser's own cursor; after truncated the screen is a chunk."""
    dialect, first = opened(Preview("mine"))

    assert first == [{"type": "ready", "cursor": "mine"}]
    assert dialect.event(Replay(kind="exact", offset=3)) == []
    assert told(dialect.output(3, b"abc")) == [
        {"type": "chunk", "cursor": at(3), "byteLength": 3},
        b"abc",
    ]
    assert dialect.event(Live()) == []
    assert told(dialect.event(Screen(offset=9))) == [{"type": "truncated"}]
    assert told(dialect.event(Replay(kind="screen", offset=9, truncated=True))) == [
        {"type": "truncated"}
    ]
    assert told(dialect.event(Exited(exit_code=0, offset=9))) == [
        {"type": "exit", "cursor": at(9), "exit": {"code": 0, "timedOut": False}},
        Close(1000),
    ]


def test_acknowledged_tells_replays_from_output():
    """Each announcement has its bytes, an empty replay too."""
    dialect, first = opened(Acknowledged(), cols=100, rows=30)

    assert first == [
        {"type": "ready", "terminalId": "t-3", "cols": 100, "rows": 30, "acknowledgeEvery": 65536}
    ]
    assert told(dialect.event(Size(cols=90, rows=20))) == [{"type": "size", "cols": 90, "rows": 20}]
    assert dialect.event(Replay(kind="screen", offset=4)) == []
    assert told(dialect.output(4, b"\x1bc")) == [
        {"type": "replay", "kind": "screen", "cursor": at(4), "byteLength": 2},
        b"\x1bc",
    ]
    assert told(dialect.event(Live())) == [{"type": "live"}]
    assert told(dialect.output(5, b"x"))[0]["type"] == "chunk"
    dialect.event(Screen(offset=9))
    assert told(dialect.output(9, b"yy"))[0] == {"type": "screen", "cursor": at(9), "byteLength": 2}
    empty, _ = opened(Acknowledged("c"))
    empty.event(Replay(kind="exact", offset=7))
    assert told(empty.event(Live())) == [
        {"type": "replay", "kind": "exact", "cursor": at(7), "byteLength": 0},
        b"",
        {"type": "live"},
    ]


def test_bytes_drawn_become_offsets():
    """Replay bytes count; a screen of two bytes may stand for a million."""
    dialect, _ = opened(Acknowledged())
    dialect.event(Replay(kind="screen", offset=1_000_000))
    dialect.output(1_000_000, b"ab")
    dialect.output(1_000_010, b"0123456789")

    assert dialect.acknowledged(1) is None
    assert dialect.acknowledged(2) == Acknowledge(offset=1_000_000)
    assert dialect.acknowledged(11) is None
    assert dialect.acknowledged(12) == Acknowledge(offset=1_000_010)
    assert dialect.acknowledged(12) is None
    for wrong in (13, 11, -1, 1.0, True, None, "12"):
        with pytest.raises(ValidationFailedError):
            dialect.acknowledged(wrong)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TerminalNotFoundError("t"), 1008),
        (StaleTerminalHandleError("t"), 1008),
        (InvalidTerminalCursorError("t"), 1011),
        (ContainerUnavailableError("s", "it stopped"), 1011),
    ],
)
@pytest.mark.parametrize("dialect", [Stable, Preview, Acknowledged])
def test_a_refusal_is_said_before_the_close(dialect, error, code):
    """An error with code and message, then the close code, whose reason fits its frame."""
    said, closing = told(dialect().failed(error))

    assert said == {"type": "error", "code": error.code, "message": error.message}
    assert closing.code == code
    assert 0 < len(closing.reason.encode()) <= 123
