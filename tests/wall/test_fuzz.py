"""Whatever a sandbox sends, nothing of it acts in the page; judged by a parser of its own."""

from __future__ import annotations

import html
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandbox_kernel.kernel.jsontext import read, write
from sandbox_kernel.kernel.policy import Policy
from sandbox_kernel.wall import forms
from sandbox_kernel.wall.modes import Mode, Wall
from sandbox_kernel.wall.verdicts import Refused
from tests.support.page_judge import FORMS, active_parts

WALLS = [
    Wall(mode=Mode.STRICT),
    Wall(mode=Mode.STRICT, network=True),
    Wall(mode=Mode.DEFAULT),
    Wall(mode=Mode.DEFAULT, network=True),
]
MARK = "window.__ran=1"
PIECES = [
    *(f"<{name}>" for name in ("a", "p", "pre", "table", "td", "select", "textarea", "title")),
    *(f"</{name}>" for name in ("a", "p", "table", "svg", "math", "style", "script", "title")),
    "<script>",
    "<script src=//x.invalid>",
    "<style>",
    "<style scoped>",
    "<style><!--",
    "<svg>",
    "<svg/onload=",
    "<math>",
    "<mtext>",
    "<mglyph>",
    "<malignmark>",
    "<annotation-xml encoding=text/html>",
    "<foreignObject>",
    "<style><a/>@import '//x.invalid';</style>",
    "<style>*{background:image-set('//x.invalid' 1x)}</style>",
    "<desc>",
    "<template>",
    "<noscript>",
    "<noembed>",
    "<xmp>",
    "<plaintext>",
    "<iframe srcdoc=",
    "<iframe src=javascript:",
    "<object data=",
    "<embed src=",
    "<form action=/api>",
    "<button formaction=javascript:",
    "<button data-commandlinker-command=x:y>",
    "<input autofocus onfocus=",
    "<base href=//x.invalid/>",
    "<link rel=stylesheet href=//x.invalid>",
    '<meta http-equiv="refresh" content="0;url=//x.invalid">',
    "<details open ontoggle=",
    "<img src=x onerror=",
    "<img/src=x/onerror=",
    '<img src="https://x.invalid/a.png">',
    '<img src="data:image/svg+xml;base64,PHN2Zz4=">',
    '<img src="data:image/png;base64,iVBORw0KGgo=" onload=',
    '<a href="javascript:',
    '<a href="jav&#x09;ascript:',
    '<a href=" &#14; javascript:',
    '<a href="data:text/html,',
    '<a href="//x.invalid">',
    '<p id="jupyter-config-data" name="x">',
    '<p style="position:fixed;top:0;background:url(//x.invalid)">',
    '<p style="margin-top:-100px;z-index:9">',
    '<p class="jp-Dialog lm-Widget">',
    "<!--",
    "-->",
    "<![CDATA[",
    "]]>",
    "<?xml ",
    "<!DOCTYPE html>",
    "\x00",
    "\ufeff",
    "\x0c",
    "&lt;script&gt;",
    "&#60;img src=x onerror=",
    "&",
    '"',
    "'",
    "`",
    ">",
    "/>",
    "=",
    " ",
    "\n",
    "\\",
    "$x$",
    "](javascript:",
    "![](https://x.invalid/a.png)",
    "[x](https://x.invalid)",
    f"{MARK}>",
    f'{MARK}">',
]
MARKUP = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=14).map("".join)
TABLE = (
    "<div>\n<style scoped>\n    .dataframe tbody tr th {\n        vertical-align: top;\n    }\n"
    '</style>\n<table border="1" class="dataframe">\n  <thead>\n    <tr style="text-align: right;">\n'
    "      <th></th>\n      <th>a</th>\n    </tr>\n  </thead>\n  <tbody>\n    <tr>\n      <th>0</th>\n"
    "      <td>1</td>\n    </tr>\n  </tbody>\n</table>\n</div>"
)
DRAWING = (
    '<?xml version="1.0" encoding="utf-8" standalone="no"?>\n<!DOCTYPE svg PUBLIC'
    ' "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">\n'
    '<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="9pt" viewBox="0 0 9 9"'
    ' xmlns="http://www.w3.org/2000/svg" version="1.1"><defs><style type="text/css">*{stroke:red}'
    '</style><path id="m" d="M 0 0 L 1 1"/></defs><g id="figure_1"><use xlink:href="#m" x="1"/>'
    '<text style="fill: url(#g)">t</text></g></svg>'
)


