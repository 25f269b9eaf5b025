"""The output log: memory and file look the same from outside."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.errors import InvalidProcessCursorError
from sandbox_runtime import spool as spool_module
from sandbox_runtime.cursors import make_cursor, read_cursor
from sandbox_runtime.spool import Spool, Store

STEPS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.binary(min_size=1, max_size=30),
        st.sampled_from([0.0, 0.001, 1.0]),
        st.integers(0, 40),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(STEPS, st.integers(1, 50))
def test_a_spool_gives_back_what_was_written(
    steps: list[tuple[int, bytes, float, int]], size: int
) -> None:
    """Stream by stream, in order, in pieces of any size, before and after it left memory."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(spool_module, "DATA_IN_MEMORY", 40)
        patch.setattr(spool_module, "_ENTRIES_IN_MEMORY", 3 * 17)
        spool = Spool(folder, 120)
        written: list[tuple[int, int]] = []
        now = 0.0
        for stream, data, pause, released in steps:
            now += pause
            if len(data) <= spool.room:
                spool.append(stream, data, now)
                written += [(stream, byte) for byte in data]
            spool.release(spool.start + released)

            assert spool.end == len(written)
            offset, seen = spool.start, []
            while (piece := spool.read(offset, size)) is not None:
                assert 0 < len(piece.data) <= size
                seen += [(piece.stream, byte) for byte in piece.data]
                assert piece.offset == offset + len(piece.data)
                offset = piece.offset
            assert seen == written[spool.start :]
        spool.close()


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(min_size=1, max_size=25), st.integers(0, 40)), max_size=60))
def test_a_store_wraps_around_in_its_file(steps: list[tuple[bytes, int]]) -> None:
    """The file never exceeds the capacity, whatever was ever written."""
    with tempfile.TemporaryDirectory() as folder:
        store, stream = Store(folder, 50, 20), b""
        for data, released in steps:
            if len(data) <= store.room:
                store.append(data)
                stream += data
            store.release(min(store.end, store.start + released))

            offset, seen = store.start, b""
            while data := store.read(offset, 7):
                seen += data
                offset += len(data)
            assert seen == stream[store.start :]
        store.close()


def test_a_full_disk_adds_nothing(tmp_path: Path) -> None:
    """When the file cannot be made, what was held is still held."""
    store = Store(str(tmp_path / "gone"), 100, 10)
    store.append(b"0123456789")

    with pytest.raises(FileNotFoundError):
        store.append(b"more")

    assert (store.end, store.read(0, 100)) == (10, b"0123456789")


@given(st.integers(0, 1 << 62), st.integers(1, 1 << 40))
def test_a_cursor_names_its_offset(offset: int, serial: int) -> None:
    """Made and read again it is the same offset."""
    cursor = make_cursor("0123456789abcdef", serial, offset)

    read = read_cursor(cursor, "0123456789abcdef", serial, process_id="p", start=0, end=offset)

    assert read == offset


@given(st.text(max_size=40))
def test_no_other_text_is_a_cursor(text: str) -> None:
    """Anything we have not made is refused, never misread."""
    with pytest.raises(InvalidProcessCursorError):
        read_cursor(text, "0123456789abcdef", 1, process_id="p", start=0, end=1 << 62)


def test_a_spool_says_what_would_leave_memory(tmp_path: Path) -> None:
    """Before it is written; what is in the file already is there."""
    spool = Spool(str(tmp_path), 1 << 20)
    assert not spool.would_spill(spool_module.DATA_IN_MEMORY)
    spool.append(0, b"x", 0.0)
    assert spool.would_spill(spool_module.DATA_IN_MEMORY)
    assert not spool.would_spill(spool_module.DATA_IN_MEMORY - 1)
    spool.append(0, bytes(spool_module.DATA_IN_MEMORY), 0.0)
    assert not spool.would_spill(1)
    spool.release(spool.end)
    assert not spool.would_spill(spool_module.DATA_IN_MEMORY)
    spool.close()
