/**
 * The bar that asks before lines are pasted which would run at once.
 */

import { button, element } from "./dom.js";
import { oneLine, type Paste } from "./paste.js";

const SHOWN_CHARACTERS = 200;

export class PasteBar {
  readonly root: HTMLElement;
  readonly #onDone: (text: string) => void;

  /** `onDone` gets what is to be pasted; nothing for "cancel". */
  constructor(onDone: (text: string) => void) {
    this.#onDone = onDone;
    this.root = element("div", "sbx-paste", { role: "alertdialog", "aria-label": "Paste" });
    this.root.hidden = true;
    this.root.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.preventDefault();
        this.#done("");
      }
    });
  }

  ask(paste: Paste): void {
    const shown =
      paste.text.length > SHOWN_CHARACTERS
        ? `${paste.text.slice(0, SHOWN_CHARACTERS)} …`
        : paste.text;
    const question =
      paste.lines === 1
        ? "This line ends with Enter and runs at once:"
        : `These ${paste.lines} lines run at once, one after the other:`;
    const asIs = button("Paste", "Paste and run", () => this.#done(paste.text));
    this.root.replaceChildren(
      element("div", "sbx-question", {}, question),
      element("pre", "sbx-preview", {}, shown),
      element(
        "div",
        "sbx-buttons",
        {},
        asIs,
        button("Paste as one line", "Paste, and wait for Enter", () =>
          this.#done(oneLine(paste.text)),
        ),
        button("Cancel", "Paste nothing (Escape)", () => this.#done("")),
      ),
    );
    for (const pressed of this.root.querySelectorAll("button")) {
      pressed.classList.add("sbx-bordered");
    }
    this.root.hidden = false;
    asIs.focus();
  }

  #done(text: string): void {
    this.root.hidden = true;
    this.root.replaceChildren();
    this.#onDone(text);
  }
}
