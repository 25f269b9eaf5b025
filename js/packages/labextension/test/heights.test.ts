import { expect, test } from "vitest";
import { askedHeight, FrameHeight, HEIGHT_MESSAGE } from "../src/heights.js";

const message = (height: unknown) => ({ type: HEIGHT_MESSAGE, height });

test.each([
  [300, 300],
  [300.2, 301],
  [3, 20],
  [1e9, 2000],
])("a height of %d is %d within bounds", (asked, height) => {
  expect(askedHeight(message(asked))).toBe(height);
});

test.each([
  null,
  undefined,
  "jupyter-sandbox:frame-height",
  300,
  {},
  { type: "other", height: 300 },
  message(0),
  message(-5),
  message(Number.NaN),
  message(Number.POSITIVE_INFINITY),
  message("300px; position: fixed"),
  message({ valueOf: () => 300 }),
])("%j is no height", (data) => {
  expect(askedHeight(data)).toBeUndefined();
});

test("a frame takes the height of what it shows", () => {
  const frame = new FrameHeight();

  expect(frame.next(300, "450px")).toBe("300px");
  expect(frame.next(300, "300px")).toBeUndefined();
  expect(frame.next(350, "300px")).toBe("350px");
});

test("a document that grows with its room stops growing, and may still shrink", () => {
  const frame = new FrameHeight();
  let current = "450px";
  for (let asked = 460; asked < 2000; asked += 10) {
    current = frame.next(asked, current) ?? current;
  }

  expect(current).toBe("500px");
  expect(frame.next(100, current)).toBe("100px");
  expect(frame.next(500, "100px")).toBeUndefined();
});

test("a corner that was dragged stays where it is", () => {
  const frame = new FrameHeight();
  frame.next(300, "450px");

  expect(frame.next(320, "640px")).toBeUndefined();
});
