/**
 * Keeps what is typed where the user types it: a framed document may call for the focus at any time.
 */

/** How long after a Tab the focus may move on. */
const TAB_TAKES = 500;

const NOTE = "[This output took the keyboard while you were typing. Run its cell to see it.]";

/** What this needs of an element that has had the focus. */
export interface Focusable {
  readonly isContentEditable: boolean;
  matches(selector: string): boolean;
  focus(options?: FocusOptions): void;
}
/** What this needs of a frame's element. */
export interface Frame {
  srcdoc: string;
  matches(selector: string): boolean;
  removeAttribute(name: string): void;
}

/** Who has the focus, as the page's events tell. */
export class FocusGuard {
  #last: Focusable | undefined;
  #tabbed = Number.NEGATIVE_INFINITY;
  readonly #regain: () => void;

  /** `regain` gives the focus back to the page, wherever in it. */
  constructor(regain: () => void) {
    this.#regain = regain;
  }

  /** Something in the page itself has the focus. */
  focused(target: Focusable): void {
    this.#last = target;
  }

  /** A key was pressed in the page. */
  pressed(key: string, at: number): void {
    if (key === "Tab") {
      this.#tabbed = at;
    }
  }

  /**
   * A frame has got the focus.
   *
   * Where text is typed, nothing but a program moves the focus into a frame that the user neither
   * points at nor has tabbed to.  It would do so again before the next key, and not every time is
   * told: so the frame is emptied.
   */
  taken(frame: Frame, at: number): void {
    const last = this.#last;
    if (last === undefined || !takesText(last)) {
      return;
    }
    if (frame.matches(":hover") || at - this.#tabbed < TAB_TAKES) {
      return;
    }
    frame.removeAttribute("src");
    frame.srcdoc = NOTE;
    // The page may already take it for its own, while keys still go to the frame.
    this.#regain();
    last.focus({ preventScroll: true });
  }
}

function takesText(element: Focusable): boolean {
  return element.isContentEditable || element.matches("input, textarea, select");
}
