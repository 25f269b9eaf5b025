/**
 * When to tell the server how much of one connection's output is drawn.
 *
 * Before more than `every` bytes are drawn and not told; a smaller rest after a moment, so that
 * single keystrokes do not cost a message each.
 */

import { PIECE_BYTES } from "./drawing.js";
import type { Timers } from "./environment.js";

const IDLE_SECONDS = 0.1;

export class Acknowledgement {
  readonly #every: number;
  readonly #timers: Timers;
  readonly #send: (bytes: number) => void;
  #drawn = 0;
  #sent = 0;
  #timer: unknown;

  constructor(every: number, timers: Timers, send: (bytes: number) => void) {
    this.#every = every;
    this.#timers = timers;
    this.#send = send;
  }

  /** So many more bytes are drawn. */
  drawn(bytes: number): void {
    this.#drawn += bytes;
    if (this.#drawn - this.#sent + PIECE_BYTES > this.#every) {
      this.#flush();
    } else if (this.#timer === undefined && this.#drawn > this.#sent) {
      this.#timer = this.#timers.setTimer(() => this.#flush(), IDLE_SECONDS);
    }
  }

  /** Say nothing any more: the connection is gone. */
  stop(): void {
    this.#timers.clearTimer(this.#timer);
    this.#timer = undefined;
    this.#sent = Number.POSITIVE_INFINITY;
  }

  #flush(): void {
    this.#timers.clearTimer(this.#timer);
    this.#timer = undefined;
    this.#sent = this.#drawn;
    this.#send(this.#drawn);
  }
}
