"""Real programs as judges: whenever a viewer comes back to them, the screen is as it was."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sandbox_runtime.replay import TerminalLog
from tests.support.program_recording import Keys, record
from tests.support.xterm_judge import XtermJudge, difference

_TEXT = "".join(
    f"{n} The quick brown fox — schnelle Füchse, 中文, 한글 and \U0001f600 e\u0301\n"
    for n in range(300)
)

PROGRAMS: dict[str, tuple[list[str], Keys]] = {
    "vim": (
        ["vim", "-u", "NONE", "-N", "-n", "text.txt"],
        [
            (b"", b"The quick"),
            (b":set hlsearch number mouse=a list\r/fox\r", b"\x1b[?1"),
            (b"\x06\x06\x02", b"brown"),
            (b"ihello \xc3\xbc\x1b:split\rdd", b"text.txt"),
            (b":qa!\r", b"\x1b[?1049l"),
        ],
    ),
    "less": (
        ["less", "-R", "text.txt"],
        [
            (b"", b"The quick"),
            (b"  ", b"brown"),
            (b"/schnelle\r", b"\x1b["),
            (b"G", b"299"),
            (b"q", b"\x1b[?1049l"),
        ],
    ),
    "nano": (
        ["nano", "--ignorercfiles", "text.txt"],
        [
            (b"", b"The quick"),
            (b"typed \xe4\xb8\xad", b"typed"),
            (b"\x16\x16", b"brown"),
            (b"\x18", b"Save"),
            (b"n", b"\x1b[?1049l"),
        ],
    ),
    "htop": (
        ["htop", "-d", "5"],
        [(b"", b"Tasks"), (b"\x1b[B\x1b[B", b"\x1b["), (b"t", b"\x1b["), (b"q", b"\x1b[?1049l")],
    ),
    "tmux": (
        ["tmux", "-f", "tmux.conf", "new-session"],
        [
            (b"", b"% "),
            (b"cat text.txt\r", b"299 The"),
            (b"\x02%", b"% "),
            (b'\x02"echo done\r', b"done"),
            (b"tmux kill-server\r", b"\x1b[?1049l"),
        ],
    ),
    "shell": (
        ["bash", "--norc", "--noprofile", "-i"],
        [
            (b"", b"$ "),
            (b"ls --color=always -la /usr/bin | head -200\r", b"total"),
            (b"printf '\\033[3;10r'; exit\r", b"exit"),
        ],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_is_shown_as_it_was(xterm: XtermJudge, tmp_path: Path, name: str) -> None:
    """After each of its screens, and at points in between, a new viewer sees what an old one sees."""
    (tmp_path / "text.txt").write_text(_TEXT)
    (tmp_path / "tmux.conf").write_text("set -g default-command \"exec env PS1='% ' sh -i\"\n")
    argv, keys = PROGRAMS[name]
    pieces = record(argv, keys, tmp_path)
    output = b"".join(pieces)
    chance = random.Random(name)  # noqa: S311
    cuts = {chance.randrange(len(output)) for _ in range(12)}
    at = 0
    for piece in pieces:
        cuts.add(at := at + len(piece))

    log = TerminalLog(80, 24)
    told: list[tuple[int, bytes]] = []
    at = 0
    for cut in sorted(cuts):
        while at < cut:
            size = min(chance.choice([1, 5, 100, 4096]), cut - at)
            log.feed(output[at : at + size])
            at += size
        replay = log.replay(None)
        told.append((replay.offset, replay.data))

    assert log.safe_end == len(output)
    steps: list[bytes | None] = []
    at = 0
    for offset, _ in told:
        steps += [output[at:offset], None]
        at = offset
    seen = xterm.looks(80, 24, *steps)
    final = seen[-1]
    for old, (offset, data) in zip(seen, told, strict=True):
        new, at_end = xterm.looks(80, 24, data, None, output[offset:], None)
        assert new["answers"] == []
        assert _difference(old, new) == "", f"at {offset}"
        assert _difference(final, at_end) == "", f"from {offset}"


def _difference(seen: dict[str, object], told: dict[str, object]) -> str:
    # What the serialize addon says of empty cells depends on how they came to be; queries are
    # answered where they are part of what a viewer is sent live.
    ignored = {"serialized": "", "answers": []}
    return difference(seen | ignored, told | ignored)
