"""Each way in which outputs have been seen to act in a page, and what becomes of it.

The payloads set a marker and nothing else; whether they would, a browser shows elsewhere.
"""

from __future__ import annotations

from typing import Any

import pytest

from sandbox_kernel.kernel.policy import Policy
from sandbox_kernel.wall import forms
from sandbox_kernel.wall.modes import Mode, OutputLimits, Wall
from sandbox_kernel.wall.verdicts import Refused
from tests.support.page_judge import active_parts

OFF, ON = Wall(), Wall(network=True)
STRICT, TRUSTED = Wall(mode=Mode.STRICT), Wall(mode=Mode.TRUSTED)
MARK = "window.__ran=1"
SCRIPT = f"<script>{MARK}</script>"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def show(data: dict[str, Any], wall: Wall = OFF, **metadata: Any) -> dict[str, Any]:
    """Return what is shown, judged to be passive."""
    shown, _ = forms.bundle(data, metadata, wall)
    if not wall.is_off:
        assert active_parts(shown, frames=wall.frames) == []
    return shown


def page_of(shown: dict[str, Any]) -> str:
    """Return the part of the HTML that is the page's own, without what frames hold."""
    return str(shown.get("text/html", "")).partition("srcdoc=")[0]


@pytest.mark.parametrize("wall", [OFF, ON, STRICT])
@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("application/javascript", MARK),
        ("text/javascript", MARK),
        ("application/vnd.vegalite.v5+json", {"data": {"url": "/api/contents/x"}}),
        ("application/vnd.vega.v5+json", {"usermeta": {"embedOptions": {"patch": "/x"}}}),
        ("text/vnd.mermaid", "flowchart LR"),
        ("application/pdf", "JVBERi0xLjQK"),
        ("application/vnd.jupyter.widget-state+json", {"state": {}}),
        ("application/x-unknown+json", {}),
        ("TEXT/HTML", SCRIPT),
        ("text/html; charset=utf-8", SCRIPT),
    ],
)
def test_what_is_not_on_the_list_is_withheld_with_a_note(form: str, value: Any, wall: Wall) -> None:
    """Rows 1, 27, 28, 29: the note names the form, and what to do to see it."""
    shown = show({form: value}, wall)

    assert shown.keys() == {"text/plain"}
    assert "withheld" in shown["text/plain"]
    assert ("alt.renderers" if "vega" in form else "output_policy") in shown["text/plain"]
    both = show({form: value, "text/plain": "<Chart>"}, wall)
    assert both["text/plain"].startswith("<Chart>\n[")
    rich = show({form: value, "text/plain": "<Chart>", "image/png": PNG}, wall)
    assert rich == {"text/plain": "<Chart>", "image/png": PNG}


def test_a_note_does_not_repeat_what_the_sandbox_calls_a_form() -> None:
    shown = show({"x/\x1b]0;\u202e<b>" + "y" * 500: 1})

    assert "\x1b" not in shown["text/plain"]
    assert "\u202e" not in shown["text/plain"]
    assert len(shown["text/plain"]) < 250


@pytest.mark.parametrize(
    "html",
    [
        SCRIPT,
        f"<script type=module>{MARK}</script>",
        f'<img src=x onerror="{MARK}">',
        f'<details open ontoggle="{MARK}">x</details>',
        f'<svg><animate onbegin="{MARK}" attributeName=x dur=1s></svg>',
        f'<iframe srcdoc="&lt;script&gt;{MARK}&lt;/script&gt;"></iframe>',
        f'<iframe src="javascript:{MARK}"></iframe>',
        "<form method=post action=/api/terminals><button>x</button></form>",
        '<button data-commandlinker-command="terminal:create-new">x</button>',
        "<style>body{display:none}</style>",
        "<link rel=stylesheet href=//x.invalid>",
    ],
)
def test_html_that_acts_is_framed_whole(html: str) -> None:
    """Rows 2 to 5, 7, 8: its policy comes first, so it reaches nothing; strict leaves it out."""
    shown = show({"text/html": html, "text/plain": "x"}, OFF)

    assert page_of(shown).startswith("<iframe ")
    assert MARK not in page_of(shown)
    assert "srcdoc='" in shown["text/html"]
    strict = show({"text/html": html, "text/plain": "x"}, STRICT)
    assert "iframe" not in strict.get("text/html", "")
    assert MARK not in strict.get("text/html", "")


