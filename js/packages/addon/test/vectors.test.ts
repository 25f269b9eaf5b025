/** The golden frames, which Python reads too. */
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import {
  type ClientMessage,
  encodeInput,
  encodeMessage,
  FrameReader,
  ProtocolError,
} from "../src/protocol.js";

interface Vector {
  name: string;
  direction: "server" | "client";
  text?: string;
  binary?: string;
  event: { type: string; [field: string]: unknown };
}

const FILE = new URL("../../../../tests/vectors/terminal_browser.json", import.meta.url);
const VECTORS: Vector[] = JSON.parse(readFileSync(FILE, "utf-8")).vectors;

function bytes(base64: string): Uint8Array {
  return new Uint8Array(Buffer.from(base64, "base64"));
}

function decode(vector: Vector): object | undefined {
  const reader = new FrameReader();
  let event: object | undefined;
  if (vector.text !== undefined) {
    event = reader.read(vector.text);
  }
  if (vector.binary !== undefined) {
    expect(event).toBeUndefined();
    event = reader.read(bytes(vector.binary).slice().buffer);
  }
  return event;
}

describe("the server's frames", () => {
  test.each(VECTORS.filter(({ direction }) => direction === "server"))("$name", (vector) => {
    const { event } = vector;
    if (event.type === "invalid") {
      expect(() => decode(vector)).toThrow(ProtocolError);
    } else if (event.type === "ignored") {
      expect(decode(vector)).toBeUndefined();
    } else {
      const { data, ...fields } = event;
      expect(decode(vector)).toEqual(
        data === undefined ? event : { ...fields, data: bytes(data as string) },
      );
    }
  });
});

describe("the browser's frames", () => {
  const sent = VECTORS.filter(
    ({ direction, event }) => direction === "client" && event.type !== "invalid",
  );
  test.each(sent)("$name", ({ event, text, binary }) => {
    if (event.type === "input") {
      expect(encodeInput(bytes(event["data"] as string))).toEqual([bytes(binary ?? "")]);
    } else {
      expect(JSON.parse(encodeMessage(event as unknown as ClientMessage))).toEqual(
        JSON.parse(text ?? ""),
      );
    }
  });
});

test("every type of message has a vector", () => {
  const types = new Set(VECTORS.map(({ direction, event }) => `${direction} ${event.type}`));

  for (const type of "ready replay live chunk screen size truncated exit error pong".split(" ")) {
    expect(types).toContain(`server ${type}`);
  }
  for (const type of "input ack resize view interrupt terminate ping".split(" ")) {
    expect(types).toContain(`client ${type}`);
  }
});
