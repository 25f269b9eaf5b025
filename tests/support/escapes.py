"""Ways in which outputs have been seen to act in JupyterLab, each with a marker that does no harm.

What acts asks the server who the user is, with the user's own cookie, and notes the answer in the
page: ``__ran`` holds it by the name of the way.  What only loads something loads it from the
server, or from a server of the test; both keep what they were asked for.
"""

from __future__ import annotations

import base64
import html
import uuid
from dataclasses import dataclass, replace
from typing import Any, Final

__all__ = [
    "FRAME",
    "NOTE",
    "PRELUDE",
    "Effect",
    "Escape",
    "escapes",
    "frame_probe",
    "leavings",
    "stored_widget",
]

FRAME: Final = "iframe.jupyter-sandbox-frame"
NOTE: Final = "text=withheld"

PRELUDE = (
    "import anywidget, comm, traitlets, ipywidgets as w\n"
    "from IPython.display import HTML, Javascript, Latex, Markdown, display, publish_display_data\n"
    "def publish(data, metadata=None): publish_display_data(data, metadata)"
)


class Effect:
    """What a way does in JupyterLab as it is."""

    ACTS = "acts with the user's cookie"
    ASKS = "makes the page ask the server for something"
    LEAVES = "makes the page ask somebody else"
    COMMANDS = "runs a command of the page"
    NOTHING = "nothing"


@dataclass(frozen=True, kw_only=True)
class Escape:
    """One way.

    Parameters
    ----------
    row : int
        Of the table that the tests are written after.
    name : str
        Of the marker.
    code : str
        Cell that tries it.
    shown : str
        Selector of what our kernel shows instead.
    effect : str
        One of `Effect`: what it does on a kernel without a sandbox.
    acts_untrusted : bool
        Whether that is so also when a file that nobody trusts is opened.
    click : bool
        Whether somebody must click in the output, on the element of class ``press`` or on a
        figure's button.
    bare : str
        HTML by which it acts in an empty page, of a way that does nothing in JupyterLab.
    """

    row: int
    name: str
    code: str
    shown: str = FRAME
    effect: str = Effect.ACTS
    acts_untrusted: bool = False
    click: bool = False
    bare: str = ""


def act(name: str) -> str:
    """Return the script that acts, without double quotes and angle brackets but ``>``."""
    return (
        "(()=>{let page=window;try{if(top.document)page=top}catch(e){}"
        f"(page.__ran??={{}})['{name}']='ran';"
        f"fetch('/api/me?row={name}',{{credentials:'include'}})"
        f".then(r=>{{page.__ran['{name}']=r.status}},()=>{{}})}})()"
    )


def _evaluated(name: str) -> str:
    """Return the script as an expression that needs no quoting anywhere."""
    return f"eval(atob('{base64.b64encode(act(name).encode()).decode()}'))"


def _image(name: str) -> str:
    return f'<img src=x onerror="{_evaluated(name)}">'


def _script(name: str) -> str:
    return f"<script>{act(name)}</script>"


def _url(name: str) -> str:
    return f"javascript:{_evaluated(name)}"


def _display(maker: str, value: str) -> str:
    return f"display({maker}({value!r}))"


def _publish(data: dict[str, Any], metadata: dict[str, Any] | None = None) -> str:
    return f"publish({data!r}, {metadata!r})"


def _command(name: str) -> str:
    return (
        f"<button class=press data-row={name} data-commandlinker-args='{{}}'"
        ' data-commandlinker-command="application:toggle-left-area">press</button>'
    )


def _vega(**spec: Any) -> dict[str, Any]:
    schema = "https://vega.github.io/schema/vega-lite/v5.json"
    shown = {"values": [{"u": 1}]}
    whole = {"$schema": schema, "data": shown, "mark": "square", "width": 60, "height": 60, **spec}
    return {"application/vnd.vegalite.v5+json": whole}


