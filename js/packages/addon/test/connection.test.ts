/** The connection's rules, each with what the published addons do wrong where they do. */
import { describe, expect, test, vi } from "vitest";
import { OPEN_SECONDS, READY_SECONDS } from "../src/connection.js";
import { TerminalExitedError } from "../src/errors.js";
import { QUEUE_BYTES } from "../src/input.js";
import { MAX_ATTEMPTS } from "../src/retry.js";
import { Scene } from "./support.js";

const EXIT = { type: "exit", cursor: "c9", exit: { code: 3, timedOut: false } };

describe("a login that has ended", () => {
  test.each([401, 403])("is told and not tried again (%i)", async (status) => {
    const scene = new Scene();
    scene.connect().serverCloses(1006);
    scene.retry();
    scene.environment.status = status;
    scene.socket.serverCloses(1006);
    await Promise.resolve();
    await Promise.resolve();

    expect(scene.changes.at(-1)).toEqual({
      state: "disconnected",
      code: "AUTHENTICATION_REQUIRED",
    });
    expect(scene.environment.asked).toEqual([scene.socket.url]);
    expect(scene.environment.timerCount).toBe(0);
  });

  test.each([undefined, 400, 404, 502])("is nothing else (%s)", async (status) => {
    const scene = new Scene();
    scene.environment.status = status;
    scene.connect().serverCloses(1006);
    scene.retry().serverCloses(1006);
    await Promise.resolve();
    await Promise.resolve();

    expect(scene.connection.state).toBe("reconnecting");
  });

  test("is not asked for when the socket had opened", () => {
    const scene = new Scene();
    scene.environment.status = 403;
    scene.connect().serverCloses(1006);

    expect(scene.environment.asked).toEqual([]);
  });

  test("an answer that comes after the next attempt has begun does not end that", async () => {
    const scene = new Scene();
    scene.environment.status = 403;
    scene.connect().serverCloses(1006);
    scene.retry().serverCloses(1006);
    scene.retry();
    await Promise.resolve();
    await Promise.resolve();

    expect(scene.connection.state).toBe("connecting");
  });
});

describe("states", () => {
  test("a connection is connected once the terminal is ready, not when the socket opens", () => {
    const scene = new Scene();
    scene.connection.start();
    scene.socket.open();

    expect(scene.states).toEqual(["connecting"]);
    scene.socket.ready();
    expect(scene.states).toEqual(["connecting", "connected"]);
    expect(scene.socket.binaryType).toBe("arraybuffer");
  });

  test("waiting for the next attempt is told apart from having given up", () => {
    const scene = new Scene();
    scene.connect().serverCloses(1006);

    expect(scene.changes.at(-1)).toEqual({ state: "reconnecting", code: "CONNECTION_LOST" });
    expect(scene.connection.retryIn).toBe(0.5);
    scene.retry();
    expect(scene.connection.state).toBe("connecting");
    expect(scene.connection.retryIn).toBeUndefined();
  });

  test("stop ends it whatever it was doing, and leaves no timer and no open socket", () => {
    const moments: ((scene: Scene) => void)[] = [
      () => {},
      (scene) => scene.socket.open(),
      (scene) => scene.socket.ready(),
      (scene) => scene.socket.serverCloses(1006),
    ];
    for (const moment of moments) {
      const scene = new Scene();
      scene.connection.start();
      moment(scene);

      scene.connection.stop();
      scene.connection.stop();

      expect(scene.changes.at(-1)).toEqual({ state: "disconnected" });
      expect(scene.states.filter((state) => state === "disconnected")).toHaveLength(1);
      expect(scene.environment.timerCount).toBe(0);
      expect(scene.socket.isClosed).toBe(true);
      scene.environment.advance(3600);
      expect(scene.attempts).toBe(1);
    }
  });

  test("an attempt whose address is still awaited can be stopped", async () => {
    let give: (url: string) => void = () => {};
    const scene = new Scene({ getUrl: () => new Promise((resolve) => (give = resolve)) });
    scene.connection.start();
    scene.connection.stop();

    give("ws://host/late");
    await Promise.resolve();
    await Promise.resolve();

    expect(scene.attempts).toBe(0);
  });

  test("without reconnect a lost connection is the end", () => {
    const scene = new Scene({ reconnect: false });
    scene.connect().serverCloses(1006);

    expect(scene.changes.at(-1)).toEqual({ state: "disconnected", code: "CONNECTION_LOST" });
    expect(scene.environment.timerCount).toBe(0);
  });

  test("whoever is told of a state may stop the connection", () => {
    for (const unwanted of ["connecting", "connected", "reconnecting"]) {
      const scene: Scene = new Scene({
        onStateChange: (state) => {
          if (state === unwanted) {
            scene.connection.stop();
          }
        },
      });
      scene.connection.start();
      if (scene.connection.state !== "disconnected") {
        scene.socket.ready();
        scene.socket.serverCloses(1006);
      }

      expect(scene.connection.state).toBe("disconnected");
      expect(scene.environment.timerCount).toBe(0);
    }
  });
});

