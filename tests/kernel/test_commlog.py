"""What comms were opened as, as the next relay finds it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sandbox_kernel.kernel import commlog
from sandbox_kernel.kernel.commlog import CommLog
from sandbox_kernel.kernel.journal import Journal


def test_a_successor_finds_what_is_open(tmp_path: Path) -> None:
    path = tmp_path / "k.comms"
    log = CommLog(str(path))
    assert log.follow("m") == []
    assert not path.exists()
    for comm_id, kind in (("a", "HTMLModel"), ("b", "!X of y"), ("c", "LabelModel"), ("a", None)):
        log.note(comm_id, kind)

    assert CommLog(str(path)).follow("m") == [("b", "!X of y"), ("c", "LabelModel")]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_successor_goes_on_in_the_same_file(tmp_path: Path) -> None:
    path = str(tmp_path / "k.comms")
    for number in range(3):
        log = CommLog(path)
        log.follow("m")
        log.note(f"c{number}", "LabelModel")

    assert [comm_id for comm_id, _ in CommLog(path).follow("m")] == ["c0", "c1", "c2"]


def test_comms_of_another_interpreter_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "k.comms"
    log = CommLog(str(path))
    log.follow("m")
    log.note("a", "LabelModel")

    assert CommLog(str(path)).follow("other") == []
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"\n", b"m", b"m\n\xff\xfe\n", b"m\na\n", b"m\n a\n"[:4]])
def test_a_file_that_makes_no_sense_says_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "k.comms").write_bytes(content)

    assert CommLog(str(tmp_path / "k.comms")).follow("m") == []


def test_a_line_cut_short_says_nothing(tmp_path: Path) -> None:
    """A type that is half written could be another one."""
    path = tmp_path / "k.comms"
    log = CommLog(str(path))
    log.follow("m")
    log.note("a", "LabelModel")
    log.note("b", "TextareaModel")
    path.write_bytes(path.read_bytes()[:-9])

    assert CommLog(str(path)).follow("m") == [("a", "LabelModel")]


def test_after_a_line_that_could_not_be_written_the_file_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "k.comms")
    log = CommLog(path)
    log.follow("m")
    log.note("a", "LabelModel")
    real = os.write
    with monkeypatch.context() as patch:
        # What a disk does that has room for half of it.
        patch.setattr(
            os, "write", lambda descriptor, data: real(descriptor, data[: len(data) // 2])
        )
        log.note("b", "HTMLModel")
        log.note("c", "HTMLModel")
    assert CommLog(path).follow("m")[0] == ("a", "LabelModel")
    log.note("d", "LabelModel")

    assert [comm_id for comm_id, _ in CommLog(path).follow("m")] == ["a", "b", "c", "d"]


def test_what_is_over_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commlog, "_WASTE", 50)
    path = tmp_path / "k.comms"
    log = CommLog(str(path))
    log.follow("m")
    log.note("kept", "LabelModel")
    for number in range(1000):
        log.note(f"c{number}", "LabelModel")
        log.note(f"c{number}", None)

    assert path.stat().st_size < 60 * len("c1000 LabelModel\n")
    assert CommLog(str(path)).follow("m") == [("kept", "LabelModel")]


def test_a_folder_that_cannot_be_used_keeps_nothing() -> None:
    log = CommLog("/proc/none/k.comms")

    assert log.follow("m") == []
    log.note("a", "LabelModel")
    log.remove()


def test_what_an_interpreter_closes_at_its_end_leaves_no_file(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), "k")
    journal.comms.follow("m")
    journal.comms.note("a", "LabelModel")
    journal.remove()
    journal.comms.note("a", None)
    journal.remove()

    assert not list(tmp_path.glob("*.comms*"))
