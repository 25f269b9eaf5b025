/** What is typed stays where the user types it. */
import { beforeEach, expect, test, vi } from "vitest";
import { FocusGuard } from "../src/focus.js";

const cell = { focus: vi.fn(), isContentEditable: true, matches: () => false };
const regain = vi.fn();
let guard = new FocusGuard(regain);

beforeEach(() => {
  vi.clearAllMocks();
  guard = new FocusGuard(regain);
  guard.focused(cell);
});

function frame(isHovered = false) {
  return { srcdoc: "a plot", matches: () => isHovered, removeAttribute: vi.fn() };
}

test("a frame that takes the focus from a text is emptied, and the text has it again", () => {
  const taker = frame();
  guard.taken(taker, 1000);

  expect(taker.srcdoc).toContain("keyboard");
  expect(taker.removeAttribute).toHaveBeenCalledWith("src");
  expect(regain).toHaveBeenCalledOnce();
  expect(cell.focus).toHaveBeenCalledOnce();
});

test("a frame that the user points at or tabs to keeps the focus", () => {
  const [pointed, tabbed] = [frame(true), frame()];
  guard.taken(pointed, 1000);
  guard.pressed("Tab", 1000);
  guard.taken(tabbed, 1100);

  expect([pointed.srcdoc, tabbed.srcdoc]).toEqual(["a plot", "a plot"]);
  expect(cell.focus).not.toHaveBeenCalled();
});

test("a Tab of long ago, and other keys, are no invitation", () => {
  guard.pressed("Tab", 0);
  guard.pressed("a", 1000);
  guard.taken(frame(), 1000);

  expect(cell.focus).toHaveBeenCalledOnce();
});

test("where nothing is typed the focus is left to whoever moves it", () => {
  const button = { focus: vi.fn(), isContentEditable: false, matches: () => false };
  guard.focused(button);
  const reader = frame();
  guard.taken(reader, 1000);

  expect(reader.srcdoc).toBe("a plot");
  expect(button.focus).not.toHaveBeenCalled();
});
