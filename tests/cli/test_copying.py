"""cp on real sandboxes."""

from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
import sys
import tarfile
import time

import pytest

from sandbox_kernel.cli.copying import Place

_COMMAND = [sys.executable, "-m", "sandbox_kernel.cli", "cp"]


@pytest.fixture
def made(sandbox):
    assert sandbox("exec", "one", "mkdir", "-p", "/workspace/there").code == 0
    return sandbox


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("one:/a:b", Place("/a:b", "one")),
        ("one:", Place(".", "one")),
        ("./one:x", Place("./one:x")),
        ("/x/y:z", Place("/x/y:z")),
        ("x/n.ipynb:f", Place("f", "x/n.ipynb")),
        (":x", Place(":x")),
        ("-", Place("-")),
    ],
)
def test_what_an_end_of_a_copy_names(text, place):
    """As with docker cp; a notebook stands for its sandbox."""
    assert Place.parse(text) == place


def test_a_file_goes_there_and_back_byte_for_byte(made, tmp_path):
    """Under the given name, or its own in a folder; modes stay."""
    data = os.urandom(3_000_000)
    local = tmp_path / "in.bin"
    local.write_bytes(data)
    local.chmod(0o750)

    assert made("cp", local, "one:there").code == 0
    back = tmp_path / "back"
    back.mkdir()
    ended = made("cp", "one:there/in.bin", back, "--json")
    assert ended.json == {"files": 1, "bytes": 3_000_000, "skipped": []}
    assert (back / "in.bin").read_bytes() == data
    assert (back / "in.bin").stat().st_mode & 0o777 == 0o750
    assert made("cp", "one:there/in.bin", back / "other").code == 0
    assert sorted(each.name for each in back.iterdir()) == ["in.bin", "other"]


def test_folders_are_copied_as_cp_does(made, tmp_path):
    """Into a folder that exists, as one that does not, and with /. what is in it."""
    (tmp_path / "f" / "deep").mkdir(parents=True)
    (tmp_path / "f" / "deep" / "x").write_text("x")

    for target in ("there", "new"):
        assert made("cp", tmp_path / "f", f"one:{target}").code == 0
    assert made("cp", f"{tmp_path}/f/.", "one:there").code == 0
    found = made("exec", "one", "find", "there", "new", "-name", "x").out.split()
    assert sorted(found) == ["new/deep/x", "there/deep/x", "there/f/deep/x"]

    assert made("cp", "one:new", tmp_path).code == 0
    assert made("cp", "one:new", tmp_path / "renamed").code == 0
    assert made("cp", "one:new/.", tmp_path).code == 0
    for name in ("new", "renamed", "."):
        assert (tmp_path / name / "deep" / "x").read_text() == "x"


def test_standard_streams_are_a_file_or_an_archive(made, tmp_path):
    """A file as it is; a folder as tar, which is unpacked inside."""
    data = os.urandom(300_000)
    subprocess.run([*_COMMAND, "-", "one:there/f"], input=data, check=True)
    out = subprocess.run([*_COMMAND, "one:there/f", "-"], capture_output=True, check=True).stdout
    assert out == data

    packed = subprocess.run([*_COMMAND, "one:there", "-"], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert archive.getnames() == ["there", "there/f"]
    made("exec", "one", "mkdir", "again")
    subprocess.run([*_COMMAND, "-", "one:again"], input=packed, check=True)
    assert made("exec", "one", "cmp", "there/f", "again/there/f").code == 0
    broken = subprocess.run(
        [*_COMMAND, "-", "one:again"], input=b"no archive", capture_output=True, check=False
    )
    assert broken.returncode == 1
    assert b"tar" in broken.stderr


def test_nothing_outside_of_the_target_is_written(made, tmp_path):
    """A link in the place of a file is not followed, and one that leads out is told and left."""
    made("exec", "one", "sh", "-c", "echo new > f; ln -s /etc/passwd there/l")
    kept = tmp_path / "kept"
    kept.write_text("kept")
    (tmp_path / "f").symlink_to(kept)

    assert made("cp", "one:f", tmp_path).code == 6
    assert kept.read_text() == "kept"
    ended = made("cp", "one:there", tmp_path / "t", "--json")
    assert ended.code == 1
    assert [each["path"] for each in ended.json["skipped"]] == ["l"]
    assert list((tmp_path / "t").iterdir()) == []


def test_wrong_ends_are_refused_before_anything_is_done(made, tmp_path):
    """Two sandboxes, none, one that is not there, a file that is not there."""
    assert made("cp", "one:a", "one:b").code == 2
    assert made("cp", tmp_path, tmp_path).code == 2
    assert made("cp", "two:a", tmp_path).code == 3
    assert made("cp", "one:no", tmp_path).code == 1
    assert made("cp", tmp_path / "no", "one:").code == 6
    assert made("cp", tmp_path, "one:none/").code == 2
    assert made("list", "-q").out == "one\n"


def test_an_interrupted_copy_leaves_no_part_of_a_file(made):
    """Ctrl-C while input is awaited ends the command at once, with its code."""
    with subprocess.Popen([*_COMMAND, "-", "one:there/part"], stdin=subprocess.PIPE) as copying:
        copying.stdin.write(b"x" * 100_000)
        copying.stdin.flush()
        deadline = time.monotonic() + 30
        while not made("exec", "one", "ls", "-A", "there").out:
            assert time.monotonic() < deadline
        copying.send_signal(signal.SIGINT)
        assert copying.wait(timeout=20) == 130
    assert made("exec", "one", "ls", "-A", "there").out == ""


def test_a_bar_is_drawn_on_a_terminal_only_and_names_are_escaped(made, tmp_path):
    """Standard error of a program gets nothing; a name does nothing to a terminal."""
    name = "a\x1b]0;b\x07"
    made("exec", "one", "sh", "-c", 'printf x > "there/$1"', "-", name)
    words = [*_COMMAND, "one:there", str(tmp_path / "t")]

    assert subprocess.run(words, capture_output=True, check=True).stderr == b""
    ours, theirs = pty.openpty()
    subprocess.run(words, stderr=theirs, check=True)
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 4096):
            shown += data
    except OSError:  # nobody has its other end
        pass
    os.close(ours)
    assert b"1 file" in shown
    assert b"\x1b]" not in shown
    assert b"\x07" not in shown
