/** The addon on a terminal and a page that a test controls. */
import type { Terminal } from "@xterm/xterm";
import { afterEach, describe, expect, test, vi } from "vitest";
import {
  type ConnectionState,
  SandboxAddon,
  type SandboxAddonOptions,
  type WebSocketUrlParams,
} from "../src/index.js";
import { FakeEnvironment, FakeScreen } from "./support.js";

class FakeTextarea extends EventTarget {
  isActive = false;

  getRootNode(): { activeElement: unknown } {
    return { activeElement: this.isActive ? this : null };
  }
}

/** The members of xterm.js's Terminal that the addon uses. */
class FakeTerminal extends FakeScreen {
  readonly listeners: Record<string, ((value: never) => void)[]> = {};
  textarea: FakeTextarea | undefined;
  focusCalls = 0;

  #event(name: string) {
    return (listener: (value: never) => void) => {
      const all = this.listeners[name] ?? [];
      this.listeners[name] = all;
      all.push(listener);
      return { dispose: () => all.splice(all.indexOf(listener), 1) };
    };
  }

  emit(name: string, value: unknown): void {
    for (const listener of this.listeners[name] ?? []) {
      listener(value as never);
    }
  }

  onData = this.#event("data");
  onBinary = this.#event("binary");
  onRender = this.#event("render");
  onResize = this.#event("resize");
  override onResized = (size: { cols: number; rows: number }): void => this.emit("resize", size);

  focus(): void {
    this.focusCalls += 1;
  }
}

function makeAddon(options: Partial<SandboxAddonOptions> = {}, terminal = new FakeTerminal()) {
  const environment = new FakeEnvironment();
  const changes: [ConnectionState, string | undefined][] = [];
  const asked: WebSocketUrlParams[] = [];
  const addon = new SandboxAddon({
    environment,
    getWebSocketUrl: (params) => {
      asked.push(params);
      return `ws://host/connect?id=${params.sandboxId}`;
    },
    onStateChange: (state, error) => changes.push([state, error?.message]),
    ...options,
  });
  addon.activate(terminal as unknown as Terminal);
  return { addon, terminal, environment, changes, asked };
}

afterEach(() => {
  vi.unstubAllGlobals();
});

describe("connect", () => {
  test("before loadAddon says what is missing", () => {
    const addon = new SandboxAddon({ getWebSocketUrl: () => "ws://host/" });

    expect(() => addon.connect({ sandboxId: "s" })).toThrow(/loadAddon/);
    expect(addon.state).toBe("disconnected");
  });

  test("takes a session or a terminal and names it", () => {
    const { addon, environment, asked } = makeAddon();
    expect([addon.sandboxId, addon.sessionId, addon.terminalId]).toEqual(Array(3).fill(undefined));

    addon.connect({ sandboxId: "s", sessionId: "dev" });
    expect([addon.sandboxId, addon.sessionId]).toEqual(["s", "dev"]);
    environment.socket.ready({ terminalId: "t-1" });
    expect(addon.terminalId).toBe("t-1");
    addon.connect({ sandboxId: "s", terminalId: "t-2" });
    expect([addon.sessionId, addon.terminalId]).toEqual([undefined, "t-2"]);
    expect(asked).toEqual([
      { sandboxId: "s", sessionId: "dev", cols: 80, rows: 24, origin: "" },
      { sandboxId: "s", terminalId: "t-2", cols: 80, rows: 24, origin: "" },
    ]);
  });

  test("refuses a session and a terminal at once", () => {
    const { addon } = makeAddon();
    const both = { sandboxId: "s", sessionId: "a", terminalId: "b" } as never;

    expect(() => addon.connect(both)).toThrow(TypeError);
  });

  test("to the same target does nothing while it is connected, and tries at once while it waits", () => {
    const { addon, environment, changes } = makeAddon();
    addon.connect({ sandboxId: "s" });
    addon.connect({ sandboxId: "s" });
    environment.socket.ready();
    addon.connect({ sandboxId: "s", sessionId: undefined });
    expect(environment.sockets).toHaveLength(1);

    environment.socket.serverCloses(1006);
    expect(addon.retryIn).toBe(0.5);
    addon.connect({ sandboxId: "s" });
    expect(environment.sockets).toHaveLength(2);
    expect(changes.map(([state]) => state)).toEqual([
      "connecting",
      "connected",
      "reconnecting",
      "connecting",
    ]);
  });

  test("to a new target disconnects the old one and takes its screen away", () => {
    const { addon, environment, terminal, changes } = makeAddon();
    addon.connect({ sandboxId: "one" });
    const first = environment.socket;
    first.ready();
    first.replay("screen", "c1", "secret of one");
    addon.connect({ sandboxId: "two" });
    terminal.draw();

    expect(first.closedWith).toBe(1000);
    expect(terminal.text.endsWith("\x1bc")).toBe(true);
    expect(changes.map(([state]) => state)).toEqual([
      "connecting",
      "connected",
      "disconnected",
      "connecting",
    ]);
    environment.socket.ready();
    terminal.emit("data", "x");
    expect([first.input, environment.socket.input]).toEqual(["", "x"]);
  });

  test("again after the end begins anew, without the old cursor", () => {
    const { addon, environment, asked } = makeAddon();
    addon.connect({ sandboxId: "s" });
    environment.socket.ready();
    environment.socket.replay("screen", "c1", "");
    environment.socket.text({ type: "exit", cursor: "c2", exit: { code: 0, timedOut: false } });
    expect(addon.exit).toEqual({ code: 0, timedOut: false });

    addon.connect({ sandboxId: "s" });

    expect(environment.sockets).toHaveLength(2);
    expect(asked.at(-1)).not.toHaveProperty("cursor");
    expect(addon.exit).toBeUndefined();
  });

  test("starts a sandbox when asked, and never by itself", () => {
    const { addon, environment, asked } = makeAddon();
    const search = () => new URL(environment.socket.url).searchParams.get("start");
    addon.connect({ sandboxId: "s" });
    environment.socket.serverCloses(1006);
    environment.advance(1);
    expect(search()).toBeNull(); // it was asked for, and has not come yet

    environment.socket.ready();
    environment.socket.serverCloses(1006);
    environment.advance(2);
    expect(search()).toBe("0"); // without a cursor that would say so
    expect(asked.at(-1)?.start).toBe(false);

    addon.disconnect();
    addon.connect({ sandboxId: "s" }, { start: false });
    expect(search()).toBe("0");
    addon.disconnect();
    addon.connect({ sandboxId: "s" });
    expect(search()).toBeNull();
  });

  test("tells while it draws what was output before", () => {
    const { addon, environment, terminal } = makeAddon();
    expect(addon.isReplaying).toBe(false);
    addon.connect({ sandboxId: "s" });
    environment.socket.ready();
    environment.socket.replay("screen", "c1", "old");
    environment.socket.chunk("c2", "new");
    expect(addon.isReplaying).toBe(true);
    terminal.draw();

    expect(addon.isReplaying).toBe(false);
  });

  test("does not take the focus", () => {
    const { addon, environment, terminal } = makeAddon();
    addon.connect({ sandboxId: "s" });
    environment.socket.ready();

    expect(terminal.focusCalls).toBe(0);
  });
});

