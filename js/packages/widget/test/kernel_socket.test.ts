import { expect, test } from "vitest";
import { KernelSocket } from "../src/kernel_socket.js";
import type { Message, MessageListener, Model } from "../src/model.js";

class FakeModel implements Model {
  readonly sent: [Message, unknown][] = [];
  readonly listeners = new Set<MessageListener>();
  isDead = false;

  get(): unknown {
    return undefined;
  }

  set(): void {}

  save_changes(): void {}

  on(_event: string, listener: MessageListener): void {
    this.listeners.add(listener);
  }

  off(_event: string, listener: MessageListener): void {
    this.listeners.delete(listener);
  }

  send(message: Message, _callbacks?: unknown, buffers?: ArrayBuffer[] | ArrayBufferView[]): void {
    if (this.isDead) {
      throw new Error("dead");
    }
    this.sent.push([message, buffers]);
  }

  say(message: Message, ...buffers: DataView[]): void {
    for (const listener of [...this.listeners]) {
      listener(message, buffers);
    }
  }
}

async function opened(model: FakeModel, name = "s1"): Promise<[KernelSocket, unknown[]]> {
  const socket = new KernelSocket(model, "ws://kernel.invalid/?cols=80&rows=24&ack=1", name);
  const events: unknown[] = [];
  socket.onopen = () => events.push("open");
  socket.onmessage = ({ data }) => events.push(data);
  socket.onclose = ({ code, reason }) => events.push([code, reason]);
  await Promise.resolve();
  model.say({ type: "socket", socket: name, open: true });
  return [socket, events];
}

test("it opens with what the address asks for", async () => {
  const model = new FakeModel();
  const [, events] = await opened(model);

  expect(model.sent[0]?.[0]).toEqual({
    type: "socket",
    socket: "s1",
    open: { cols: "80", rows: "24", ack: "1" },
  });
  expect(events).toEqual(["open"]);
});

test("frames come in order, and bytes without their message's other parts", async () => {
  const model = new FakeModel();
  const [, events] = await opened(model);
  const message = Uint8Array.of(9, 9, 1, 2, 3, 9).buffer;
  model.say(
    { type: "socket", socket: "s1", frames: ["a", null, "b", null] },
    new DataView(message, 2, 3),
    new DataView(message, 0, 0),
  );

  expect(events.slice(1)).toEqual(["a", Uint8Array.of(1, 2, 3).buffer, "b", new ArrayBuffer(0)]);
});

test("it hears only what is meant for it", async () => {
  const model = new FakeModel();
  const [, events] = await opened(model);
  model.say({ type: "socket", socket: "s2", frames: ["x"] });
  model.say({ type: "bundle" });

  expect(events).toEqual(["open"]);
});

test("text and bytes are sent", async () => {
  const model = new FakeModel();
  const [socket] = await opened(model);
  socket.send("{}");
  socket.send(Uint8Array.of(1));

  expect(model.sent.slice(1)).toEqual([
    [{ type: "socket", socket: "s1", text: "{}" }, []],
    [{ type: "socket", socket: "s1" }, [Uint8Array.of(1)]],
  ]);
});

test("after either end's close nothing is heard or sent", async () => {
  const model = new FakeModel();
  const [socket, events] = await opened(model);
  model.say({ type: "socket", socket: "s1", close: 1008, reason: "gone" });
  socket.send("late");
  socket.close();

  expect(events).toEqual(["open", [1008, "gone"]]);
  expect(model.sent).toHaveLength(1);
  expect(model.listeners.size).toBe(0);

  const [other] = await opened(model, "s2");
  other.close();
  other.close();

  expect(model.sent.at(-1)?.[0]).toEqual({ type: "socket", socket: "s2", close: true });
  expect(model.sent).toHaveLength(3);
  expect(model.listeners.size).toBe(0);
});

test("a kernel that is gone closes it", async () => {
  const model = new FakeModel();
  const [socket, events] = await opened(model);
  model.isDead = true;
  socket.send("x");

  expect(events.at(-1)).toEqual([1006, "The kernel does not answer."]);
});