# A page that is loaded again gives up on widgets after two seconds of being busy with others, so
# there are few of them: all share a layout, and those of a class share a style.
_FUZZ = """
shared, styles = w.Layout(), {}
inner = [w.Label('x', layout=shared), w.Label('y', layout=shared)]
def filled(cls, name, trait):
    if isinstance(trait, (traitlets.Unicode, traitlets.CUnicode)): values = {name: PAYLOAD}
    elif isinstance(trait, (traitlets.Tuple, traitlets.List)) and name != 'children':
        values = {name: (PAYLOAD, 'b')}
    else: return None
    if cls in (w.HTML, w.HTMLMath) and name == 'value': return None
    if name == 'description': values['description_allow_html'] = True
    if issubclass(cls, w.Box): values['children'] = inner
    if hasattr(cls, 'options'): values.setdefault('options', [PAYLOAD, 'b'])
    if 'style' in cls.class_traits() and cls in styles: values['style'] = styles[cls]
    try: made = cls(layout=shared, **values)
    except Exception: return None
    styles[cls] = getattr(made, 'style', None)
    return made
core = {each for each in vars(w).values() if isinstance(each, type) and issubclass(each, w.DOMWidget)}
core = {each for each in core if each.__module__.startswith('ipywidgets')}
made = [filled(cls, name, trait) for cls in sorted(core, key=repr)
        for name, trait in cls.class_traits(sync=True).items() if name[0] != '_']
display(w.VBox([each for each in made if each]))
"""

_BUFFERS = """
plain = w.HTML('x')
state = plain.get_state()
del state['value']
opened = comm.create_comm(
    target_name='jupyter.widget', data={'state': state, 'buffer_paths': [['value']]},
    buffers=[PAYLOAD], metadata={'version': '2.1.0'})
publish({'application/vnd.jupyter.widget-view+json':
         {'version_major': 2, 'version_minor': 0, 'model_id': opened.comm_id}})
"""

_INSPECTED = """
def inspect(*_, **__):
    data = {'text/html': PAYLOAD, 'text/markdown': PAYLOAD, 'text/plain': 'inspected'}
    return {'status': 'ok', 'found': True, 'data': data, 'metadata': {}}
get_ipython().kernel.do_inspect = inspect
"""

_HELP = "get_ipython().kernel.help_links = [{'text': 'Help of the sandbox', 'url': PAYLOAD}]"

_PAGER = """
get_ipython().payload_manager.write_payload(
    {'source': 'page', 'start': 0, 'data': {'text/html': PAYLOAD, 'text/plain': 'paged'}})
"""

_UPDATE = "shown = display(HTML('first'), display_id=True)\nshown.update(HTML(PAYLOAD))"

_LABEL = """
class Tricky(w.Label): _view_name = traitlets.Unicode('HTMLView').tag(sync=True)
display(Tricky(PAYLOAD))
"""

_ANYWIDGET = """
class Mine(anywidget.AnyWidget): _esm = PAYLOAD + ';export default {render() {}}'
SHOWN(Mine())
"""


def _styled_formula(address: str) -> str:
    """Return a formula that loads something by a style that pages let it have."""
    return rf"$\style{{cursor:url({address}),auto}}{{x}}$"


def _filled_text(address: str) -> str:
    """Return a text of a figure that loads something by its style."""
    return f'<span style="fill:url({address}#a)">seen</span>'


def _figure(text: str = "", button: str = "") -> dict[str, Any]:
    """Return a figure with a text at its point, and one that a button puts over it."""
    # Traits may be named by their paths.
    menu = {"method": "relayout", "label": "press", "args": [{"title.text": button}]}
    layout = {"updatemenus": [{"type": "buttons", "buttons": [menu]}]} if button else {}
    points = {"x": [1], "y": [1], "text": [text], "mode": "text"}
    return {"application/vnd.plotly.v1+json": {"data": [points], "layout": layout}}


def _joined_figure(address: str) -> dict[str, Any]:
    """Return a figure with a text that loads something once its parts have been put together."""
    template = f'<span style="fill:%{{customdata[0]}}({address}#a)">seen</span>'
    points = {"x": [1], "y": [1], "mode": "text", "texttemplate": template, "customdata": [["url"]]}
    return {"application/vnd.plotly.v1+json": {"data": [points], "layout": {}}}


def _filled(code: str, payload: object) -> str:
    return code.strip().replace("PAYLOAD", repr(payload))


