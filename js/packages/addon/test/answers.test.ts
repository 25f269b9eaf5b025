/** What a terminal says by itself is told from what a person types. */
import { describe, expect, test } from "vitest";
import { isAnswer, isReport } from "../src/answers.js";

describe("answers", () => {
  test.each([
    ["device attributes", "\x1b[?1;2c"],
    ["secondary device attributes", "\x1b[>0;276;0c"],
    ["status", "\x1b[0n"],
    ["cursor position", "\x1b[24;80R"],
    ["cursor position with page", "\x1b[?24;80R"],
    ["mode", "\x1b[?2004;1$y"],
    ["ANSI mode", "\x1b[4;2$y"],
    ["keyboard flags", "\x1b[?0u"],
    ["window size", "\x1b[8;24;80t"],
    ["terminal parameters", "\x1b[2;1;1;128;128;1;0x"],
    ["background colour", "\x1b]11;rgb:0000/0000/0000\x1b\\"],
    ["palette colour, ended by BEL", "\x1b]4;1;rgb:ffff/0000/0000\x07"],
    ["clipboard", "\x1b]52;c;\x07"],
    ["setting", "\x1bP1$r0m\x1b\\"],
    ["version", "\x1bP>|xterm.js(6.0.0)\x1b\\"],
    ["two of them", "\x1b[?1;2c\x1b[1;1R"],
  ])("%s", (_name, data) => {
    expect(isAnswer(data)).toBe(true);
  });
});

describe("not answers", () => {
  test.each([
    ["text", "ls\r"],
    ["text that holds one", "echo \x1b[?1;2c"],
    ["an arrow", "\x1b[A"],
    ["an arrow of the application mode", "\x1bOA"],
    ["a modified arrow", "\x1b[1;5D"],
    ["Delete", "\x1b[3~"],
    ["F1 to F4", "\x1bOP"],
    ["Shift+Tab", "\x1b[Z"],
    ["Alt+]", "\x1b]"],
    ["Alt+P and text", "\x1bPwd"],
    ["Escape", "\x1b"],
    ["a modern key", "\x1b[97;5u"],
    ["a paste", "\x1b[200~x\x1b[201~"],
    ["nothing", ""],
  ])("%s", (_name, data) => {
    expect(isAnswer(data)).toBe(false);
    expect(isReport(data)).toBe(false);
  });
});

test("reports of mouse and focus", () => {
  for (const report of ["\x1b[<35;10;10M", "\x1b[<0;1;1m", "\x1b[M !!", "\x1b[I", "\x1b[O"]) {
    expect(isReport(report)).toBe(true);
  }
});

test("a long string that never ends is judged at once", () => {
  const start = performance.now();

  expect(isAnswer(`\x1b]${"\x1bP1".repeat(500_000)}`)).toBe(false);
  expect(isAnswer("\x1b[0n".repeat(300_000))).toBe(true);
  expect(performance.now() - start).toBeLessThan(1000);
});
