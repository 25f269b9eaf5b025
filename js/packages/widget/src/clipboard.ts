/**
 * The clipboard: what programs ask of it by escape sequence (OSC 52), and what people copy.
 */

/** The largest text that a program may put there. */
const MAX_BYTES = 100_000;

export type ClipboardRequest =
  | { readonly kind: "read"; readonly selection: string }
  | { readonly kind: "write"; readonly text: string }
  | { readonly kind: "ignored" };

/** Read what follows "52;" in the sequence. */
export function parseRequest(data: string): ClipboardRequest {
  const [, selection, content] = /^([cpqs0-7]{0,12});(.*)$/s.exec(data) ?? [];
  if (selection === undefined || content === undefined) {
    return { kind: "ignored" };
  }
  if (content === "?") {
    return { kind: "read", selection };
  }
  if (content === "" || content.length > (MAX_BYTES * 4) / 3) {
    return { kind: "ignored" };
  }
  try {
    const bytes = Uint8Array.from(atob(content), (character) => character.charCodeAt(0));
    return { kind: "write", text: new TextDecoder("utf-8", { fatal: true }).decode(bytes) };
  } catch {
    return { kind: "ignored" };
  }
}

/** The answer to every read: nothing is there.  Programs that wait for one go on. */
export function emptyAnswer(selection: string): string {
  return `\x1b]52;${selection || "c"};\x1b\\`;
}

export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without https, or not allowed: xterm.js puts its selection in at the page's copy event.
    document.execCommand("copy");
  }
}