describe("what is not tried again", () => {
  test("a terminal whose program ended: the state says so before the socket closes", () => {
    const scene = new Scene();
    scene.connect().text(EXIT);

    expect(scene.changes.at(-1)).toEqual({ state: "disconnected", code: "TERMINAL_EXITED" });
    const [error] = scene.errors;
    expect(error).toBeInstanceOf(TerminalExitedError);
    expect((error as TerminalExitedError).exit).toEqual({ code: 3, timedOut: false });
    expect(error?.message).toBe("The terminal's program ended with exit code 3.");
    expect(scene.connection.exit?.code).toBe(3);
    expect(scene.socket.closedWith).toBe(1000);
    scene.environment.advance(3600);
    expect(scene.attempts).toBe(1);
  });

  test("a terminal that is not there (1008), with the server's own error", () => {
    const scene = new Scene();
    scene.connection.start();
    scene.socket.open();
    scene.socket.text({ type: "error", message: "gone", code: "STALE_TERMINAL_HANDLE" });
    scene.socket.serverCloses(1008);

    expect(scene.changes.slice(1)).toEqual([
      { state: "disconnected", code: "STALE_TERMINAL_HANDLE" },
    ]);
    scene.environment.advance(3600);
    expect(scene.attempts).toBe(1);
  });

  test("1008 without an error says that the terminal is not there", () => {
    const scene = new Scene();
    scene.connect().serverCloses(1008, "no such terminal");

    expect(scene.changes.at(-1)?.code).toBe("TERMINAL_NOT_FOUND");
    expect(scene.errors.at(-1)?.message).toContain("no such terminal");
  });

  test("a terminal that failed: 1011 right after an error that has a code", () => {
    const scene = new Scene();
    const socket = scene.connect();
    socket.text({ type: "error", message: "broken", code: "TERMINAL_CONTROL_ERROR" });
    socket.serverCloses(1011);

    expect(scene.changes.slice(-2)).toEqual([
      { state: "connected", code: "TERMINAL_CONTROL_ERROR" },
      { state: "disconnected", code: "TERMINAL_CONTROL_ERROR" },
    ]);
  });

  test("but not trouble of the server's own, which may pass", () => {
    const scene = new Scene();
    const socket = scene.connect();
    socket.text({ type: "error", message: "cut", code: "RPC_TRANSPORT_ERROR" });
    socket.serverCloses(1011);

    expect(scene.changes.at(-1)).toEqual({ state: "reconnecting", code: "RPC_TRANSPORT_ERROR" });
  });

  test("an error that the connection survived says nothing about a later close", () => {
    const scene = new Scene();
    const socket = scene.connect();
    socket.text({ type: "error", message: "bad size", code: "VALIDATION_FAILED" });
    socket.chunk("c1", "on");
    socket.serverCloses(1011);

    expect(scene.connection.state).toBe("reconnecting");
  });
});

