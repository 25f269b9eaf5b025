import { expect, test } from "vitest";
import { findColoursOf, isLightColor, parseColor, type Rgba, themeOf } from "../src/theme.js";

function reader(colors: Record<string, Rgba>): (name: string) => Rgba | undefined {
  return (name) => colors[name];
}

const LIGHT = reader({
  "--jp-layout-color0": [255, 255, 255, 1],
  "--jp-content-font-color0": [0, 0, 0, 0.87],
  "--jp-brand-color1": [25, 118, 210, 1],
});
const DARK = reader({
  "--jp-layout-color0": [17, 17, 17, 1],
  "--jp-content-font-color0": [255, 255, 255, 1],
  "--jp-brand-color1": [33, 150, 243, 1],
});

test("the terminal has the page's colours, opaque", () => {
  expect(themeOf(LIGHT, true)).toMatchObject({ background: "#ffffff", foreground: "#212121" });
  expect(themeOf(DARK, false)).toMatchObject({ background: "#111111", foreground: "#ffffff" });
});

test("a page without a theme gets black on white or white on black", () => {
  const none = reader({});

  expect(themeOf(none, true)).toMatchObject({ background: "#ffffff", foreground: "#000000" });
  expect(themeOf(none, false)).toMatchObject({ background: "#000000", foreground: "#ffffff" });
});

test("every colour is one that xterm.js reads", () => {
  for (const theme of [themeOf(LIGHT, true), themeOf(DARK, false), themeOf(reader({}), true)]) {
    for (const color of Object.values(theme)) {
      expect(color).toMatch(/^#[0-9a-f]{6}$/);
    }
  }
});

test("every named colour can be read on its ground", () => {
  for (const [theme, ground] of [
    [themeOf(LIGHT, true), 1],
    [themeOf(DARK, false), luminance("#111111")],
  ] as const) {
    for (const name of ["red", "green", "yellow", "blue", "magenta", "cyan"] as const) {
      const one = luminance(theme[name] ?? "");
      const contrast = (Math.max(one, ground) + 0.05) / (Math.min(one, ground) + 0.05);

      expect(contrast, name).toBeGreaterThanOrEqual(4.5);
    }
  }
});

test("what was found can be read on its mark", () => {
  for (const isLight of [true, false]) {
    const letters = luminance(themeOf(isLight ? LIGHT : DARK, isLight).foreground ?? "");
    for (const mark of Object.values(findColoursOf(isLight))) {
      const one = luminance(mark);

      expect(
        (Math.max(one, letters) + 0.05) / (Math.min(one, letters) + 0.05),
        mark,
      ).toBeGreaterThanOrEqual(4.5);
    }
  }
});

test("a browser's computed colours are understood", () => {
  expect(parseColor("rgb(1, 2, 3)")).toEqual([1, 2, 3, 1]);
  expect(parseColor("rgba(0, 0, 0, 0.87)")).toEqual([0, 0, 0, 0.87]);
  expect(parseColor("color(srgb 1 0.5 0 / 0.5)")).toEqual([255, 127.5, 0, 0.5]);
  for (const odd of ["", "transparent", "lab(50% 1 2)", "rgb(var(--x))"]) {
    expect(parseColor(odd)).toBeUndefined();
  }
});

test("light and dark grounds are told apart", () => {
  expect(isLightColor([255, 255, 255, 1])).toBe(true);
  expect(isLightColor([17, 17, 17, 1])).toBe(false);
});

/** Relative luminance of WCAG 2. */
function luminance(hex: string): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const part = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
