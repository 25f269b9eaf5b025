"""HTML in the page itself: tables and text keep their looks, and that is all."""

from __future__ import annotations

import pandas as pd
import pytest

from sandbox_kernel.wall import forms, html
from sandbox_kernel.wall.modes import Wall
from tests.support.page_judge import active_parts_of_html


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": [1.5, None], "b<": ["<b>&x</b>", '"']}),
        pd.DataFrame({"a": range(100)}),
        pd.DataFrame({"a": [1, 1], "b": [1, 2], "c": [3, 4]}).set_index(["a", "b"]),
        pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_product([["b"], ["sum", "max"]])),
        pd.DataFrame(),
    ],
)
def test_a_table_of_pandas_stays_in_the_page(frame: pd.DataFrame) -> None:
    """With the class that the page has looks for, and without being parsed."""
    text = str(frame._repr_html_())
    shown = forms.bundle({"text/html": text}, {}, Wall())[0]["text/html"]

    assert html.plain_table(text) == shown
    assert active_parts_of_html(shown) == []
    assert '<table border="1" class="dataframe">' in shown
    assert "<style" not in shown
    assert shown.count("<td>") == text.count("<td>")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<td>1", "<td><img src=x onerror=1>1"),
        ("<td>1", "<td onclick=x>1"),
        ("<td>1", "<td/onclick=x>1"),
        ("<td>1", "<td\n>1"),
        ("<td>1", "<td><1"),
        ("</table>", "</table><script>1</script>"),
        ("<div>", "<div onclick=x>"),
        ("<style scoped>", "<style scoped onload=x>"),
        ("</style>", "</style><style>body{}</style>"),
        (".dataframe tbody", "body"),
        ("</div>", "</div></div>"),
        ('class="dataframe"', 'class="jp-Dialog"'),
    ],
)
def test_only_a_table_without_anything_else_is_taken_as_it_is(old: str, new: str) -> None:
    text = str(pd.DataFrame({"a": [1]})._repr_html_())
    changed = text.replace(old, new, 1)

    assert changed != text
    assert html.plain_table(changed) is None
    assert active_parts_of_html(html.clean(changed)) == []


def test_looks_of_text_are_kept() -> None:
    """Colours, borders and spaces, as of rich and pygments; a bar of progress; a folded part."""
    text = (
        '<pre style="white-space:pre;overflow-x:auto;line-height:normal">'
        '<span style="color: #800080; font-weight: bold">x</span></pre>'
        '<div class="highlight"><span class="nb">print</span></div>'
        '<progress value="3" max="9"></progress>'
        "<details open><summary>more</summary><ul><li>x</li></ul></details>"
        '<td rowspan="2">x</td><p style="margin: 3px">y</p>'
    )
    shown = html.clean(f"<table>{text}</table>")

    assert html.route(text) == "passive"
    for kept in (
        "color:#800080",
        "font-weight:bold",
        "white-space:pre",
        'class="highlight"',
        'class="nb"',
        '<progress value="3" max="9">',
        "<summary>more",
        "margin:3px",
    ):
        assert kept in shown.replace(": ", ":").replace("; ", ";")


@pytest.mark.parametrize(
    "style",
    [
        "position:fixed",
        "z-index:9",
        "background:url(//x.invalid)",
        "list-style-image:url(//x.invalid)",
        "margin-top:-99px",
        "margin:&#45;9px",
        "margin-top:calc(900px * sin(4rad))",
        "transform:scale(9)",
        "content:'x'",
        "--x:1",
        "behavior:url(x)",
        "\\70osition:fixed",
        "font-family:'\\22;position:fixed'",
        "color:red;/*",
    ],
)
def test_nothing_lies_over_its_neighbours_or_loads(style: str) -> None:
    shown = html.clean(f'<p style="{style}">x</p>')

    assert "style" not in shown or shown in ('<p style="">x</p>', '<p style="color:red">x</p>')


def test_pictures_in_html_are_in_it() -> None:
    picture = '<img src="data:image/png;base64,iVBORw0KGgo=" alt="a" width="3">'

    assert html.clean(picture) == picture
    assert "src" not in html.clean(picture.replace("png", "svg+xml"))


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("<b>x</b>", "passive"),
        ("if a <b and on = 3", "passive"),
        ("<p>onclick=1 is text</p>", "passive"),
        ("<P ONCLICK=1>", "active"),
        ("<img/src/onerror=1>", "active"),
        ("<sCript>", "active"),
        ("<svg>", "active"),
        ("<style>.x{}</style>", "active"),
        ("<style>.dataframe td{}</style>", "passive"),
        ("<style>.dataframe td{} body{}</style>", "active"),
        ("<math><mi>x</mi></math>", "active"),
        ("<audio controls>", "active"),
        ("<ruby>x<rt>y</ruby>", "passive"),
        ("<scripted>", "passive"),
    ],
)
def test_html_is_framed_when_something_of_it_would_be_lost(text: str, where: str) -> None:
    assert html.route(text) == where


@pytest.mark.parametrize(
    "text",
    [
        "<div>" * 2000,
        "<b><p>" * 1000,
        "<a " + "x " * 100_000,
        "<" * 1000,
        "<a onx" + " onx" * 100_000,
        "<style>" * 2000,
        "<style>" + ".dataframe{}" * 50_000,
        '<table border="1" class="dataframe">' + "<tr>" * 2000,
        '<p style="' + "(" * 100_000,
        '<img src="' * 2000,
    ],
)
def test_deep_and_broken_html_is_cleaned(text: str) -> None:
    assert html.route(text)
    assert active_parts_of_html(html.clean(text)[:5000]) == []


def test_html_of_many_elements_is_text() -> None:
    """The time of a parser grows with the square of what is left open."""
    assert html.clean("<div>" * 50_000).startswith("<pre>&lt;div&gt;")
    assert not html.is_large("<td>x</td>" * 2000)
