/**
 * The keys that are the widget's; all others are the program's.
 *
 * Ctrl+Shift with a letter has no meaning in a terminal, so that nothing is taken away.
 */

import type { ConnectionState } from "@jupyter-sandbox/xterm-addon";

export type KeyAction = "copy" | "paste" | "find" | "leave";

interface Key {
  readonly type: string;
  readonly code: string;
  readonly ctrlKey: boolean;
  readonly shiftKey: boolean;
  readonly altKey: boolean;
  readonly metaKey: boolean;
}

const ACTIONS: Readonly<Record<string, KeyAction>> = {
  KeyC: "copy",
  KeyV: "paste",
  KeyF: "find",
  KeyE: "leave",
};

export function actionOf(key: Key): KeyAction | undefined {
  const isOurs = key.ctrlKey && key.shiftKey && !key.altKey && !key.metaKey;
  return isOurs ? ACTIONS[key.code] : undefined;
}

/** Whether Tab goes on to the buttons below, as no program is there that could get it. */
export function isTabOfPage(
  { code, ctrlKey, altKey, metaKey }: Key,
  state: ConnectionState,
): boolean {
  const isGone = state === "disconnected" || state === "reconnecting";
  return code === "Tab" && isGone && !ctrlKey && !altKey && !metaKey;
}
