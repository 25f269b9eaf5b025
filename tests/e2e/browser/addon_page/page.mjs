// A page with any number of xterm.js terminals, each connected by one of three addons: the two that
// are published, as they are, and ours.  Tests reach them as `cells[name]`.
import { SandboxAddon as Own } from "@jupyter-sandbox/xterm-addon";
import { SerializeAddon } from "@xterm/addon-serialize";
import { Terminal } from "@xterm/xterm";
import { SandboxAddon as Preview } from "cloudflare-sandbox-preview/xterm";
import { SandboxAddon as Stable } from "cloudflare-sandbox-stable/xterm";
import "@xterm/xterm/css/xterm.css";

const ADDONS = { stable: Stable, preview: Preview, own: Own };

/** Records what passes; changes nothing. */
class RecordedSocket extends WebSocket {
  constructor(url) {
    super(url);
    this.record = { url: String(url), isOpened: false, typed: "", orders: [], received: 0, errors: [] };
    cells[new URL(url).searchParams.get("cell")].sockets.push(this.record);
    this.addEventListener("open", () => {
      this.record.isOpened = true;
    });
    this.addEventListener("message", ({ data }) => {
      this.record.received += data.byteLength ?? 0;
      if (typeof data === "string" && data.startsWith('{"type":"error"')) {
        this.record.errors.push(JSON.parse(data));
      }
    });
    this.addEventListener("close", ({ code, reason }) => Object.assign(this.record, { code, reason }));
  }

  send(data) {
    if (typeof data === "string") this.record.orders.push(JSON.parse(data));
    else {
      this.record.typed += new TextDecoder("latin1").decode(data);
      this.record.typedAt = Date.now() / 1000;
    }
    super.send(data);
  }
}

class Cell {
  states = []; // [state, error or null]
  sockets = [];

  constructor({ name, addon, target, cols, rows, scrollback, origin, query, reconnect }) {
    this.target = target;
    const place = document.body.appendChild(document.createElement("div"));
    place.id = name;
    place.className = "cell";
    this.terminal = new Terminal({ cols, rows, scrollback, fontSize: 11, allowProposedApi: true });
    this.serializer = new SerializeAddon();
    this.terminal.loadAddon(this.serializer);
    this.addon = new ADDONS[addon]({
      reconnect,
      getWebSocketUrl: ({ sandboxId, sessionId, terminalId, cursor, origin: own }) => {
        const path = terminalId === undefined ? "terminal" : `terminals/${terminalId}/connect`;
        const url = new URL(`${origin ?? own}/sandbox/api/sandboxes/${sandboxId}/${path}`);
        const given = { session: sessionId, cursor, cell: name, ...query };
        for (const [key, value] of Object.entries(given)) {
          if (value !== undefined && value !== null) url.searchParams.set(key, value);
        }
        query = {}; // of the first attempt only
        return url.href;
      },
      onStateChange: (state, error) => this.states.push([state, error ? error.message : null]),
    });
    this.terminal.loadAddon(this.addon);
    this.terminal.open(place);
  }

  connect() {
    this.addon.connect(this.target);
  }

  /** The network is back: who waits longer after each loss need not. */
  comeBack() {
    if (this.addon.state === "reconnecting") window.dispatchEvent(new Event("online"));
  }

  /** What can be read, scrollback included, without the blank end. */
  get text() {
    return this.#read(0);
  }

  /** What of that is on the screen: cheap enough to be looked at during a flood. */
  get shown() {
    return this.#read(this.terminal.buffer.active.baseY);
  }

  #read(first) {
    const buffer = this.terminal.buffer.active;
    const lines = [];
    for (let y = first; y < buffer.length; y++) {
      const line = buffer.getLine(y);
      const text = line.translateToString(true);
      if (line.isWrapped && y > first) lines[lines.length - 1] += text;
      else lines.push(text);
    }
    return lines.join("\n").trimEnd();
  }

  /** What the screen is: characters, colours, cursor, modes, both pages. */
  get screen() {
    const { cols, rows, modes } = this.terminal;
    return `${cols}x${rows} ${JSON.stringify(modes)} ${this.serializer.serialize()}`;
  }
}

/** The longest time between two frames that the page painted. */
class Frames {
  longest = 0;
  #last = performance.now();

  constructor() {
    const tick = (now) => {
      this.longest = Math.max(this.longest, now - this.#last);
      this.#last = now;
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  take() {
    const { longest } = this;
    this.longest = 0;
    return longest;
  }
}

const cells = {};
globalThis.WebSocket = RecordedSocket;
globalThis.cells = cells;
globalThis.frames = new Frames();
globalThis.openCell = (options) => {
  cells[options.name] = new Cell(options);
  cells[options.name].connect();
};
