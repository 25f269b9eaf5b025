/**
 * Which of the sizes that a page measures are meant for the terminal.
 */

export interface Size {
  readonly cols: number;
  readonly rows: number;
}

const FEWEST_COLS = 10;
const FEWEST_ROWS = 2;

/**
 * The size to take, or undefined to keep the present one.
 *
 * A cell that is scrolled away or folded measures zero for a while; a shell that was told so would
 * wrap all its lines anew.
 */
export function usableSize(measured: Partial<Size> | undefined): Size | undefined {
  const { cols, rows } = measured ?? {};
  return cols !== undefined && rows !== undefined && cols >= FEWEST_COLS && rows >= FEWEST_ROWS
    ? { cols: Math.floor(cols), rows: Math.floor(rows) }
    : undefined;
}
