/**
 * The line below the terminal: its state, through what it is connected, and its buttons.
 */

import { button, element } from "./dom.js";
import type { Carrier } from "./model.js";
import type { Status } from "./status.js";

const CARRIERS: Readonly<Record<Carrier, readonly [string, string]>> = {
  server: ["via server", "A WebSocket of the Jupyter server"],
  kernel: ["via kernel", "Messages of the kernel: slower than a WebSocket of the Jupyter server"],
};

export class StatusLine {
  readonly root: HTMLElement;
  readonly #text = element("span", "sbx-text", { role: "status", "aria-live": "polite" });
  readonly #countdown = element("span", "sbx-countdown", { "aria-hidden": "true" });
  readonly #hint = element("span", "sbx-hint");
  readonly #title = element("span", "sbx-title");
  readonly #carrier = element("span", "sbx-carrier");
  readonly #action: HTMLButtonElement;
  #link = "";
  #size = "";
  #detail = "";

  constructor(name: string, onAction: () => void, onFind: () => void) {
    this.#action = button("", "", onAction);
    this.#action.classList.add("sbx-bordered");
    this.#action.hidden = true;
    this.root = element(
      "div",
      "sbx-status",
      {},
      element("span", "sbx-dot", { "aria-hidden": "true" }),
      this.#text,
      this.#countdown,
      this.#action,
      this.#hint,
      this.#title,
      element("span", "sbx-name", {}, name),
      this.#carrier,
      button("Find", "Find in the terminal (Ctrl+Shift+F)", onFind),
    );
  }

  show(status: Status, carrier: Carrier): void {
    this.root.dataset["mood"] = status.mood;
    // A live region is read out at each write, even of the same text.
    setText(this.#text, status.text);
    this.#countdown.textContent = status.countdown;
    this.#action.hidden = status.action === "";
    this.#action.textContent = status.action;
    const [shown, meaning] = CARRIERS[carrier];
    setText(this.#carrier, shown);
    this.#carrier.title = meaning;
    this.#detail = status.detail;
    this.#showHint();
  }

  /** Tell that another view decided the size; undefined when this one did. */
  showSize(size: { cols: number; rows: number } | undefined): void {
    this.#size = size === undefined ? "" : `${size.cols} × ${size.rows}, as in another view`;
    this.#showHint();
  }

  /** Tell where a link under the pointer leads; empty when there is none. */
  showLink(address: string): void {
    this.#link = address;
    this.#showHint();
  }

  showTitle(title: string): void {
    this.#title.textContent = title;
    this.#title.title = title;
  }

  #showHint(): void {
    const hint = this.#link === "" ? this.#detail || this.#size : `${this.#link}  (Ctrl+click)`;
    setText(this.#hint, hint);
    this.#hint.title = hint;
  }
}

function setText(node: HTMLElement, text: string): void {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}
