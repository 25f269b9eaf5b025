/**
 * One terminal in one place of the page, from `render` to its cleanup.
 *
 * Puts together what the other modules decide: xterm.js and its addons, the connection, the bars.
 */

import { pageEnvironment, SandboxAddon, type Socket } from "@jupyter-sandbox/xterm-addon";
import { FitAddon } from "@xterm/addon-fit";
import { SearchAddon } from "@xterm/addon-search";
import { UnicodeGraphemesAddon } from "@xterm/addon-unicode-graphemes";
import { WebLinksAddon } from "@xterm/addon-web-links";
import { type ILinkHandler, Terminal } from "@xterm/xterm";
import xtermStyle from "@xterm/xterm/css/xterm.css";
import { CarrierChoice } from "./carrier.js";
import { copyText, emptyAnswer, parseRequest } from "./clipboard.js";
import { element } from "./dom.js";
import { FindBar } from "./find_bar.js";
import { KernelSocket } from "./kernel_socket.js";
import { actionOf, isTabOfPage } from "./keys.js";
import { openPage, webAddress } from "./links.js";
import { type Model, rememberShown, type Settings, settingsOf, wasShown } from "./model.js";
import { readLook, watchLook } from "./page_theme.js";
import { filterPaste } from "./paste.js";
import { PasteBar } from "./paste_bar.js";
import { type Size, usableSize } from "./size.js";
import { describe, type Facts, titleText } from "./status.js";
import { StatusLine } from "./status_line.js";
import ownStyle from "./style.css";
import { findColoursOf } from "./theme.js";

const SCROLLBACK_LINES = 5000;
/** Resizes come in bursts: a side bar that slides, a window that is dragged. */
const SETTLE_MS = 80;
/** Pixels by which the measured height of a line may differ only by rounding. */
const LINE_TOLERANCE = 0.1;
/** What the name resolves to does not matter: only the query of it is used. */
const KERNEL_ADDRESS = "ws://kernel.invalid/";

interface Context {
  readonly model: Model;
  readonly el: HTMLElement;
  /** The Jupyter server's address, or undefined when there is none. */
  readonly server: string | undefined;
}

export function render({ model, el, server }: Context): () => void {
  const view = new TerminalView(model, server);
  el.append(view.root);
  addStyle(el);
  view.start();
  return () => view.dispose();
}

class TerminalView {
  readonly root: HTMLElement;
  readonly #model: Model;
  readonly #server: string | undefined;
  readonly #settings: Settings;
  readonly #choice: CarrierChoice;
  readonly #ended = new AbortController();
  readonly #terminal: Terminal;
  readonly #fit = new FitAddon();
  readonly #addon: SandboxAddon;
  readonly #find: FindBar;
  readonly #paste: PasteBar;
  readonly #status: StatusLine;
  readonly #screen = element("div", "sbx-screen");
  #error: Facts["error"];
  #isOpen = false;
  #rows: number;
  /** As it was set here: a user who drags its corner sets another one. */
  #height = "";
  #lineHeight = 0;
  #fitting: ReturnType<typeof setTimeout> | undefined;
  #counting: ReturnType<typeof setTimeout> | undefined;