describe("disconnect", () => {
  test("ends the connection and all attempts", () => {
    const { addon, environment } = makeAddon();
    addon.disconnect();
    addon.connect({ sandboxId: "s" });
    environment.socket.serverCloses(1006);
    addon.disconnect();
    environment.advance(3600);

    expect(addon.state).toBe("disconnected");
    expect(environment.sockets).toHaveLength(1);
  });

  test("comes with dispose, which takes every listener away", () => {
    const page = new EventTarget();
    vi.stubGlobal("window", page);
    const removed = vi.spyOn(page, "removeEventListener");
    const { addon, environment, terminal } = makeAddon();
    addon.connect({ sandboxId: "s" });
    addon.dispose();
    addon.dispose();

    expect(environment.socket.closedWith).toBe(1000);
    expect(Object.values(terminal.listeners).flat()).toEqual([]);
    expect(removed).toHaveBeenCalledOnce();
    expect(environment.timerCount).toBe(0);
    expect(() => addon.connect({ sandboxId: "s" })).toThrow(/loadAddon/);
  });
});

describe("the address", () => {
  test("gets what the protocol needs, and keeps what the page says", () => {
    const { addon, environment } = makeAddon({
      getWebSocketUrl: ({ cols }) => new URL(`ws://host/t?cols=${cols + 1}&token=a%26b`),
    });
    addon.connect({ sandboxId: "s" });
    environment.socket.ready();
    environment.socket.replay("screen", "c/1+", "");
    environment.socket.serverCloses(1006);
    environment.advance(1);

    expect(environment.sockets.map(({ url }) => url)).toEqual([
      "ws://host/t?cols=81&token=a%26b&ack=1&rows=24",
      "ws://host/t?cols=81&token=a%26b&ack=1&rows=24&cursor=c%2F1%2B",
    ]);
  });

  test("does not name a size of zero", () => {
    const terminal = new FakeTerminal();
    terminal.cols = terminal.rows = 0;
    const { addon, environment } = makeAddon({}, terminal);
    addon.connect({ sandboxId: "s" });

    expect(environment.socket.url).toBe("ws://host/connect?id=s&ack=1");
  });

  test("may be a promise", async () => {
    const { addon, environment } = makeAddon({
      getWebSocketUrl: () => Promise.resolve("ws://host/ticket"),
    });
    addon.connect({ sandboxId: "s" });
    await vi.waitFor(() => expect(environment.sockets).toHaveLength(1));

    expect(environment.socket.url).toContain("ws://host/ticket?ack=1");
  });

  test.each([
    ["https://example.com/user/a/lab", "wss://example.com"],
    ["http://localhost:8888/lab", "ws://localhost:8888"],
  ])("of a page at %s starts with %s", (page, origin) => {
    vi.stubGlobal("location", new URL(page));
    const { addon, asked } = makeAddon();
    addon.connect({ sandboxId: "s" });

    expect(asked[0]?.origin).toBe(origin);
  });
});