@pytest.mark.parametrize("isolated", [True, "yes", 1])
def test_nothing_is_isolated_the_pages_way(isolated: object) -> None:
    """Row 5: a page's isolated frames have the page's own origin."""
    _, metadata = forms.bundle({"text/html": SCRIPT}, {"text/html": {"isolated": isolated}}, OFF)

    assert metadata == {}


@pytest.mark.parametrize("form", ["text/html", "text/markdown"])
def test_links_lead_to_the_web_only(form: str) -> None:
    """Rows 6 and 7: neither scripts nor commands of the page nor its own addresses."""
    for target in (
        f"javascript:{MARK}",
        f"JAVA&#x9;SCRIPT:{MARK}",
        "data:text/html,x",
        "/lab?x",
        "//x.invalid",
        "vbscript:x",
        "file:///etc/passwd",
    ):
        text = f"[x]({target})" if form == "text/markdown" else f'<a href="{target}">x</a>'

        assert "href" not in show({form: text}, OFF)["text/html"]
    good = "https://x.invalid/a?b#c"
    text = f"[x]({good})" if form == "text/markdown" else f'<a href="{good}" target=_top>x</a>'
    html = show({form: text}, OFF)["text/html"]
    assert f'href="{good}"' in html
    assert "target" not in html
    assert 'rel="noopener noreferrer"' in html


def test_a_command_of_the_page_is_no_attribute_of_an_output() -> None:
    """Row 7, also where nothing else makes the HTML active."""
    html = '<p data-commandlinker-command="terminal:create-new" data-x="1" id="a" name="b">x</p>'

    assert show({"text/html": html})["text/html"] == "<p>x</p>"


@pytest.mark.parametrize(
    "text",
    [SCRIPT, f'<img src=x onerror="{MARK}">', "<b>x</b>", f"[x](<javascript:{MARK}>)", "<style>"],
)
def test_markdown_shows_html_as_text(text: str) -> None:
    """Row 9: the source is rendered here, and what a page draws is HTML."""
    shown = show({"text/markdown": f"*hello* {text}", "text/plain": "x"})

    assert "text/markdown" not in shown
    assert "<em>hello</em>" in shown["text/html"]
    assert not any(sign in shown["text/html"] for sign in ("<script", "<img", "<b>", "<style"))


def test_of_html_and_markdown_the_html_is_shown() -> None:
    assert show({"text/markdown": "*m*", "text/html": "<i>h</i>"}) == {"text/html": "<i>h</i>"}


@pytest.mark.parametrize(
    "inside",
    [SCRIPT, "<foreignObject><p/></foreignObject>", f'<a href="javascript:{MARK}"><g/></a>'],
)
def test_a_drawing_only_draws(inside: str) -> None:
    """Row 10, also for readers which put the drawing's text into a page."""
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" onload="{MARK}"><rect/>{inside}</svg>'
    shown = show({"image/svg+xml": svg})

    assert "<rect>" in shown["image/svg+xml"]
    assert MARK not in shown["image/svg+xml"]


@pytest.mark.parametrize(
    "text",
    [
        rf"\href{{javascript:{MARK}}}{{x}}",
        r"\class{jp-Dialog}{x}",
        r"\cssId{x}{y}",
        r"\style{position:fixed}{x}",
        r"\require{html}",
        r"\csname href\endcsname{x}{y}",
    ],
)
def test_formulas_are_formulas(text: str) -> None:
    """Row 11."""
    assert show({"text/latex": f"${text}$"}).keys() == {"text/plain"}
    assert show({"text/latex": r"$\frac{a}{b} < \textbf{c}$"}) == {
        "text/latex": r"$\frac{a}{b} < \textbf{c}$"
    }


