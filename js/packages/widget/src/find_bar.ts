/**
 * The bar that searches the terminal's screen and scrollback.
 */

import type { ISearchOptions, SearchAddon } from "@xterm/addon-search";
import type { IDisposable } from "@xterm/xterm";
import { button, element } from "./dom.js";
import { type FindColours, findColoursOf } from "./theme.js";

export class FindBar implements IDisposable {
  readonly root: HTMLElement;
  readonly #search: SearchAddon;
  readonly #input: HTMLInputElement;
  readonly #count: HTMLElement;
  readonly #results: IDisposable;
  readonly #onToggle: (isOpen: boolean) => void;
  #colours = findColoursOf(true);

  /** `onToggle` is called when it has opened or closed. */
  constructor(search: SearchAddon, onToggle: (isOpen: boolean) => void) {
    this.#search = search;
    this.#onToggle = onToggle;
    this.#input = element("input", "sbx-input", {
      type: "text",
      placeholder: "Find",
      "aria-label": "Find in the terminal",
      spellcheck: "false",
    });
    this.#count = element("span", "sbx-count", { role: "status" });
    this.root = element(
      "div",
      "sbx-find",
      { role: "search" },
      this.#input,
      this.#count,
      button("↑", "Previous match (Shift+Enter)", () => this.#find("up"), "Previous match"),
      button("↓", "Next match (Enter)", () => this.#find("down"), "Next match"),
      button("✕", "Close (Escape)", () => this.close(), "Close"),
    );
    this.root.hidden = true;
    this.#input.addEventListener("input", () => this.#find("here"));
    this.#input.addEventListener("keydown", (event) => this.#press(event));
    this.#results = search.onDidChangeResults(({ resultIndex, resultCount }) => {
      this.#count.textContent =
        this.#input.value === ""
          ? ""
          : resultCount === 0
            ? "no match"
            : resultIndex < 0
              ? `${resultCount}`
              : `${resultIndex + 1} of ${resultCount}`;
    });
  }

  get isOpen(): boolean {
    return !this.root.hidden;
  }

  set colours(colours: FindColours) {
    this.#colours = colours;
  }

  /** Show it; what is selected in the terminal is looked for. */
  open(selection: string): void {
    this.root.hidden = false;
    this.#onToggle(true);
    if (selection !== "" && !selection.includes("\n")) {
      this.#input.value = selection;
    }
    this.#input.focus();
    this.#input.select();
    if (this.#input.value !== "") {
      this.#find("here");
    }
  }

  close(): void {
    this.root.hidden = true;
    this.#search.clearDecorations();
    this.#onToggle(false);
  }

  dispose(): void {
    this.#results.dispose();
  }

  #press(event: KeyboardEvent): void {
    if (event.key === "Enter") {
      event.preventDefault();
      this.#find(event.shiftKey ? "up" : "down");
    } else if (event.key === "Escape") {
      event.preventDefault();
      this.close();
    }
  }

  #find(where: "here" | "down" | "up"): void {
    const { match, activeMatch } = this.#colours;
    const options: ISearchOptions = {
      incremental: where === "here",
      decorations: {
        matchBackground: match,
        matchOverviewRuler: match,
        activeMatchBackground: activeMatch,
        activeMatchColorOverviewRuler: activeMatch,
      },
    };
    if (this.#input.value === "") {
      this.#search.clearDecorations();
      this.#count.textContent = "";
    } else if (where === "up") {
      this.#search.findPrevious(this.#input.value, options);
    } else {
      this.#search.findNext(this.#input.value, options);
    }
  }
}
