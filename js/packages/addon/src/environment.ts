/**
 * What the connection needs from the page: sockets, timers, time and chance.
 *
 * Everything else in this package but `addon.ts` is pure; a test passes another environment.
 */

/** The part of a WebSocket that is used. */
export interface Socket {
  binaryType: string;
  onopen: (() => void) | null;
  onmessage: ((event: { readonly data: unknown }) => void) | null;
  onclose: ((event: { readonly code: number; readonly reason: string }) => void) | null;
  onerror: (() => void) | null;
  send(data: string | Uint8Array<ArrayBuffer>): void;
  close(code?: number): void;
}

export interface Timers {
  /** Call back once, after `seconds`. */
  setTimer(callback: () => void, seconds: number): unknown;
  clearTimer(timer: unknown): void;
}

export interface Environment extends Timers {
  openSocket(url: string): Socket;
  /**
   * The HTTP status that the address of a socket which did not open answers with; undefined when
   * that cannot be found out.  Optional: without it a lost login looks like a lost network.
   */
  askStatus?(url: string): Promise<number | undefined>;
  /** Seconds of a clock that never goes back. */
  now(): number;
  /** 0 <= random < 1. */
  random(): number;
}

/** The environment of a browser's page.  Spread it to replace a part, such as `openSocket`. */
export function pageEnvironment(): Environment {
  return {
    openSocket: (url) => new WebSocket(url) as unknown as Socket,
    askStatus,
    setTimer: (callback, seconds) => setTimeout(callback, seconds * 1000),
    clearTimer: (timer) => clearTimeout(timer as Parameters<typeof clearTimeout>[0]),
    now: () => performance.now() / 1000,
    random: () => Math.random(),
  };
}

/** A page is not told why a handshake failed, but a plain request to the same address is answered. */
async function askStatus(url: string): Promise<number | undefined> {
  try {
    const address = new URL(url);
    address.protocol = address.protocol.replace("ws", "http");
    const answer = await fetch(address, { redirect: "manual", cache: "no-store" });
    await answer.body?.cancel();
    // What leads elsewhere leads to a page to log in on.
    return answer.type === "opaqueredirect" ? 401 : answer.status;
  } catch {
    return undefined;
  }
}
