/** A page, sockets and a screen that do only what a test tells them to. */

import {
  type ConnectionOptions,
  type ConnectionState,
  TerminalConnection,
} from "../src/connection.js";
import { Drawing, type Screen } from "../src/drawing.js";
import type { Environment, Socket } from "../src/environment.js";
import type { ClientMessage } from "../src/protocol.js";

export class FakeSocket implements Socket {
  binaryType = "blob";
  onopen: (() => void) | null = null;
  onmessage: ((event: { readonly data: unknown }) => void) | null = null;
  onclose: ((event: { readonly code: number; readonly reason: string }) => void) | null = null;
  onerror: (() => void) | null = null;
  /** What was sent: messages as objects, input as text. */
  readonly sent: (ClientMessage | string)[] = [];
  readonly frames: (string | Uint8Array)[] = [];
  closedWith: number | undefined;
  isClosed = false;

  constructor(readonly url: string) {}

  send(data: string | Uint8Array): void {
    this.frames.push(data);
    this.sent.push(typeof data === "string" ? JSON.parse(data) : new TextDecoder().decode(data));
  }

  close(code?: number): void {
    this.closedWith ??= code;
    this.isClosed = true;
  }

  // The server's side.

  open(): void {
    this.onopen?.();
  }

  text(message: object | string): void {
    this.onmessage?.({ data: typeof message === "string" ? message : JSON.stringify(message) });
  }

  bytes(data: string | Uint8Array): void {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    this.onmessage?.({ data: bytes.slice().buffer });
  }

  ready(fields: object = {}): void {
    this.open();
    this.text({ type: "ready", cols: 80, rows: 24, acknowledgeEvery: 65536, ...fields });
  }

  #announced(type: object, data: string | Uint8Array): void {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    this.text({ ...type, byteLength: bytes.length });
    this.bytes(bytes);
  }

  replay(kind: "exact" | "screen", cursor: string, data: string | Uint8Array): void {
    this.#announced({ type: "replay", kind, cursor }, data);
    this.text({ type: "live" });
  }

  screen(cursor: string, data: string | Uint8Array): void {
    this.#announced({ type: "screen", cursor }, data);
  }

  chunk(cursor: string, data: string | Uint8Array): void {
    this.#announced({ type: "chunk", cursor }, data);
  }

  serverCloses(code: number, reason = ""): void {
    this.isClosed = true;
    this.onclose?.({ code, reason });
  }

  /** The sent messages of one type. */
  messages<Type extends ClientMessage["type"]>(
    type: Type,
  ): Extract<ClientMessage, { type: Type }>[] {
    return this.sent.filter(
      (each): each is Extract<ClientMessage, { type: Type }> =>
        typeof each !== "string" && each.type === type,
    );
  }

  get input(): string {
    return this.sent.filter((each) => typeof each === "string").join("");
  }
}

export class FakeEnvironment implements Environment {
  readonly sockets: FakeSocket[] = [];
  chance = 0;
  /** What plain requests to the server are answered with. */
  status: number | undefined;
  readonly asked: string[] = [];
  #now = 1000;
  #timers: { at: number; callback: () => void }[] = [];

  openSocket(url: string): Socket {
    const socket = new FakeSocket(url);
    this.sockets.push(socket);
    return socket;
  }

  async askStatus(url: string): Promise<number | undefined> {
    this.asked.push(url);
    return this.status;
  }

  setTimer(callback: () => void, seconds: number): unknown {
    const timer = { at: this.#now + seconds, callback };
    this.#timers.push(timer);
    return timer;
  }

  clearTimer(timer: unknown): void {
    this.#timers = this.#timers.filter((each) => each !== timer);
  }

  now(): number {
    return this.#now;
  }

  random(): number {
    return this.chance;
  }

  /** Let time pass, with each timer at its time. */
  advance(seconds: number): void {
    const end = this.#now + seconds;
    for (;;) {
      const [next] = this.#timers.filter((each) => each.at <= end).sort((a, b) => a.at - b.at);
      if (next === undefined) {
        break;
      }
      this.#now = Math.max(this.#now, next.at);
      this.clearTimer(next);
      next.callback();
    }
    this.#now = end;
  }

  /** Let time pass while the page sleeps: timers that are due come late, once each. */
  sleep(seconds: number): void {
    this.#now += seconds;
    const due = this.#timers.filter((each) => each.at <= this.#now);
    for (const timer of due) {
      this.clearTimer(timer);
      timer.callback();
    }
  }

  get timerCount(): number {
    return this.#timers.length;
  }

  get socket(): FakeSocket {
    const socket = this.sockets.at(-1);
    if (socket === undefined) {
      throw new Error("no socket was opened");
    }
    return socket;
  }
}

export class FakeScreen implements Screen {
  cols = 80;
  rows = 24;
  readonly written: string[] = [];
  readonly #callbacks: (() => void)[] = [];
  onParse: ((data: string) => void) | undefined;
  onResized: ((size: { cols: number; rows: number }) => void) | undefined;

  write(data: string | Uint8Array, callback?: () => void): void {
    const text = typeof data === "string" ? data : new TextDecoder().decode(data);
    this.#callbacks.push(() => {
      this.onParse?.(text);
      this.written.push(text);
      callback?.();
    });
  }

  resize(cols: number, rows: number): void {
    this.cols = cols;
    this.rows = rows;
    this.onResized?.({ cols, rows });
  }

  /** Draw what was written, or the first few writes of it. */
  draw(count = Number.POSITIVE_INFINITY): void {
    for (let drawn = 0; drawn < count; drawn += 1) {
      const callback = this.#callbacks.shift();
      if (callback === undefined) {
        break;
      }
      callback();
    }
  }

  get text(): string {
    return this.written.join("");
  }
}

export interface Change {
  state: ConnectionState;
  code?: string;
}

export class Scene {
  readonly environment = new FakeEnvironment();
  readonly screen = new FakeScreen();
  readonly changes: Change[] = [];
  readonly errors: Error[] = [];
  readonly cursors: (string | undefined)[] = [];
  readonly imposed: object[] = [];
  readonly connection: TerminalConnection;

  constructor(options: Partial<ConnectionOptions> = {}) {
    this.connection = new TerminalConnection({
      environment: this.environment,
      screen: this.screen,
      drawing: new Drawing(this.screen),
      reconnect: true,
      start: true,
      view: { visible: true, focused: false },
      getUrl: ({ cursor }) => {
        this.cursors.push(cursor);
        return `ws://host/${this.cursors.length}`;
      },
      onStateChange: (state, error) => {
        this.changes.push({
          state,
          ...(error === undefined ? {} : { code: (error as { code?: string }).code ?? error.name }),
        });
        if (error !== undefined) {
          this.errors.push(error);
        }
      },
      onSizeImposed: (size) => this.imposed.push(size),
      ...options,
    });
    this.screen.onResized = (size) => this.connection.resize(size);
  }

  get socket(): FakeSocket {
    return this.environment.socket;
  }

  get attempts(): number {
    return this.environment.sockets.length;
  }

  get states(): ConnectionState[] {
    return this.changes.map(({ state }) => state);
  }

  /** Started, and ready with an empty screen at `cursor`. */
  connect(cursor = "c0"): FakeSocket {
    this.connection.start();
    this.socket.ready();
    this.socket.replay("screen", cursor, "");
    this.screen.draw();
    return this.socket;
  }

  /** The wait is over: the socket of the next attempt. */
  retry(): FakeSocket {
    this.environment.advance(this.connection.retryIn ?? Number.NaN);
    return this.socket;
  }
}