  constructor(model: Model, server: string | undefined) {
    this.#model = model;
    this.#server = server;
    this.#settings = settingsOf(model);
    this.#rows = this.#settings.rows;
    this.#choice = new CarrierChoice(this.#settings.carrier, server !== undefined);
    const { sandboxId, sessionId, terminalId, screenReader } = this.#settings;
    this.#terminal = new Terminal({
      allowProposedApi: true, // graphemes and the marks of the search
      scrollback: SCROLLBACK_LINES,
      minimumContrastRatio: 4.5,
      screenReaderMode: screenReader,
      linkHandler: this.#linkHandler(),
      cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches,
    });
    const page = pageEnvironment();
    this.#addon = new SandboxAddon({
      getWebSocketUrl: () => this.#address(),
      environment: {
        ...page,
        openSocket: (url) => this.#openSocket(url),
        askStatus: async (url) =>
          // As long as the kernel may be asked instead, a server that refuses is no end.
          this.#choice.isSettled && !url.startsWith(KERNEL_ADDRESS)
            ? page.askStatus?.(url)
            : undefined,
      },
      onStateChange: (state, error) => {
        this.#error = error as Facts["error"];
        if (state === "connected") {
          rememberShown(model);
        }
        this.#showState();
      },
      onSizeImposed: (size) => this.#showSize(size),
    });
    const search = new SearchAddon();
    this.#find = new FindBar(search, (isOpen) => {
      this.#takeLook();
      if (!isOpen) {
        this.#terminal.focus();
      }
    });
    this.#paste = new PasteBar((text) => {
      this.#terminal.focus();
      this.#terminal.paste(text);
    });
    const name = [sandboxId, terminalId ?? sessionId].filter(Boolean).join(" · ");
    this.#status = new StatusLine(
      name,
      () => {
        this.#connect();
        this.#terminal.focus(); // the button goes, and the focus would with it
      },
      () => this.#find.open(this.#terminal.getSelection()),
    );
    this.root = element(
      "div",
      "sbx-terminal",
      {
        role: "region",
        "aria-label": `Terminal of sandbox ${sandboxId}. Ctrl+Shift+E leaves it.`,
        "data-lm-suppress-shortcuts": "true",
        "data-jp-suppress-context-menu": "true",
      },
      this.#find.root,
      this.#screen,
      this.#paste.root,
      this.#status.root,
    );
    this.#loadAddons(search);
  }

  /** Wait for a place with a size: xterm.js measures its letters when it opens. */
  start(): void {
    const { signal } = this.#ended;
    const resized = new ResizeObserver(() => {
      if (!this.#isOpen && this.root.isConnected && this.#screen.clientWidth > 0) {
        this.#open();
      } else if (this.#isOpen) {
        this.#fitSoon();
      }
    });
    resized.observe(this.#screen);
    const shown = new IntersectionObserver((entries) => {
      this.#addon.setVisible(entries.some((entry) => entry.isIntersecting));
    });
    shown.observe(this.#screen);
    signal.addEventListener("abort", () => {
      resized.disconnect();
      shown.disconnect();
    });
    watchLook(() => this.#takeLook(), signal);
    this.#guardEvents(signal);
    this.#showState();
  }

  /** Leave; the terminal runs on in its sandbox. */
  dispose(): void {
    this.#ended.abort();
    clearTimeout(this.#fitting);
    clearTimeout(this.#counting);
    this.#find.dispose();
    this.#terminal.dispose();
    this.root.remove();
  }

  // --- the connection ---

  #connect(start = true): void {
    const { sandboxId, sessionId, terminalId } = this.#settings;
    this.#addon.connect(
      terminalId === undefined ? { sandboxId, sessionId } : { sandboxId, terminalId },
      { start },
    );
  }

  #address(): string {
    if (this.#choice.current === "kernel" || this.#server === undefined) {
      return KERNEL_ADDRESS;
    }
    const { sandboxId, sessionId, terminalId } = this.#settings;
    const url = new URL(
      `sandbox/api/sandboxes/${encodeURIComponent(sandboxId)}/` +
        (terminalId === undefined
          ? "terminal"
          : `terminals/${encodeURIComponent(terminalId)}/connect`),
      this.#server,
    );
    url.protocol = url.protocol.replace("http", "ws");
    if (sessionId !== undefined) {
      url.searchParams.set("session", sessionId);
    }
    return url.href;
  }

  #openSocket(address: string): Socket {
    if (address.startsWith(KERNEL_ADDRESS)) {
      return new KernelSocket(this.#model, address);
    }
    const socket = new WebSocket(address);
    let isOpened = false;
    socket.addEventListener("open", () => {
      isOpened = true;
      this.#choice.opened();
    });
    socket.addEventListener("close", () => {
      if (!isOpened) {
        this.#choice.failed();
      }
    });
    return socket as unknown as Socket;
  }

  #showState(): void {
    clearTimeout(this.#counting);
    const { state, retryIn } = this.#addon;
    const { sessionId, terminalId } = this.#settings;
    this.#status.show(
      describe({
        state,
        retryIn,
        exit: this.#addon.exit,
        error: this.#error,
        carrier: this.#choice.current,
        isSession: sessionId !== undefined || terminalId === undefined,
      }),
      this.#choice.current,
    );
    this.root.dataset["state"] = state;
    if (state === "reconnecting") {
      this.#counting = setTimeout(() => this.#showState(), 1000);
    }
  }

  // --- its size and look ---

  #open(): void {
    this.#isOpen = true;
    this.#takeLook();
    this.#terminal.open(this.#screen);
    this.#fitNow();
    // Its lines get higher and lower with the page's zoom, too.
    const zoomed = new ResizeObserver(() => {
      if (Math.abs(this.#measureLine() - this.#lineHeight) > LINE_TOLERANCE) {
        this.#fitSoon();
      }
    });
    for (const letters of this.#screen.querySelectorAll(".xterm-screen")) {
      zoomed.observe(letters);
    }
    this.#ended.signal.addEventListener("abort", () => zoomed.disconnect());
    this.#connect(!wasShown(this.#model)); // a page that is loaded again starts nothing
    // A font that arrives late has other letters.
    document.fonts?.ready.then(() => this.#fitSoon());
  }

  /** Of a terminal that is out of sight it is zero. */
  #measureLine(): number {
    const letters = this.#screen.querySelector(".xterm-screen");
    return (letters?.getBoundingClientRect().height ?? 0) / this.#terminal.rows;
  }

  /** Keep the number of rows, whatever the height of a line. */
  #setHeight(): void {
    const lineHeight = this.#measureLine();
    const isDragged = this.#screen.style.height !== this.#height;
    if (isDragged) {
      this.#rows = usableSize(this.#fit.proposeDimensions())?.rows ?? this.#rows;
      this.#height = this.#screen.style.height;
    } else if (lineHeight > 0 && Math.abs(lineHeight - this.#lineHeight) > LINE_TOLERANCE) {
      // One pixel more, as what is measured is rounded.
      const height = Math.ceil(lineHeight * this.#rows) + this.#padding() + 1;
      this.#height = this.#screen.style.height = `${height}px`;
    }
    this.#lineHeight = lineHeight || this.#lineHeight;
  }

  #padding(): number {
    const { element } = this.#terminal;
    const style = element && getComputedStyle(element);
    return style ? Number.parseFloat(style.paddingTop) + Number.parseFloat(style.paddingBottom) : 0;
  }

  #takeLook(): void {
    const { theme, isLight, fontFamily, fontSize } = readLook(this.root);
    const { options } = this.#terminal;
    const colours = findColoursOf(isLight);
    this.#find.colours = colours;
    // The match that is stood on is selected, too, and a selection lies over other marks.
    options.theme = this.#find.isOpen
      ? { ...theme, selectionInactiveBackground: colours.activeMatch }
      : theme;
    options.fontFamily = fontFamily;
    options.fontSize = this.#settings.fontSize || fontSize;
    this.root.style.setProperty("--sbx-background", theme.background ?? "");
    if (this.#isOpen) {
      this.#fitSoon();
    }
  }

  #fitSoon(): void {
    clearTimeout(this.#fitting);
    this.#fitting = setTimeout(() => this.#fitNow(), SETTLE_MS);
  }

  #fitNow(): void {
    this.#setHeight();
    const size = usableSize(this.#fit.proposeDimensions());
    if (size !== undefined) {
      this.#terminal.resize(size.cols, size.rows);
      this.#status.showSize(undefined);
    }
  }

  #showSize(imposed: Size): void {
    const own = usableSize(this.#fit.proposeDimensions());
    const isOwn = own?.cols === imposed.cols && own.rows === imposed.rows;
    this.#status.showSize(isOwn ? undefined : imposed);
  }

  // --- keys, clipboard, links ---

  #loadAddons(search: SearchAddon): void {
    const terminal = this.#terminal;
    terminal.loadAddon(this.#fit);
    terminal.loadAddon(search);
    terminal.loadAddon(this.#addon);
    terminal.loadAddon(
      new WebLinksAddon(this.#follow, {
        hover: (_, text) => this.#status.showLink(webAddress(text) ?? ""),
        leave: () => this.#status.showLink(""),
      }),
    );
    if (this.#settings.graphemes) {
      terminal.loadAddon(new UnicodeGraphemesAddon()); // takes its version into use
    }
    terminal.onTitleChange((title) => this.#status.showTitle(titleText(title)));
    terminal.parser.registerOscHandler(52, (data) => this.#answerClipboard(data));
    terminal.attachCustomKeyEventHandler((event) => this.#press(event));
  }

  #linkHandler(): ILinkHandler {
    return {
      activate: (event, text) => this.#follow(event, text),
      hover: (_, text) => this.#status.showLink(webAddress(text) ?? ""),
      leave: () => this.#status.showLink(""),
      allowNonHttpProtocols: false,
    };
  }

  /** With Ctrl or Cmd only: a click alone selects, and should not leave the page. */
  readonly #follow = (event: MouseEvent, text: string): void => {
    const address = webAddress(text);
    if (address !== undefined && (event.ctrlKey || event.metaKey)) {
      openPage(address);
    }
  };

  #answerClipboard(data: string): boolean {
    const request = parseRequest(data);
    if (request.kind === "read") {
      this.#terminal.input(emptyAnswer(request.selection), false);
    } else if (request.kind === "write" && this.#settings.clipboardWrite && this.#hasFocus()) {
      // Only of the terminal that is typed in, and never of old output.
      navigator.clipboard?.writeText(request.text).catch(() => {});
    }
    return true;
  }

  #hasFocus(): boolean {
    const isLive = this.#addon.state === "connected" && !this.#addon.isReplaying;
    return isLive && this.root.matches(":focus-within");
  }

  /** False keeps the key from the terminal. */
  #press(event: KeyboardEvent): boolean {
    const action = actionOf(event);
    if (action === undefined) {
      if (isTabOfPage(event, this.#addon.state)) {
        return false;
      }
      if (event.code === "Tab") {
        event.preventDefault(); // with a screen reader, Shift+Tab would be typed and leave as well
      }
      return true;
    }
    if (action === "paste") {
      return false; // the browser's own: a paste event follows
    }
    event.preventDefault();
    if (event.type === "keydown") {
      if (action === "copy" && this.#terminal.hasSelection()) {
        copyText(this.#terminal.getSelection());
      } else if (action === "find") {
        this.#find.open(this.#terminal.getSelection());
      } else if (action === "leave") {
        this.#terminal.blur();
        this.root.parentElement?.closest<HTMLElement>("[tabindex]")?.focus();
      }
    }
    return false;
  }

  /** Keep what happens in the terminal from the page, whose keys delete and paste cells. */
  #guardEvents(signal: AbortSignal): void {
    for (const type of ["keydown", "keyup", "keypress", "copy", "cut", "paste", "contextmenu"]) {
      this.root.addEventListener(type, (event) => event.stopPropagation(), { signal });
    }
    this.#screen.addEventListener(
      "paste",
      (event) => {
        // Before xterm.js, which pastes whatever is there.
        event.preventDefault();
        event.stopPropagation();
        this.#pasteText(event.clipboardData?.getData("text/plain") ?? "");
      },
      { capture: true, signal },
    );
  }

  #pasteText(clipboard: string): void {
    const paste = filterPaste(clipboard, this.#terminal.modes.bracketedPasteMode);
    if (paste.isRisky) {
      this.#paste.ask(paste);
    } else if (paste.text !== "") {
      this.#terminal.paste(paste.text);
    }
  }
}

/** Into the document, or into the shadow root that the output is in; once. */
function addStyle(el: HTMLElement): void {
  const root = el.getRootNode();
  const place = root instanceof ShadowRoot ? root : document.head;
  if (place.querySelector("style[data-sbx-terminal]") === null) {
    const style = element("style", "", { "data-sbx-terminal": "" }, xtermStyle, ownStyle);
    place.append(style);
  }
}
