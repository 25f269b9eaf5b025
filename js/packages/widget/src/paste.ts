/**
 * What may be pasted into a terminal, and when to ask first.
 */

// Pasted escape sequences could end the bracket around the paste and act as typed keys; control
// characters act as keys outright.  Tab, line feed and carriage return stay.
const CONTROLS = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g;

export interface Paste {
  /** What is left of the clipboard's text, with line feeds as ends of lines. */
  readonly text: string;
  readonly lines: number;
  /** Whether its lines would run at once, each by itself. */
  readonly isRisky: boolean;
}

/** `isBracketed` is whether the program asked to be told what is pasted. */
export function filterPaste(clipboard: string, isBracketed: boolean): Paste {
  const text = clipboard.replace(/\r\n?/g, "\n").replace(CONTROLS, "");
  const lines = text.replace(/\n$/, "").split("\n").length;
  return { text, lines, isRisky: text.includes("\n") && !isBracketed };
}

/** The same as one line, which waits for Enter. */
export function oneLine(text: string): string {
  return text.trim().replace(/\s*\n\s*/g, " ");
}