def escapes(elsewhere: str) -> list[Escape]:
    """Return all ways that fit into one notebook.

    Parameters
    ----------
    elsewhere : str
        Address of a server of the test.
    """
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20"'
    page_in = '<iframe srcdoc="{}"></iframe>'
    nothing = Effect.NOTHING
    picture = "img[src^='data:image/svg+xml']"
    found = [
        Escape(
            row=1, name="javascript", code=_display("Javascript", act("javascript")), shown=NOTE
        ),
        *(
            Escape(row=row, name=name, code=_display("HTML", text))
            for row, name, text in (
                (2, "script", _script("script")),
                (2, "module", f"<script type=module>{act('module')}</script>"),
                (3, "image", _image("image")),
                (3, "details", f'<details open ontoggle="{_evaluated("details")}">x</details>'),
                (
                    3,
                    "animation",
                    f'<svg><animate onbegin="{_evaluated("animation")}" attributeName=x dur=1s></svg>',
                ),
                (4, "srcdoc", page_in.format(html.escape(_script("srcdoc")))),
                (4, "address", f'<iframe src="{_url("address")}"></iframe>'),
            )
        ),
        Escape(
            row=5,
            name="isolated",
            code=_publish({"text/html": _script("isolated")}, {"text/html": {"isolated": True}}),
        ),
        Escape(
            row=6,
            name="link",
            code=_display("HTML", f'<a class=press href="{_url("link")}">a link</a>'),
            shown="text=a link",
            effect=nothing,
            click=True,
            bare=f'<a class=press href="{_url("link")}">a link</a>',
        ),
        Escape(
            row=6,
            name="markdown_link",
            code=_display(
                "Markdown",
                f"[a link]({_url('markdown_link')})".replace("('", "%28'").replace("')", "'%29"),
            ),
            shown="text=a link",
            effect=nothing,
            bare=f'<a class=press href="{_url("markdown_link")}">a link</a>',
        ),
        Escape(
            row=7,
            name="command",
            code=_display("HTML", _command("command")),
            effect=Effect.COMMANDS,
            click=True,
        ),
        Escape(
            row=7,
            name="markdown_command",
            code=_display("Markdown", _command("markdown_command")),
            shown="text=<button",
            effect=Effect.COMMANDS,
            click=True,
        ),
        Escape(
            row=8,
            name="form",
            code=_display(
                "HTML",
                "<form method=post action='/api/me?row=form' target=answer><button class=press>press"
                "</button></form><iframe name=answer></iframe>",
            ),
            effect=Effect.ASKS,
            click=True,
        ),
        *(
            Escape(row=9, name=name, code=_display("Markdown", f"*hello* {text}"), shown="em")
            for name, text in (
                ("markdown_script", _script("markdown_script")),
                ("markdown_image", _image("markdown_image")),
            )
        ),
        *(
            Escape(
                row=10,
                name=name,
                code=_publish({"image/svg+xml": text}),
                shown=picture,
                effect=nothing,
                bare=text,
            )
            for name, text in (
                ("svg_script", f"{svg}><script>{act('svg_script')}</script><rect/></svg>"),
                ("svg_load", f'{svg} onload="{_evaluated("svg_load")}"><rect/></svg>'),
            )
        ),
        Escape(
            row=11,
            name="latex_link",
            code=_display("Latex", rf"$\href{{{_url('latex_link')}}}{{press}}$"),
            shown=NOTE,
            effect=nothing,
            bare=f'<a class=press href="{_url("latex_link")}">press</a>',
        ),
        Escape(
            row=11,
            name="latex_style",
            code=_display("Latex", r"$\class{jp-Dialog}{a}\style{position:fixed;top:0}{b}$"),
            shown=NOTE,
            effect=nothing,
        ),
        *(
            Escape(row=row, name=name, code=code, shown=shown, effect=nothing, bare=_image(name))
            for row, name, code, shown in (
                (11, "latex_html", _display("Latex", f"$x$ {_image('latex_html')}"), "text=<img"),
                (12, "stream", f"print({_image('stream')!r})", "text=<img"),
                (12, "error", f"raise ValueError({_image('error')!r})", "text=<img"),
                (12, "plain", _publish({"text/plain": _image("plain")}), "text=<img"),
                (12, "json", _publish({"application/json": {"a": _image("json")}}), "text=<img"),
                (12, "base64", _publish({"image/png": f'">{_image("base64")}'}), NOTE),
                (
                    12,
                    "size",
                    _publish(
                        {"image/png": _PNG},
                        {
                            "image/png": {
                                "width": f'1">{_image("size")}',
                                "alt": f'">{_image("size")}',
                            }
                        },
                    ),
                    "img[src^='data:image/png']",
                ),
            )
        ),
        *(
            Escape(
                row=row,
                name=name,
                code=_display(f"w.{maker}", f"<b>bold</b>{text}"),
                shown=".jupyter-widgets b",
                effect=effect,
                bare=text,
            )
            for row, name, maker, text, effect in (
                (13, "widget", "HTML", _image("widget"), Effect.ACTS),
                (13, "math_widget", "HTMLMath", _image("math_widget"), Effect.ACTS),
                (14, "widget_script", "HTML", _script("widget_script"), nothing),
            )
        ),
        *(
            Escape(
                row=row,
                name=name,
                code=_filled(code, payload),
                shown=".jupyter-widgets",
                effect=nothing,
                bare=_image(name),
            )
            for row, name, code, payload in (
                (15, "fuzz", _FUZZ, _image("fuzz")),
                (
                    15,
                    "description",
                    "display(w.IntSlider(description=PAYLOAD, description_allow_html=True))",
                    _image("description"),
                ),
            )
        ),
        Escape(
            row=16,
            name="output_html",
            code=f"o = w.Output()\ndisplay(o)\nwith o: {_display('HTML', _image('output_html'))}",
        ),
        Escape(
            row=16,
            name="output_script",
            code="p = w.Output()\ndisplay(p)\nwith p: "
            + _display("Javascript", act("output_script")),
            shown=NOTE,
        ),
        Escape(
            row=17,
            name="esm",
            code=_filled(_ANYWIDGET, act("esm")).replace("SHOWN", "display"),
            shown=NOTE,
        ),
        Escape(
            row=18,
            name="hidden_esm",
            code=_filled(_ANYWIDGET, act("hidden_esm")).replace("SHOWN", "hidden = [].append")
            + "\nprint('made')",
            shown="text=made",
        ),
        Escape(row=20, name="view", code=_filled(_LABEL, _image("view")), shown=NOTE),
        Escape(
            row=21,
            name="buffers",
            code=_filled(_BUFFERS, _image("buffers").encode()),
            shown=NOTE,
            effect=nothing,
            bare=_image("buffers"),
        ),
        Escape(
            row=23,
            name="pager",
            code=_filled(_PAGER, _image("pager")),
            shown="text=paged",
        ),
        Escape(row=24, name="update", code=_filled(_UPDATE, _image("update"))),
        Escape(
            row=25,
            name="inspector",
            code=_filled(_INSPECTED, _image("inspector")),
            shown="",
            effect=nothing,
            bare=_image("inspector"),
        ),
        Escape(
            row=26,
            name="help",
            code=_filled(_HELP, _url("help")),
            shown="",
            effect=nothing,
            bare=f'<a class=press href="{_url("help")}">press</a>',
        ),
        *(
            Escape(
                row=row,
                name=name,
                code=_publish(_vega(**spec)),
                shown=NOTE,
                effect=Effect.ASKS,
                acts_untrusted=True,
            )
            for row, name, spec in (
                (27, "vega_data", {"data": {"url": "/api/me?row=vega_data"}}),
                (
                    28,
                    "vega_patch",
                    {"usermeta": {"embedOptions": {"patch": "/api/me?row=vega_patch"}}},
                ),
            )
        ),
        Escape(
            row=29,
            name="vega_link",
            code=_publish(
                _vega(
                    data={"values": [{"u": _url("vega_link")}]},
                    mark={"type": "square", "size": 9000},
                    encoding={"href": {"field": "u", "type": "nominal"}},
                )
            ),
            shown=NOTE,
            effect=nothing,
            bare=f'<a class=press href="{_url("vega_link")}">press</a>',
        ),
        Escape(
            row=29,
            name="vega_expression",
            code=_publish(
                _vega(
                    transform=[
                        {
                            "calculate": f'"x".constructor.constructor("{act("vega_expression")}")()',
                            "as": "v",
                        }
                    ]
                )
            ),
            shown=NOTE,
            effect=nothing,
            bare=f"""<script>'x'.constructor.constructor("{act("vega_expression")}")()</script>""",
        ),
        Escape(
            row=30,
            name="mermaid",
            code=_publish({"text/vnd.mermaid": f"flowchart LR\n A[{_image('mermaid')!r}] --> B"}),
            shown=NOTE,
            effect=nothing,
            bare=_image("mermaid"),
        ),
        Escape(
            row=30,
            name="plotly",
            code=_publish(
                {
                    "application/vnd.plotly.v1+json": {
                        "data": [{"x": [1], "y": [1], "text": [_image("plotly")], "mode": "text"}],
                        "layout": {"title": {"text": _image("plotly")}},
                    },
                    "text/plain": "a figure",
                }
            ),
            shown="",
            effect=nothing,
            bare=_image("plotly"),
        ),
        *(
            Escape(
                row=31,
                name=name,
                code=_display(maker, text.format(f"{elsewhere}/{name}")),
                shown=shown,
                effect=Effect.LEAVES,
                acts_untrusted=True,
            )
            for name, maker, text, shown in (
                ("remote_image", "HTML", "seen <img src='{}'>", "text=seen"),
                ("markdown_remote_image", "Markdown", "seen ![x]({})", "text=seen"),
            )
        ),
        *(
            Escape(
                row=row,
                name=name,
                code=_display(maker, before + _styled_formula(f"{elsewhere}/{name}")),
                shown=shown,
                effect=Effect.LEAVES,
                acts_untrusted=row == 11,
            )
            for row, name, maker, before, shown in (
                (11, "formula_html", "HTML", "seen ", "text=seen"),
                (11, "formula_markdown", "Markdown", "seen ", "text=seen"),
                (11, "formula_latex", "Latex", "", NOTE),
                (13, "formula_label", "w.Label", "seen ", ".jupyter-widgets"),
                (13, "formula_math", "w.HTMLMath", "seen ", ".jupyter-widgets"),
            )
        ),
        Escape(
            row=15,
            name="formula_description",
            code=f"display(w.IntSlider(description={_styled_formula(f'{elsewhere}/formula_description')!r}))",
            shown=".jupyter-widgets",
            effect=Effect.LEAVES,
        ),
        *(
            Escape(
                row=30,
                name=name,
                code=_publish(_figure(**{part: _filled_text(f"{elsewhere}/{name}")})),
                shown=NOTE,
                effect=Effect.LEAVES,
                click=part == "button",
            )
            for name, part in (("figure_text", "text"), ("figure_button", "button"))
        ),
        Escape(
            row=30,
            name="figure_template",
            code=_publish(_joined_figure(f"{elsewhere}/figure_template")),
            shown=NOTE,
            effect=Effect.LEAVES,
        ),
        Escape(
            row=31,
            name="remote_style",
            code=_display("HTML", f"seen <link rel=stylesheet href='{elsewhere}/remote_style'>"),
            effect=Effect.LEAVES,
        ),
    ]
    assert len({escape.name for escape in found}) == len(found)
    return [replace(each, bare=each.bare if each.effect == nothing else "") for each in found]


