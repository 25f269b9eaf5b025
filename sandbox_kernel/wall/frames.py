"""Frames: a document that may act, where it reaches neither the page nor the host.

A frame without ``allow-same-origin`` has an origin of its own, so that the page, its cookies and
the server's API are closed to it.  Its content security policy says what it may load.  The document
lies in a second frame inside: a document may always send itself to another address, and only the
policy of the one around it stops that.

A page with a strict policy of its own would give that to a document which stands in the output, so
there a keeper hands the document out, and the output holds its address.
"""

from __future__ import annotations

import re

from sandbox_kernel.wall.modes import Wall

__all__ = ["HEIGHT_MESSAGE", "content_security_policy", "document_in", "frame", "kept_at"]

HEIGHT_MESSAGE = "jupyter-sandbox:frame-height"
"""``type`` of the message in which a frame tells the page around it its ``height`` in pixels."""

_CLASS = '<iframe class="jupyter-sandbox-frame"'
_INNER = "<iframe sandbox='allow-scripts' srcdoc='"
_HEIGHT = 450
_WITHOUT_FRAME = "Run the cell, or trust the notebook, to see this output."
_KEPT = re.compile(
    rf"""{re.escape(_CLASS)} sandbox="allow-scripts" referrerpolicy="no-referrer" """
    r"""style="width:100%;height:\d{1,4}px;border:0;resize:vertical;overflow:auto" """
    rf"""src='(?P<url>/(?:[\w.~%-]+/)*)[0-9a-f]{{64}}'>{_WITHOUT_FRAME}</iframe>""",
    re.ASCII,
)

# Heights come from the body: that of the document never shrinks again.  Where a body is stretched
# to the room it gets, they come from what is in there.
_SIZER = f"""<script>(() => {{
const {{body}} = document, box = node => node.getBoundingClientRect();
const natural = () => {{
  const kept = body.style.cssText;
  for (const name of ["height", "min-height"]) body.style.setProperty(name, "auto", "important");
  const {{height}} = box(body);
  body.style.cssText = kept;
  return height;
}};
const tell = () => {{
  const {{top, height}} = box(body), least = natural();
  const filled = () => Math.max(...[...body.children].map(node => box(node).bottom - top));
  parent.postMessage({{
    type: "{HEIGHT_MESSAGE}",
    height: Math.ceil(least < height ? Math.max(least, Math.min(filled(), height)) : least)
  }}, "*");
}};
const seen = new ResizeObserver(tell);
seen.observe(body);
addEventListener("load", () => {{ for (const node of body.children) seen.observe(node); tell(); }});
}})()</script>"""
_SIZER_BEFORE = f"""<script>(() => {{
const tell = () => parent.postMessage({{
  type: "{HEIGHT_MESSAGE}", height: Math.ceil(document.body.getBoundingClientRect().height)
}}, "*");
new ResizeObserver(tell).observe(document.body); addEventListener("load", tell);
}})()</script>"""
"""Of frames that notebooks keep from earlier versions."""
# A script that is not there leaves an empty frame, and its errors where nobody looks.
_TELL_MISSING = """<script>(() => {
const missing = new Set(), add = text => {
  if (missing.size < 5) missing.add(String(text).slice(0, 200));
  if (document.readyState === "complete") show();
};
const show = () => {
  if (!missing.size) return;
  const note = document.querySelector("p[data-missing]") ?? document.createElement("p");
  note.dataset.missing = "";
  note.style.cssText = "margin:8px;font:13px sans-serif";
  const names = [...missing].join(", ");
  note.textContent = `[This output needs what it does not bring along: ${names}. Scripts load ` +
    "only where the sandbox has network, from OutputLimits.frame_sources.]";
  document.body.prepend(note);
};
addEventListener("error", ({target, error, message}) => {
  if (target instanceof HTMLScriptElement) add(target.src || "a script");
  else if (error instanceof ReferenceError) add(message.replace(/^Uncaught ReferenceError: /, ""));
}, true);
addEventListener("load", show);
})()</script>"""
_FORWARD = f"""<script>addEventListener("message", ({{source, data}}) => {{
  if (source === frames[0] && data?.type === "{HEIGHT_MESSAGE}" && Number.isFinite(data.height))
    parent.postMessage({{type: data.type, height: data.height}}, "*");
}})</script>"""


