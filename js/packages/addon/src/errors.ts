/**
 * What can go wrong with a terminal's connection, as `onStateChange` reports it.
 *
 *     Error
 *       TerminalError             code: what a program can tell apart
 *         TerminalExitedError     the terminal's program ended
 */

import type { TerminalExit } from "./protocol.js";

/** Codes of our own; the server's codes (`TERMINAL_NOT_FOUND`, ...) stand beside them. */
export type TerminalErrorCode =
  | "CONNECTION_LOST"
  | "CONNECTION_FAILED"
  | "PROTOCOL_ERROR"
  | "AUTHENTICATION_REQUIRED"
  | "INPUT_DROPPED"
  | "TERMINAL_EXITED"
  | "TERMINAL_NOT_FOUND"
  | "STALE_TERMINAL_HANDLE"
  | (string & {});

export class TerminalError extends Error {
  override readonly name: string = "TerminalError";
  readonly code: TerminalErrorCode;

  constructor(code: TerminalErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}

/** Not a fault: the program in the terminal ended, and this is how. */
export class TerminalExitedError extends TerminalError {
  override readonly name: string = "TerminalExitedError";
  readonly exit: TerminalExit;

  constructor(exit: TerminalExit) {
    super("TERMINAL_EXITED", `The terminal's program ended${describe(exit)}.`);
    this.exit = exit;
  }
}

function describe(exit: TerminalExit): string {
  if (exit.signal !== undefined) {
    return ` by signal ${exit.signal}`;
  }
  return exit.code === null ? "" : ` with exit code ${exit.code}`;
}
