"""Terminal output as Hypothesis draws it: what programs write, and what they should not."""

from __future__ import annotations

from hypothesis import strategies as st

_numbers = st.integers(0, 14).map(str)
_maybe = st.one_of(st.just(""), _numbers)

_text = st.one_of(
    st.text("abcXYZ qxlk~", min_size=1, max_size=30),
    st.text("pqrs", min_size=20, max_size=120),
    st.sampled_from(
        ["中文", "e\u0301", "\u0301", "😀", "日", "é", "─│", "👩\u200d💻", "\u200b", "한글"]
    ),
)
_controls = st.sampled_from(["\r\n", "\n", "\r", "\b", "\t", "\r\n\r\n\r\n", "\v", "\f", "\a"])
_looks = st.sampled_from(
    [
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
        "7",
        "8",
        "9",
        "21",
        "22",
        "23",
        "24",
        "25",
        "27",
        "28",
        "29",
        "31",
        "39",
        "42",
        "49",
        "53",
        "55",
        "59",
        "97",
        "104",
        "38;5;200",
        "48;5;17",
        "38;2;1;2;3",
        "48:2::9:8:7",
        "48:5:3",
        "4:0",
        "4:3",
        "4:4",
        "58;5;9",
        "58:2::1:2:3",
        "1;31;44",
        "38;5",
        "38;9;1",
        "0;1;4:2",
    ]
).map("\x1b[{}m".format)
_moves = st.one_of(
    st.builds("\x1b[{};{}{}".format, _numbers, st.integers(0, 30), st.sampled_from("Hf")),
    st.builds("\x1b[{}{}".format, _maybe, st.sampled_from("ABCDEFGIZ`ade")),
)
_edits = st.one_of(
    st.builds(
        "\x1b[{}{}".format, st.sampled_from(["", "0", "2", "?0", "?2"]), st.sampled_from("JK")
    ),
    # Where the cursor is in the last column of the last row, xterm raises at this one.
    st.sampled_from(["\r\x1b[1J", "\r\x1b[1K", "\r\x1b[?1K"]),
    st.builds("\x1b[{}{}".format, _maybe, st.sampled_from("@PXLMSTb")),
    st.sampled_from(["\x1b[2'}", "\x1b[2'~", "\x1b[m\x1b#8"]),
)
_margins = st.builds("\x1b[{};{}r".format, _numbers, _numbers)
_saves = st.sampled_from(
    ["\x1b7", "\x1b8", "\x1b[s", "\x1b[u", "\x1b[?1048h", "\x1b[?1048l", "\x1b[3J\x1b7"]
)
_escapes = st.sampled_from(
    ["\x1b" + end for end in "DEMH=>no|}~"]
    + [
        "\x1b(0",
        "\x1b(B",
        "\x1b)0",
        "\x0e",
        "\x0f",
        "\x1b(A",
        "\x1b*0",
        "\x1b-K",
        "\x1b%G",
        "\x1b(?",
    ]
)
_modes = st.builds(
    "\x1b[{}{}".format,
    st.sampled_from(
        [
            "?1",
            "?6",
            "?12",
            "?25",
            "?45",
            "?66",
            "?9",
            "?1000",
            "?1002",
            "?1003",
            "?1004",
            "?1006",
            "?1016",
            "?2004",
            "?2026",
            "?5",
            "?1;25;1000",
            "4",
            "20",
        ]
    ),
    st.sampled_from("hl"),
)
_pages = st.builds(
    "\x1b[?{}{}".format, st.sampled_from(["47", "1047", "1049"]), st.sampled_from("hl")
)
_others = st.sampled_from(
    [
        "\x1b[g",
        "\x1b[3g",
        "\x1b[!p",
        "\x1b[2\xa0q",
        "\x1b[0\xa0q",
        "\x1b[5\xa0q",
        '\x1b[1"q',
        '\x1b[0"q',
        "\x1b]0;title\x07",
        "\x1b]2;other\x1b\\",
        "\x1b[22;0t",
        "\x1b[23;0t",
        "\x1b]8;;http://a\x07li\x1b[4mnk\x1b]8;;\x07",
        "\x1b]8;id=q;http://b\x07wide中link\x1b]8;;\x07",
        "\x1b]4;1;#123456\x07",
        "\x1b]52;c;YWJj\x07",
        "\x1bc",
    ]
).map(lambda text: text.replace("\xa0", " "))
_malformed = st.sampled_from(
    [
        "\x1bP$qm\x1b\\",
        "\x1bPzabc\x1b\\",
        "\x1b_x\x1b\\",
        "\x1b[3\n1m",
        "\x1b[\x7f2C",
        "\x1b[1\x1b[m",
        "\x84",
        "\x85",
        "\x88",
        "\x9b2C",
        "\x1b[?1<h",
        "\x1b[5\x18",
        "\x1b]0;abc\x18",
        "\x7f",
        "\x1b[1é",
        "\x1b^é",
        "\x1b[" + "1;" * 40 + "m",
        "\x1b[99999999999C",
        "\x1b]xyz\x07",
        "\x1b]8\x07",
        "\x1b[:m",
        "\x1b[4:9m",
    ]
)

without_pages = st.one_of(
    _text,
    _text,
    _text,
    _controls,
    _controls,
    _looks,
    _looks,
    _moves,
    _moves,
    _edits,
    _margins,
    _escapes,
    _modes,
    _others,
    _malformed,
).map(lambda text: text.encode())
"""One piece of output, complete in itself, that stays on the normal page."""

pieces = st.one_of(
    without_pages, without_pages, without_pages, st.one_of(_saves, _pages).map(str.encode)
)
"""One piece of output, complete in itself."""

sizes = st.sampled_from([(80, 24), (40, 10), (20, 5), (10, 3), (3, 2)])
