"""The journal: what the last complete save held is what a successor finds."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sandbox_kernel.kernel.journal import Inheritance, Journal
from sandbox_kernel.kernel.seams import Seams


def entry(number: int) -> Inheritance:
    return Inheritance(mark="m", session=f"s{number}", subscribers=number, requests={"open": []})


def test_a_successor_finds_the_last_save(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "kernels"), "k")
    for number in range(5):
        assert journal.save(entry(number))

    assert Journal(str(tmp_path / "kernels"), "k").load() == entry(4)
    assert stat.S_IMODE(os.stat(journal.path).st_mode) == 0o600


def test_a_save_cut_short_leaves_the_one_before(tmp_path: Path) -> None:
    """Whatever half a writer was killed in, the other half stands."""
    for broken in (4, 5):
        journal = Journal(str(tmp_path), f"k{broken}")
        for number in range(broken + 1):
            journal.save(entry(number))
        with open(journal.path, "r+b") as file:
            # The number of a save is its count from one, its half that number's parity.
            file.seek(((broken + 1) % 2 << 20) + 20)
            file.write(b"XX")

        assert Journal(str(tmp_path), f"k{broken}").load() == entry(broken - 1)


def test_saves_go_on_from_what_was_found(tmp_path: Path) -> None:
    """A successor's first save is newer than its predecessor's last."""
    first = Journal(str(tmp_path), "k")
    for number in range(4):
        first.save(entry(number))
    second = Journal(str(tmp_path), "k")
    second.load()
    second.save(entry(9))

    assert Journal(str(tmp_path), "k").load() == entry(9)


@pytest.mark.parametrize("content", [b"", b"nonsense" * 400, bytes(64)])
def test_a_file_that_is_no_journal_is_nothing_to_inherit(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "k.journal").write_bytes(content)

    assert Journal(str(tmp_path), "k").load() is None


def test_a_table_that_is_too_large_or_a_folder_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), "k")
    large = Inheritance(mark="m", session="s", subscribers=0, requests={"x": "y" * (2 << 20)})

    assert not journal.save(large)
    assert not Journal("/proc/none", "k").save(entry(1))
    assert Journal("/proc/none", "k").load() is None


def test_removing_twice_is_fine(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), "k")
    journal.save(entry(1))
    journal.seams.follow("m")
    journal.remove()
    journal.remove()

    assert not os.listdir(tmp_path)


def test_a_successor_finds_the_seams_of_the_same_interpreter(tmp_path: Path) -> None:
    """Also without an orderly end, and those of an earlier relay; none of another interpreter."""
    path = str(tmp_path / "k.seams")
    for number in (700, 900):
        seams = Seams(path)
        seams.follow("m")
        seams.note(number)

    assert Seams(path).follow("m") == [700, 900]
    assert Seams(path).follow("other") == []
    assert Seams(path).follow("m") == []


def test_the_oldest_seams_are_forgotten_first(tmp_path: Path) -> None:
    path = str(tmp_path / "k.seams")
    seams = Seams(path)
    seams.follow("m")
    for number in range(3000):
        seams.note(number)

    assert Seams(path).follow("m") == list(range(3000 - 2048, 3000))


@pytest.mark.parametrize("content", [b"", b"x" * 7, b"x" * 5000, b"x" * (40 + 8 * 2048)])
def test_a_file_that_holds_no_seams_is_begun_anew(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "k.seams"
    path.write_bytes(content)
    seams = Seams(str(path))

    assert seams.follow("m") == []
    seams.note(5)
    assert Seams(str(path)).follow("m") == [5]


def test_seams_that_cannot_be_kept_stop_nobody() -> None:
    seams = Seams("/proc/none/k.seams")

    assert seams.follow("m") == []
    seams.note(5)
    seams.remove()


def test_a_record_is_deadly_once_two_relays_have_ended_on_it(tmp_path: Path) -> None:
    """Not after one, nor two that ended elsewhere; and only of the same interpreter."""
    path = str(tmp_path / "k.seams")
    found = []
    for end in (100, 300, 300, None):
        seams = Seams(path)
        seams.follow("m")
        found.append(seams.deadly)
        seams.enter(200)
        seams.leave()
        if end is not None:
            seams.enter(end)

    assert found == [None, None, None, 300]
    again, other = Seams(path), Seams(path)
    again.follow("m")
    assert again.deadly == 300
    other.follow("other")
    assert other.deadly is None
