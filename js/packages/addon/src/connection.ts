/**
 * One terminal's connection: from `start` over any number of sockets to its end.
 *
 *     connecting -> connected -> reconnecting -> connecting -> ... -> disconnected
 *
 * "reconnecting" is the wait before the next attempt.  "disconnected" is the end: asked for, the
 * program exited, the terminal is gone, or given up.  No socket event, and no silence, can leave
 * "connected" standing on a dead socket.
 */

import { Acknowledgement } from "./acknowledgement.js";
import { isAnswer } from "./answers.js";
import type { Drawing, Screen } from "./drawing.js";
import type { Environment, Socket } from "./environment.js";
import { TerminalError, TerminalExitedError } from "./errors.js";
import { InputQueue } from "./input.js";
import { Liveness } from "./liveness.js";
import {
  ACKNOWLEDGE_EVERY,
  type ClientMessage,
  encodeInput,
  encodeMessage,
  FrameReader,
  ProtocolError,
  type ServerEvent,
  type TerminalExit,
} from "./protocol.js";
import { judgeClose, Retries, type Verdict } from "./retry.js";

/** How long a socket may take to open. */
export const OPEN_SECONDS = 20;
/** How long an open socket may take to be ready: the server may have to start a sandbox. */
export const READY_SECONDS = 60;
/** More than this waits to be drawn only when the server ignores acknowledgements; xterm.js throws
 * output away past 50 MB. */
export const UNDRAWN_BYTES = 32 * 1024 * 1024;

export type ConnectionState = "disconnected" | "connecting" | "connected" | "reconnecting";

export interface Size {
  readonly cols: number;
  readonly rows: number;
}

export interface View {
  readonly visible: boolean;
  readonly focused: boolean;
}

export interface ConnectionOptions {
  readonly environment: Environment;
  readonly screen: Screen;
  /** What waits to be drawn on the screen; it outlives the connection. */
  readonly drawing: Drawing;
  readonly reconnect: boolean;
  /** Whether a stopped sandbox is started; at most until the terminal was ready once. */
  readonly start: boolean;
  readonly view: View;
  /** The address of the next attempt. */
  getUrl(position: Size & { cursor?: string; start?: false }): string | Promise<string>;
  onStateChange(state: ConnectionState, error?: Error): void;
  /** The screen took the size that the server named, because of another viewer. */
  onSizeImposed?(size: Size): void;
}

/** One socket's worth. */
interface Attempt {
  readonly cursor: string | undefined;
  readonly reader: FrameReader;
  socket?: Socket;
  /** Whether the handshake was answered well. */
  hasOpened?: boolean;
  timer?: unknown;
  live?: {
    readonly since: number;
    readonly acknowledgement: Acknowledgement;
    readonly liveness: Liveness;
  };
  /** What the server complained of last, as long as nothing else came. */
  error?: TerminalError | undefined;
}