describe("what is tried again", () => {
  test.each([1000, 1001, 1005, 1006, 1009, 1011, 1012, 1013, 1002, 4000])(
    "close code %i",
    (code) => {
      const scene = new Scene();
      scene.connect().serverCloses(code);

      expect(scene.connection.state).toBe("reconnecting");
      scene.retry().ready();
      expect(scene.connection.state).toBe("connected");
    },
  );

  test("the wait doubles up to half a minute, and is partly left to chance", () => {
    const scene = new Scene();
    scene.connect().serverCloses(1006);
    const waits: number[] = [];
    for (let attempt = 0; attempt < 7; attempt += 1) {
      waits.push(scene.connection.retryIn ?? Number.NaN);
      scene.environment.chance = attempt === 5 ? 0.5 : 0;
      scene.retry().serverCloses(1006);
    }

    expect(waits).toEqual([0.5, 1, 2, 4, 8, 15, 22.5]);
  });

  test("a target that was once reached is never given up for a lost network", () => {
    const scene = new Scene();
    scene.connect().serverCloses(1006);
    for (let attempt = 0; attempt < 5 * MAX_ATTEMPTS; attempt += 1) {
      scene.retry().serverCloses(1006);
    }

    expect(scene.connection.state).toBe("reconnecting");
  });

  test("a target that was never reached is given up after ten attempts", () => {
    const scene = new Scene();
    scene.connection.start();
    for (let attempt = 1; attempt < MAX_ATTEMPTS; attempt += 1) {
      scene.socket.serverCloses(1006);
      scene.retry();
    }
    scene.socket.serverCloses(1006);

    expect(scene.attempts).toBe(MAX_ATTEMPTS);
    expect(scene.changes.at(-1)).toEqual({ state: "disconnected", code: "CONNECTION_LOST" });
  });

  test("a server that is ready and fails each time is not asked each second for ever", () => {
    const scene = new Scene();
    scene.connect().serverCloses(1011);
    const waits: number[] = [];
    while (scene.connection.state === "reconnecting") {
      waits.push(scene.connection.retryIn ?? Number.NaN);
      const socket = scene.retry();
      socket.ready();
      socket.serverCloses(1011);
    }

    expect(waits).toEqual([0.5, 1, 2, 4, 8, 15, 15, 15, 15]);
    expect(scene.connection.state).toBe("disconnected");
  });

  test("after a connection that lasted, the first wait is short again", () => {
    const scene = new Scene();
    scene.connect().serverCloses(1006);
    scene.retry().serverCloses(1006);
    scene.retry().ready();
    scene.environment.advance(12);
    scene.socket.serverCloses(1006);

    expect(scene.connection.retryIn).toBe(0.5);
  });

  test("a socket that never opens, and one that never gets ready", () => {
    const scene = new Scene();
    scene.connection.start();
    scene.environment.advance(OPEN_SECONDS);
    expect(scene.changes.at(-1)).toEqual({ state: "reconnecting", code: "CONNECTION_FAILED" });
    expect(scene.socket.isClosed).toBe(true);

    scene.retry().open();
    scene.environment.advance(READY_SECONDS - 1);
    expect(scene.connection.state).toBe("connecting");
    scene.environment.advance(1);
    expect(scene.connection.state).toBe("reconnecting");
  });

  test("an address that cannot be had, or is none", async () => {
    const refusals: (() => string | Promise<string>)[] = [
      () => Promise.reject(new Error("no ticket")),
      () => {
        throw new Error("no ticket");
      },
    ];
    for (const getUrl of refusals) {
      const scene = new Scene({ getUrl });
      scene.connection.start();
      await vi.waitFor(() => expect(scene.connection.state).toBe("reconnecting"));

      expect(scene.states).toEqual(["connecting", "reconnecting"]);
      expect(scene.errors[0]?.message).toContain("no ticket");
    }
  });

  test("at once when the page wakes up or comes online", () => {
    const scene = new Scene();
    scene.connect().serverCloses(1006);

    scene.connection.nudge();

    expect(scene.attempts).toBe(2);
    expect(scene.connection.state).toBe("connecting");
    scene.connection.nudge();
    scene.environment.advance(5);
    expect(scene.attempts).toBe(2);
  });

  test("what an abandoned socket still says is not heard", () => {
    const scene = new Scene();
    const old = scene.connect();
    scene.environment.advance(25);
    scene.retry().ready();

    old.text(EXIT);
    old.serverCloses(1008);
    expect(scene.connection.state).toBe("connected");
    expect(scene.attempts).toBe(2);
  });
});

