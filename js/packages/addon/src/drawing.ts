/**
 * The bytes handed to xterm.js and not yet drawn.
 *
 * xterm.js draws later than it is written to, and in order.  So "drawn so far" and "is this old
 * output" are known only at its write callbacks; this queue keeps what is needed to tell.
 */

/** What is drawn on: xterm.js or a stand-in. */
export interface Screen {
  readonly cols: number;
  readonly rows: number;
  write(data: string | Uint8Array, callback?: () => void): void;
  resize(cols: number, rows: number): void;
}

/**
 * Larger frames go to the screen in pieces, so that the page stays responsive and what is drawn is
 * acknowledged as it is drawn.
 */
export const PIECE_BYTES = 32 * 1024;

// RIS. Terminal.reset() would act at once, before the bytes that still wait; this waits its turn,
// and also leaves a sequence that the old output broke off in.
const FULL_RESET = "\x1bc";

interface Pending {
  readonly isMuted: boolean;
}

export class Drawing {
  readonly #screen: Screen;
  readonly #pending: Pending[] = [];
  #waitingBytes = 0;

  constructor(screen: Screen) {
    this.#screen = screen;
  }

  /** Whether the screen is drawing output whose questions were asked before. */
  get isMuted(): boolean {
    return this.#pending[0]?.isMuted ?? false;
  }

  /** How much waits to be drawn. */
  get waitingBytes(): number {
    return this.#waitingBytes;
  }

  /** Wipe the screen, its modes and scrollback, after what waits. */
  reset(): void {
    this.#write(FULL_RESET, true, () => {});
  }

  /** Draw; `onDrawn` gets the number of bytes of each piece as it is done. */
  draw(data: Uint8Array, isMuted: boolean, onDrawn: (bytes: number) => void): void {
    let start = 0;
    while (start < data.length) {
      const end = pieceEnd(data, start);
      const piece = data.subarray(start, end);
      this.#write(piece, isMuted, () => onDrawn(piece.length));
      start = end;
    }
  }

  #write(data: string | Uint8Array, isMuted: boolean, onDrawn: () => void): void {
    this.#pending.push({ isMuted });
    this.#waitingBytes += data.length;
    this.#screen.write(data, () => {
      this.#pending.shift();
      this.#waitingBytes -= data.length;
      onDrawn();
    });
  }
}

/**
 * Where a piece that begins at `start` ends: not inside a character, since xterm.js 6 loses one
 * that is cut behind a byte 0x80.
 */
function pieceEnd(data: Uint8Array, start: number): number {
  const longest = start + PIECE_BYTES;
  let end = longest;
  while (end > longest - 4 && isContinuation(data[end])) {
    end -= 1;
  }
  // Four in a row are no UTF-8, which no cut can spoil.
  return isContinuation(data[end]) ? longest : end;
}

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}
