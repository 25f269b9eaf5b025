"""Notebooks from elsewhere, built anew from what a notebook needs: nothing in them acts on opening.

Whoever wrote the file chose every byte of it.  Cells keep their source; outputs are judged as those
of a running cell are; metadata keeps the entries that are known to say something only; what a page
loads or runs by itself on opening goes, and so does every mark of trust.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from sandbox_kernel.wall import forms, formulas, html
from sandbox_kernel.wall.markdown import MOST_CHARACTERS
from sandbox_kernel.wall.modes import Wall
from sandbox_kernel.wall.verdicts import Refused

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

__all__ = ["FORMATS", "NotANotebookError", "clean_notebook"]

FORMATS = (2, 3, 4)
"""The formats of notebooks that Jupyter opens; outputs of those before 4 are left out."""

# JSON can spell halves of characters, which nothing can write.
_NO_TEXT = (orjson.JSONEncodeError, UnicodeEncodeError)
_Json = dict[str, Any]  # a JSON object, of which nothing is known yet

_CELL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FIRST_WITH_IDS = 5
_MOST_CHANGES = 100
_MOST_PARSED = 300_000
"""Characters of Markdown with tags to be told from code, of all cells; of more, all are escaped."""
_MOST_TAGS = 200
_PLAIN_DEPTH = 4
_PLAIN_ENTRIES = 200
# Letters of any script; nothing that begins markup, an address or a path.
_PLAIN_TEXT = re.compile(r"[\w .,:;()+%=@#*!?&'-]{0,1000}")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^ ]")

_NOTEBOOK_METADATA = frozenset(
    {"authors", "colab", "language_info", "nbgrader", "orig_nbformat", "papermill", "title", "toc"}
    | {"toc-autonumbering", "toc-showcode", "toc-showmarkdowntxt", "vscode"}
)
_CELL_METADATA = frozenset(
    {"collapsed", "colab", "deletable", "editable", "execution", "format", "heading_collapsed"}
    | {"hidden", "jp-MarkdownHeadingCollapsed", "jupyter", "name", "nbgrader", "papermill"}
    | {"scrolled", "slideshow", "tags", "vscode"}
)
# What converters would import or name files by; and trust, wherever it may hide.
_NEVER = frozenset({"file_extension", "nbconvert_exporter", "trusted", "signature", "widgets"})
_NAME = re.compile(r"[A-Za-z0-9_+-]{1,40}")
_LANGUAGE = {
    "file_extension": re.compile(r"\.[A-Za-z0-9_+-]{1,20}"),
    "mimetype": re.compile(r"[\w+-][\w.+-]{0,40}/[\w.+-]{1,40}"),
    "nbconvert_exporter": _NAME,
}
_PYTHONS = frozenset({"", "ipython", "python", "python2", "python3"})

_TAG = re.compile(r"""<(?=[A-Za-z/!?])(?:"[^"]*"|'[^']*'|[^'">])*>?""")
_ACTS = re.compile(
    r"""[\s/"']on[a-z]+\s*=|data-commandlinker|(?:java|vb)script:|\bsrcdoc\s*=|<[!?](?!--)""",
    re.IGNORECASE,
)
_LOADING = re.compile(
    r"""\b(?:src|srcset|poster|background|data|longdesc|lowsrc)\s*=\s*"""
    r"""("[^"]*"?|'[^']*'?|[^\s>]*)""",
    re.IGNORECASE,
)
_LOADING_STYLE = re.compile(r"(?:url|src|cross-fade)\s*\(|image|\\", re.IGNORECASE)
# In the notebook, or beside it.
_OWN = r"attachment:[^\s()<>]*|data:image/[\w+.;,=/+-]*|[\w%-][\w.%-]*(?:/[\w.%-]+)*"
_OWN_ADDRESS = re.compile(_OWN)
_IMAGE = re.compile(r"!(?=\[)")
_OWN_IMAGE = re.compile(rf"""!\[[^\[\]]*\]\(\s*<?(?:{_OWN})>?(?:\s+["'][^"'()]*["'])?\s*\)""")


class NotANotebookError(ValueError):
    """The value is named like a notebook and is none; says why."""


