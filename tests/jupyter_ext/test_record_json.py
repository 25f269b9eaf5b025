"""Records as bodies and queries: strict on the way in, whole on the way out."""

from __future__ import annotations

import base64
import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_ext.record_json import load_object, record_of, record_of_query, to_json
from jupyter_ext.rest_pages import cursor_of, one_page
from jupyter_ext.rest_stream import Format, wanted_format, whole_characters
from jupyter_ext.route import Page
from sandbox_kernel.errors import ValidationFailedError
from sandbox_kernel.wire.operations import OutputEvent, StartProcessRequest, WriteStdinRequest


@given(st.binary(max_size=200))
def test_bytes_come_back_as_they_were(data):
    """Whatever they are, out and in again."""
    said = to_json(WriteStdinRequest(process_id="p", data=data))
    again = record_of(WriteStdinRequest, json.loads(json.dumps(said)), {})

    assert again.data == data
    assert ("encoding" in said) == (data != b"" and not _is_text(data))


def _is_text(data):
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.binary(max_size=300))
def test_a_body_is_an_object_or_refused(data):
    """No other exception, whatever comes."""
    with contextlib.suppress(ValidationFailedError):
        assert isinstance(load_object(data), dict)


@given(st.dictionaries(st.text(max_size=12), st.lists(st.binary(max_size=12), min_size=1)))
def test_a_query_is_a_record_or_refused(query):
    """No other exception, whatever comes."""
    try:
        made = record_of_query(StartProcessRequest, query, {"process_id": "p"})
    except ValidationFailedError:
        return
    assert made.process_id == "p"


def test_what_the_address_says_cannot_be_said_otherwise():
    """Nor can what callers may not set."""
    for name in ("process_id", "data"):
        with pytest.raises(ValidationFailedError, match="unknown"):
            record_of(WriteStdinRequest, {name: "x"}, {"process_id": "p"}, {"data"})


@given(st.sets(st.integers(0, 30)), st.integers(1, 5))
def test_pages_are_the_list_whatever_goes_meanwhile(numbers, limit):
    """Each item that stays is seen once, in order, also when others go between two pages."""
    page = Page(items="ports", key=("port",))
    left, seen, after = sorted(numbers), [], None
    while True:
        query = {"limit": [str(limit).encode()]}
        if after is not None:
            query["after"] = [after.encode()]
        answer = one_page(page, {"ports": [{"port": each} for each in left]}, query)
        seen += [each["port"] for each in answer["ports"]]
        after = answer["next"]
        if after is None:
            break
        left = left[1:]
    assert seen == sorted(numbers)
    assert cursor_of([1]) != cursor_of([2])


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", Format.JSON),
        ("*/*", Format.JSON),
        ("text/event-stream", Format.EVENTS),
        ("text/*", Format.EVENTS),
        ("application/x-ndjson, */*;q=0.1", Format.LINES),
        ("*/*, text/event-stream", Format.EVENTS),
        ("text/event-stream;q=0.2, application/json;q=0.3", Format.JSON),
        ("Text/Event-Stream; charset=utf-8", Format.EVENTS),
    ],
)
def test_the_format_is_what_the_client_likes_best(accept, wanted):
    """By quality, then by how exactly it is named."""
    assert wanted_format(accept, is_endless=False) is wanted


@given(
    st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(min_size=1, max_size=9)))
)
async def test_joining_loses_and_moves_nothing(pieces):
    """Bytes of each stream stay in order; a cursor still names the position after its event."""

    async def events():
        for at, (stream, data) in enumerate(pieces):
            yield OutputEvent(stream=stream, cursor=str(at), timestamp=0.0, data=data)

    joined = [each async for each in whole_characters(events())]
    for stream in ("stdout", "stderr"):
        written = b"".join(data for name, data in pieces if name == stream)
        assert b"".join(each.data for each in joined if each.stream == stream) == written
    for at, event in enumerate(joined):
        until = b"".join(data for _, data in pieces[: int(event.cursor) + 1])
        assert b"".join(each.data for each in joined[: at + 1]) == until


async def test_a_torn_character_is_made_whole():
    """Text that was cut anywhere is text in each event."""
    text = "a€b😀c".encode()

    async def events():
        for at in range(len(text)):
            yield OutputEvent(
                stream="stdout", cursor=str(at), timestamp=0.0, data=text[at : at + 1]
            )

    joined = [each.data.decode() async for each in whole_characters(events())]
    assert "".join(joined) == "a€b😀c"


def test_base64_is_strict():
    """What is no base64 is refused, and so is another encoding."""
    good = {"data": base64.b64encode(b"\xff").decode(), "encoding": "base64"}
    assert record_of(WriteStdinRequest, {**good, "process_id": "p"}, {}).data == b"\xff"
    for bad in ("*", "YQ", "YQ==\n", "é"):
        with pytest.raises(ValidationFailedError):
            record_of(WriteStdinRequest, {"process_id": "p", "data": bad, "encoding": "base64"}, {})
