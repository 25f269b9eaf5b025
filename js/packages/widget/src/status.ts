/**
 * The words and the button of the line below the terminal.
 */

import type { ConnectionState, TerminalExit } from "@jupyter-sandbox/xterm-addon";
import type { Carrier } from "./model.js";

export interface Facts {
  readonly state: ConnectionState;
  /** How the program ended, once it has. */
  readonly exit: TerminalExit | undefined;
  /** The last error's code and sentence. */
  readonly error: { readonly code: string; readonly message: string } | undefined;
  /** Seconds until the next attempt. */
  readonly retryIn: number | undefined;
  readonly carrier: Carrier;
  /** Whether the terminal is a session's, which starts a new shell when the old one is gone. */
  readonly isSession: boolean;
}

export interface Status {
  /** For colours: which kind of state it is. */
  readonly mood: "good" | "busy" | "ended" | "bad";
  readonly text: string;
  /** What changes each second: shown, and not read out. */
  readonly countdown: string;
  /** Why, in the error's words. */
  readonly detail: string;
  /** What the button says; empty for none. */
  readonly action: "" | "Start again" | "Reconnect now";
}

/** The sandbox does not run, and nobody has asked for it to be started. */
const STOPPED = "CONTAINER_UNAVAILABLE";

const LOGGED_OUT = "AUTHENTICATION_REQUIRED";

const GONE = new Set(["TERMINAL_NOT_FOUND", "STALE_TERMINAL_HANDLE"]);

export function describe(facts: Facts): Status {
  const detail = facts.error?.message ?? "";
  const again = facts.isSession ? "Start again" : "";
  switch (facts.state) {
    case "connecting":
      return { mood: "busy", text: "Connecting …", countdown: "", detail, action: "" };
    case "connected":
      return { mood: "good", text: "Connected", countdown: "", detail, action: "" };
    case "reconnecting":
      return {
        mood: "busy",
        text: "Reconnecting",
        countdown: `in ${Math.max(0, Math.ceil(facts.retryIn ?? 0))} s`,
        detail:
          facts.carrier === "kernel"
            ? `${detail} If the kernel was restarted, run the cell again.`.trim()
            : detail,
        action: "Reconnect now",
      };
    case "disconnected":
      if (facts.exit !== undefined) {
        const text = ending(facts.exit);
        return { mood: "ended", text, countdown: "", detail: "", action: again };
      }
      if (facts.error !== undefined && GONE.has(facts.error.code)) {
        return { mood: "bad", text: "Gone", countdown: "", detail, action: again };
      }
      if (facts.error?.code === STOPPED && !facts.isSession) {
        // It ended with its sandbox: no attempt can bring it back.
        return {
          mood: "bad",
          text: "Gone",
          countdown: "",
          detail: `${detail} Run the cell again for a new terminal.`.trim(),
          action: "",
        };
      }
      return {
        mood: "bad",
        text: facts.error?.code === LOGGED_OUT ? "Logged out" : "Disconnected",
        countdown: "",
        detail,
        action: facts.error?.code === STOPPED ? "Start again" : "Reconnect now",
      };
  }
}

function ending({ code, signal }: TerminalExit): string {
  if (signal !== undefined) {
    return `Ended by signal ${signal}`;
  }
  return code === null ? "Exited" : `Exited with code ${code}`;
}

/** A title that a program set, as text of bounded length. */
export function titleText(title: string): string {
  return title.replace(/[\p{Cc}\p{Cf}]/gu, "").slice(0, 100);
}