_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

_PROBE = """
<pre id=told>{}</pre>
<script>
const told = {}, node = document.getElementById('told');
const put = (name, value) => { told[name] = String(value); node.textContent = JSON.stringify(told); };
const attempt = async (name, action) => {
  try { put(name, await action()); } catch (error) { put(name, 'refused'); }
};
const loaded = element => new Promise((done, fail) => {
  element.onload = () => done('loaded'); element.onerror = fail; document.body.append(element);
});
const make = (tag, values) => Object.assign(document.createElement(tag), values);
const api = '/api/me?row=probe_', away = 'ELSEWHERE/probe_', own = 'SERVER';
attempt('fetch', async () => (await fetch(api + 'fetch', {credentials: 'include'})).status);
attempt('post', async () => (await fetch(api + 'post', {method: 'POST', credentials: 'include'})).status);
attempt('no_cors', async () => (await fetch(api + 'no_cors', {
  method: 'POST', mode: 'no-cors', credentials: 'include'})).type && 'sent');
attempt('away', async () => (await fetch(away + 'away', {mode: 'no-cors'})).type && 'sent');
attempt('socket', () => new Promise((done, fail) => {
  const socket = new WebSocket(own.replace('http', 'ws') + '/api/events/subscribe?row=probe_socket');
  socket.onopen = () => done('open'); socket.onerror = fail;
}));
attempt('events', () => new Promise((done, fail) => {
  const events = new EventSource(away + 'events');
  events.onopen = () => done('open'); events.onerror = () => { events.close(); fail(); };
}));
attempt('worker', () => new Promise((done, fail) => {
  const code = `fetch('${away}worker', {mode: 'no-cors'}).then(() => postMessage('sent'), () => postMessage(''))`;
  const worker = new Worker(URL.createObjectURL(new Blob([code])));
  worker.onmessage = ({data}) => data ? done(data) : fail(); worker.onerror = fail;
}));
attempt('page', () => top.document.title && 'read');
attempt('parent', () => parent.document.title && 'read');
attempt('cookies', () => document.cookie && 'read');
attempt('storage', () => localStorage.length + 1 && 'read');
attempt('address', () => top.location.href && 'read');
attempt('hash', () => { top.location.hash = 'escaped'; return top.location.hash; });
attempt('popup', () => { const page = open('about:blank'); page.name; page.close(); return 'opened'; });
attempt('image', () => loaded(make('img', {src: own + '/static/logo/logo.png?row=probe_image'})));
attempt('image_away', () => loaded(make('img', {src: away + 'image_away'})));
attempt('style_away', () => loaded(make('link', {rel: 'stylesheet', href: away + 'style_away'})));
attempt('script_away', () => loaded(make('script', {src: away + 'script_away'})));
attempt('frame_away', () => loaded(make('iframe', {src: away + 'frame_away'})) && 'tried');
attempt('beacon', () => navigator.sendBeacon(away + 'beacon') && 'tried');
attempt('prefetch', () => document.head.append(make('link', {rel: 'prefetch', href: away + 'prefetch'})) ?? 'tried');
attempt('rtc', async () => {
  const peer = new RTCPeerConnection({iceServers: [{urls: 'stun:127.0.0.1:UDP'}]});
  peer.createDataChannel('x');
  await peer.setLocalDescription(await peer.createOffer());
  await new Promise(done => {
    const look = () => peer.iceGatheringState === 'complete' && done();
    peer.onicegatheringstatechange = look; look(); setTimeout(done, 3000);
  });
  return peer.localDescription.sdp.includes('a=candidate') ? 'gathered' : 'nothing gathered';
});
</script>
"""


