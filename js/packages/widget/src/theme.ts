/**
 * The terminal's colours, from those of the page's theme.
 */

import type { ITheme } from "@xterm/xterm";

/** Red, green, blue of 0 to 255 and alpha of 0 to 1. */
export type Rgba = readonly [number, number, number, number];

/** A colour of the page by its variable's name, or undefined. */
export type ReadColor = (name: string) => Rgba | undefined;

type Ansi = Pick<
  ITheme,
  | "black"
  | "red"
  | "green"
  | "yellow"
  | "blue"
  | "magenta"
  | "cyan"
  | "white"
  | "brightBlack"
  | "brightRed"
  | "brightGreen"
  | "brightYellow"
  | "brightBlue"
  | "brightMagenta"
  | "brightCyan"
  | "brightWhite"
>;

const ON_LIGHT: Ansi = {
  black: "#24292f",
  red: "#b3261e",
  green: "#1a6e2c",
  yellow: "#7a5200",
  blue: "#1353b4",
  magenta: "#86269b",
  cyan: "#0b6470",
  white: "#6b7178",
  brightBlack: "#5a6068",
  brightRed: "#c9352c",
  brightGreen: "#217a36",
  brightYellow: "#8a5d00",
  brightBlue: "#2466c9",
  brightMagenta: "#9a35af",
  brightCyan: "#0f717e",
  brightWhite: "#464c53",
};

const ON_DARK: Ansi = {
  black: "#3b4048",
  red: "#f47c74",
  green: "#7fc98a",
  yellow: "#e2bf66",
  blue: "#7fb2f5",
  magenta: "#d59be6",
  cyan: "#6fcad3",
  white: "#d5d9de",
  brightBlack: "#8b929b",
  brightRed: "#ff9c95",
  brightGreen: "#9fe0a8",
  brightYellow: "#f4d88c",
  brightBlue: "#a6cbff",
  brightMagenta: "#e8bbf5",
  brightCyan: "#97e3ea",
  brightWhite: "#ffffff",
};

/** Map the theme; without variables (no Jupyter page), black on white or white on black. */
export function themeOf(read: ReadColor, isLight: boolean): ITheme {
  const background = over(read("--jp-layout-color0"), isLight ? WHITE : BLACK);
  const foreground = over(read("--jp-content-font-color0"), background, isLight ? BLACK : WHITE);
  const accent = over(read("--jp-brand-color1"), background, foreground);
  return {
    ...(isLight ? ON_LIGHT : ON_DARK),
    background: hex(background),
    foreground: hex(foreground),
    cursor: hex(foreground),
    cursorAccent: hex(background),
    selectionBackground: hex(mix(accent, background, 0.3)),
    selectionInactiveBackground: hex(mix(accent, background, 0.18)),
  };
}

/** Colours of what the search found; the letters on them are the theme's. */
export interface FindColours {
  readonly match: string;
  readonly activeMatch: string;
}

export function findColoursOf(isLight: boolean): FindColours {
  return isLight
    ? { match: "#fbe7a6", activeMatch: "#f7b955" }
    : { match: "#5c4a12", activeMatch: "#8f5a0a" };
}

/** Whether a background is a light one. */
export function isLightColor([red, green, blue]: Rgba): boolean {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 128;
}

/** Read what a browser computes for a colour: `rgb(1, 2, 3)`, `rgba(...)`, `color(srgb ...)`. */
export function parseColor(computed: string): Rgba | undefined {
  const numbers = computed.match(/[\d.]+(?:e-?\d+)?%?/g)?.map(Number);
  const [red = Number.NaN, green = Number.NaN, blue = Number.NaN, alpha = 1] = numbers ?? [];
  if ([red, green, blue, alpha].some(Number.isNaN)) {
    return undefined;
  }
  if (/^rgba?\(/.test(computed)) {
    return [red, green, blue, alpha];
  }
  return /^color\(srgb /.test(computed) ? [red * 255, green * 255, blue * 255, alpha] : undefined;
}

const WHITE: Rgba = [255, 255, 255, 1];
const BLACK: Rgba = [0, 0, 0, 1];

/** The opaque colour that `color` makes on a ground; themes have text of 87% black. */
function over(color: Rgba | undefined, ground: Rgba, instead: Rgba = ground): Rgba {
  return color === undefined ? instead : mix(color, ground, color[3]);
}

function mix(color: Rgba, ground: Rgba, share: number): Rgba {
  const part = (at: 0 | 1 | 2): number => color[at] * share + ground[at] * (1 - share);
  return [part(0), part(1), part(2), 1];
}

function hex([red, green, blue]: Rgba): string {
  return `#${[red, green, blue]
    .map((part) => Math.round(part).toString(16).padStart(2, "0"))
    .join("")}`;
}
