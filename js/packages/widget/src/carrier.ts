/**
 * Decides through what the next attempt to connect goes: the Jupyter server, or the kernel.
 */

import type { Carrier } from "./model.js";

/** So many handshakes in a row must fail, before any succeeded, for the kernel to be asked. */
const FAILURES = 2;

export class CarrierChoice {
  #current: Carrier;
  #isSettled: boolean;
  #failures = 0;

  /** `server` is whether the page has one; `wanted` is the user's choice. */
  constructor(wanted: Carrier | "auto", hasServer: boolean) {
    this.#isSettled = wanted !== "auto" || !hasServer;
    this.#current = wanted === "auto" ? (hasServer ? "server" : "kernel") : wanted;
  }

  get current(): Carrier {
    return this.#current;
  }

  /** Whether it stays as it is, whatever fails. */
  get isSettled(): boolean {
    return this.#isSettled;
  }

  /** A socket opened: a later loss is one of the network, which the kernel would not mend. */
  opened(): void {
    this.#isSettled = true;
  }

  /** A socket ended before it opened. */
  failed(): void {
    this.#failures += 1;
    if (!this.#isSettled && this.#failures >= FAILURES) {
      this.#isSettled = true;
      this.#current = "kernel";
    }
  }
}
