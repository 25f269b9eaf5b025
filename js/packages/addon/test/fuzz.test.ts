/** Whatever a server sends, the connection ends in a state that says what is so. */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { Scene } from "./support.js";

const FILE = new URL("../../../../tests/vectors/terminal_browser.json", import.meta.url);
const TEXTS: string[] = JSON.parse(readFileSync(FILE, "utf-8")).vectors.flatMap(
  ({ text }: { text?: string }) => text ?? [],
);

/** A small generator of numbers that are the same in each run (mulberry32). */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

test("any frames in any order: connected on an open socket, or not connected", {
  timeout: 60_000,
}, () => {
  const seen = new Set<string>();
  for (let seed = 1; seed <= 500; seed += 1) {
    const pick = numbers(seed);
    const scene = new Scene();
    scene.connection.start();
    scene.socket.ready();
    for (let step = 0; step < 40; step += 1) {
      const text = TEXTS[pick(TEXTS.length)] ?? "";
      const { socket } = scene;
      switch (pick(8)) {
        case 0:
          socket.text(text.slice(0, pick(text.length + 1)));
          break;
        case 1:
          socket.bytes(new Uint8Array(pick(20)));
          break;
        case 2:
          scene.environment.advance(pick(40));
          break;
        case 3:
          scene.screen.draw(pick(5));
          break;
        case 4:
          scene.connection.input("x");
          break;
        case 5:
          socket.ready();
          break;
        case 6:
          if (pick(4) === 0) {
            socket.serverCloses([1000, 1006, 1008, 1011][pick(4)] ?? 1006);
          }
          break;
        default:
          socket.text(text);
      }
      const { state } = scene.connection;
      seen.add(state);
      expect(scene.changes.at(-1)?.state).toBe(state);
      expect(scene.socket.isClosed).toBe(state === "reconnecting" || state === "disconnected");
      expect(scene.connection.retryIn !== undefined).toBe(state === "reconnecting");
    }
    scene.connection.stop();
    expect(scene.environment.timerCount).toBe(0);
  }
  expect(seen.size).toBe(4);
});