describe("a server that breaks the protocol", () => {
  const faults: [string, (scene: Scene) => void][] = [
    ["bytes without an announcement", ({ socket }) => socket.bytes("x")],
    [
      "a second announcement",
      ({ socket }) => {
        socket.text({ type: "chunk", cursor: "cX", byteLength: 1 });
        socket.text({ type: "chunk", cursor: "cY", byteLength: 1 });
      },
    ],
    [
      "another length than announced",
      ({ socket }) => {
        socket.text({ type: "chunk", cursor: "cX", byteLength: 2 });
        socket.bytes("x");
      },
    ],
    ["text that is not JSON", ({ socket }) => socket.text("{")],
    ["a Blob", ({ socket }) => socket.onmessage?.({ data: { size: 3 } })],
    ["ready a second time", ({ socket }) => socket.ready()],
  ];

  test.each(faults)("%s: never stuck as connected, and the cursor is kept", (_name, commit) => {
    const scene = new Scene();
    scene.connect("c1");

    commit(scene);

    expect(scene.changes.at(-1)).toEqual({ state: "reconnecting", code: "PROTOCOL_ERROR" });
    expect(scene.socket.isClosed).toBe(true);
    scene.retry();
    expect(scene.cursors).toEqual([undefined, "c1"]);
  });

  test("output before ready", () => {
    const scene = new Scene();
    scene.connection.start();
    scene.socket.open();
    scene.socket.chunk("c1", "x");

    expect(scene.changes.at(-1)?.code).toBe("PROTOCOL_ERROR");
  });

  test("a flood that ignores acknowledgements", () => {
    const scene = new Scene();
    const socket = scene.connect("c0");
    const chunk = new Uint8Array(8 * 1024 * 1024);
    for (let sent = 1; sent <= 5; sent += 1) {
      socket.chunk(`c${sent}`, chunk);
    }

    expect(scene.changes.at(-1)).toEqual({ state: "reconnecting", code: "PROTOCOL_ERROR" });
    scene.screen.draw();
    scene.retry().ready();
    expect(scene.cursors).toEqual([undefined, "c4"]);
    scene.socket.replay("exact", "c5", chunk);
    expect(scene.connection.state).toBe("connected");
  });

  test("an unknown type of message is passed over", () => {
    const scene = new Scene();
    scene.connect().text({ type: "weather", sky: "clear" });

    expect(scene.connection.state).toBe("connected");
  });
});

describe("the cursor", () => {
  test("is that of the last bytes that came whole, and goes into the next address", () => {
    const scene = new Scene();
    const socket = scene.connect("c1");
    socket.chunk("c2", "x");
    socket.text({ type: "chunk", cursor: "c3", byteLength: 1 });
    socket.serverCloses(1006);
    scene.retry().ready({ cursor: "c2" });
    scene.socket.serverCloses(1006);
    scene.retry();

    expect(scene.cursors).toEqual([undefined, "c2", "c2"]);
  });

  test("survives the news that history was lost", () => {
    const scene = new Scene();
    const socket = scene.connect("c1");
    socket.text({ type: "truncated" });
    socket.serverCloses(1006);
    scene.retry();

    expect(scene.cursors.at(-1)).toBe("c1");
  });

  test("is dropped when the server refuses it, and the screen is then drawn anew", () => {
    const scene = new Scene();
    scene.connect("c1").serverCloses(1006);
    const socket = scene.retry();
    socket.open();
    socket.text({ type: "error", message: "bad", code: "INVALID_TERMINAL_CURSOR" });
    socket.serverCloses(1011);
    scene.retry().ready();
    scene.socket.replay("exact", "c2", "all of it");
    scene.screen.draw();

    expect(scene.cursors).toEqual([undefined, "c1", undefined]);
    expect(scene.screen.text.endsWith("\x1bcall of it")).toBe(true);
  });
});

