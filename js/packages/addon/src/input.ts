/**
 * What was typed while there was no connection to send it on.
 */

import { isReport } from "./answers.js";
import { encodeInput } from "./protocol.js";

/** Beyond this, new input is refused; what was typed first stays whole. */
export const QUEUE_BYTES = 1024 * 1024;

export class InputQueue {
  #frames: Uint8Array<ArrayBuffer>[] = [];
  #bytes = 0;

  /** Keep `input` for later.  False when there is no room, and nothing of it is kept. */
  push(input: string | Uint8Array): boolean {
    if (typeof input === "string" && isReport(input)) {
      return true; // where the mouse was then is of no use later
    }
    const frames = encodeInput(input);
    const bytes = frames.reduce((sum, frame) => sum + frame.length, 0);
    if (this.#bytes + bytes > QUEUE_BYTES) {
      return false;
    }
    this.#frames.push(...frames);
    this.#bytes += bytes;
    return true;
  }

  /** All that was kept, in order; the queue is empty afterwards. */
  take(): Uint8Array<ArrayBuffer>[] {
    const frames = this.#frames;
    this.#frames = [];
    this.#bytes = 0;
    return frames;
  }
}
