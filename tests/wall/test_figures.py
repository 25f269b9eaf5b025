"""Figures of plotly: drawn by the page itself, which then loads nothing for them."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox_kernel.wall.figures import check
from sandbox_kernel.wall.verdicts import Refused

FIGURE: dict[str, Any] = {
    "data": [
        {
            "type": "scatter",
            "x": [1, 2.5, None, True],
            "y": {"dtype": "f8", "bdata": "AAAA"},
            "text": ["a", "<b>b</b> https://x.invalid"],
            "line": {"color": "red"},
        }
    ],
    "layout": {"title": {"text": "a: b"}, "images": [{"source": "data:image/png;base64,AA=="}]},
}


def test_a_figure_passes_as_it_is() -> None:
    assert check(FIGURE) == FIGURE


def test_looks_of_texts_and_buttons_pass() -> None:
    text = '<span style="color:red;font-size:2em">x</span>'
    args = [{"title.text": "Year: 2020", "xaxis.tickformat": ".2f"}, {"type": ["bar"]}]
    layout = {"title": {"text": text}, "updatemenus": [{"buttons": [{"args": args}]}]}

    assert check({**FIGURE, "layout": layout})["layout"] == layout


def test_texts_that_are_put_together_pass() -> None:
    """As plotly.express writes them, and with comparisons in what they are made of."""
    parts = {
        "hovertemplate": "<b>%{hovertext}</b><br>age=%{x:.2f}<br>y=%{y|%b %Y}<extra>%{name}</extra>",
        "text": ["<18", "18 - 65", "> 65", "x < 5 and y", "a<5"],
        "name": "style = plain",
    }
    axis = {"tickprefix": "<i>", "ticksuffix": "</i> < 9 %"}
    figure = {"data": [parts], "layout": {"xaxis": axis}}

    assert check(figure) == figure


def test_a_template_may_name_maps() -> None:
    """The library gives each figure one that names every kind of trace, and draws none by it."""
    data = {name: [{"type": name}] for name in ("choropleth", "scattermap", "scattergeo")}
    parts = {"mapbox": {"style": "light"}, "geo": {"bgcolor": "white"}}
    layout = {"template": {"data": data, "layout": parts}}

    assert check({**FIGURE, "layout": layout})["layout"] == layout


def test_of_the_settings_those_pass_that_only_draw() -> None:
    settings = {"responsive": True, "plotlyServerURL": "https://x.invalid", "topojsonURL": "/api/"}
    passed = check({**FIGURE, "config": settings, "extra": 1})

    assert passed["config"] == {"responsive": True}
    assert "extra" not in passed


@pytest.mark.parametrize(
    "part",
    [
        {"layout": {"images": [{"source": "https://x.invalid/?d=1"}]}},
        {"layout": {"images": [{"source": "data:image/svg+xml,x"}]}},
        {"layout": {"mapbox": {"style": "https://x.invalid"}}},
        {"frames": [{"data": [{"type": "scattergeo"}]}]},
        {"frames": [{"data": 5}]},
        {"frames": [5]},
        {"layout": {"template": {"layout": {"images": [{"source": "/api/x"}]}}}},
        {"data": [{"type": "scattermapbox", "lat": [1]}]},
        {"data": [{"type": "choropleth", "locations": ["x"]}]},
        {"data": [{"type": "image", "source": "//x.invalid"}]},
        {"frames": [{"layout": {"images": [{"source": "https://x.invalid"}]}}]},
        {"frames": [{"layout": {"images[0].source": "https://x.invalid"}}]},
        *(
            {"layout": {"updatemenus": [{"buttons": [{"args": args}]}]}}
            for args in (
                ["images[0].source", "https://x.invalid"],
                [{"images[0].source": "\thttp:x.invalid"}],
                [{}, {"images": [{"source": "../../api/x"}]}],
                ["type", "scattermapbox"],
                ["title.text", '<b style="cursor:url(//x.invalid)">x</b>'],
            )
        ),
        *(
            {"layout": {"title": {"text": text}}}
            for text in (
                '<span style="cursor:url(https://x.invalid),auto">x</span>',
                "<b STYLE = 'mask-image:u&#114;l(//x.invalid)'>x</b>",
                '<i style="background:\\75rl(//x.invalid)">x</i>',
                '<sup style="background:image-set(&quot;//x.invalid&quot; 1x)">x</sup>',
            )
        ),
        {"data": [{"text": ['<a href="javascript:1">x</a>']}]},
        {"layout": {"title": {"text": '<a href="JAVASCRIPT :1">x</a>'}}},
        *(
            {"data": [{"texttemplate": text, "customdata": [values]}]}
            for text, *values in (
                ('<span style="fill:%{customdata[0]}(//x.invalid)">x</span>', "url"),
                ("<span %{customdata[0]}>x</span>", "style='fill:url(//x.invalid)'"),
                ("<%{customdata[0]}>x</span>", "span style='fill:url(//x.invalid)'"),
                ("<s%{customdata[0]}%{customdata[1]}>", "pan style='fill:ur", "l(//x.invalid)'"),
                ("%{customdata[0]}%{customdata[1]}", "<span style='fill:ur", "l(//x.invalid)'>x"),
                ("%{x:<<3}span style='fill:%{customdata[0]}(//x.invalid)'>x", "url"),
                ("%{x|<span }style='fill:%{customdata[0]}(//x.invalid)'>x", "url"),
            )
        ),
        *(
            {"layout": {"xaxis": {"tickprefix": before, "ticksuffix": behind}}}
            for before, behind in (
                ("<span style='fill:ur", "l(//x.invalid)'>x</span>"),
                ("<", "span style='fill:url(//x.invalid)'>x"),
                ("<SP", "AN style='fill:url(//x.invalid)'>x"),
            )
        ),
        {"data": 5},
        {"layout": []},
        {"frames": {}},
    ],
)
def test_a_figure_that_would_load_something_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        check({**FIGURE, **part})


@pytest.mark.parametrize("value", [None, [], "x", {}, {"layout": {}}])
def test_what_is_no_figure_is_refused(value: Any) -> None:
    with pytest.raises(Refused):
        check(value)