describe("the screen", () => {
  test("is reset before a full replay and left alone before an exact one", () => {
    const scene = new Scene();
    const socket = scene.connect();
    socket.chunk("c1", "one ");
    socket.serverCloses(1006);
    scene.retry().ready();
    scene.socket.replay("exact", "c2", "two ");
    scene.socket.serverCloses(1006);
    scene.retry().ready();
    scene.socket.replay("screen", "c3", "three");
    scene.screen.draw();

    expect(scene.screen.written.slice(1)).toEqual(["one ", "two ", "\x1bc", "three"]);
  });

  test("is reset before a fresh terminal's exact replay too", () => {
    const scene = new Scene();
    scene.connection.start();
    scene.socket.ready();
    scene.socket.replay("exact", "c1", "$ ");
    scene.screen.draw();

    expect(scene.screen.text).toBe("\x1bc$ ");
  });

  test("is drawn anew when this viewer fell behind, in turn with what waits", () => {
    const scene = new Scene();
    const socket = scene.connect();
    socket.chunk("c1", "old");
    socket.screen("c2", "whole");
    socket.chunk("c3", "new");
    scene.screen.draw();

    expect(scene.screen.written.slice(1)).toEqual(["old", "\x1bc", "whole", "new"]);
  });

  test("gets large frames in pieces", () => {
    const scene = new Scene();
    scene.connect().chunk("c1", "x".repeat(150_000));
    scene.screen.draw();

    expect(scene.screen.written.slice(1).map(({ length }) => length)).toEqual([
      32768, 32768, 32768, 32768, 18928,
    ]);
  });
});

describe("answers", () => {
  const ASK = "\x1b[c";
  const ANSWER = "\x1b[?1;2c";

  function answering(): Scene {
    const scene = new Scene();
    scene.screen.onParse = (text) => {
      if (text.includes(ASK)) {
        scene.connection.input(ANSWER);
      }
    };
    return scene;
  }

  test("to a replay and to a screen are not sent", () => {
    const scene = answering();
    const socket = scene.connect();
    socket.screen("c1", `again ${ASK}`);
    scene.screen.draw();
    socket.serverCloses(1006);
    scene.retry().ready();
    scene.socket.replay("exact", "c2", `missed ${ASK}`);
    scene.screen.draw();

    expect(socket.input + scene.socket.input).toBe("");
  });

  test("to live output are sent, even right behind a replay that is not drawn yet", () => {
    const scene = answering();
    scene.connection.start();
    scene.socket.ready();
    scene.socket.replay("screen", "c1", `old ${ASK}`);
    scene.socket.chunk("c2", `now ${ASK}`);
    scene.screen.draw();

    expect(scene.socket.input).toBe(ANSWER);
  });

  test("to live output are sent, even when a screen has come before they were drawn", () => {
    const scene = answering();
    const socket = scene.connect();
    socket.chunk("c1", `now ${ASK}`);
    socket.screen("c2", `old ${ASK}`);
    scene.screen.draw();

    expect(socket.input).toBe(ANSWER);
  });

  test("typing during a replay is sent", () => {
    const scene = new Scene();
    scene.connection.start();
    scene.socket.ready();
    scene.socket.replay("screen", "c1", "much");
    scene.connection.input("ls\r");
    scene.connection.input("\x1b[A");

    expect(scene.socket.input).toBe("ls\r\x1b[A");
  });
});

describe("acknowledgement", () => {
  test("counts what is drawn and not what has come, at least every 64 KiB", () => {
    const scene = new Scene();
    const socket = scene.connect();
    for (let chunk = 0; chunk < 6; chunk += 1) {
      socket.chunk(`c${chunk}`, "x".repeat(32767));
    }
    expect(socket.messages("ack")).toEqual([]);

    scene.screen.draw(3);
    expect(socket.messages("ack")).toEqual([{ type: "ack", bytes: 2 * 32767 }]);
    scene.screen.draw();
    expect(socket.messages("ack").map(({ bytes }) => bytes / 32767)).toEqual([2, 4, 6]);
  });

  test("of a little comes when it is quiet, once", () => {
    const scene = new Scene();
    const socket = scene.connect();
    socket.chunk("c1", "abc");
    socket.chunk("c2", "de");
    scene.screen.draw();
    expect(socket.messages("ack")).toEqual([]);

    scene.environment.advance(10);
    expect(socket.messages("ack")).toEqual([{ type: "ack", bytes: 5 }]);
  });

  test("counts replay and screen bytes, and each connection by itself", () => {
    const scene = new Scene();
    const first = scene.connect();
    first.chunk("c1", "late");
    first.serverCloses(1006);
    const second = scene.retry();
    second.ready();
    second.replay("exact", "c2", "abc");
    second.screen("c3", "de");
    scene.screen.draw();
    scene.environment.advance(1);

    expect(second.messages("ack")).toEqual([{ type: "ack", bytes: 5 }]);
    expect(first.messages("ack")).toEqual([]);
  });

  test("comes as often as a server asks that wants it more often", () => {
    const scene = new Scene();
    scene.connection.start();
    scene.socket.ready({ acknowledgeEvery: 4 });
    scene.socket.replay("screen", "c1", "abcd");
    scene.screen.draw();

    expect(scene.socket.messages("ack")).toEqual([{ type: "ack", bytes: 4 }]);
  });
});