def clean_notebook(notebook: object, wall: Wall) -> tuple[_Json, list[str]]:
    """Return a notebook that acts on nothing when it is opened, and what was changed.

    Its kernel is one of ours, so that its cells do not run on the host when somebody runs them.

    Parameters
    ----------
    notebook : object
        A JSON value that claims to be a notebook; it is not changed.
    wall : Wall
        By which its outputs are judged.  The notebook is never trusted, whatever its mode.

    Returns
    -------
    notebook : dict
        Built anew; it shares no part with the one given that could be changed.
    changes : list of str
        One line for people on each thing that was left out or drawn otherwise, at most a hundred.

    Raises
    ------
    NotANotebookError
        It is no notebook of a known format.
    """
    if not isinstance(notebook, dict):
        raise NotANotebookError("it is not a readable notebook")
    form, minor = notebook.get("nbformat"), notebook.get("nbformat_minor")
    if type(form) is not int:
        raise NotANotebookError("it does not say its nbformat")
    if form not in FORMATS:
        raise NotANotebookError(f"its nbformat {str(form)[:20]} is not known")
    cleaner = _Cleaner(wall)
    clean: _Json = {"metadata": cleaner.metadata(notebook.get("metadata"))}
    clean["nbformat"] = form
    clean["nbformat_minor"] = minor if type(minor) is int and 0 <= minor < 1000 else 0
    if form == 4:
        has_ids = clean["nbformat_minor"] >= _FIRST_WITH_IDS
        clean["cells"] = cleaner.cells(notebook.get("cells"), has_ids=has_ids)
    else:
        sheets = [each for each in _list(notebook.get("worksheets")) if isinstance(each, dict)]
        clean["worksheets"] = [
            {"cells": cleaner.old_cells(sheet.get("cells")), "metadata": {}} for sheet in sheets
        ]
    cleaner.note_unknown("the notebook", notebook, {*clean, "cells", "worksheets"})
    return clean, cleaner.changes


