/**
 * A socket whose frames travel as messages of the widget, to and from the kernel.
 *
 * Each message of ours names its socket, as all views of a widget hear all that the kernel says:
 *
 *     page: {socket, open: {cols, rows, cursor?}} | {socket, text} | {socket} + buffer | {socket, close: true}
 *     kernel: {socket, open: true} | {socket, frames: [text | null, ...]} + a buffer per null | {socket, close: code, reason}
 */

import type { Socket } from "@jupyter-sandbox/xterm-addon";
import type { Message, Model } from "./model.js";

/** What a socket tells of when the kernel can no longer be asked. */
const ABNORMAL = 1006;

export class KernelSocket implements Socket {
  binaryType = "arraybuffer";
  onopen: (() => void) | null = null;
  onmessage: ((event: { readonly data: unknown }) => void) | null = null;
  onclose: ((event: { readonly code: number; readonly reason: string }) => void) | null = null;
  onerror: (() => void) | null = null;
  readonly #model: Model;
  readonly #name: string;
  #isOver = false;

  /** The query of `address` is what a WebSocket's would be. */
  constructor(model: Model, address: string, name: string = randomName()) {
    this.#model = model;
    this.#name = name;
    model.on("msg:custom", this.#take);
    const { searchParams } = new URL(address);
    // Not at once: who made the socket sets its listeners first.
    queueMicrotask(() => this.#post({ open: Object.fromEntries(searchParams) }));
  }

  send(data: string | Uint8Array<ArrayBuffer>): void {
    if (typeof data === "string") {
      this.#post({ text: data });
    } else {
      this.#post({}, data);
    }
  }

  close(): void {
    if (!this.#isOver) {
      this.#post({ close: true });
      this.#end();
    }
  }

  #end(): void {
    this.#isOver = true;
    this.#model.off("msg:custom", this.#take);
  }

  #post(message: Message, data?: Uint8Array<ArrayBuffer>): void {
    if (this.#isOver) {
      return;
    }
    try {
      this.#model.send(
        { type: "socket", socket: this.#name, ...message },
        undefined,
        data === undefined ? [] : [data],
      );
    } catch {
      this.#end(); // the kernel has gone
      this.onclose?.({ code: ABNORMAL, reason: "The kernel does not answer." });
    }
  }

  readonly #take = (message: Message, buffers: readonly DataView[]): void => {
    if (message["socket"] !== this.#name || this.#isOver) {
      return;
    }
    if (message["open"] === true) {
      this.onopen?.();
    } else if (Array.isArray(message["frames"])) {
      let next = 0;
      for (const frame of message["frames"] as (string | null)[]) {
        const data = frame ?? bytesOf(buffers[next++]);
        this.onmessage?.({ data });
      }
    } else if (typeof message["close"] === "number") {
      this.#end();
      this.onclose?.({ code: message["close"], reason: String(message["reason"] ?? "") });
    }
  };
}

/** A buffer is a view on a larger one, where other parts of the message are, too. */
function bytesOf(view: DataView | undefined): ArrayBuffer {
  return view === undefined
    ? new ArrayBuffer(0)
    : (view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength) as ArrayBuffer);
}

function randomName(): string {
  return Array.from(crypto.getRandomValues(new Uint32Array(4)), (word) => word.toString(36)).join(
    "",
  );
}