def test_text_and_trees_pass_as_they_are() -> None:
    """Row 12: a page shows them as text."""
    data = {"text/plain": SCRIPT, "application/json": {"a": [SCRIPT]}}

    assert show(data) == data
    for msg_type, content in (
        ("stream", {"name": "stdout", "text": SCRIPT}),
        ("error", {"ename": "E", "evalue": SCRIPT, "traceback": [SCRIPT]}),
    ):
        assert Policy().publish(msg_type, content) == content


@pytest.mark.parametrize(
    "value",
    [
        '"><img src=x onerror=1>',
        "PHN2Zz4=",
        "iVBORw0KGgo=<",
        "iVBOR",
        "",
        ["iVBORw0KGgo=", "\u0391"],
        {"a": 1},
        "R0lGODlh",
    ],
)
def test_an_image_is_one_in_base64(value: Any) -> None:
    """Row 12: by its alphabet and by how such files begin."""
    assert show({"image/png": value}).keys() == {"text/plain"}
    assert show({"image/png": f"{PNG[:20]}\n{PNG[20:]}\n"}).keys() == {"image/png"}


def test_of_an_image_a_page_learns_its_size() -> None:
    """Row 12: numbers only, and only those that pages use."""
    about = {
        "width": 20,
        "height": '1" onerror="x',
        "alt": '" onerror="x',
        "unconfined": True,
        "needs_background": "light",
        "x": 1,
    }
    for bad in (True, float("inf"), float("nan"), -1, 10**9, None, [1], "20"):
        _, told = forms.bundle({"image/png": PNG}, {"image/png": {"width": bad}}, OFF)
        assert told == {}
    _, told = forms.bundle({"image/png": PNG}, {"image/png": about, "text/plain": about}, OFF)

    assert told == {"image/png": {"width": 20, "unconfined": True, "needs_background": "light"}}


@pytest.mark.parametrize("msg_type", ["display_data", "execute_result", "update_display_data"])
def test_every_message_that_is_drawn_is_judged(msg_type: str) -> None:
    """Row 24: an update of a display is one."""
    passed = Policy().publish(msg_type, {"data": {"text/html": SCRIPT}, "execution_count": 1})

    assert passed["data"]["text/html"].startswith("<iframe ")


def test_replies_are_judged_as_outputs_are() -> None:
    """Rows 23, 25, 26: a pager, an inspector, expressions and the menu of help."""
    html = {"text/html": SCRIPT, "text/plain": "x"}
    executed = Policy().reply(
        "execute_reply",
        {
            "status": "ok",
            "payload": [{"source": "page", "data": html, "start": 0}],
            "user_expressions": {"e": {"status": "ok", "data": html, "metadata": {}}},
        },
    )
    inspected = Policy().reply("inspect_reply", {"status": "ok", "found": True, "data": html})
    told = Policy().reply(
        "kernel_info_reply",
        {
            "status": "ok",
            "help_links": [
                {"text": "a", "url": f"javascript:{MARK}"},
                {"text": "b", "url": "https://x.invalid"},
            ],
        },
    )

    assert executed["payload"][0]["data"] == {"text/plain": "x"}
    expression = executed["user_expressions"]["e"]["data"]
    assert expression["text/html"].startswith("<iframe ")
    assert inspected["data"] == {"text/plain": "x"}
    assert [link["text"] for link in told["help_links"]] == ["b"]


@pytest.mark.parametrize("form", ["text/html", "text/markdown"])
def test_without_network_no_image_is_loaded(form: str) -> None:
    """Row 31: what a sandbox may not send by itself, a page does not send for it."""
    for target in ("https://x.invalid/?d=1", "//x.invalid", "/api/x", "data:image/svg+xml,x"):
        text = (
            f"![x]({target})"
            if form == "text/markdown"
            else f'<img src="{target}" srcset="{target}">'
        )
        shown = show({form: text}, OFF)

        assert "src" not in shown["text/html"]


@pytest.mark.parametrize("form", ["text/html", "text/markdown"])
def test_with_network_images_are_loaded_in_a_frame(form: str) -> None:
    """There the browser sends none of the user's cookies along; strict loads nothing."""
    target = "https://x.invalid/a.png"
    text = f"![x]({target})" if form == "text/markdown" else f'<img src="{target}">'

    assert page_of(show({form: text}, ON)).startswith("<iframe ")
    strict = show({form: text}, Wall(mode=Mode.STRICT, network=True))
    assert "src" not in strict.get("text/html", "")


