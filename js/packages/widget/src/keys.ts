/**
 * The keys that are the widget's; all others are the program's.
 *
 * Ctrl+Shift with a letter has no meaning in a terminal, so that nothing is taken away.
 */

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