describe("input", () => {
  test("before ready is sent at ready, after the size and the view", () => {
    const scene = new Scene();
    scene.connection.start();
    scene.connection.input("l");
    scene.socket.open();
    scene.connection.input("s\r");
    expect(scene.socket.sent).toEqual([]);
    scene.socket.ready();

    expect(scene.socket.sent).toEqual([
      { type: "resize", cols: 80, rows: 24 },
      { type: "view", visible: true, focused: false },
      "l",
      "s\r",
    ]);
  });

  test("while reconnecting is sent afterwards; where the mouse was is not", () => {
    const scene = new Scene();
    scene.connect().serverCloses(1006);
    scene.connection.input("x");
    scene.connection.input("\x1b[<35;10;10M");
    scene.connection.input("\x1b[O");
    scene.retry().ready();

    expect(scene.socket.input).toBe("x");
  });

  test("is kept up to a bound, and what does not fit is refused whole and told of", () => {
    const scene = new Scene();
    scene.connection.start();
    scene.connection.input("a".repeat(QUEUE_BYTES - 1));
    scene.connection.input("bc");
    scene.connection.input("d");
    expect(scene.changes.at(-1)).toEqual({ state: "connecting", code: "INPUT_DROPPED" });
    scene.socket.ready();

    expect(scene.socket.input).toBe(`${"a".repeat(QUEUE_BYTES - 1)}d`);
  });

  test("is dropped with the terminal it was meant for", () => {
    const scene = new Scene();
    scene.connection.start();
    scene.connection.input("rm -r x\r");
    scene.socket.ready();
    scene.socket.text(EXIT);
    scene.connection.input("y");

    expect(scene.socket.input).toBe("rm -r x\r");
  });

  test("of any size goes in small frames, each byte once", () => {
    const scene = new Scene();
    const socket = scene.connect();
    scene.connection.input("é".repeat(100_000));
    scene.connection.input(Uint8Array.of(0xff, 0x00));

    const binary = socket.frames.filter((frame) => typeof frame !== "string");
    expect(binary.map(({ length }) => length)).toEqual([65536, 65536, 65536, 3392, 2]);
    expect(Buffer.concat(binary.slice(0, -1) as Uint8Array[]).toString()).toBe("é".repeat(100_000));
    expect([...(binary.at(-1) ?? [])]).toEqual([0xff, 0x00]);
  });
});

describe("size", () => {
  test("is told at ready and at each change, and never as zero", () => {
    const scene = new Scene();
    scene.connection.start();
    scene.screen.resize(100, 30);
    expect(scene.socket.sent).toEqual([]);
    scene.socket.ready();
    scene.screen.resize(100, 30);
    scene.screen.resize(0, 0);
    scene.screen.resize(0, 30);
    scene.screen.resize(90, 20);

    expect(scene.socket.messages("resize")).toEqual([
      { type: "resize", cols: 100, rows: 30 },
      { type: "resize", cols: 90, rows: 20 },
    ]);
  });

  test("of a screen without one yet is not told", () => {
    const scene = new Scene();
    scene.screen.cols = 0;
    const connection = new Scene({ screen: scene.screen });
    connection.connect();

    expect(connection.socket.messages("resize")).toEqual([]);
  });

  test("of another viewer is taken without being asked for in return", () => {
    const scene = new Scene();
    const socket = scene.connect();
    socket.text({ type: "size", cols: 132, rows: 43 });

    expect([scene.screen.cols, scene.screen.rows]).toEqual([132, 43]);
    expect(socket.messages("resize")).toHaveLength(1);
    expect(scene.imposed).toEqual([{ cols: 132, rows: 43 }]);
  });

  test("that this viewer wants is asked for again when its screen goes back to it", () => {
    const scene = new Scene();
    const socket = scene.connect();
    socket.text({ type: "size", cols: 132, rows: 43 });
    scene.screen.resize(80, 24);

    expect(socket.messages("resize").slice(1)).toEqual([{ type: "resize", cols: 80, rows: 24 }]);
  });

  test("that this viewer wants is told at a reconnect, not the one it had to take", () => {
    const scene = new Scene();
    const socket = scene.connect();
    socket.text({ type: "size", cols: 132, rows: 43 });
    socket.serverCloses(1006);
    scene.retry().ready();

    expect(scene.socket.messages("resize")).toEqual([{ type: "resize", cols: 80, rows: 24 }]);
  });
});