def content_security_policy(wall: Wall) -> str:
    """Return the policy of a frame: what it brings along, and with network what is listed."""
    listed = " ".join(wall.limits.frame_sources) if wall.loads else ""
    images = "https:" if wall.loads else ""
    rules = {
        "default-src": "'none'",
        "script-src": f"'unsafe-inline' 'unsafe-eval' data: blob: {listed}",
        "style-src": f"'unsafe-inline' data: blob: {listed}",
        "img-src": f"data: blob: {images}",
        "media-src": f"data: blob: {images}",
        "font-src": f"data: {listed}",
        "connect-src": f"data: blob: {listed}",
        "worker-src": "blob:",
        "child-src": "blob:",
        "frame-src": "'none'",
        "form-action": "'none'",
        "base-uri": "'none'",
        "webrtc": "'block'",
    }
    return "; ".join(f"{name} {sources}".rstrip() for name, sources in rules.items())


def frame(document: str, wall: Wall, *, height: int | None = None) -> str:
    """Return the HTML of a frame that shows a document.

    Parameters
    ----------
    document : str
        HTML, whole or a part.
    wall : Wall
        Says what the frame may load.
    height : int, optional
        In pixels; a page that listens for `HEIGHT_MESSAGE` sets it better.
    """
    head = (
        '<!doctype html><html><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{content_security_policy(wall)}">'
    )
    inner = (
        f"{head}<style>body{{margin:0;background:#fff;color:#000}}</style>"
        f"{_TELL_MISSING}</head><body>{_SIZER}{document}</body></html>"
    )
    outer = (
        f"{head}<style>html,body,iframe{{margin:0;border:0;width:100%;height:100%;display:block;"
        f"overflow:hidden}}</style>{_FORWARD}</head><body>"
        f"{_INNER}{_quoted(inner)}'></iframe></body></html>"
    )
    digest = wall.keeper.keep(outer) if wall.keeper else None
    place = f"src='{wall.keeper.url}{digest}'" if wall.keeper and digest else ""
    return (
        f'{_CLASS} sandbox="allow-scripts" referrerpolicy="no-referrer"'
        f' style="width:100%;height:{height or _HEIGHT}px;border:0;resize:vertical;overflow:auto"'
        f""" {place or f"srcdoc='{_quoted(outer)}'"}>{_WITHOUT_FRAME}</iframe>"""
    )


def _quoted(document: str) -> str:
    """Return a document as a value between single quotes: it has many double ones."""
    return document.replace("&", "&amp;").replace("'", "&#39;")


def document_in(framed: str) -> str | None:
    """Return the document that a frame shows, or None if this is no frame made here.

    Frames come back: a page keeps outputs in widgets of the sandbox, and notebooks are cleaned
    again.  What is found is framed anew, so nothing depends on who has made the frame.
    """
    if not framed.startswith(_CLASS):
        return None
    outer = _unquoted(framed.partition(" srcdoc='")[2].rpartition("'>")[0])
    inner = _unquoted(outer.partition(_INNER)[2].rpartition("'></iframe>")[0])
    for sizer in (_SIZER, _SIZER_BEFORE):
        if document := inner.partition(f"<body>{sizer}")[2].removesuffix("</body></html>"):
            return document
    return None


def kept_at(framed: str) -> str | None:
    """Return where the document of a frame made here is handed out; None if this is no such frame.

    That is the keeper's ``url``.  A document there comes with its policy, whoever has written down
    its address; at any other address it may be a file of the sandbox.
    """
    found = _KEPT.fullmatch(framed) if framed.startswith(_CLASS) else None
    return found["url"] if found else None


def _unquoted(value: str) -> str:
    return value.replace("&#39;", "'").replace("&amp;", "&")
