/**
 * `SandboxAddon`: connects an xterm.js terminal to a terminal of a sandbox.
 *
 * The only module that touches xterm.js and the page.
 */

import type { IDisposable, ITerminalAddon, Terminal } from "@xterm/xterm";
import { type ConnectionState, type Size, TerminalConnection, type View } from "./connection.js";
import { Drawing } from "./drawing.js";
import { type Environment, pageEnvironment } from "./environment.js";
import type { TerminalExit } from "./protocol.js";

/** Which terminal: the one of a session (the default session without an id), or one by its own id. */
export type ConnectionTarget =
  | { sandboxId: string; sessionId?: string | undefined; terminalId?: never }
  | { sandboxId: string; terminalId: string; sessionId?: never };

/** What `getWebSocketUrl` gets to build the address of one attempt. */
export interface WebSocketUrlParams {
  sandboxId: string;
  sessionId?: string;
  terminalId?: string;
  /** Position reached so far; only on automatic reconnects. */
  cursor?: string;
  /** Present when nobody has asked for the sandbox to be started, so that it must not be. */
  start?: false;
  cols: number;
  rows: number;
  /** WebSocket origin of the page, such as `wss://example.com`. */
  origin: string;
}

export interface SandboxAddonOptions {
  /**
   * Builds the address of each attempt.  May be asynchronous, to fetch a ticket.
   *
   * The addon adds `ack=1`, and `cursor`, `start=0`, `cols` and `rows` where the address has none.
   */
  getWebSocketUrl: (params: WebSocketUrlParams) => string | URL | Promise<string | URL>;
  /** Whether a lost connection is tried again by itself.  Default true. */
  reconnect?: boolean;
  /**
   * Called at each change of state, and with the state unchanged for an error that the connection
   * survives.  The end of the terminal's program is "disconnected" with a `TerminalExitedError`.
   */
  onStateChange?: (state: ConnectionState, error?: Error) => void;
  /** Called when the terminal took the size of another viewer, or its own again. */
  onSizeImposed?: (size: Size) => void;
  /** For tests and foreign pages: sockets, timers, clock and chance. */
  environment?: Environment;
}

export interface ConnectOptions {
  /**
   * Whether a sandbox that has stopped is started for this.  Default true.
   *
   * False is for a page that brings back by itself what it showed before: people who load a page
   * again have not asked for a program to be started.
   */
  start?: boolean;
}

/** What the connection adds to an address. */
type Position = Size & { cursor?: string; start?: false };

export class SandboxAddon implements ITerminalAddon {
  readonly #options: SandboxAddonOptions;
  readonly #environment: Environment;
  readonly #disposables: IDisposable[] = [];
  #terminal: Terminal | undefined;
  #drawing: Drawing | undefined;
  #connection: TerminalConnection | undefined;
  #target: ConnectionTarget | undefined;
  #textarea: HTMLTextAreaElement | undefined;
  #isShown = true;
  #isFocused = false;

  constructor(options: SandboxAddonOptions) {
    this.#options = options;
    this.#environment = options.environment ?? pageEnvironment();
  }