def test_a_widget_is_named_and_nothing_more() -> None:
    view = "application/vnd.jupyter.widget-view+json"
    extra = {"version_major": 9, "version_minor": "x", "model_id": "ab-1", "extra": SCRIPT}

    assert show({view: extra}) == {
        view: {"version_major": 2, "version_minor": 0, "model_id": "ab-1"}
    }
    for bad in ({}, [], "x", {"model_id": 1}, {"model_id": "../x"}, {"model_id": "x" * 101}):
        assert show({view: bad}).keys() == {"text/plain"}


def test_trusted_outputs_pass_as_they_came() -> None:
    data = {"text/html": SCRIPT, "application/javascript": MARK, "x/y": "z"}
    metadata = {"text/html": {"isolated": True}}

    assert forms.bundle(data, metadata, TRUSTED) == (data, metadata)


def test_an_output_has_not_any_number_of_forms() -> None:
    for wall in (OFF, STRICT, Wall(limits=OutputLimits(forms=3))):
        data = {f"a/{n}": "" for n in range(wall.limits.forms + 1)}
        with pytest.raises(Refused):
            forms.bundle(data, {}, wall)


def test_what_is_too_large_for_the_page_is_framed() -> None:
    """Not parsed here, so that no output takes the relay long; strict leaves it out."""
    html = "<b>" * 400_000

    assert page_of(show({"text/html": html})).startswith("<iframe ")
    assert show({"text/html": html}, STRICT).keys() == {"text/plain"}


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        {},
        {"output_type": "evil"},
        {"output_type": "display_data", "data": 5},
        {"output_type": "display_data", "data": {f"a/{n}": "" for n in range(99)}},
    ],
)
def test_an_output_of_no_shape_becomes_a_note(value: object) -> None:
    """Row 16: of a notebook or an Output widget."""
    shown = forms.output(value, OFF)

    assert (shown["output_type"], shown["name"]) == ("stream", "stderr")
    assert "withheld" in shown["text"]


def test_outputs_of_notebooks_are_judged_as_messages_are() -> None:
    """Row 16: the shapes of nbformat, with nothing in them that it does not know."""
    shown = forms.outputs(
        [
            {"output_type": "stream", "name": "evil", "text": ["a", "b"], "extra": 1},
            {"output_type": "error", "ename": "E", "evalue": 5, "traceback": ["t", 5]},
            {"output_type": "execute_result", "data": {"text/html": SCRIPT}, "execution_count": -1},
            {
                "output_type": "display_data",
                "data": {"application/javascript": MARK},
                "metadata": {"isolated": True},
            },
        ],
        OFF,
    )

    assert shown[0] == {"output_type": "stream", "name": "stdout", "text": "ab"}
    assert shown[1] == {"output_type": "error", "ename": "E", "evalue": "5", "traceback": ["t"]}
    assert shown[2]["execution_count"] is None
    assert shown[2]["data"]["text/html"].startswith("<iframe ")
    assert shown[3]["data"].keys() == {"text/plain"}
    assert shown[3]["metadata"] == {}
    assert forms.outputs("evil", OFF) == []


def test_a_page_that_is_embedded_by_address_is_a_link() -> None:
    """A frame's policy would leave it empty; strict mode shows the link, too."""
    html = '<iframe\n width="100"\n src="https://x.invalid/?a=1&b"\n allowfullscreen\n></iframe>'
    for wall in (OFF, ON, STRICT):
        shown = show({"text/html": html}, wall)["text/html"]

        assert '<a href="https://x.invalid/?a=1&amp;b"' in shown
        assert "<iframe" not in shown
    for other in (html.replace("https:", "javascript:"), html.replace("width", "srcdoc")):
        assert show({"text/html": other}, ON)["text/html"].startswith("<iframe ")


def test_strict_says_that_it_leaves_something_out() -> None:
    shown = show({"text/html": f"<b>kept</b>{SCRIPT}"}, STRICT)["text/html"]

    assert shown.startswith("<b>kept</b>")
    assert "left out" in shown
