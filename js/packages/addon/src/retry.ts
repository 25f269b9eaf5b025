/**
 * Whether, and when, a lost connection is tried again.
 */

const FIRST_DELAY_SECONDS = 1;
const LONGEST_DELAY_SECONDS = 30;

/** In a row, before giving up: attempts of a target that was never reached, or answers that refuse. */
export const MAX_ATTEMPTS = 10;

/** A connection that lasted so long was a good one: the next loss is the first again. */
export const STABLE_SECONDS = 10;

export type Verdict =
  /** Trying again cannot help. */
  | "final"
  /** The network or a restart of the server: try until it works. */
  | "lost"
  /** The server closed for a reason of its own, which may or may not pass. */
  | "refused"
  /** As "refused", but only the cursor was wrong. */
  | "cursor refused";

// The server's own trouble, which may pass.
const PASSING = new Set(["RPC_TRANSPORT_ERROR", "OPERATION_INTERRUPTED", "INTERNAL_ERROR"]);

/** What a close of the socket means, after the last error that the server had told of. */
export function judgeClose(closeCode: number, errorCode: string | undefined): Verdict {
  switch (closeCode) {
    case 1008:
      return "final";
    case 1011:
      if (errorCode === "INVALID_TERMINAL_CURSOR") {
        return "cursor refused";
      }
      return errorCode === undefined || PASSING.has(errorCode) ? "refused" : "final";
    case 1002: // protocol error, unacceptable data, inconsistent data, and a missing extension
    case 1003:
    case 1007:
    case 1010:
      return "refused";
    default:
      return "lost";
  }
}

/** Seconds until the next attempt: doubling, bounded, and in its upper half left to chance. */
export function retryDelay(failures: number, random: number): number {
  const longest = Math.min(FIRST_DELAY_SECONDS * 2 ** (failures - 1), LONGEST_DELAY_SECONDS);
  return (longest / 2) * (1 + random);
}

/** Counts the losses of one target. */
export class Retries {
  #failures = 0;
  #refusals = 0;
  #wasConnected = false;

  /** A connection was up for `seconds`, and is lost. */
  connectedFor(seconds: number): void {
    this.#wasConnected = true;
    if (seconds >= STABLE_SECONDS) {
      this.#failures = 0;
      this.#refusals = 0;
    }
  }

  /** Seconds until the next attempt, or undefined to give up. */
  next(verdict: Verdict, random: number): number | undefined {
    this.#failures += 1;
    this.#refusals = verdict === "lost" ? 0 : this.#refusals + 1;
    const inVain = this.#wasConnected ? this.#refusals : this.#failures;
    if (verdict === "final" || inVain >= MAX_ATTEMPTS) {
      return undefined;
    }
    return retryDelay(this.#failures, random);
  }
}