  /** Called by `terminal.loadAddon`. */
  activate(terminal: Terminal): void {
    this.#terminal = terminal;
    this.#drawing = new Drawing(terminal);
    this.#disposables.push(
      terminal.onData((data) => this.#connection?.input(data)),
      terminal.onBinary((data) => this.#connection?.input(bytesOf(data))),
      terminal.onResize((size) => this.#connection?.resize(size)),
      // open() may come at any time after loadAddon(); there is no event for it but the first frame.
      terminal.onRender(() => this.#trackFocus()),
    );
    this.#trackFocus();
    this.#watchPage();
  }

  /** Called when the terminal is disposed.  Ends the connection. */
  dispose(): void {
    this.#connection?.stop();
    for (const disposable of this.#disposables.splice(0)) {
      disposable.dispose();
    }
    this.#terminal = undefined;
  }

  get state(): ConnectionState {
    return this.#connection?.state ?? "disconnected";
  }

  get sandboxId(): string | undefined {
    return this.#target?.sandboxId;
  }

  get sessionId(): string | undefined {
    return this.#target?.sessionId;
  }

  /** As given to `connect`, or as the server named the session's terminal. */
  get terminalId(): string | undefined {
    return this.#target?.terminalId ?? this.#connection?.terminalId;
  }

  /** How the terminal's program ended, once it has. */
  get exit(): TerminalExit | undefined {
    return this.#connection?.exit;
  }

  /** Whether what is being drawn was output before: what it asks for was asked for then. */
  get isReplaying(): boolean {
    return this.#drawing?.isMuted ?? false;
  }

  /** Seconds until the next attempt, while the state is "reconnecting". */
  get retryIn(): number | undefined {
    return this.#connection?.retryIn;
  }

  /**
   * Connect, and stay connected.
   *
   * The same target again does nothing while it is connected (and tries at once while it waits); a
   * new one disconnects the old one.  What is typed from now on is sent when the terminal is ready.
   */
  connect(target: ConnectionTarget, { start = true }: ConnectOptions = {}): void {
    if (this.#terminal === undefined || this.#drawing === undefined) {
      throw new Error("connect() needs a terminal: call terminal.loadAddon(addon) first.");
    }
    if (target.sessionId !== undefined && target.terminalId !== undefined) {
      throw new TypeError("connect() takes a sessionId or a terminalId, not both.");
    }
    const isSame = this.#target !== undefined && isSameTarget(this.#target, target);
    if (isSame && this.state !== "disconnected") {
      this.#connection?.nudge();
      return;
    }
    this.#connection?.stop();
    if (this.#target !== undefined && !isSame) {
      this.#drawing.reset(); // the old terminal's screen is not to be taken for the new one's
    }
    this.#target = { ...target };
    this.#trackFocus();
    const connection = new TerminalConnection({
      environment: this.#environment,
      screen: this.#terminal,
      drawing: this.#drawing,
      reconnect: this.#options.reconnect ?? true,
      start,
      view: this.#view(),
      getUrl: (position) => this.#getUrl(target, position),
      onStateChange: (state, error) => {
        if (this.#connection === connection) {
          this.#options.onStateChange?.(state, error);
        }
      },
      onSizeImposed: (size) => this.#options.onSizeImposed?.(size),
    });
    this.#connection = connection;
    connection.start();
  }

  /** Close the connection and try no more.  The terminal runs on. */
  disconnect(): void {
    this.#connection?.stop();
  }

  /** Signal the foreground program, as Ctrl-C does.  False when not connected. */
  interrupt(): boolean {
    return this.#connection?.interrupt() ?? false;
  }

  /** End the terminal and all that runs in it.  False when not connected. */
  terminate(): boolean {
    return this.#connection?.terminate() ?? false;
  }

  /**
   * Whether the terminal's place in the page is in view; whether the page itself is, is known.
   *
   * Hidden viewers have no say in the terminal's size, nor do they slow it down.
   */
  setVisible(visible: boolean): void {
    this.#isShown = visible;
    this.#connection?.setView(this.#view());
  }

  #setFocused(isFocused: boolean): void {
    this.#isFocused = isFocused;
    this.#connection?.setView(this.#view());
  }

  #view(): View {
    const isPageHidden = pageDocument()?.visibilityState === "hidden";
    return { visible: this.#isShown && !isPageHidden, focused: this.#isFocused };
  }

  #getUrl(target: ConnectionTarget, position: Position): string | Promise<string> {
    const complete = (url: string | URL): string => completeUrl(url, position);
    const url = this.#options.getWebSocketUrl({
      sandboxId: target.sandboxId,
      ...(target.sessionId === undefined ? {} : { sessionId: target.sessionId }),
      ...(target.terminalId === undefined ? {} : { terminalId: target.terminalId }),
      ...position,
      origin: pageOrigin(),
    });
    return typeof url === "string" || url instanceof URL ? complete(url) : url.then(complete);
  }

  #trackFocus(): void {
    const textarea = this.#terminal?.textarea;
    if (textarea === undefined || textarea === this.#textarea) {
      return;
    }
    this.#textarea = textarea;
    this.#listen(textarea, "focus", () => this.#setFocused(true));
    this.#listen(textarea, "blur", () => this.#setFocused(false));
    const root = textarea.getRootNode() as Document | ShadowRoot;
    this.#setFocused(root.activeElement === textarea);
  }

  /** After sleep or a change of network: see at once how the connection is. */
  #watchPage(): void {
    const window = globalThis.window as Window | undefined;
    if (window !== undefined) {
      this.#listen(window, "online", () => this.#connection?.nudge());
    }
    const document = pageDocument();
    if (document !== undefined) {
      this.#listen(document, "visibilitychange", () => {
        this.#connection?.setView(this.#view());
        if (document.visibilityState === "visible") {
          this.#connection?.nudge();
        }
      });
    }
  }

  #listen(target: EventTarget, type: string, listener: () => void): void {
    target.addEventListener(type, listener);
    this.#disposables.push({ dispose: () => target.removeEventListener(type, listener) });
  }
}

function isSameTarget(one: ConnectionTarget, other: ConnectionTarget): boolean {
  return (
    one.sandboxId === other.sandboxId &&
    one.sessionId === other.sessionId &&
    one.terminalId === other.terminalId
  );
}

/** Add what the protocol needs, where the address does not say it. */
function completeUrl(url: string | URL, position: Position): string {
  const complete = new URL(url, globalThis.location?.href);
  const query = complete.searchParams;
  query.set("ack", "1");
  for (const [name, value] of Object.entries(position)) {
    if (!query.has(name) && value !== 0) {
      query.set(name, value === false ? "0" : String(value));
    }
  }
  return complete.href;
}

function pageDocument(): Document | undefined {
  return globalThis.document as Document | undefined;
}

function pageOrigin(): string {
  const location = globalThis.location as Location | undefined;
  return location === undefined
    ? ""
    : `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}`;
}

/** xterm.js's binary strings: one byte per character. */
function bytesOf(binary: string): Uint8Array {
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}
