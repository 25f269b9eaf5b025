/**
 * How high a framed output is, by what its document says: anything may be in there.
 */

export const HEIGHT_MESSAGE = "jupyter-sandbox:frame-height";
const LEAST = 20;
const MOST = 2000;
/** After that many messages a frame only shrinks: some documents grow with the room they get. */
const UPDATES = 5;

/** The height that a message asks for, or undefined if it is none of ours. */
export function askedHeight(data: unknown): number | undefined {
  if (typeof data !== "object" || data === null) {
    return undefined;
  }
  const { type, height } = data as { type?: unknown; height?: unknown };
  if (type !== HEIGHT_MESSAGE || typeof height !== "number" || !Number.isFinite(height)) {
    return undefined;
  }
  // Nothing is drawn yet.  What fills the room it gets would never get any again.
  if (height <= 0) {
    return undefined;
  }
  return Math.min(MOST, Math.max(LEAST, Math.ceil(height)));
}

/** One frame's height, from message to message. */
export class FrameHeight {
  #updates = 0;
  /** What was set last, to notice a corner that was dragged. */
  #set: string | undefined;

  /**
   * The height to set, or undefined to leave it.
   *
   * `current` is the element's own height as it stands in its style, such as "450px".
   */
  next(asked: number, current: string): string | undefined {
    if (this.#set !== undefined && current !== this.#set) {
      return undefined;
    }
    this.#updates += 1;
    if (this.#updates > UPDATES && asked >= Number.parseFloat(current)) {
      return undefined;
    }
    this.#set = `${asked}px`;
    return this.#set === current ? undefined : this.#set;
  }
}