export class TerminalConnection {
  readonly #options: ConnectionOptions;
  readonly #environment: Environment;
  readonly #drawing: Drawing;
  readonly #queue = new InputQueue();
  readonly #retries = new Retries();
  #state: ConnectionState = "disconnected";
  #attempt: Attempt | undefined;
  #retry: { readonly timer: unknown; readonly at: number } | undefined;
  #cursor: string | undefined;
  #mayStart: boolean;
  #terminalId: string | undefined;
  #exit: TerminalExit | undefined;
  #view: View;
  /** The size this viewer wants; the screen may have another one meanwhile. */
  #size: Size;
  /** The size that the server takes the screen to have. */
  #told: Size | undefined;
  #isImposing = false;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#environment = options.environment;
    this.#drawing = options.drawing;
    this.#view = options.view;
    this.#mayStart = options.start;
    this.#size = { cols: options.screen.cols, rows: options.screen.rows };
  }

  get state(): ConnectionState {
    return this.#state;
  }

  /** The terminal's id, once the server has told it. */
  get terminalId(): string | undefined {
    return this.#terminalId;
  }

  /** How the terminal's program ended, once it has. */
  get exit(): TerminalExit | undefined {
    return this.#exit;
  }

  /** Seconds until the next attempt, while waiting for it. */
  get retryIn(): number | undefined {
    return this.#retry && Math.max(0, this.#retry.at - this.#environment.now());
  }

  /** Begin.  Once in the life of a connection. */
  start(): void {
    this.#connect();
  }

  /** End, and try no more.  May be called at any time and again. */
  stop(): void {
    if (this.#state !== "disconnected") {
      this.#finish();
    }
  }

  /** The page woke up or came online: try now, or see whether the connection is still one. */
  nudge(): void {
    if (this.#retry !== undefined) {
      this.#connect();
    } else {
      this.#attempt?.live?.liveness.askNow();
    }
  }

  /** What the screen sends: typed, pasted, or answered by itself. */
  input(data: string | Uint8Array): void {
    if (typeof data === "string" && this.#drawing.isMuted && isAnswer(data)) {
      return;
    }
    if (this.#state === "disconnected") {
      return;
    }
    if (this.#attempt?.live !== undefined) {
      for (const frame of encodeInput(data)) {
        this.#attempt.socket?.send(frame);
      }
    } else if (!this.#queue.push(data)) {
      this.#options.onStateChange(
        this.#state,
        new TerminalError(
          "INPUT_DROPPED",
          "Too much was typed or pasted without a connection; the last of it is dropped.",
        ),
      );
    }
  }

  /** The screen has a new size. */
  resize(size: Size): void {
    if (this.#isImposing || !isReal(size)) {
      return;
    }
    this.#size = { cols: size.cols, rows: size.rows };
    if (this.#told === undefined || !isSame(this.#told, this.#size)) {
      this.#tellSize();
    }
  }

  setView(view: View): void {
    if (view.visible !== this.#view.visible || view.focused !== this.#view.focused) {
      this.#view = view;
      this.#send({ type: "view", visible: view.visible, focused: view.focused });
    }
  }

  /** Signal the foreground program.  False when there is no connection. */
  interrupt(): boolean {
    return this.#send({ type: "interrupt" });
  }

  /** End the terminal and all that runs in it.  False when there is no connection. */
  terminate(): boolean {
    return this.#send({ type: "terminate" });
  }

  #tellSize(): void {
    if (isReal(this.#size) && this.#send({ type: "resize", ...this.#size })) {
      this.#told = this.#size;
    }
  }

  #send(message: ClientMessage): boolean {
    if (this.#attempt?.live === undefined) {
      return false;
    }
    this.#attempt.socket?.send(encodeMessage(message));
    return true;
  }

  #connect(): void {
    this.#environment.clearTimer(this.#retry?.timer);
    this.#retry = undefined;
    const attempt: Attempt = { cursor: this.#cursor, reader: new FrameReader() };
    this.#attempt = attempt;
    this.#expect(attempt, OPEN_SECONDS, "The server did not answer.");
    const fail = (cause: unknown): void => {
      if (this.#attempt === attempt) {
        this.#lose(
          attempt,
          "lost",
          new TerminalError("CONNECTION_FAILED", `No socket could be opened: ${cause}`, { cause }),
        );
      }
    };
    try {
      const url = this.#options.getUrl({
        ...this.#size,
        ...(attempt.cursor !== undefined
          ? { cursor: attempt.cursor } // with which nothing is ever started
          : this.#mayStart
            ? {}
            : { start: false }),
      });
      if (typeof url === "string") {
        this.#open(attempt, url);
      } else {
        url.then((awaited) => this.#open(attempt, awaited)).catch(fail);
      }
    } catch (error) {
      // Not at once: "connecting" is told first.
      Promise.reject(error).catch(fail);
    }
    this.#setState("connecting");
  }

  #open(attempt: Attempt, url: string): void {
    if (this.#attempt !== attempt) {
      return;
    }
    const socket = this.#environment.openSocket(url);
    attempt.socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      attempt.hasOpened = true;
      this.#expect(attempt, READY_SECONDS, "The server did not make the terminal ready.");
    };
    socket.onmessage = ({ data }) => this.#receive(attempt, data);
    socket.onclose = ({ code, reason }) => {
      this.#closed(attempt, code, reason);
      if (attempt.hasOpened !== true) {
        this.#askWhy(url);
      }
    };
  }

  /** A login that has ended does not come back by trying again: ask the server, and tell. */
  #askWhy(url: string): void {
    const retry = this.#retry;
    if (retry === undefined || this.#environment.askStatus === undefined) {
      return;
    }
    this.#environment.askStatus(url).then(
      (status) => {
        if (this.#retry === retry && (status === 401 || status === 403)) {
          this.#finish(
            new TerminalError(
              "AUTHENTICATION_REQUIRED",
              "Log in again, in another tab if you like, then reconnect: " +
                `the server does not accept the login of this page any more (${status}).`,
            ),
          );
        }
      },
      () => undefined,
    );
  }

  /** Give the attempt so long for its next step. */
  #expect(attempt: Attempt, seconds: number, complaint: string): void {
    this.#environment.clearTimer(attempt.timer);
    attempt.timer = this.#environment.setTimer(
      () =>
        this.#lose(
          attempt,
          "lost",
          attempt.error ?? new TerminalError("CONNECTION_FAILED", complaint),
        ),
      seconds,
    );
  }

  #receive(attempt: Attempt, frame: unknown): void {
    attempt.live?.liveness.heard();
    try {
      const event = attempt.reader.read(frame);
      if (event !== undefined) {
        this.#handle(attempt, event);
      }
    } catch (error) {
      if (!(error instanceof ProtocolError)) {
        throw error;
      }
      this.#lose(
        attempt,
        "refused",
        new TerminalError("PROTOCOL_ERROR", error.message, { cause: error }),
      );
    }
  }

  #handle(attempt: Attempt, event: ServerEvent): void {
    if (event.type === "ready") {
      this.#ready(attempt, event);
      return;
    }
    if (event.type === "error") {
      attempt.error = new TerminalError(event.code ?? "SERVER_ERROR", event.message);
      if (attempt.live !== undefined) {
        this.#options.onStateChange(this.#state, attempt.error);
      }
      return;
    }
    attempt.error = undefined; // it did not end the connection
    if (event.type === "exit") {
      this.#exit = event.exit;
      this.#finish(new TerminalExitedError(event.exit));
      return;
    }
    if (event.type === "pong") {
      return;
    }
    if (attempt.live === undefined) {
      throw new ProtocolError(`The server sent '${event.type}' before 'ready'.`);
    }
    const { acknowledgement } = attempt.live;
    switch (event.type) {
      case "replay":
        if (event.kind === "screen" || attempt.cursor === undefined) {
          this.#drawing.reset();
        }
        this.#draw(event, acknowledgement, true);
        break;
      case "screen":
        this.#drawing.reset();
        this.#draw(event, acknowledgement, true);
        break;
      case "chunk":
        this.#draw(event, acknowledgement, false);
        break;
      case "size":
        this.#impose(event);
        break;
      case "live": // what is muted is known write by write
      case "truncated": // a replay of the screen follows
        break;
    }
  }

  #ready(attempt: Attempt, event: Extract<ServerEvent, { type: "ready" }>): void {
    if (attempt.live !== undefined) {
      throw new ProtocolError("The server was ready twice.");
    }
    this.#environment.clearTimer(attempt.timer);
    this.#mayStart = false; // it is there; should it stop, nobody has asked for another one
    const every = Math.min(event.acknowledgeEvery, ACKNOWLEDGE_EVERY);
    attempt.live = {
      since: this.#environment.now(),
      acknowledgement: new Acknowledgement(every, this.#environment, (bytes) =>
        this.#send({ type: "ack", bytes }),
      ),
      liveness: new Liveness(this.#environment, {
        ping: () => this.#send({ type: "ping" }),
        onDead: () =>
          this.#lose(
            attempt,
            "lost",
            new TerminalError("CONNECTION_LOST", "The server stopped answering."),
          ),
      }),
    };
    this.#terminalId = event.terminalId ?? this.#terminalId;
    this.#tellSize();
    this.#send({ type: "view", ...this.#view });
    for (const frame of this.#queue.take()) {
      attempt.socket?.send(frame);
    }
    this.#setState("connected");
  }

  #draw(
    event: { readonly cursor: string; readonly data: Uint8Array },
    acknowledgement: Acknowledgement,
    isMuted: boolean,
  ): void {
    if (this.#drawing.waitingBytes + event.data.length > UNDRAWN_BYTES) {
      throw new ProtocolError("The server sent more than can be drawn.");
    }
    this.#drawing.draw(event.data, isMuted, (bytes) => acknowledgement.drawn(bytes));
    this.#cursor = event.cursor;
  }

  /** Take the size that another viewer decided, without asking for it ourselves. */
  #impose(size: Size): void {
    const { screen } = this.#options;
    this.#told = { cols: size.cols, rows: size.rows };
    if (!isSame(screen, this.#told)) {
      this.#isImposing = true;
      try {
        screen.resize(size.cols, size.rows);
      } finally {
        this.#isImposing = false;
      }
    }
    this.#options.onSizeImposed?.(this.#told);
  }

  #closed(attempt: Attempt, closeCode: number, reason: string): void {
    const verdict = judgeClose(closeCode, attempt.error?.code);
    if (verdict === "cursor refused") {
      this.#cursor = undefined;
    }
    const told = verdict === "lost" ? undefined : attempt.error;
    this.#lose(attempt, verdict, told ?? closeError(closeCode, reason));
  }

  #lose(attempt: Attempt, verdict: Verdict, error: TerminalError): void {
    if (attempt.live !== undefined) {
      this.#retries.connectedFor(this.#environment.now() - attempt.live.since);
    }
    this.#drop(attempt);
    const delay = this.#retries.next(verdict, this.#environment.random());
    if (delay === undefined || !this.#options.reconnect) {
      this.#finish(error);
      return;
    }
    this.#retry = {
      timer: this.#environment.setTimer(() => this.#connect(), delay),
      at: this.#environment.now() + delay,
    };
    this.#setState("reconnecting", error);
  }

  #finish(error?: Error): void {
    this.#environment.clearTimer(this.#retry?.timer);
    this.#retry = undefined;
    if (this.#attempt !== undefined) {
      this.#drop(this.#attempt);
    }
    this.#setState("disconnected", error);
  }

  /** Leave a socket behind, at once: closing one that is dead can take minutes. */
  #drop(attempt: Attempt): void {
    this.#attempt = undefined;
    this.#environment.clearTimer(attempt.timer);
    attempt.live?.acknowledgement.stop();
    attempt.live?.liveness.stop();
    const { socket } = attempt;
    if (socket !== undefined) {
      socket.onopen = null;
      socket.onmessage = null;
      socket.onclose = null;
      socket.close(1000);
    }
  }

  /** The last thing of each step: who is told may call `stop`. */
  #setState(state: ConnectionState, error?: Error): void {
    this.#state = state;
    this.#options.onStateChange(state, error);
  }
}

function isReal(size: Size): boolean {
  return size.cols > 0 && size.rows > 0;
}

function isSame(one: Size, other: Size): boolean {
  return one.cols === other.cols && one.rows === other.rows;
}

function closeError(closeCode: number, reason: string): TerminalError {
  const because = reason === "" ? "" : `: ${reason}`;
  return closeCode === 1008
    ? new TerminalError("TERMINAL_NOT_FOUND", `There is no such terminal any more${because}.`)
    : new TerminalError("CONNECTION_LOST", `The connection was lost (${closeCode})${because}.`);
}
