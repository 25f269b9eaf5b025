/**
 * The acknowledged terminal protocol (`ack=1`): WebSocket frames to events, and messages to frames.
 *
 * Pure: no socket, no clock, no terminal. What comes from the server is checked here, once; the
 * rest of the addon trusts the events.
 */

/** No more than this many bytes are drawn and not acknowledged. */
export const ACKNOWLEDGE_EVERY = 64 * 1024;

/** Input is cut into frames of at most this many bytes, which every server and proxy lets through. */
export const INPUT_FRAME_BYTES = 64 * 1024;

const MAX_TEXT_LENGTH = 64 * 1024;
// A replay holds at most a terminal's whole log, which is 16 MiB and a little more at the most.
const MAX_BINARY_BYTES = 20 * 1024 * 1024;
const MAX_CURSOR_LENGTH = 4096;
const MAX_DIMENSION = 65535;

/** How a terminal's program ended. */
export interface TerminalExit {
  /** Exit code; null when only the signal is known. */
  readonly code: number | null;
  /** Number of the signal that ended it. */
  readonly signal?: number;
  readonly timedOut: boolean;
}

/** What the server says, as far as this addon understands it. */
export type ServerEvent =
  | {
      readonly type: "ready";
      readonly cursor?: string;
      readonly terminalId?: string;
      readonly cols: number;
      readonly rows: number;
      readonly acknowledgeEvery: number;
    }
  | {
      readonly type: "replay";
      readonly kind: "exact" | "screen";
      readonly cursor: string;
      readonly data: Uint8Array;
    }
  | { readonly type: "live" }
  | { readonly type: "chunk"; readonly cursor: string; readonly data: Uint8Array }
  | { readonly type: "screen"; readonly cursor: string; readonly data: Uint8Array }
  | { readonly type: "size"; readonly cols: number; readonly rows: number }
  | { readonly type: "truncated"; readonly cursor?: string }
  | { readonly type: "exit"; readonly cursor?: string; readonly exit: TerminalExit }
  | { readonly type: "error"; readonly message: string; readonly code?: string }
  | { readonly type: "pong" };

/** What the addon says. */
export type ClientMessage =
  | { readonly type: "ack"; readonly bytes: number }
  | { readonly type: "resize"; readonly cols: number; readonly rows: number }
  | { readonly type: "view"; readonly visible: boolean; readonly focused: boolean }
  | { readonly type: "interrupt" }
  | { readonly type: "terminate" }
  | { readonly type: "ping" };

/** The server broke the protocol: nothing after this frame can be trusted. */
export class ProtocolError extends Error {
  override readonly name = "ProtocolError";
}

/** An event whose bytes come in the binary frame that follows its announcement. */
type Announced = Extract<ServerEvent, { data: Uint8Array }>;
type Announcement = Announced extends infer Each
  ? Each extends Announced
    ? { readonly event: Omit<Each, "data">; readonly byteLength: number }
    : never
  : never;

/**
 * Reads the frames of one connection, in order.
 *
 * `read` gives the event that a frame completes, or undefined: an announcement waits for its
 * bytes, and a type this version does not know is passed over.
 */
export class FrameReader {
  #announced: Announcement | undefined;

  read(frame: unknown): ServerEvent | undefined {
    if (typeof frame === "string") {
      return this.#readText(frame);
    }
    if (frame instanceof ArrayBuffer) {
      return this.#readBinary(new Uint8Array(frame));
    }
    throw new ProtocolError("The server sent a frame that is neither text nor an ArrayBuffer.");
  }

  #readText(text: string): ServerEvent | undefined {
    if (this.#announced !== undefined) {
      throw new ProtocolError(
        `The server sent text where the bytes of '${this.#announced.event.type}' must follow.`,
      );
    }
    const parsed = parseMessage(text);
    if (parsed !== undefined && "byteLength" in parsed) {
      this.#announced = parsed;
      return undefined;
    }
    return parsed;
  }

  #readBinary(data: Uint8Array): ServerEvent {
    const announced = this.#announced;
    if (announced === undefined) {
      throw new ProtocolError(`The server sent ${data.length} bytes that it had not announced.`);
    }
    if (data.length !== announced.byteLength) {
      throw new ProtocolError(
        `The server announced ${announced.byteLength} bytes and sent ${data.length}.`,
      );
    }
    this.#announced = undefined;
    return { ...announced.event, data } as Announced;
  }
}

/** The text frame of a message. */
export function encodeMessage(message: ClientMessage): string {
  return JSON.stringify(message);
}

