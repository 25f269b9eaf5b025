/**
 * Reads the page's theme, and tells when it changes.
 */

import type { ITheme } from "@xterm/xterm";
import { isLightColor, parseColor, type Rgba, themeOf } from "./theme.js";

export interface PageLook {
  readonly theme: ITheme;
  readonly isLight: boolean;
  readonly fontFamily: string;
  readonly fontSize: number;
}

const MONOSPACE = "Menlo, Consolas, 'DejaVu Sans Mono', monospace";
const FONT_SIZE = 13;

/** How the page looks where `place` is. */
export function readLook(place: HTMLElement): PageLook {
  const style = getComputedStyle(place);
  // Of a variable only its text is known; a colour made of it is computed by the browser.
  const probe = document.createElement("span");
  probe.hidden = true;
  place.append(probe);
  const read = (name: string): Rgba | undefined => {
    if (style.getPropertyValue(name).trim() === "") {
      return undefined;
    }
    probe.style.color = `var(${name})`;
    return parseColor(getComputedStyle(probe).color);
  };
  const background = read("--jp-layout-color0");
  const isLight =
    background === undefined
      ? !matchMedia("(prefers-color-scheme: dark)").matches
      : isLightColor(background);
  const theme = themeOf(read, isLight);
  probe.remove();
  return {
    theme,
    isLight,
    fontFamily: style.getPropertyValue("--jp-code-font-family").trim() || MONOSPACE,
    fontSize: Number.parseFloat(style.getPropertyValue("--jp-code-font-size")) || FONT_SIZE,
  };
}

/** Call back after each change of the page's theme, until the signal. */
export function watchLook(onChange: () => void, signal: AbortSignal): void {
  // JupyterLab names its theme on the body; a change comes in several steps.
  let timer: ReturnType<typeof setTimeout> | undefined;
  const changed = (): void => {
    clearTimeout(timer);
    timer = setTimeout(onChange, 80);
  };
  const observer = new MutationObserver(changed);
  const attributeFilter = ["data-jp-theme-name", "data-jp-theme-light", "class", "style"];
  observer.observe(document.body, { attributeFilter });
  // Sizes of letters that the user chose are set on the document itself.
  observer.observe(document.documentElement, { attributeFilter: ["class", "style"] });
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", changed, { signal });
  signal.addEventListener("abort", () => {
    observer.disconnect();
    clearTimeout(timer);
  });
}
