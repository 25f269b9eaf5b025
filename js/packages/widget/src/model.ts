/**
 * What we use of an anywidget model: the half of the widget that lives in the kernel.
 */

export type Message = Record<string, unknown>;
export type MessageListener = (message: Message, buffers: readonly DataView[]) => void;

export interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  /** Send what was set to the kernel; it goes into a saved notebook, too. */
  save_changes(): void;
  on(event: "msg:custom", listener: MessageListener): void;
  off(event: "msg:custom", listener: MessageListener): void;
  /** A custom message; answers come as "msg:custom" events. */
  send(message: Message, callbacks?: unknown, buffers?: ArrayBuffer[] | ArrayBufferView[]): void;
}

/** Through what a terminal's bytes come to the page. */
export type Carrier = "server" | "kernel";

/** What the kernel's side of the widget has set. */
export interface Settings {
  readonly sandboxId: string;
  readonly sessionId: string | undefined;
  readonly terminalId: string | undefined;
  readonly carrier: Carrier | "auto";
  readonly rows: number;
  /** Pixels; 0 for the size of the page's code. */
  readonly fontSize: number;
  readonly screenReader: boolean;
  readonly graphemes: boolean;
  readonly clipboardWrite: boolean;
}

export function settingsOf(model: Model): Settings {
  const carrier = model.get("carrier");
  return {
    sandboxId: String(model.get("sandbox_id")),
    sessionId: textOf(model.get("session_id")),
    terminalId: textOf(model.get("terminal_id")),
    carrier: carrier === "server" || carrier === "kernel" ? carrier : "auto",
    rows: Number(model.get("rows")) || 24,
    fontSize: Number(model.get("font_size")) || 0,
    screenReader: model.get("screen_reader") === true,
    graphemes: model.get("graphemes") !== false,
    clipboardWrite: model.get("clipboard_write") === true,
  };
}

/** Whether the widget was at its terminal before, so that this page only brings it back. */
export function wasShown(model: Model): boolean {
  return model.get("_shown") === true;
}

/** Remember, for the next page, that the widget has been at its terminal. */
export function rememberShown(model: Model): void {
  if (!wasShown(model)) {
    model.set("_shown", true);
    try {
      model.save_changes();
    } catch {
      // The kernel has gone; the page still knows.
    }
  }
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}