describe("the terminal", () => {
  test("sends typed text as UTF-8 and binary reports as bytes", () => {
    const { addon, environment, terminal } = makeAddon();
    addon.connect({ sandboxId: "s" });
    environment.socket.ready();
    terminal.emit("data", "é");
    terminal.emit("binary", "\x1b[M \xff!");

    expect(environment.socket.frames.slice(-2)).toEqual([
      Uint8Array.of(0xc3, 0xa9),
      Uint8Array.of(0x1b, 0x5b, 0x4d, 0x20, 0xff, 0x21),
    ]);
  });

  test("tells its size, and takes that of another viewer", () => {
    const onSizeImposed = vi.fn();
    const { addon, environment, terminal } = makeAddon({ onSizeImposed });
    addon.connect({ sandboxId: "s" });
    environment.socket.ready();
    terminal.resize(90, 30);
    environment.socket.text({ type: "size", cols: 132, rows: 43 });

    expect(environment.socket.messages("resize")).toEqual([
      { type: "resize", cols: 80, rows: 24 },
      { type: "resize", cols: 90, rows: 30 },
    ]);
    expect(onSizeImposed).toHaveBeenCalledExactlyOnceWith({ cols: 132, rows: 43 });
    expect([terminal.cols, terminal.rows]).toEqual([132, 43]);
  });

  test("tells who looks at it", () => {
    const terminal = new FakeTerminal();
    terminal.textarea = new FakeTextarea();
    const { addon, environment } = makeAddon({}, terminal);
    addon.connect({ sandboxId: "s" });
    environment.socket.ready();
    terminal.textarea.dispatchEvent(new Event("focus"));
    addon.setVisible(false);
    terminal.textarea.dispatchEvent(new Event("blur"));

    expect(environment.socket.messages("view")).toEqual([
      { type: "view", visible: true, focused: false },
      { type: "view", visible: true, focused: true },
      { type: "view", visible: false, focused: true },
      { type: "view", visible: false, focused: false },
    ]);
  });

  test("may be opened after the addon is loaded and connected", () => {
    const { addon, environment, terminal } = makeAddon();
    addon.connect({ sandboxId: "s" });
    environment.socket.ready();
    terminal.textarea = new FakeTextarea();
    terminal.textarea.isActive = true;
    terminal.emit("render", { start: 0, end: 23 });
    terminal.emit("render", { start: 0, end: 23 });

    expect(environment.socket.messages("view").slice(1)).toEqual([
      { type: "view", visible: true, focused: true },
    ]);
  });

  test("can be interrupted and terminated while connected", () => {
    const { addon, environment } = makeAddon();
    expect([addon.interrupt(), addon.terminate()]).toEqual([false, false]);
    addon.connect({ sandboxId: "s" });
    environment.socket.ready();

    expect([addon.interrupt(), addon.terminate()]).toEqual([true, true]);
    expect(environment.socket.sent.slice(-2)).toEqual([
      { type: "interrupt" },
      { type: "terminate" },
    ]);
  });
});

describe("the page", () => {
  test("that comes online or into view tries at once", () => {
    const page = new EventTarget();
    const document = Object.assign(new EventTarget(), { visibilityState: "hidden" });
    vi.stubGlobal("window", page);
    vi.stubGlobal("document", document);
    const { addon, environment } = makeAddon();
    addon.connect({ sandboxId: "s" });
    environment.socket.ready();
    environment.socket.serverCloses(1006);
    page.dispatchEvent(new Event("online"));
    expect(environment.sockets).toHaveLength(2);

    environment.socket.serverCloses(1006);
    document.dispatchEvent(new Event("visibilitychange"));
    expect(environment.sockets).toHaveLength(2);
    document.visibilityState = "visible";
    document.dispatchEvent(new Event("visibilitychange"));
    expect(environment.sockets).toHaveLength(3);
  });

  test("that is hidden hides the terminal in it", () => {
    const document = Object.assign(new EventTarget(), { visibilityState: "hidden" });
    vi.stubGlobal("document", document);
    const { addon, environment } = makeAddon();
    addon.connect({ sandboxId: "s" });
    environment.socket.ready();
    document.visibilityState = "visible";
    document.dispatchEvent(new Event("visibilitychange"));
    addon.setVisible(false);

    expect(environment.socket.messages("view").map(({ visible }) => visible)).toEqual([
      false,
      true,
      false,
    ]);
  });

  test("has sockets, timers, a clock and chance of its own", async () => {
    const opened: string[] = [];
    vi.stubGlobal(
      "WebSocket",
      class {
        constructor(url: string) {
          opened.push(url);
        }
        close(): void {}
      },
    );
    const addon = new SandboxAddon({ getWebSocketUrl: () => "ws://host/" });
    addon.activate(new FakeTerminal() as unknown as Terminal);
    addon.connect({ sandboxId: "s" });
    addon.disconnect();

    expect(opened).toEqual(["ws://host/?ack=1&cols=80&rows=24"]);
    expect(addon.state).toBe("disconnected");
  });
});