@st.composite
def mutated(draw: st.DrawFn, text: str) -> str:
    """A real output into which something was put, or from which something was cut."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        cut = draw(st.integers(0, 8))
        text = text[:at] + draw(st.sampled_from(PIECES)) + text[at + cut :]
    return html.escape(text) if draw(st.integers(0, 9)) == 0 else text


TEXT = MARKUP | mutated(TABLE) | mutated(DRAWING)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["source", "type", "data", "layout", "x"]), inner)
    ),
    max_leaves=6,
)
FORM = st.sampled_from(
    [
        *sorted(FORMS),
        "text/markdown",
        "application/javascript",
        "application/vnd.vegalite.v5+json",
        "text/vnd.mermaid",
        "application/pdf",
        "text/x-unknown",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(FORM, TEXT | JSON, max_size=3), st.sampled_from(WALLS))
@example({"text/html": '<svg></p><style><a id="</style><img src=1 onerror=1>">'}, WALLS[0])
@example(
    {
        "text/html": "<math><mtext><table><mglyph><style><!--</style>"
        '<img title="--&gt;&lt;img src=1 onerror=1&gt;">'
    },
    WALLS[0],
)
@example({"text/html": "<p style=\"font-family:'\\0022;position:fixed'\">"}, WALLS[0])
def test_no_active_construct_survives(data: dict[str, Any], wall: Wall) -> None:
    """Of any values in any forms, and of real outputs into which something was put."""
    shown, metadata = forms.bundle(data, {form: {"isolated": True} for form in data}, wall)

    assert active_parts(shown, frames=wall.frames) == []
    assert not any(metadata.values())
    assert all(isinstance(value, str) for form, value in shown.items() if "json" not in form)
    write(shown)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["display_data", "execute_result", "update_display_data", "execute_reply"]),
    st.dictionaries(
        st.sampled_from(["data", "metadata", "transient", "user_expressions", "status", "payload"]),
        st.dictionaries(FORM, JSON, max_size=3) | JSON,
    ),
)
def test_no_message_carries_one(msg_type: str, content: dict[str, Any]) -> None:
    """Through the policy of the relay: it is passed without, or refused, and nothing else raises."""
    policy = Policy()
    judge = policy.reply if msg_type.endswith("reply") else policy.publish
    if msg_type == "execute_reply":
        content = {
            "status": "ok",
            **content,
            "user_expressions": {"e": {"status": "ok", **content}},
        }
    try:
        passed = read(write(judge(msg_type, content)))
    except Refused:
        return

    if msg_type == "execute_reply":
        passed = {"data": {}, **passed["user_expressions"]["e"]}
    assert active_parts(passed["data"], frames=True) == []


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["output_type", "data", "metadata", "text", "name", "traceback", "evalue"]),
        st.sampled_from(["display_data", "execute_result", "stream", "error"])
        | st.dictionaries(FORM, JSON, max_size=3)
        | JSON,
    ),
    st.sampled_from(WALLS),
)
def test_no_output_of_a_notebook_carries_one(value: dict[str, Any], wall: Wall) -> None:
    """Whatever shape it has, an output comes out, or a note in its place."""
    shown = forms.output(value, wall)

    assert active_parts(shown.get("data", {}), frames=wall.frames) == []
    write(shown)


@pytest.mark.parametrize("wall", WALLS, ids=lambda wall: f"{wall.mode}-{wall.network}")
@pytest.mark.parametrize("piece", PIECES)
def test_no_piece_acts_alone_or_inside_a_table(piece: str, wall: Wall) -> None:
    """The pieces of the random tests, each surely once."""
    for text in (piece, f"{piece}{MARK}'\"></p>", TABLE.replace("<td>1", f"<td>{piece}{MARK}>1")):
        for form in ("text/html", "text/markdown", "image/svg+xml"):
            shown, _ = forms.bundle({form: text}, {}, wall)

            assert active_parts(shown, frames=wall.frames) == []


@pytest.mark.parametrize(
    "text",
    [
        "<script>1</script>",
        "<p onclick=1>",
        "<img src=x onerror=1>",
        "<svg onload=1>",
        "<a href='java&#x09;script:1'>",
        "<p style='position:fixed'>",
        "<button data-commandlinker-command=x>",
        "<iframe srcdoc=x>",
        "<iframe sandbox='allow-scripts allow-same-origin' srcdoc=x>",
        "<img src=https://x.invalid>",
        "<p id=x>",
        "<form action=/api>",
        "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src onerror=1&gt;'>",
    ],
)
def test_the_judge_sees_what_acts(text: str) -> None:
    """Unjudged it is found: else the tests above would prove nothing."""
    assert active_parts({"text/html": text}, frames=True)
    assert active_parts({"image/svg+xml": text}, frames=True)