class _Cleaner:
    """Builds the parts of one notebook, and notes what it leaves out."""

    def __init__(self, wall: Wall) -> None:
        self._wall = wall
        self._parsed = 0
        self.changes: list[str] = []

    def note(self, change: str) -> None:
        if len(self.changes) < _MOST_CHANGES:
            self.changes.append(change)

    def note_unknown(self, where: str, value: _Json, known: set[str]) -> None:
        unknown = sorted(str(key)[:40] for key in value if key not in known)
        if unknown:
            self.note(f"{where}: left out {', '.join(unknown[:10])}")

    def metadata(self, value: object) -> _Json:
        value = value if isinstance(value, dict) else {}
        clean = self._entries("metadata of the notebook", value, _NOTEBOOK_METADATA, {"kernelspec"})
        language = value.get("language_info")
        if isinstance(language, dict) and isinstance(clean.get("language_info"), dict):
            for key, allowed in _LANGUAGE.items():
                if isinstance(text := language.get(key), str) and allowed.fullmatch(text):
                    clean["language_info"][key] = text
        named = value.get("kernelspec")
        clean["kernelspec"] = _kernelspec(named, language)
        if isinstance(named, dict) and named.get("name") != clean["kernelspec"]["name"]:
            self.note(f"the kernel is {clean['kernelspec']['name']}")
        return clean

    def _entries(
        self,
        where: str,
        value: _Json,
        known: AbstractSet[str],
        silent: AbstractSet[str] = frozenset(),
    ) -> _Json:
        clean: _Json = {}
        for key, item in value.items():
            if key in known and (plain := _plain(item)) is not None:
                clean[key] = plain
            elif key not in silent:
                self.note(f"{where}: left out {str(key)[:40]!r}")
        return clean

    def cells(self, value: object, *, has_ids: bool) -> list[_Json]:
        if not isinstance(value, list):
            raise NotANotebookError("it has no list of cells")
        cells: list[_Json] = []
        taken: set[str] = set()
        for number, cell in enumerate(value, 1):
            if not isinstance(cell, dict):
                self.note(f"cell {number}: left out, it is no cell")
                continue
            clean = self._cell(number, cell)
            if has_ids:
                clean["id"] = _free_id(cell.get("id"), number, taken)
                taken.add(clean["id"])
            cells.append(clean)
        return cells

    def _cell(self, number: int, cell: _Json) -> _Json:
        where = f"cell {number}"
        kind = cell.get("cell_type")
        if kind not in ("code", "markdown", "raw"):
            self.note(f"{where}: shown as text, its type is not known")
            kind = "raw"
        metadata = cell.get("metadata")
        clean: _Json = {
            "cell_type": kind,
            "metadata": self._entries(
                f"{where}: metadata", metadata if isinstance(metadata, dict) else {}, _CELL_METADATA
            ),
            "source": _text(cell.get("source")),
        }
        if kind == "code":
            count = cell.get("execution_count")
            clean["execution_count"] = count if type(count) is int and 0 <= count < 1e9 else None
            clean["outputs"] = self._outputs(where, cell.get("outputs"))
        elif kind == "markdown":
            clean["source"] = self._markdown(where, clean["source"])
        if kind != "code" and "attachments" in cell:
            clean["attachments"] = self._attachments(where, cell["attachments"])
        self.note_unknown(
            where,
            cell,
            {"attachments", "cell_type", "execution_count", "id", "metadata", "outputs", "source"},
        )
        return clean

    def old_cells(self, value: object) -> list[_Json]:
        """Build cells of a format before 4, which Jupyter turns into cells of 4 on opening."""
        cells: list[_Json] = []
        for number, cell in enumerate(_list(value), 1):
            if not isinstance(cell, dict):
                continue
            kind = cell.get("cell_type")
            source = _text(cell.get("input" if kind == "code" else "source"))
            if kind == "code":
                if cell.get("outputs"):
                    self.note(f"cell {number}: outputs of an old format left out")
                clean = {"input": source, "language": "python", "outputs": [], "collapsed": False}
            else:
                level = cell.get("level")
                kind = kind if kind in ("markdown", "raw", "html", "heading") else "raw"
                # Jupyter makes Markdown of it.
                source = source if kind == "raw" else self._markdown(f"cell {number}", source)
                clean = {"source": source}
                if kind == "heading":
                    clean["level"] = level if type(level) is int and 1 <= level <= 6 else 1
            cells.append({"cell_type": kind, "metadata": {}, **clean})
        return cells

    def _outputs(self, where: str, value: object) -> list[_Json]:
        outputs: list[_Json] = []
        for output in _list(value):
            if not _is_bounded(output, self._wall):
                self.note(f"{where}: an output left out, it is too large or too deeply nested")
                continue
            try:
                clean = forms.output(output, self._wall)
            except _NO_TEXT:
                self.note(f"{where}: an output left out, it holds what is no text")
                continue
            self._drop_widget(clean)
            if not _is_same(clean, output):
                self.note(f"{where}: an output drawn otherwise")
            outputs.append(clean)
        return outputs

    @staticmethod
    def _drop_widget(output: _Json) -> None:
        """Leave the view of a widget out, whose model is only there once the cell has run."""
        data = output.get("data")
        if isinstance(data, dict) and data.pop(forms.WIDGET_VIEW, None) is not None:
            data.setdefault("text/plain", "[A widget. Run the cell to see it.]")

    def _attachments(self, where: str, value: object) -> _Json:
        """Keep images; a page shows an attachment as whatever type it claims to be."""
        clean: _Json = {}
        for name, bundle in value.items() if isinstance(value, dict) else ():
            data: _Json = {}
            if isinstance(bundle, dict) and _is_bounded(bundle, self._wall):
                with suppress(Refused, *_NO_TEXT):
                    data, _ = forms.bundle(bundle, {}, self._wall)
            images = {mime: item for mime, item in data.items() if mime.startswith("image/")}
            if images and isinstance(name, str):
                clean[name] = images
            else:
                self.note(f"{where}: an attachment left out, it is no image")
        return clean

    def _markdown(self, where: str, text: str) -> str:
        """Return the source with what acts or loads shown as the text it is."""
        if self._wall.is_off:
            return text
        clean = text
        if any(_is_bad(tag, loads=self._wall.loads) for tag in _TAG.findall(text)):
            is_told = len(text) <= MOST_CHARACTERS and self._parsed + len(text) <= _MOST_PARSED
            self._parsed += len(text) if is_told else 0
            clean = _harmless_markup(text, self._wall) if is_told else _without_tags(text)
        if not self._wall.loads:
            clean = _IMAGE.sub(lambda found: _own_or_link(clean, found), clean)
        clean = formulas.tame_markdown(clean)
        if clean != text:
            self.note(f"{where}: markup that acts or loads shown as text")
        return clean


def _kernelspec(named: object, language: object) -> _Json:
    """Return the sandbox kernel that stands for the one a notebook names."""
    named = named if isinstance(named, dict) else {}
    name, shown = named.get("name"), named.get("display_name")
    told = named.get("language") or (language.get("name") if isinstance(language, dict) else "")
    spoken = told if isinstance(told, str) and _NAME.fullmatch(told) else ""
    spoken = "python" if spoken.lower() in _PYTHONS else spoken
    if isinstance(name, str) and name.startswith("sandbox-") and _NAME.fullmatch(name):
        shown = shown if isinstance(shown, str) and _PLAIN_TEXT.fullmatch(shown) else name
    else:
        name = f"sandbox-{spoken.lower()}"
        shown = "Python 3 (sandbox)" if spoken == "python" else f"{spoken} (sandbox)"
    return {"name": name, "display_name": shown, "language": spoken}


def _own_or_link(text: str, found: re.Match[str]) -> str:
    """Keep an image of the notebook's own; the text of one from elsewhere becomes a link.

    This looks at the text alone, not at what a parser makes of it: the page's may read it
    otherwise, and it does load images.
    """
    return found[0] if _OWN_IMAGE.match(text, found.start()) else ""