def frame_probe(server: str, elsewhere: str, udp_port: int) -> str:
    """Return a document that tries what a frame should not be able to, and lists what came of it."""
    named = {"SERVER": server, "ELSEWHERE": elsewhere, "UDP": str(udp_port)}
    document = _PROBE
    for name, value in named.items():
        document = document.replace(name, value)
    return document


def stored_widget(name: str) -> dict[str, Any]:
    """Return ``metadata.widgets`` of a notebook that acts as soon as it is opened (row 19)."""
    state = {
        "_esm": f"(window.__ran ??= {{}})['{name}'] = true; export default {{}}",
        "_anywidget_id": name,
        "_model_module": "anywidget",
        "_model_module_version": "~0.11.*",
        "_model_name": "AnyModel",
        "_view_module": "anywidget",
        "_view_module_version": "~0.11.*",
        "_view_name": "AnyView",
    }
    model = {
        "model_module": "anywidget",
        "model_module_version": "~0.11.*",
        "model_name": "AnyModel",
        "state": state,
    }
    content = {"version_major": 2, "version_minor": 0, "state": {uuid.uuid4().hex: model}}
    return {"application/vnd.jupyter.widget-state+json": content}


def leavings(elsewhere: str) -> dict[str, str]:
    """Return documents that try to take their frame to somebody else, by name."""
    return {
        "leave_script": f"leaving<script>location = '{elsewhere}/leave_script'</script>",
        "leave_meta": f'leaving<meta http-equiv=refresh content="0; url={elsewhere}/leave_meta">',
        "leave_form": f"leaving<form action='{elsewhere}/leave_form'></form>"
        "<script>document.forms[0].submit()</script>",
        "leave_link": f"leaving<a href='{elsewhere}/leave_link'>x</a>"
        "<script>document.links[0].click()</script>",
    }
