"""A terminal in a page, as a person sees it and types into it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, Page, expect

__all__ = ["TerminalInPage"]


class TerminalInPage:
    """One of the page's terminals, counted from 0."""

    def __init__(self, page: Page, number: int = 0) -> None:
        self.page = page
        self.root: Locator = page.locator(".sbx-terminal").nth(number)
        self.screen = self.root.locator(".sbx-screen")
        self.rows = self.root.locator(".xterm-rows")
        self.state = self.root.locator(".sbx-text")
        self.carrier = self.root.locator(".sbx-carrier")

    def wait_for(self, state: str, carrier: str = "") -> TerminalInPage:
        expect(self.state).to_have_text(state, timeout=40_000)
        if carrier:
            expect(self.carrier).to_have_text(f"via {carrier}")
        return self

    def focus(self) -> None:
        self.screen.click(position={"x": 60, "y": 60})

    def type(self, text: str) -> None:
        """Type into what has the focus; ends of lines are Enter."""
        self.page.keyboard.type(text)

    def run(self, command: str, expected: str | re.Pattern[str], *, by_key: bool = False) -> None:
        """Enter a command, and wait until the screen shows what it says.

        With a screen reader xterm.js takes key after key only (`by_key`), no inserted text.
        """
        self.focus()
        if by_key:
            self.type(command)
        else:
            self.page.keyboard.insert_text(command)
        self.page.keyboard.press("Enter")
        self.shows(expected)

    def shows(self, expected: str | re.Pattern[str]) -> None:
        expect(self.rows).to_contain_text(expected, timeout=20_000)

    def text(self) -> str:
        """Return the lines of the screen, without trailing blanks."""
        rows = self.rows.locator("> div").all_inner_texts()
        return "\n".join(row.replace("\xa0", " ").rstrip() for row in rows).rstrip()

    def size(self, tag: str) -> tuple[int, int]:
        """Ask the shell for (cols, rows); `tag` tells one answer from another."""
        self.run(f"stty size | sed 's/^/{tag}: /'", re.compile(rf"{tag}: \d+ \d+"))
        found = re.findall(rf"{tag}: (\d+) (\d+)", self.text())[-1]
        return int(found[1]), int(found[0])

    def wait_for_cols(self, is_right: Callable[[int], bool]) -> tuple[int, int]:
        """Ask the shell until its columns are right: sizes settle after what changes them."""
        for attempt in range(10):
            size = self.size(f"try{attempt}")
            if is_right(size[0]):
                return size
        raise AssertionError(size)

    def paste(self, text: str) -> None:
        """Fire the paste event that a browser fires."""
        self.focus()
        self.page.evaluate(
            """text => {
              const data = new DataTransfer();
              data.setData("text/plain", text);
              document.activeElement.dispatchEvent(
                new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true}));
            }""",
            text,
        )

    def point_at(self, start: str) -> None:
        """Move the mouse to the first letters of the line that starts so."""
        line = self.rows.locator("> div", has_text=re.compile(f"^{re.escape(start)}")).first
        box = line.bounding_box()
        assert box, start
        self.page.mouse.move(box["x"] + 4, box["y"] + box["height"] / 2)
        self.page.mouse.move(box["x"] + 6, box["y"] + box["height"] / 2)

    def click(self, *, count: int = 1) -> None:
        """Press the mouse where it is."""
        for number in range(count):
            self.page.mouse.down(click_count=number + 1)
            self.page.mouse.up(click_count=number + 1)

    def background(self) -> Any:
        return self.screen.evaluate("node => getComputedStyle(node).backgroundColor")