describe("view and control", () => {
  test("the view is told at ready and at each change", () => {
    const scene = new Scene();
    scene.connection.start();
    scene.connection.setView({ visible: true, focused: true });
    scene.socket.ready();
    scene.connection.setView({ visible: true, focused: true });
    scene.connection.setView({ visible: false, focused: false });

    expect(scene.socket.messages("view")).toEqual([
      { type: "view", visible: true, focused: true },
      { type: "view", visible: false, focused: false },
    ]);
  });

  test("interrupt and terminate say whether they were sent", () => {
    const scene = new Scene();
    scene.connection.start();
    expect(scene.connection.interrupt()).toBe(false);
    scene.socket.ready();

    expect([scene.connection.interrupt(), scene.connection.terminate()]).toEqual([true, true]);
    expect(scene.socket.sent.slice(-2)).toEqual([{ type: "interrupt" }, { type: "terminate" }]);
  });

  test("the server's name of the terminal is kept", () => {
    const scene = new Scene();
    scene.connection.start();
    scene.socket.ready({ terminalId: "t-3" });

    expect(scene.connection.terminalId).toBe("t-3");
  });
});

describe("liveness", () => {
  test("a socket that is open and deaf is noticed within 25 seconds", () => {
    const scene = new Scene();
    const socket = scene.connect();
    scene.environment.advance(15);
    expect(socket.messages("ping")).toHaveLength(1);
    scene.environment.advance(10);

    expect(scene.changes.at(-1)).toEqual({ state: "reconnecting", code: "CONNECTION_LOST" });
    expect(socket.isClosed).toBe(true);
  });

  test("any frame shows that the server is there: a pong, output, an error", () => {
    const signs: ((scene: Scene) => void)[] = [
      ({ socket }) => socket.text({ type: "pong" }),
      ({ socket }) => socket.chunk("c1", "x"),
      ({ socket }) => socket.text({ type: "error", message: "unknown message" }),
    ];
    for (const sign of signs) {
      const scene = new Scene();
      scene.connect();
      for (let round = 0; round < 20; round += 1) {
        scene.environment.advance(15);
        sign(scene);
      }
      expect(scene.connection.state).toBe("connected");
      expect(scene.attempts).toBe(1);
    }
  });

  test("a busy connection is not asked", () => {
    const scene = new Scene();
    const socket = scene.connect();
    for (let second = 0; second < 100; second += 1) {
      scene.environment.advance(1);
      socket.chunk(`c${second}`, "x");
    }

    expect(socket.messages("ping")).toEqual([]);
  });

  test("after the page woke up the server has five seconds to answer", () => {
    const scene = new Scene();
    const socket = scene.connect();
    scene.connection.nudge();
    expect(socket.messages("ping")).toHaveLength(1);
    scene.environment.advance(5);

    expect(scene.connection.state).toBe("reconnecting");
  });

  test("a page that slept asks again before it judges", () => {
    const scene = new Scene();
    const socket = scene.connect();
    scene.environment.advance(15);
    scene.environment.sleep(3600);

    expect(scene.connection.state).toBe("connected");
    expect(socket.messages("ping")).toHaveLength(2);
    scene.environment.advance(10);
    expect(scene.connection.state).toBe("reconnecting");
  });

  test("a page whose timers are always late notices a deaf socket all the same", () => {
    const scene = new Scene();
    scene.connect();
    for (let minute = 0; minute < 3; minute += 1) {
      scene.environment.sleep(60);
    }

    expect(scene.connection.state).toBe("reconnecting");
  });
});
