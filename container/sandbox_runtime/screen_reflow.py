"""Gives a page another size and wraps its long rows anew, as @xterm/xterm 6 does.

The row of the cursor, and what it is wrapped from, keeps its shape: the program is about to draw it
again.  The alternate page is cut or widened, not wrapped.
"""

from __future__ import annotations

from sandbox_runtime.screen_line import DEFAULT_LOOK, Line, Look, cell_width
from sandbox_runtime.screen_page import Page

__all__ = ["resize_page"]

_Cells = list[tuple[str, Look]]


def resize_page(page: Page, cols: int, rows: int) -> None:
    """Give a page another size."""
    old_cols = page.cols
    lines = page.lines
    page.bottom = rows - 1
    if lines:
        page.top = 0
        base = _resize_rows(page, cols, rows)
        if page.scrollback and cols > old_cols:
            base = _unwrap(page, base, old_cols, cols, rows)
        elif page.scrollback and cols < old_cols:
            base = _wrap(page, base, old_cols, cols, rows)
        lines = page.lines
        for line in lines:
            line.resize(cols)
        # Whatever the steps above came to, the rows of the screen are the last ones.
        lines.extend(Line(cols) for _ in range(base + rows - len(lines)))
        del lines[max(base + rows, rows) :]
    page.cols, page.rows = cols, rows
    page.x = min(page.x, cols)
    page.y = min(page.y, rows - 1)


def _resize_rows(page: Page, cols: int, rows: int) -> int:
    """Add or take rows at the bottom, or at the top where the cursor is at the bottom."""
    lines = page.lines
    base = page.base
    if cols > page.cols:
        for line in lines:
            line.resize(cols)
    from_above = 0
    for _ in range(page.rows, rows):
        if len(lines) < rows + base:
            if base > 0 and len(lines) <= base + page.y + from_above + 1:
                base -= 1
                from_above += 1
            else:
                lines.append(Line(cols))
    for _ in range(page.rows, rows, -1):
        if len(lines) > rows + base:
            if len(lines) > base + page.y + 1:
                lines.pop()
            else:
                base += 1
    excess = len(lines) - rows - page.scrollback
    if excess > 0:
        del lines[:excess]
        base = max(base - excess, 0)
        page.saved_y = max(page.saved_y - excess, 0)
    page.x = min(page.x, cols - 1)
    page.y = min(page.y, rows - 1) + from_above
    page.saved_x = min(page.saved_x, cols - 1)
    return base


def _group_end(lines: list[Line], start: int) -> int:
    """Return the index after the last row that `start` goes on in."""
    end = start + 1
    while end < len(lines) and lines[end].wrapped:
        end += 1
    return end


def _cells(group: list[Line], cols: int) -> _Cells:
    """Return the cells of a row that takes several, without what only wrapping made."""
    cells: _Cells = []
    for index, line in enumerate(group):
        if index == len(group) - 1:
            count = line.used()
        else:
            # A wide character that did not fit has left the last cell empty.
            left = not line.chars[cols - 1] and cell_width(group[index + 1].chars[0]) == 2
            count = cols - 1 if left else cols
        cells.extend(zip(line.chars[:count], line.looks[:count], strict=True))
    return cells


def _lengths(cells: _Cells, cols: int) -> list[int]:
    """Return how many cells go on each row."""
    lengths: list[int] = []
    at = 0
    while at < len(cells):
        take = min(cols, len(cells) - at)
        if take == cols and cell_width(cells[at + cols - 1][0]) == 2:
            take -= 1
        lengths.append(take)
        at += take
    return lengths


def _fill(line: Line, cells: _Cells, cols: int) -> None:
    line.put(
        [content for content, _ in cells] + [""] * (cols - len(cells)),
        [look for _, look in cells] + [DEFAULT_LOOK] * (cols - len(cells)),
    )


def _unwrap(page: Page, base: int, old_cols: int, cols: int, rows: int) -> int:
    lines = page.lines
    kept: list[Line] = []
    cursor = base + page.y
    at = 0
    while at < len(lines):
        end = _group_end(lines, at)
        group = lines[at:end]
        if len(group) > 1 and not at <= cursor < end:
            cells = _cells(group, old_cols)
            start = 0
            lengths = _lengths(cells, cols) or [0]
            for line, length in zip(group, lengths, strict=False):
                _fill(line, cells[start : start + length], cols)
                start += length
            del group[len(lengths) :]
            while len(group) > 1 and not group[-1].used():
                group.pop()
        kept += group
        at = end
    removed = len(lines) - len(kept)
    page.lines = kept
    for _ in range(removed):
        if base:
            base -= 1
        else:
            page.y = max(page.y - 1, 0)
            if len(kept) < rows:
                kept.append(Line(cols))
    if removed:
        page.saved_y = max(page.saved_y - removed, 0)
    return base


def _wrap(page: Page, base: int, old_cols: int, cols: int, rows: int) -> int:
    lines = page.lines
    most = rows + page.scrollback
    insertions: list[tuple[int, list[Line]]] = []
    inserted = 0
    # Rows at the bottom are taken away to make room for those that wrapping adds, and yet wrapped.
    before = list(lines)
    at = len(before) - 1
    while at >= 0:
        if not before[at].wrapped and before[at].used() <= cols:
            at -= 1
            continue
        end = at + 1
        while at > 0 and before[at].wrapped:
            at -= 1
        group = before[at:end]
        if at <= base + page.y < end:
            at -= 1
            continue
        cells = _cells(group, old_cols)
        lengths = _lengths(cells, cols)
        added = len(lengths) - len(group)
        if base == 0 and page.y != len(lines) - 1:
            trimmed = max(0, page.y - most + added)
        else:
            trimmed = max(0, len(lines) - most + added)
        new = [Line(cols) for _ in range(added)]
        for line in new:
            line.wrapped = True
        if new:
            insertions.append((end, new))
            inserted += added
        start = 0
        for line, length in zip(group + new, lengths, strict=False):
            _fill(line, cells[start : start + length], cols)
            start += length
        for _ in range(added - trimmed):
            if base == 0:
                if page.y < rows - 1:
                    page.y += 1
                    lines.pop()
                else:
                    base += 1
            elif base < min(most, len(lines) + inserted) - rows:
                base += 1
        page.saved_y = min(page.saved_y + added, base + rows - 1)
        at -= 1
    left = len(lines)
    for where, new in insertions:  # from the bottom up, so the places before stay
        lines[min(where, left) : min(where, left)] = new
    excess = len(lines) - most
    if excess > 0:
        del lines[:excess]
    return base
