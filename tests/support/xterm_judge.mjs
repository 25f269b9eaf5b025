// Draws output with @xterm/headless and tells what the terminal then is: one JSON request per line on
// standard input, one JSON answer per line on standard output.
//
// Request: {cols, rows, steps: [{write: base64} | {resize: [cols, rows]} | {look: true}]}.
// Answer: {looks: [state, ...]}, one per "look"; or {error}.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(new URL("../../js/package.json", import.meta.url));
const { Terminal } = require("@xterm/headless");
const { SerializeAddon } = require("@xterm/addon-serialize");

const COLOUR_KIND = 0x3000000;
const EXTENDED = 0x10000000;

function colour(bits) {
  const kind = bits & COLOUR_KIND;
  if (kind === 0) return 0;
  return kind | (bits & (kind === COLOUR_KIND ? 0xffffff : 0xff));
}

function extra(core, data, used, underlined) {
  const bits = used ? data._ext : 0;
  const style = underlined ? Math.max((bits & 0x1c000000) >>> 26, 1) : 0;
  // A link is forgotten when the row that it was opened on is erased, even while it is in use.
  const url = used ? data._urlId : 0;
  const link = url ? (core._oscLinkService.getLinkData(url)?.uri ?? "?") : "";
  if (!style && !link) return "";
  // Parameter 59 leaves white instead of the default.
  const underline = (bits & 0x3ffffff) === 0x3ffffff ? 0 : colour(bits);
  return `/${style},${underline},${link}`;
}

function look(core, fg, bg, data) {
  const flags = ((fg >>> 26) << 8) | ((bg & ~EXTENDED) >>> 26);
  return `${colour(fg)},${colour(bg)},${flags}${extra(core, data, bg & EXTENDED, fg & 0x10000000)}`;
}

function row(core, line, cols, isFirst, cursorX) {
  const runs = [];
  let last;
  for (let x = 0; x < cols; x++) {
    const [, chars, width] = line.get(x);
    const bg = line.getBg(x);
    let is = look(core, line.getFg(x), bg, line._extendedAttrs[x] ?? { _ext: 0, _urlId: 0 });
    const bare = is.startsWith("0,") && /^0,\d+,0$/.test(is);
    // An empty cell that is underlined or the like can only be written as a blank.
    const behind = x === cols - 1 && cursorX === cols; // as is one with the cursor behind it
    const isTail = chars === "" && width === 0 && x > 0 && line.getWidth(x - 1) === 2;
    const content = chars === "" && !isTail ? (bare && !behind ? "\0" : " ") : isTail ? "\x01" : chars;
    if (is === last) runs[runs.length - 1][1] += content;
    else runs.push([is, content]);
    last = is;
  }
  return { wrapped: line.isWrapped && !isFirst, runs };
}

function page(core, buffer, cols, rows, isActive) {
  const lines = [];
  // An alternate page that is resized while it is not shown is left with room for a scrollback.
  const first = buffer._hasScrollback ? 0 : buffer.ybase;
  for (let y = first; y < buffer.lines.length; y++) lines.push(row(core, buffer.lines.get(y), cols, y === first, y === buffer.ybase + buffer.y && isActive ? buffer.x : 0));
  const saved = buffer.savedCurAttrData;
  return {
    lines,
    base: buffer.ybase - first,
    margins: [buffer.scrollTop, buffer.scrollBottom],
    tabs: Object.keys(buffer.tabs).map(Number).filter((tab) => tab < cols && buffer.tabs[tab]),
    saved: [
      Math.min(buffer.savedX, cols - 1),
      Math.min(Math.max(buffer.savedY - buffer.ybase, 0), rows - 1),
      look(core, saved.fg, saved.bg & ~EXTENDED, {}),
      JSON.stringify(buffer.savedCharset ?? null),
    ],
  };
}

function state(term, serialize, answers, title) {
  const core = term._core;
  const { buffers, cols, rows } = core._bufferService;
  const handler = core._inputHandler;
  const pen = handler._curAttrData;
  const alternate = buffers.active === buffers.alt;
  const { glevel, charset, _charsets } = core._charsetService;
  return {
    size: [cols, rows],
    alternate,
    normal: page(core, buffers.normal, cols, rows, !alternate),
    alt: alternate ? page(core, buffers.alt, cols, rows, true) : null,
    cursor: [buffers.active.x, buffers.active.y],
    pen: look(core, pen.fg, pen.bg, pen.extended),
    charset: JSON.stringify(charset ?? null),
    sets: [0, 1, 2, 3].map((n) => JSON.stringify(_charsets[n] ?? null)),
    level: glevel,
    join: handler._parser.precedingJoinState >> 1,
    parser: handler._parser.currentState,
    modes: {
      ...core.coreService.modes,
      ...core.coreService.decPrivateModes,
      hidden: core.coreService.isCursorHidden,
      mouse: core.coreMouseService.activeProtocol,
      encoding: core.coreMouseService.activeEncoding,
      eol: term.options.convertEol,
      blink: term.options.cursorBlink,
    },
    title,
    titles: handler._windowTitleStack,
    serialized: serialize.serialize(),
    answers,
  };
}

async function judge({ cols, rows, steps }) {
  const term = new Terminal({
    cols,
    rows,
    scrollback: 1000,
    allowProposedApi: true,
    logLevel: "off",
    windowOptions: { pushTitle: true, popTitle: true },
  });
  const serialize = new SerializeAddon();
  term.loadAddon(serialize);
  const answers = [];
  let title = "";
  term.onData((data) => answers.push(data));
  term.onTitleChange((text) => {
    title = text;
  });
  const looks = [];
  for (const step of steps) {
    if (step.write !== undefined) {
      await new Promise((done) => term.write(Buffer.from(step.write, "base64"), done));
    } else if (step.resize) term.resize(...step.resize);
    else looks.push(state(term, serialize, [...answers], title));
  }
  term.dispose();
  return { looks };
}

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = await judge(JSON.parse(line));
  } catch (error) {
    answer = { error: String(error.stack) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