/** The binary frames of input: UTF-8 of a text, or bytes as they are. */
export function encodeInput(input: string | Uint8Array): Uint8Array<ArrayBuffer>[] {
  const bytes = typeof input === "string" ? new TextEncoder().encode(input) : input;
  const frames: Uint8Array<ArrayBuffer>[] = [];
  for (let start = 0; start < bytes.length; start += INPUT_FRAME_BYTES) {
    frames.push(bytes.slice(start, start + INPUT_FRAME_BYTES));
  }
  return frames;
}

function parseMessage(text: string): ServerEvent | Announcement | undefined {
  const fields = new Fields(text);
  const type = fields.type;
  switch (type) {
    case "ready":
      return {
        type,
        ...fields.cursorIfAny(),
        ...fields.textIfAny("terminalId"),
        cols: fields.dimension("cols"),
        rows: fields.dimension("rows"),
        acknowledgeEvery: fields.integer("acknowledgeEvery", 1, MAX_BINARY_BYTES),
      };
    case "replay":
      return {
        event: { type, kind: fields.kind(), cursor: fields.cursor() },
        byteLength: fields.byteLength(),
      };
    case "chunk":
      return { event: { type, cursor: fields.cursor() }, byteLength: fields.byteLength() };
    case "screen":
      return { event: { type, cursor: fields.cursor() }, byteLength: fields.byteLength() };
    case "size":
      return { type, cols: fields.dimension("cols"), rows: fields.dimension("rows") };
    case "truncated":
      return { type, ...fields.cursorIfAny() };
    case "exit":
      return { type, ...fields.cursorIfAny(), exit: fields.exit() };
    case "error":
      return { type, message: fields.text("message"), ...fields.textIfAny("code") };
    case "live":
    case "pong":
      return { type };
    default:
      return undefined;
  }
}

/** The checked fields of one message. */
class Fields {
  readonly type: string;
  readonly #values: Record<string, unknown>;

  constructor(text: string) {
    if (text.length > MAX_TEXT_LENGTH) {
      throw new ProtocolError(`The server sent a message of ${text.length} characters.`);
    }
    let parsed: unknown;
    try {
      parsed = JSON.parse(text);
    } catch {
      throw new ProtocolError("The server sent a message that is not JSON.");
    }
    this.#values = asObject(parsed, "a message");
    this.type = this.text("type");
  }

  text(name: string): string {
    const value = this.#values[name];
    if (typeof value !== "string") {
      throw new ProtocolError(`The server sent a message without the text '${name}'.`);
    }
    return value;
  }

  textIfAny<Name extends string>(name: Name): { [Key in Name]?: string } {
    const value = this.#values[name];
    return isAbsent(value) ? {} : ({ [name]: this.text(name) } as { [Key in Name]?: string });
  }

  cursor(): string {
    const cursor = this.text("cursor");
    if (cursor === "" || cursor.length > MAX_CURSOR_LENGTH) {
      throw new ProtocolError(`The server sent a cursor of ${cursor.length} characters.`);
    }
    return cursor;
  }

  cursorIfAny(): { cursor?: string } {
    return isAbsent(this.#values["cursor"]) ? {} : { cursor: this.cursor() };
  }

  kind(): "exact" | "screen" {
    const kind = this.text("kind");
    if (kind !== "exact" && kind !== "screen") {
      throw new ProtocolError("The server sent a replay of an unknown kind.");
    }
    return kind;
  }

  dimension(name: string): number {
    return this.integer(name, 1, MAX_DIMENSION);
  }

  byteLength(): number {
    return this.integer("byteLength", 0, MAX_BINARY_BYTES);
  }

  integer(name: string, lowest: number, highest: number): number {
    return asInteger(this.#values[name], name, lowest, highest);
  }

  exit(): TerminalExit {
    const exit = asObject(this.#values["exit"], "an exit");
    const code = exit["code"];
    const signal = exit["signal"];
    return {
      code: isAbsent(code) ? null : asInteger(code, "code", -255, 255),
      ...(isAbsent(signal) ? {} : { signal: asInteger(signal, "signal", 1, 255) }),
      timedOut: exit["timedOut"] === true,
    };
  }
}

function isAbsent(value: unknown): value is undefined | null {
  return value === undefined || value === null;
}

function asObject(value: unknown, what: string): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new ProtocolError(`The server sent ${what} that is not an object.`);
  }
  return value as Record<string, unknown>;
}

function asInteger(value: unknown, name: string, lowest: number, highest: number): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < lowest || value > highest) {
    throw new ProtocolError(`The server sent no integer '${name}' from ${lowest} to ${highest}.`);
  }
  return value;
}
