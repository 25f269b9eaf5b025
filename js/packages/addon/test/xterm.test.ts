/** The rules that rest on how xterm.js itself draws, proved with the real one. */
import serialize from "@xterm/addon-serialize";
import headless from "@xterm/headless";
import { afterEach, describe, expect, test } from "vitest";
import { Drawing, PIECE_BYTES } from "../src/drawing.js";
import { Scene } from "./support.js";

const { Terminal } = headless;
const { SerializeAddon } = serialize;

const terminals: InstanceType<typeof Terminal>[] = [];
afterEach(() => {
  for (const terminal of terminals.splice(0)) {
    terminal.dispose();
  }
});

function makeTerminal() {
  const terminal = new Terminal({ cols: 80, rows: 24, allowProposedApi: true, scrollback: 1000 });
  terminals.push(terminal);
  const serializer = new SerializeAddon();
  terminal.loadAddon(serializer);
  const drawing = new Drawing(terminal);
  const scene = new Scene({ screen: terminal, drawing });
  const answers: string[] = [];
  terminal.onData((data) => {
    answers.push(data);
    scene.connection.input(data);
  });
  return { terminal, serializer, drawing, scene, answers };
}

/** All that was written is drawn. */
function drawn(terminal: InstanceType<typeof Terminal>): Promise<void> {
  return new Promise((resolve) => terminal.write("", resolve));
}

describe("a frame larger than a piece", () => {
  test.each([0, 1, 2, 3])("loses no character at the cut (%i bytes before it)", async (before) => {
    const { terminal, drawing } = makeTerminal();
    const head = "x".repeat(before);
    const text = `\x1b]0;${"t".repeat(PIECE_BYTES - 12)}\x07${head}–––`;
    const drawnBytes: number[] = [];
    const data = new TextEncoder().encode(text);
    drawing.draw(data, false, (bytes) => drawnBytes.push(bytes));
    await drawn(terminal);

    expect(terminal.buffer.active.getLine(0)?.translateToString(true)).toBe(`${head}–––`);
    expect(drawnBytes.reduce((sum, bytes) => sum + bytes)).toBe(data.length);
  });

  test("that is no UTF-8 is drawn whole", () => {
    const { drawing } = makeTerminal();
    drawing.draw(new Uint8Array(PIECE_BYTES * 2).fill(0x80), false, () => {});

    expect(drawing.waitingBytes).toBe(PIECE_BYTES * 2);
  });
});

describe("a full replay", () => {
  const DIRTY: [string, string | Uint8Array][] = [
    [
      "modes, colours, margins and charset",
      "\x1b[?1049h\x1b[?1000;1006h\x1b[?2004h\x1b[?1h\x1b[31;1m\x1b[5;10r\x1b(0",
    ],
    ["a cut escape sequence", "text \x1b[3"],
    ["a cut title", "text \x1b]0;some tit"],
    ["a cut device control string", "text \x1bP1;2"],
    ["a cut character", Uint8Array.of(0x61, 0xf0, 0x9f, 0x98)],
  ];

  test.each(DIRTY)("over %s looks as on a fresh terminal", async (_name, before) => {
    const fresh = makeTerminal();
    fresh.scene.connection.start();
    fresh.scene.socket.ready();
    fresh.scene.socket.replay("screen", "c1", "qqq\r\nbash$ ");
    const used = makeTerminal();
    const socket = used.scene.connect();
    socket.chunk("c1", before);
    await drawn(used.terminal);
    socket.serverCloses(1006);
    used.scene.retry().ready();
    used.scene.socket.replay("screen", "c2", "qqq\r\nbash$ ");
    await Promise.all([drawn(fresh.terminal), drawn(used.terminal)]);

    expect(used.serializer.serialize()).toBe(fresh.serializer.serialize());
    expect(used.terminal.modes).toEqual(fresh.terminal.modes);
    expect(used.terminal.buffer.active.type).toBe("normal");
  });

  test("waits for what was written before it", async () => {
    const { terminal, scene } = makeTerminal();
    const socket = scene.connect();
    for (let line = 0; line < 2000; line += 1) {
      socket.chunk(`c${line}`, `old ${line}\r\n`);
    }
    socket.screen("d1", "whole");
    await drawn(terminal);

    const { active } = terminal.buffer;
    expect(active.length).toBe(terminal.rows);
    expect(active.getLine(0)?.translateToString(true)).toBe("whole");
  });
});

test("an exact replay over a torn character and sequence gives the whole", async () => {
  const all = new TextEncoder().encode("one \u{1F600} \x1b[1;31mtwo\x1b[0m drei");
  const whole = makeTerminal();
  whole.scene.connect().chunk("c1", all);
  await drawn(whole.terminal);
  const expected = whole.serializer.serialize();

  for (let cut = 0; cut <= all.length; cut += 1) {
    const { terminal, scene, serializer } = makeTerminal();
    const socket = scene.connect();
    socket.chunk("c1", all.subarray(0, cut));
    socket.serverCloses(1006);
    scene.retry().ready();
    scene.socket.replay("exact", "c2", all.subarray(cut));
    await drawn(terminal);
    expect(serializer.serialize()).toBe(expected);
  }
});

describe("the questions that xterm.js answers", () => {
  const QUESTIONS = "\x1b[c\x1b[>c\x1b[6n\x1b[5n\x1b[?2004$p\x1bP$qm\x1b\\\x1b[4$p\x1b[?6n";

  test("are answered live, and each answer is known for one", async () => {
    const { terminal, scene, answers } = makeTerminal();
    scene.connect().chunk("c1", QUESTIONS);
    await drawn(terminal);

    expect(answers.length).toBeGreaterThanOrEqual(7);
    expect(scene.socket.input).toBe(answers.join(""));
  });

  test("are not answered from a replay or a screen", async () => {
    const { terminal, scene, answers } = makeTerminal();
    const first = scene.connect();
    first.screen("c1", QUESTIONS);
    await drawn(terminal);
    first.serverCloses(1006);
    scene.retry().ready();
    scene.socket.replay("exact", "c2", QUESTIONS);
    await drawn(terminal);

    expect(answers.length).toBeGreaterThanOrEqual(14);
    expect(first.input + scene.socket.input).toBe("");
  });

  test("are answered live right behind a replay that holds them", async () => {
    const { terminal, scene, answers } = makeTerminal();
    scene.connection.start();
    scene.socket.ready();
    scene.socket.replay("screen", "c1", QUESTIONS);
    scene.socket.chunk("c2", "\x1b[5n");
    await drawn(terminal);

    expect(answers.length).toBeGreaterThanOrEqual(8);
    expect(scene.socket.input).toBe("\x1b[0n");
  });
});

test("a flood is acknowledged as it is drawn, to the last byte", async () => {
  const { terminal, scene } = makeTerminal();
  const socket = scene.connect();
  const chunk = `${"x".repeat(78)}\r\n`.repeat(409); // some 32 KiB
  for (let sent = 0; sent < 64; sent += 1) {
    socket.chunk(`c${sent}`, chunk);
  }
  await drawn(terminal);
  scene.environment.advance(1);

  const acknowledged = socket.messages("ack").map(({ bytes }) => bytes);
  expect(acknowledged.at(-1)).toBe(64 * chunk.length);
  const steps = acknowledged.map((bytes, index) => bytes - (acknowledged[index - 1] ?? 0));
  expect(Math.max(...steps)).toBeLessThanOrEqual(65536);
  expect(Math.min(...steps)).toBeGreaterThan(0);
});
