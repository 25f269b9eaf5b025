/**
 * Notices a connection that is open and silent for good.
 *
 * A page cannot see the WebSocket's own pings, and after a change of network a socket may stay
 * "open" for minutes.  So after a while without any frame the server is asked, and whatever comes
 * then, be it the answer or output, shows that it is there.
 */

import type { Environment } from "./environment.js";

/** Silence after which the server is asked. */
export const QUIET_SECONDS = 15;
/** How long it may take to say anything. */
export const ANSWER_SECONDS = 10;
/** The same after the page woke up or came online, when a dead socket is likely. */
export const WAKE_ANSWER_SECONDS = 5;

// A timer later than this says that the page itself slept; what the server sent meanwhile may
// still be waiting behind the timer.  So it is asked once more.
const SLEPT_SECONDS = 5;

export class Liveness {
  readonly #environment: Environment;
  readonly #ping: () => void;
  readonly #onDead: () => void;
  #heardAt: number;
  #hasAnswered = false;
  #timer: unknown;

  constructor(environment: Environment, actions: { ping: () => void; onDead: () => void }) {
    this.#environment = environment;
    this.#ping = actions.ping;
    this.#onDead = actions.onDead;
    this.#heardAt = environment.now();
    this.#watch(QUIET_SECONDS);
  }

  /** A frame came. */
  heard(): void {
    this.#heardAt = this.#environment.now();
    this.#hasAnswered = true;
  }

  /** Ask now: something happened that kills connections. */
  askNow(): void {
    this.#ask(WAKE_ANSWER_SECONDS);
  }

  stop(): void {
    this.#environment.clearTimer(this.#timer);
  }

  #watch(seconds: number): void {
    this.#schedule(seconds, () => {
      const quiet = this.#environment.now() - this.#heardAt;
      if (quiet < QUIET_SECONDS) {
        this.#watch(QUIET_SECONDS - quiet);
      } else {
        this.#ask(ANSWER_SECONDS);
      }
    });
  }

  #ask(answerSeconds: number, isLastTime = false): void {
    const askedAt = this.#environment.now();
    this.#hasAnswered = false;
    this.#ping();
    this.#schedule(answerSeconds, () => {
      if (this.#hasAnswered) {
        this.#watch(QUIET_SECONDS);
      } else if (!isLastTime && this.#environment.now() - askedAt > answerSeconds + SLEPT_SECONDS) {
        this.#ask(answerSeconds, true);
      } else {
        this.#onDead();
      }
    });
  }

  #schedule(seconds: number, callback: () => void): void {
    this.#environment.clearTimer(this.#timer);
    this.#timer = this.#environment.setTimer(callback, seconds);
  }
}
