"""Drawings are drawn anew: what draws stays, what acts or loads goes."""

from __future__ import annotations

import io

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from sandbox_kernel.wall.svg import redraw
from sandbox_kernel.wall.verdicts import Refused
from tests.support.page_judge import active_parts_of_svg

HEAD = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'


def test_a_figure_of_matplotlib_keeps_all_it_draws() -> None:
    figure = Figure()
    axes = figure.subplots()
    axes.plot([1, 3, 2])
    axes.imshow([[1, 2], [3, 4]])
    axes.set_title("a & b < c")
    written = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none"}):
        figure.savefig(written, format="svg")
    text = written.getvalue()
    drawn = redraw(text)

    assert active_parts_of_svg(drawn) == []
    for part in ("<path", "<use", "<clipPath", "<image", "<text", "<g"):
        assert drawn.count(part) == text.count(part), part
    assert "stroke-linejoin: round" in drawn
    assert "a &amp; b &lt; c" in drawn
    assert "url(#" in drawn
    assert redraw(drawn) == drawn


@pytest.mark.parametrize(
    "inside",
    [
        "<script>1</script>",
        "<script href='//x.invalid'/>",
        "<g onclick='1'/>",
        "<foreignObject><p xmlns='http://www.w3.org/1999/xhtml' onclick='1'/></foreignObject>",
        "<a xlink:href='javascript:1'><g/></a>",
        "<a href='https://x.invalid'><g/></a>",
        "<image href='https://x.invalid/a.png'/>",
        "<image href='data:image/svg+xml,x'/>",
        "<use href='https://x.invalid/a.svg#b'/>",
        "<use xlink:href='data:image/svg+xml,x#y'/>",
        "<style>@import url(//x.invalid);</style>",
        "<style>*{fill:url(//x.invalid)}</style>",
        "<style>&lt;/style>&lt;script>1&lt;/script></style>",
        "<style>*{background:\\75rl(//x.invalid)}</style>",
        "<style><a/>@import '//x.invalid';</style>",
        "<style><g>*{</g>fill:url(//x.invalid)}</style>",
        "<style>*{background:image-set('//x.invalid' 1x)}</style>",
        "<g style='background:-webkit-image-set(\"//x.invalid\" 1x)'/>",
        "<g style='background:cross-fade(\"//x.invalid\", red)'/>",
        "<g style='fill:url(//x.invalid)'/>",
        "<g fill=\"url('https://x.invalid#a')\"/>",
        "<animate attributeName='href' to='javascript:1'/>",
        "<set attributeName='onclick' to='1'/>",
        "<iframe xmlns='http://www.w3.org/1999/xhtml' srcdoc='x'/>",
        "<x:script xmlns:x='http://www.w3.org/2000/svg'>1</x:script>",
        "<title><![CDATA[</title><script>1</script>]]></title>",
        "<desc>&lt;img src=x onerror=1&gt;</desc>",
        "<?xml-stylesheet href='//x.invalid'?>",
    ],
)
def test_what_acts_or_loads_is_left_out(inside: str) -> None:
    """As an image, and where a reader puts the drawing's text into a page."""
    drawn = redraw(f"{HEAD}<rect width='1'/>{inside}</svg>")

    assert active_parts_of_svg(drawn) == []
    assert '<rect width="1">' in drawn


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "<svg",
        f"{HEAD}<g></svg>",
        "<svg xmlns='http://www.w3.org/2000/svg'><g></svg>",
        "<html><svg/></html>",
        '<!DOCTYPE svg [<!ENTITY a "b">]><svg>&a;</svg>',
        '<!DOCTYPE svg [<!ENTITY a SYSTEM "file:///etc/passwd">]><svg>&a;</svg>',
        f"{HEAD}&undefined;</svg>",
        "\x00<svg/>",
    ],
)
def test_what_is_no_drawing_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        redraw(text)


def test_a_drawing_may_nest_deeply() -> None:
    assert redraw(HEAD + "<g>" * 20_000 + "</g>" * 20_000 + "</svg>").count("<g>") == 20_000
