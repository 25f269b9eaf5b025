/**
 * The bar that asks before lines are pasted which would run at once.
 */

import { button, element } from "./dom.js";
import { oneLine, type Paste } from "./paste.js";

const SHOWN_CHARACTERS = 200;
/** Of bars, whose parts refer to each other by names that are the page's. */
let count = 0;

export class PasteBar {
  readonly root: HTMLElement;
  readonly #question = `sbx-question-${++count}`;
  readonly #onDone: (text: string) => void;

  /** `onDone` gets what is to be pasted; nothing for "cancel". */
  constructor(onDone: (text: string) => void) {
    this.#onDone = onDone;
    this.root = element("div", "sbx-paste", {
      role: "alertdialog",
      "aria-label": "Paste",
      "aria-describedby": this.#question,
    });
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
      element("div", "sbx-question", { id: this.#question }, question),
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
