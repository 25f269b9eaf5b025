/**
 * Which links of a terminal's output may be followed.
 */

/** The address to open and to show, or undefined for all but web pages. */
export function webAddress(text: string): string | undefined {
  try {
    const url = new URL(text);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : undefined;
  } catch {
    return undefined;
  }
}

/** A page of its own that knows nothing of this one. */
export function openPage(address: string): void {
  window.open(address, "_blank", "noopener,noreferrer");
}
