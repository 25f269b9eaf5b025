"""Terminals of a page with one of three addons each, as a test sees them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Page

from tests.e2e.browser.wire import Wire
from tests.support.ws_connection import JupyterServer

__all__ = ["ADDONS", "AddonPage", "Cell", "numbers"]

ADDONS = ("stable", "preview", "own-session", "own-terminal")
"""The addons, and the kind of target that each is given."""


@dataclass
class Cell:
    """One terminal of a page."""

    page: Page
    name: str
    addon: str
    sandbox: str
    terminal_id: str | None

    def get(self, expression: str) -> Any:
        """Return the value of an expression over ``cell``."""
        return self.page.evaluate(
            f"name => {{ const cell = cells[name]; return {expression}; }}", self.name
        )

    @property
    def state(self) -> str:
        """The addon's state."""
        return str(self.get("cell.addon.state"))

    @property
    def states(self) -> list[list[str | None]]:
        """All states so far, each with its error's message."""
        found: list[list[str | None]] = self.get("cell.states")
        return found

    @property
    def sockets(self) -> list[dict[str, Any]]:
        """All sockets so far: address, what was sent, how it was closed."""
        found: list[dict[str, Any]] = self.get("cell.sockets")
        return found

    @property
    def text(self) -> str:
        """What can be read, scrollback included."""
        return str(self.get("cell.text"))

    @property
    def screen(self) -> str:
        """All that the terminal is: text, colours, cursor, modes."""
        return str(self.get("cell.screen"))

    def type(self, text: str) -> None:
        """Type at the keyboard, into this terminal."""
        self.page.locator(f"#{self.name} .xterm-helper-textarea").focus()
        self.page.keyboard.type(text)

    def press(self, key: str) -> None:
        """Press one key, in this terminal."""
        self.page.locator(f"#{self.name} .xterm-helper-textarea").focus()
        self.page.keyboard.press(key)

    def wait(self, expression: str, timeout: float = 20.0) -> None:
        """Wait until an expression over ``cell`` is true."""
        try:
            self.page.wait_for_function(
                f"name => {{ const cell = cells[name]; return {expression}; }}",
                arg=self.name,
                timeout=timeout * 1000,
            )
        except Exception as error:
            raise AssertionError(
                f"{self.name}: not within {timeout} s: {expression}\n"
                f"states: {self.states}\nsockets: {self.sockets}\n{self.text[-2000:]}"
            ) from error

    def wait_for(self, pattern: str, timeout: float = 20.0) -> None:
        """Wait until the text matches a pattern, of JavaScript."""
        self.wait(f"/{pattern}/m.test(cell.text)", timeout)

    def wait_for_shown(self, pattern: str, timeout: float = 20.0) -> None:
        """Wait until what is on the screen, without scrollback, matches a pattern."""
        self.wait(f"/{pattern}/m.test(cell.shown)", timeout)

    def wait_for_state(self, state: str, timeout: float = 20.0) -> None:
        """Wait until the addon's state is this one."""
        self.wait(f"cell.addon.state === {json.dumps(state)}", timeout)

    def wait_for_screen(self, screen: str, timeout: float = 20.0) -> None:
        """Wait until the screen is this one."""
        self.wait(f"cell.screen === {json.dumps(screen)}", timeout)

    def run(self, command: str, pattern: str, timeout: float = 20.0) -> None:
        """Type a command and wait for what it shows."""
        self.type(command + "\n")
        self.wait_for(pattern, timeout)


@dataclass
class AddonPage:
    """A page of the server's own origin that shows terminals.

    Parameters
    ----------
    page : Page
        The browser's page.
    server : JupyterServer
        The server behind the wire.
    wire : Wire
        What the browser takes for the server.
    """

    page: Page
    server: JupyterServer
    wire: Wire
    cells: dict[str, Cell] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def load(self, origin: str | None = None, *, token: str | None = None) -> None:
        """Show the page, without terminals.

        The token in its address leaves the cookie which every connection is then known by.
        """
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(
            f"{origin or self.wire.base}/static/addons.html?token={token or self.server.token}"
        )
        self.page.wait_for_function("globalThis.openCell !== undefined")

    def create_terminal(self, sandbox: str, **fields: Any) -> str:
        """Make a terminal by the REST interface."""
        status, body = self.server.call(
            "POST", f"/sandbox/api/sandboxes/{sandbox}/terminals", fields
        )
        assert status == 201, (status, body)
        return str(body["terminal_id"])

    def open(
        self,
        name: str,
        addon: str,
        sandbox: str,
        *,
        session: str | None = None,
        terminal: str | None = None,
        cols: int = 80,
        rows: int = 24,
        scrollback: int = 20_000,
        wait: bool = True,
        **options: Any,
    ) -> Cell:
        """Add a terminal; without `terminal` it is the session's, or a new one."""
        if terminal is None and addon in ("preview", "own-terminal"):
            terminal = self.create_terminal(sandbox, cols=cols, rows=rows)
        target = {"sandboxId": sandbox}
        if addon in ("preview", "own-terminal"):
            target["terminalId"] = str(terminal)
        else:
            target["sessionId"] = session or name
        cell = self.cells[name] = Cell(self.page, name, addon, sandbox, terminal)
        self.page.evaluate(
            "options => openCell(options)",
            {
                "name": name,
                "addon": addon.partition("-")[0],
                "target": target,
                "cols": cols,
                "rows": rows,
                "scrollback": scrollback,
                **options,
            },
        )
        if wait:
            cell.wait_for_state("connected", 30)
        return cell

    def wait_for_reconnects(self, count: int, timeout: float = 30.0) -> None:
        """Wait until each terminal is connected by its socket of this number."""
        for cell in self.cells.values():
            cell.wait(
                "(Object.values(cells).forEach((each) => each.comeBack()), "
                f"cell.sockets.length === {count} && cell.addon.state === 'connected')",
                timeout,
            )

    def await_prompts(self) -> None:
        """Wait until each terminal shows a shell's prompt."""
        for cell in self.cells.values():
            cell.wait_for(r"[$#]\s*$")


def numbers(text: str) -> list[int]:
    """Return the numbers of a counter's lines."""
    return [int(number) for number in re.findall(r"^line (\d+)$", text, re.MULTILINE)]
