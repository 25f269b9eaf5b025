"""What a viewer is told, judged by the terminal of the browser."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_runtime.replay import LARGEST_SCREEN, TURN, TerminalLog, without_queries
from sandbox_runtime.screen import Screen
from sandbox_runtime.screen_serialize import serialize
from sandbox_runtime.terminal_queries import queries_in
from tests.support.terminal_output import pieces, sizes, without_pages
from tests.support.xterm_judge import XtermJudge, difference

SOME = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class HeededLog(TerminalLog):
    """One whose owner does not go on before all is drawn that should be."""

    def feed(self, data: bytes) -> None:
        super().feed(data)
        catch_up(self)


def catch_up(log: TerminalLog) -> int:
    """Draw all that should be drawn; return how many turns that took."""
    turns = 0
    while log.is_behind:
        log.catch_up()
        turns += 1
    return turns


def screen_of(log: TerminalLog) -> bytes:
    told = log.replay(None)
    assert told.kind == "screen"
    assert told.offset == log.safe_end
    assert len(told.data) <= LARGEST_SCREEN
    return told.data


def feed(log: TerminalLog, data: bytes, chance: random.Random) -> None:
    """Feed in pieces as a PTY gives them, now and then cut anywhere."""
    at = 0
    while at < len(data):
        size = chance.choice([1, 2, 3, 7, 64, 4096])
        log.feed(data[at : at + size])
        at += size


@SOME
@given(st.data(), sizes, st.lists(pieces, max_size=60), st.randoms(use_true_random=False))
def test_new_viewer_sees_what_an_old_one_sees(
    xterm: XtermJudge,
    data: st.DataObject,
    size: tuple[int, int],
    said: list[bytes],
    chance: random.Random,
) -> None:
    """Wherever a viewer attaches, it shows the same screen, and goes on the same way."""
    cut = data.draw(st.integers(0, len(said)))
    before, after = b"".join(said[:cut]), b"".join(said[cut:])
    log = HeededLog(*size)
    feed(log, before, chance)
    seen, seen_later = xterm.looks(*size, before, None, after, None)
    told, told_later = xterm.looks(*size, screen_of(log), None, after, None)

    assert told.pop("answers") == []
    for look in (seen, seen_later, told, told_later):
        look.pop("answers", None)
        look.pop("serialized")  # of what it says of empty cells, the judge's own state says more
    assert difference(seen, told) == ""
    assert difference(seen_later, told_later) == ""


@SOME
@given(
    sizes,
    st.lists(
        st.one_of(without_pages, without_pages, st.tuples(st.integers(2, 60), st.integers(2, 14))),
        max_size=40,
    ),
)
def test_rows_are_wrapped_anew_as_the_viewer_wraps_them(
    xterm: XtermJudge, size: tuple[int, int], steps: list[bytes | tuple[int, int]]
) -> None:
    """A viewer that attaches after changes of size sees what one sees that was there."""
    log = HeededLog(*size)
    for step in steps:
        if isinstance(step, tuple):
            log.resize(*step)
        else:
            log.feed(step)
    seen = xterm.look(*size, *steps)
    told = xterm.look(log.cols, log.rows, screen_of(log))

    for look in (seen, told):
        for key in ("answers", "serialized"):
            look.pop(key)
    assert difference(seen, told) == ""


@SOME
@given(st.data(), st.lists(pieces, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_replay_from_a_cursor_is_exact(
    xterm: XtermJudge, data: st.DataObject, said: list[bytes], chance: random.Random
) -> None:
    """From any offset where output may be cut, the rest follows byte by byte, and ends where it may."""
    output = b"".join(said)
    log = HeededLog(20, 5)
    feed(log, output, chance)
    since = data.draw(st.integers(0, len(output)))
    told = log.replay(since)

    assert log.safe_end == log.end == told.offset == len(output)
    if log.is_safe(since):
        assert (told.kind, told.data) == ("exact", output[since:])
        before, after = xterm.looks(20, 5, output[:since], None, output[since:], None)
        assert before["parser"] == 0
        assert difference(xterm.look(20, 5, output), after) == ""
    else:
        assert told.kind == "screen"


@SOME
@given(st.lists(pieces, max_size=10), st.binary(max_size=40), st.randoms(use_true_random=False))
def test_no_boundary_is_inside_a_sequence(
    xterm: XtermJudge, said: list[bytes], rest: bytes, chance: random.Random
) -> None:
    """Whatever a program leaves unfinished, the safe end is before it, and the terminal at rest there."""
    output = b"".join(said) + rest
    cut = output[: chance.randint(0, len(output))]
    log = HeededLog(20, 5)
    feed(log, cut, chance)

    safe = cut[: log.safe_end]
    assert xterm.look(20, 5, safe.replace(b"\x1b[1J", b""))["parser"] == 0
    assert safe.decode("utf-8", "ignore") == safe.decode("utf-8", "ignore").rstrip("\ufffd")
    whole = HeededLog(20, 5)
    whole.feed(cut)
    assert whole.safe_end == log.safe_end


def test_a_cursor_inside_a_sequence_gets_a_screen() -> None:
    """An offset between the bytes of a character or a sequence is no place to begin."""
    log = HeededLog(20, 5)
    log.feed(b"a\xe4\xb8\xad\x1b[31mb")

    assert [at for at in range(log.end + 1) if log.replay(at).kind == "exact"] == [0, 1, 4, 9, 10]


def test_a_cursor_that_is_gone_gets_a_screen_and_is_told() -> None:
    """Output that is no longer kept is called lost; what a new viewer never had is not."""
    log = HeededLog(20, 5, size=1000)
    log.feed(b"line\r\n" * 100_000)

    assert log.start == log.end - 1000
    assert log.replay(log.start - 1).truncated
    assert not log.replay(None).truncated
    assert log.replay(log.end).data == b""
    with pytest.raises(ValueError, match="after the end"):
        log.replay(log.end + 1)


def test_unfinished_sequence_is_left_to_live_output(xterm: XtermJudge) -> None:
    """A screen does not hold half a sequence; what is live begins with it."""
    log = HeededLog(20, 5)
    log.feed(b"ab\x1b]0;half a ti")
    told = log.replay(None)
    rest = b"\x1b]0;half a ti" + b"tle\x07c"

    assert told.offset == 2
    seen = xterm.look(20, 5, b"ab" + rest)
    assert seen["title"] == "half a title"
    assert difference(seen, xterm.look(20, 5, told.data + rest)) == ""


@pytest.mark.parametrize(
    "opening", [b"\x1b]52;c;", b"\x1bPq", b"\x1b_G", b"\x1b[1;", b"\x1b]0;" + b"\x1b]" * 9]
)
def test_endless_sequence_does_not_hold_up_the_replay(xterm: XtermJudge, opening: bytes) -> None:
    """A sequence of megabytes costs no memory, and a viewer that comes in its middle drops its rest."""
    log = HeededLog(20, 5, size=100_000)
    log.feed(b"before")
    log.feed(opening)
    for _ in range(300):
        log.feed(b"0" * 1000)
    told = log.replay(None)

    assert told.offset == log.end
    after = xterm.look(20, 5, told.data + b"123\x18\x1b\\ after")
    assert after["normal"]["lines"][0]["runs"][0][1].strip("\0") == "before after"


@pytest.mark.parametrize("letters", [4095, 16383, 32767, 65534, 65535, 1048575])
def test_no_emoji_is_split(xterm: XtermJudge, letters: int) -> None:
    """A character that straddles any of the usual limits comes whole, once."""
    output = b"a" * letters + "\U0001f600".encode() * 50
    log = HeededLog(80, 24, size=2 << 20)
    feed(log, output, random.Random(letters))  # noqa: S311

    assert log.replay(0).data == output
    told = screen_of(log)
    if letters < 80_000:
        assert output in told
    rows = xterm.look(80, 24, told)["normal"]["lines"]
    text = "".join(run for row in rows for _, run in row["runs"]).strip("\0")
    assert text == "a" * (len(text) - 50) + "\U0001f600" * 50


def test_full_screen_program_comes_back_in_its_modes(xterm: XtermJudge) -> None:
    """Modes that were set long ago are told, though the bytes that set them are gone."""
    log = HeededLog(80, 24)
    log.feed(b"$ program\r\n\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[?1h")
    log.feed(b"".join(b"\x1b[H\x1b[2Jframe %06d" % frame + b"." * 40 for frame in range(60_000)))
    assert log.start > 0

    told = xterm.look(80, 24, screen_of(log))
    assert told["alternate"]
    assert told["modes"]["hidden"]
    assert told["modes"]["bracketedPasteMode"]
    assert told["modes"]["applicationCursorKeys"]
    assert told["alt"]["lines"][0]["runs"][0][1].startswith("frame 059999....")
    assert told["normal"]["lines"][0]["runs"][0][1].startswith("$ program")
    log.feed(b"\x1b[?1049l\x1b[?25h\x1b[?2004l\x1b[?1l")
    assert not xterm.look(80, 24, screen_of(log))["alternate"]


def test_redrawing_without_line_ends_stays_within_the_log() -> None:
    """A buffer is bounded in bytes, so a program that writes no line ends does not fill it."""
    log = HeededLog(80, 24, size=262_144)
    part = (b"\x1b[H" + b"x" * 100) * 1000
    for _ in range(20):
        log.feed(part)
    log.feed(b"END\r\n")

    assert log.end - log.start == 262_144
    told = log.replay(log.safe_end - 100_000 + log.safe_end % 103)
    assert len(told.data) <= 262_144
    assert "END" in log.snapshot().lines[1]
    assert len(screen_of(log)) < 1000


def test_screen_has_a_limit_whatever_is_on_it(xterm: XtermJudge) -> None:
    """Scrollback is left out first, then the colours of the upper rows; the last rows stay whole."""
    chance = random.Random(1)  # noqa: S311
    cell = b"\x1b[38;2;%d;%d;%d;48;2;1;2;%dm"
    log = HeededLog(500, 200)
    for row in range(400):
        for _ in range(50):
            log.feed(cell % (*chance.choices(range(256), k=3), row % 256) + b"colours 10")
        log.feed(b"\r\n")
    told = xterm.look(500, 200, screen_of(log))

    seen = log.snapshot()
    assert seen.lines[-2] == "colours 10" * 50
    runs = told["normal"]["lines"][-2]["runs"]
    assert len(runs) == 50
    assert "".join(text for _, text in runs) == seen.lines[-2]
    assert told["cursor"] == list(seen.cursor)


def test_scrollback_is_cut_at_the_oldest_rows(xterm: XtermJudge) -> None:
    """What does not fit is missing at the top, and only there."""
    log = HeededLog(400, 10)
    line = b"".join(b"\x1b[3%dm%03d" % (n % 8, n) for n in range(130))
    for number in range(1500):
        log.feed(b"%05d " % number + line + b"\x1b[m\r\n")
    data = screen_of(log)
    assert len(data) > LARGEST_SCREEN * 0.9
    told = xterm.look(400, 10, data)

    numbers = [int(row["runs"][0][1][:5]) for row in told["normal"]["lines"][:-1]]
    assert numbers == list(range(1500 - len(numbers), 1500))
    assert len(numbers) > 100


def test_flood_is_skipped_and_comes_out_right(xterm: XtermJudge) -> None:
    """Lines that nobody can see any more are not drawn, and nothing that can be seen is lost."""
    chance = random.Random(2)  # noqa: S311
    log = HeededLog(80, 24)
    output = b"\x1b[1;32mgreen\x1b[m start\r\n"
    while len(output) < 3 << 20:
        kind = chance.random()
        if kind < 0.9:
            output += b"".join(
                b"%d the quick brown fox\r\n" % chance.randrange(10**9) for _ in range(1200)
            )
        elif kind < 0.95:
            output += b"\x1b[7minverse and " + "中文é".encode() * 300 + b"\x1b[0;4m\r\n\x1b[K" * 500
        else:
            output += b"\x1b[3;10r\x1b[5;5Hregion\r\n\x1b[r\x1b[24;1H\x1b[44m\r\n\x1b[49m"
    for at in range(0, len(output), 30_011):
        log.feed(output[at : at + 30_011])
    parts = [output[at : at + 65536] for at in range(0, len(output), 65536)]

    seen, told = xterm.look(80, 24, *parts), xterm.look(80, 24, screen_of(log))
    for look in (seen, told):
        look.pop("serialized")
    assert difference(seen, told) == ""


def test_frames_of_a_full_screen_program_are_skipped_and_come_out_right(
    xterm: XtermJudge,
) -> None:
    """What was drawn before the screen was cleared is left out, but for what outlives that."""
    chance = random.Random(3)  # noqa: S311
    log = HeededLog(80, 24)
    output = b"\x1b[?1049h"
    for frame in range(3000):
        output += chance.choice([b"\x1b[H\x1b[2J", b"\x1b[H\x1b[J", b"\x1b[2J\x1b[H"])
        output += b"\x1b[?25l\x1b[3%dmframe %d\x1b[5;9Hhere \x1b[7m%d" % (frame % 8, frame, frame)
        output += chance.choice(
            [b"", b"\x1b[m", b"\x1b[?25h", b"\x1b]2;title\x07", b"\x1b7", b"\r\n" * 30]
        )
    for at in range(0, len(output), 5011):
        log.feed(output[at : at + 5011])
        if chance.random() < 0.1:
            seen = xterm.look(80, 24, output[: log.replay(None).offset])
            told = xterm.look(80, 24, screen_of(log))
            assert difference(seen | {"serialized": ""}, told | {"serialized": ""}) == ""


def test_attaching_after_much_output_is_quick() -> None:
    """A viewer of a terminal with 4 MiB of history waits for tens of milliseconds, not for a redraw."""
    log = HeededLog(80, 24)
    line = b"\x1b[01;34mfolder\x1b[0m  \x1b[01;32mprogram.sh\x1b[0m  notes and pictures of the year.txt\r\n"
    block = line * 400
    for _ in range((4 << 20) // len(block)):
        log.feed(block)
    start = time.process_time()
    data = screen_of(log)

    assert time.process_time() - start < 0.5  # several times what it takes on two idle cores
    assert data.count(b"folder") > 1000


def test_plain_flood_costs_little_more_than_copying() -> None:
    """Feeding is never what a flood waits for."""
    log = HeededLog(80, 24)
    block = b"the quick brown fox jumps over the lazy dog\r\n" * 700
    start = time.process_time()
    for _ in range(1000):
        log.feed(block)

    assert 1000 * len(block) / (time.process_time() - start) > 30e6  # bytes a second


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.one_of(st.binary(max_size=200), pieces), max_size=40),
    st.randoms(use_true_random=False),
)
def test_no_output_makes_it_raise(said: list[bytes], chance: random.Random) -> None:
    """Whatever comes, in whatever pieces, feeding and telling work."""
    log = HeededLog(20, 5, size=500)
    for piece in said:
        feed(log, piece, chance)
        if chance.random() < 0.1:
            log.resize(chance.randint(1, 40), chance.randint(1, 12))
        if chance.random() < 0.1:
            log.replay(chance.choice([None, 0, log.start, log.end]))
    log.replay(None)
    log.snapshot()


@pytest.mark.parametrize(
    "hostile",
    [
        b"\x1b[2147483647L\x1b[2147483647M\x1b[2147483647S\x1b[2147483647T\x1b[2147483647@\x1b[2147483647P",
        b"a\x1b[2147483647b\x1b[2147483647I\x1b[2147483647Z\x1b[2147483647X\x1b[2147483647C",
        b"\x1b[" + b"9" * 100_000 + b"m",
        b"\x1b[" + b"1:2;" * 50_000 + b"m",
        b"e" + b"\xcc\x81" * 200_000,
        b"\x1b]2;" + b"t" * 1_000_000 + b"\x07",
        b"".join(b"\x1b]8;;http://%d\x07x" % n for n in range(2500)),
        b"".join(b"\x1b]4;%d;#aaa\x07" % n for n in range(5000)),
        b"\x1b[22;0t" * 10_000,
        b"\x1b]" * 100_000,
        b"\x1bP" * 1000 + b"\x1b_" * 1000 + b"?" * 100_000,
    ],
)
def test_hostile_output_is_drawn_in_bounded_time_and_size(hostile: bytes) -> None:
    """No number and no length in the output decides how much work or memory it takes."""
    log = HeededLog(80, 24)
    start = time.process_time()
    log.feed(hostile)
    without_queries(hostile)
    data = log.replay(None).data

    assert time.process_time() - start < 3
    assert len(data) <= LARGEST_SCREEN


@pytest.mark.parametrize(
    "query",
    [
        "\x1b[c",
        "\x1b[0c",
        "\x1b[>c",
        "\x1b[=c",
        "\x1b[5n",
        "\x1b[6n",
        "\x1b[?6n",
        "\x1b[4$p",
        "\x1b[?2004$p",
        "\x1b[>q",
        "\x1b[>0q",
        "\x1b[x",
        "\x1b[?u",
        "\x1b[11t",
        "\x1b[14t",
        "\x1b[18t",
        "\x1b[21t",
        "\x1b]4;1;?\x1b\\",
        "\x1b]10;?\x07",
        "\x1b]11;?\x07",
        "\x1b]52;c;?\x07",
        "\x1bP$qm\x1b\\",
        "\x1bP+q544e\x1b\\",
        "\x05",
        "\x9bc",
    ],
)
def test_queries_can_be_left_out(xterm: XtermJudge, query: str) -> None:
    """For viewers that answer whatever they read, nothing they would answer remains."""
    stripped = without_queries(b"a" + query.encode() + b"b")

    assert stripped == b"ab"
    assert xterm.look(20, 5, stripped)["answers"] == []


@pytest.mark.parametrize(
    ("query", "left"),
    [
        (b"\x1b[\x006n", b"\x00"),
        (b"\x1b[\n6n", b"\n"),
        (b"\x1b[6\x7fn", b""),
        (b"\x1b\x00[6n", b"\x00"),
        (b"\x1b\x7f[6n", b""),
        (b"\x1b[>\x00c", b"\x00"),
        (b"\x1b[?25\x00$p", b"\x00"),
        (b"\x1b[?25$\r\np", b"\r\n"),
        (b"\x1b[0:0c", b""),
        (b"\x1b[?1:2$p", b""),
        (b"\x1b[0018t", b""),
        (b"\x1b[1\x0b8t", b"\x0b"),
        (b"\x1b[18:0t", b""),
        (b"\x1b[\x056n", b""),
        (b"\x1b[\xff6n", b""),
        (b"\x1b[\xef\xbb\xbf6n", b""),
        (b"\xc2\x1b[6n\x9b6n", b"\x9b6n"),
        (b"\x1b\x1b[6n", b"\x1b\x1b\\"),
        (b"\x1b[3\x1b[6n", b"\x1b[3\x1b\\"),
        (b"\x1b]2;title\x1b[6n", b"\x1b]2;title\x1b\\"),
        (b"\x1b]2;title\xc2\x9b6n", b"\x1b]2;title\x18"),
        (b"\x1b[3\x05\x1b[6n", b"\x1b[3\x1b\\"),
        (b"\x1b_text\x1b[6n", b"\x1b_text\x1b\\"),
        (b"\x1bP$qm\x1b[0m", b"\x1b[0m"),
        (b"\x1bP0\x00$\x00qm\x1b\\", b""),
        (b"\x1b\n\x7fP$qm\x07\x1b\\", b"\n"),
        (b"\x1b]011;?\x07", b""),
        (b"\x1b]11;\x00?\x07", b""),
        (b"\x1b]1\xff1;?\x07", b""),
        (b"\x1b\n]11;?\x07", b"\n"),
        (b"\x1b]11;?\x1b[0m", b"\x1b[0m"),
        (b"\x1b]11;?\x1b[6n", b""),
    ],
)
def test_queries_are_left_out_however_they_are_spelled(
    xterm: XtermJudge, query: bytes, left: bytes
) -> None:
    """What a terminal obeys within a query stays, and what the query has ended is ended."""
    asked = xterm.look(20, 5, b"a" + query + b"b")
    stripped = without_queries(b"a" + query + b"b")
    told = xterm.look(20, 5, stripped)

    assert stripped == b"a" + left + b"b"
    assert told.pop("answers") == []
    asked.pop("answers")
    assert difference(asked, told) == ""
    for plain in queries_in(b"a" + query + b"b"):
        assert xterm.look(20, 5, plain)["parser"] == 0
        assert queries_in(plain + b"b") == [plain]


@pytest.mark.parametrize(
    "command",
    [
        "\x1b]0;what?\x07",
        "\x1b[2\xa0q",
        "\x1b[22;0t",
        "\x1b[8;24;80t",
        "\x1b]8;;http://a?b\x07",
        "\x1b[31m",
        "\x1b]11;#fff\x07",
        "\x1b[s",
        "\x1b[u",
        "\x1b[!p",
        "\x1b[5S",
        "\x1b[?25l",
        "\x1b]2;a;?\x1b\\",
        "\x1b]52;c;YQ==\x07",
    ],
)
def test_commands_that_look_like_queries_stay(command: str) -> None:
    """What only resembles a query is not touched."""
    output = command.replace("\xa0", " ").encode()

    assert without_queries(output) == output


def test_a_flood_is_not_drawn_wherever_reads_cut_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read may end within a character or a colour; what has scrolled away is plain all the same."""
    drawn: list[int] = []
    feed = Screen.feed

    def counted(screen: Screen, data: bytes, most: float) -> int:
        drawn.append(feed(screen, data, most))
        return drawn[-1]

    monkeypatch.setattr(Screen, "feed", counted)
    line = "\x1b[38;5;200m沙箱\x1b[0m │ Песочница ─ 🙂 words\r\n".encode()
    data = line * (2_000_000 // len(line))
    log = HeededLog(80, 24)
    for at in range(0, len(data), 4099):
        log.feed(data[at : at + 4099])
    log.replay(None)

    assert sum(drawn) < len(data) / 10


_DEAR = (
    *(b"\x1b[2J", b"\x1b#8", b"\x1b[499S", b"\x1b[499T", b"\x1b[H\x1b[499L", b"\x1b[H\x1b[499M"),
    *(b"\x1b[ @", b"\x1b[5 A", b"\x1b[9'}", b"\x1b[9'~", b"x\x1b[500000b", b"\x1bc", b"\x1b[?2J"),
    *(
        b"\x1b[?1049h",
        b"\x1b[?1049l",
        b"\x1b[31mab",
        b"\x1b[500;1000Hx\x1b[1J",
        b"\xe3\x81\x82\xff",
    ),
)


_ONE_SEQUENCE = 20_000
"""Work of the dearest one on a screen of 1000 by 500."""


def test_no_turn_does_more_than_its_work_for_output_that_is_dear() -> None:
    """Whatever is fed or asked for; what is left is done by `catch_up`, until nothing is."""
    chance = random.Random(5)  # noqa: S311
    log = TerminalLog(1000, 500)
    screen = log._screen
    for _ in range(4):
        data = b"".join(chance.choice(_DEAR) for _ in range(80))
        for ask in (lambda data=data: log.feed(data), lambda: log.replay(None), log.snapshot):
            before = screen.work
            ask()
            assert screen.work - before < 4 * TURN + _ONE_SEQUENCE
    turns = 0
    while log.is_behind:
        before = screen.work
        log.catch_up()
        turns += 1
        assert 0 < screen.work - before < TURN + _ONE_SEQUENCE

    assert turns > 5
    assert log.snapshot().offset == log.end


def test_a_log_that_is_behind_gives_the_screen_and_the_rest(
    xterm: XtermJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A viewer then sees what one sees who was there all the time, at each stop."""
    chance = random.Random(6)  # noqa: S311
    cols, rows = 40, 12
    monkeypatch.setattr("sandbox_runtime.replay.TURN", 20)
    monkeypatch.setattr("sandbox_runtime.replay._OF_LOOK", 20)
    stops = 0
    for _ in range(6):
        log = TerminalLog(cols, rows)
        data = b"".join(chance.choice(_DEAR) for _ in range(150)) + b"\x1b[m\r\nend"
        # Erasing up to the last row is too much for xterm.js.
        data = data.replace(b"500000b", b"50b").replace(b"\x1b[1J", b"\x1b[1K")
        seen = xterm.look(cols, rows, data)
        log.feed(data)
        for _ in range(3):
            replay = log.replay(None)
            assert replay.offset == len(data)
            assert len(replay.data) <= LARGEST_SCREEN
            told = xterm.look(cols, rows, replay.data)
            seen.pop("serialized", None)
            told.pop("serialized")
            assert difference(seen, told) == ""
            stops += log.is_behind
            log.catch_up()

    assert stops > 12


def test_dear_output_is_wanted_in_small_pieces() -> None:
    """So that little waits when the flood is over; ordinary output is wanted in large ones again."""
    log = TerminalLog(1000, 500)
    ordinary = log.appetite
    log.feed(b"\x1b#8\x1b[31mx\x1b[ @" * 30)
    log.snapshot()
    catch_up(log)

    assert log.appetite <= 4 << 10
    for _ in range(9):
        log.feed(b"\x1b[5;5Hword" * 2000)
        catch_up(log)
    assert log.appetite == ordinary


def test_viewers_who_come_together_get_one_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made once, and each is given what has come since; a new size makes it anew."""
    made: list[int] = []

    def counted(screen: Screen, most: int) -> bytes:
        made.append(most)
        return serialize(screen, most)

    monkeypatch.setattr("sandbox_runtime.replay.serialize", counted)
    log = TerminalLog(200, 50)
    log.feed(b"\x1b[31mab\x1b[32mcd" * 9000)
    first = log.replay(None)
    log.feed(b"\r\nmo\x1b[cre")
    second = log.replay(None)

    assert second.data == first.data + b"\r\nmore"  # without what asks
    assert second.offset == first.offset + 9
    assert len(made) == 1
    log.resize(100, 50)
    log.replay(None)
    assert len(made) == 2


def test_of_many_sizes_in_one_turn_the_last_is_taken_later() -> None:
    """Each costs a look at each row, so a flood of them does not hold up the sandbox."""
    log = TerminalLog(1000, 500)
    log.feed(b"line\r\n" * 2000)
    before = log._screen.work
    for number in range(500):
        log.resize(900 + number % 100, 400)
    assert log._screen.work - before < 3 * TURN + 2 * _ONE_SEQUENCE
    assert (log.cols, log.rows) == (999, 400)

    assert catch_up(log) == 1
    assert (log._screen.cols, log._screen.rows) == (999, 400)