def _harmless_markup(text: str, wall: Wall) -> str:
    """Escape the tags that act, outside of code.

    The page cleans Markdown cells by itself; this is so that it does not have to be relied on.
    """
    for _ in range(3):
        bad = {tag for tag in _live_tags(text) if _is_bad(tag, loads=wall.loads)}
        if not bad:
            return text
        if len(bad) > _MOST_TAGS:
            break
        for tag in bad:
            text = text.replace(tag, f"&lt;{tag[1:]}")
    # Too many, or their text stands otherwise in the source than in what the parser found.
    return _without_tags(text)


def _without_tags(text: str) -> str:
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)


def _live_tags(text: str) -> Iterator[str]:
    """Yield the tags of a Markdown text that are not in code."""
    for token in _parser().parse(text):
        for each in (token, *(token.children or ())):
            if each.type in ("html_block", "html_inline"):
                yield from _TAG.findall(each.content)


def _is_bad(tag: str, *, loads: bool) -> bool:
    if tag.startswith("<!--"):
        return False
    opened = f"<{tag[2:]}" if tag.startswith("</") else tag
    if html.route(opened) == "active" or _ACTS.search(tag):
        return True
    return not loads and _loads(tag)


def _loads(tag: str) -> bool:
    """Whether a page would load something from elsewhere for it."""
    addresses = (found[1].strip("\"'") for found in _LOADING.finditer(tag))
    return not all(_OWN_ADDRESS.fullmatch(each.strip()) for each in addresses) or (
        "style" in tag.lower() and _LOADING_STYLE.search(tag) is not None
    )


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415  most notebooks have no HTML in Markdown

    return MarkdownIt("commonmark", {"html": True, "maxNesting": 40}).enable("table")


def _plain(value: object, depth: int = _PLAIN_DEPTH) -> Any:
    """Return a value of nothing but words, numbers and containers of them; None where it has none.

    What is known by its name alone may still hold anything: extensions draw what stands in their
    metadata, some of them as HTML.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value if abs(value) < 1e15 else None
    if isinstance(value, str):
        is_plain = _PLAIN_TEXT.fullmatch(value) and not _ADDRESS.search(value)
        return value if is_plain or _is_time(value) else None
    if depth == 0:
        return None
    if isinstance(value, list):
        items = [_plain(item, depth - 1) for item in value[:_PLAIN_ENTRIES]]
        return [item for item in items if item is not None]
    if isinstance(value, dict):
        entries = {
            key: _plain(item, depth - 1)
            for key, item in list(value.items())[:_PLAIN_ENTRIES]
            if isinstance(key, str) and key not in _NEVER and _PLAIN_TEXT.fullmatch(key)
        }
        return {key: item for key, item in entries.items() if item is not None}
    return None


def _is_time(text: str) -> bool:
    """Whether it is a moment, which looks like an address with a scheme."""
    return re.fullmatch(r"[0-9T:.+Z -]{1,40}", text) is not None


def _is_bounded(value: object, wall: Wall) -> bool:
    """Whether a value is no deeper and no larger than an output of a running cell may be."""
    size = 0
    level: list[object] = [value]
    for _ in range(wall.limits.depth):
        below: list[object] = []
        for each in level:
            if isinstance(each, str):
                size += len(each)
            elif isinstance(each, dict):
                below += each
                below += each.values()
            elif isinstance(each, list):
                below += each
            size += 8
        if not below or size > wall.limits.message_bytes:
            return size <= wall.limits.message_bytes
        level = below
    return False


def _is_same(clean: _Json, output: object) -> bool:
    """Whether nothing was changed but that lines of a text were joined."""
    if not isinstance(output, dict):
        return False
    known = {"data", "ename", "evalue", "execution_count", "metadata", "name", "output_type"}
    return all(
        _joined(clean.get(key)) == _joined(output.get(key)) for key in {*known, "text", "traceback"}
    )


def _joined(value: object) -> object:
    if isinstance(value, dict):
        return {key: _joined(item) for key, item in value.items()}
    is_lines = isinstance(value, list) and all(isinstance(line, str) for line in value)
    return "".join(value) if is_lines else value  # type: ignore[arg-type]


def _free_id(value: object, number: int, taken: set[str]) -> str:
    if isinstance(value, str) and _CELL_ID.fullmatch(value) and value not in taken:
        return value
    made = f"cell-{number}"
    while made in taken:
        made += "-"
    return made[:64]


def _text(value: object) -> str:
    if isinstance(value, list):
        return "".join(line for line in value if isinstance(line, str))
    return value if isinstance(value, str) else ""


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
