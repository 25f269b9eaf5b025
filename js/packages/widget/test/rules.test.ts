import { expect, describe as group, test } from "vitest";
import { CarrierChoice } from "../src/carrier.js";
import { emptyAnswer, parseRequest } from "../src/clipboard.js";
import { actionOf, isTabOfPage } from "../src/keys.js";
import { webAddress } from "../src/links.js";
import { filterPaste, oneLine } from "../src/paste.js";
import { usableSize } from "../src/size.js";
import { describe, type Facts, titleText } from "../src/status.js";

group("the carrier", () => {
  test("is the server where there is one, else the kernel", () => {
    expect(new CarrierChoice("auto", true).current).toBe("server");
    expect(new CarrierChoice("auto", false).current).toBe("kernel");
  });

  test("becomes the kernel after two handshakes that failed", () => {
    const choice = new CarrierChoice("auto", true);
    choice.failed();
    expect(choice.current).toBe("server");
    choice.failed();

    expect(choice.current).toBe("kernel");
  });

  test("stays the server that was reached once: a restart takes many failures", () => {
    const choice = new CarrierChoice("auto", true);
    choice.failed();
    choice.opened();
    for (let count = 0; count < 20; count += 1) {
      choice.failed();
    }

    expect(choice.current).toBe("server");
  });

  test("stays the one that was asked for", () => {
    const choice = new CarrierChoice("server", true);
    choice.failed();
    choice.failed();

    expect(choice.current).toBe("server");
    expect(new CarrierChoice("kernel", true).current).toBe("kernel");
  });
});

group("a paste", () => {
  test("loses what could act as keys or end its bracket", () => {
    expect(filterPaste("a\x1b[201~rm -rf\x03 b\x9b1mc\x7f\x00\x08", true).text).toBe(
      "a[201~rm -rf b1mc",
    );
  });

  test("keeps tabs, ends of lines and every letter", () => {
    expect(filterPaste("x\ty\r\nz\rä👩‍👩‍👧 \u202aא", true).text).toBe("x\ty\nz\nä👩‍👩‍👧 \u202aא");
  });

  test.each([
    ["ls", false, false],
    ["ls\n", false, true],
    ["a\nb", false, true],
    ["a\nb\n", true, false],
  ])("of %j is asked about only where lines run at once", (text, isBracketed, isRisky) => {
    expect(filterPaste(text, isBracketed).isRisky).toBe(isRisky);
  });

  test("knows its lines, and can be made one", () => {
    expect(filterPaste("a\nb\n", false).lines).toBe(2);
    expect(filterPaste("ls\n", false).lines).toBe(1);
    expect(oneLine("cd a\n  make \n\nrun\n")).toBe("cd a make run");
  });
});

group("a link", () => {
  test("is followed to web pages only", () => {
    expect(webAddress("https://a.example/x?y#z")).toBe("https://a.example/x?y#z");
    expect(webAddress("HTTP://a.example")).toBe("http://a.example/");
    for (const text of ["javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", "a.b"]) {
      expect(webAddress(text)).toBeUndefined();
    }
  });
});

group("a program's word about the clipboard", () => {
  test("gets an empty answer when it reads", () => {
    expect(parseRequest("c;?")).toEqual({ kind: "read", selection: "c" });
    expect(emptyAnswer("c")).toBe("\x1b]52;c;\x1b\\");
    expect(emptyAnswer("")).toBe("\x1b]52;c;\x1b\\");
  });

  test("may be text, within a bound", () => {
    expect(parseRequest(`c;${btoa("caf\xc3\xa9")}`)).toEqual({ kind: "write", text: "café" });
    expect(parseRequest(`c;${"A".repeat(200_000)}`)).toEqual({ kind: "ignored" });
  });

  test.each(["", "c", "c;", "c;***", "x;YQ==", "c;/w==", "\x1b;?"])("%j is ignored", (data) => {
    expect(parseRequest(data)).toEqual({ kind: "ignored" });
  });
});

group("a key", () => {
  const key = { type: "keydown", ctrlKey: true, shiftKey: true, altKey: false, metaKey: false };

  test("with Ctrl+Shift may be the widget's", () => {
    expect(
      ["KeyC", "KeyV", "KeyF", "KeyE", "KeyX"].map((code) => actionOf({ ...key, code })),
    ).toEqual(["copy", "paste", "find", "leave", undefined]);
  });

  test("is else the program's", () => {
    for (const without of ["ctrlKey", "shiftKey"] as const) {
      expect(actionOf({ ...key, code: "KeyC", [without]: false })).toBeUndefined();
    }
    for (const more of ["altKey", "metaKey"] as const) {
      expect(actionOf({ ...key, code: "KeyC", [more]: true })).toBeUndefined();
    }
  });

  test("is Tab of the program, and of the page where no program is", () => {
    const tab = { ...key, code: "Tab", ctrlKey: false };
    const states = ["connecting", "connected", "reconnecting", "disconnected"] as const;

    for (const shiftKey of [false, true]) {
      expect(states.map((state) => isTabOfPage({ ...tab, shiftKey }, state))).toEqual([
        false,
        false,
        true,
        true,
      ]);
    }
    expect(isTabOfPage({ ...tab, ctrlKey: true }, "disconnected")).toBe(false);
    expect(isTabOfPage({ ...tab, code: "KeyX" }, "disconnected")).toBe(false);
  });
});

group("a size", () => {
  test("is taken as it fits", () => {
    expect(usableSize({ cols: 80, rows: 24 })).toEqual({ cols: 80, rows: 24 });
  });

  test.each([
    undefined,
    {},
    { cols: 0, rows: 0 },
    { cols: 2, rows: 24 },
    { cols: 9, rows: 24 },
    { cols: 80, rows: 1 },
    { cols: Number.NaN, rows: 24 },
    { cols: 80, rows: Number.NaN },
  ])("of %j is of a place that is folded or scrolled away", (measured) => {
    expect(usableSize(measured)).toBeUndefined();
  });
});

group("the status", () => {
  const facts: Facts = {
    state: "connected",
    exit: undefined,
    error: undefined,
    retryIn: undefined,
    carrier: "server",
    isSession: true,
  };
  const lost = { code: "CONNECTION_LOST", message: "The connection was lost (1006)." };

  test("names each state", () => {
    expect(describe({ ...facts, state: "connecting" })).toMatchObject({
      mood: "busy",
      text: "Connecting …",
      action: "",
    });
    expect(describe(facts)).toMatchObject({ mood: "good", text: "Connected", detail: "" });
    expect(describe({ ...facts, state: "reconnecting", error: lost, retryIn: 2.2 })).toMatchObject({
      text: "Reconnecting",
      countdown: "in 3 s",
      detail: lost.message,
      action: "Reconnect now",
    });
    expect(describe({ ...facts, state: "disconnected", error: lost })).toMatchObject({
      mood: "bad",
      text: "Disconnected",
      action: "Reconnect now",
    });
  });

  test("tells how a program ended, and offers a session's next shell", () => {
    const ended: Facts = {
      ...facts,
      state: "disconnected",
      exit: { code: 3, timedOut: false },
      error: { code: "TERMINAL_EXITED", message: "It ended." },
    };

    expect(describe(ended)).toMatchObject({
      mood: "ended",
      text: "Exited with code 3",
      action: "Start again",
    });
    expect(describe({ ...ended, isSession: false }).action).toBe("");
    expect(describe({ ...ended, exit: { code: null, signal: 9, timedOut: false } }).text).toBe(
      "Ended by signal 9",
    );
    expect(describe({ ...ended, exit: { code: null, timedOut: false } }).text).toBe("Exited");
  });

  test.each(["TERMINAL_NOT_FOUND", "STALE_TERMINAL_HANDLE"])("of %s is gone", (code) => {
    const gone: Facts = { ...facts, state: "disconnected", error: { code, message: "Why." } };

    expect(describe(gone)).toMatchObject({ text: "Gone", detail: "Why.", action: "Start again" });
    expect(describe({ ...gone, isSession: false }).action).toBe("");
  });

  test("offers to start what has stopped", () => {
    const error = { code: "CONTAINER_UNAVAILABLE", message: "It has stopped." };
    const stopped: Facts = { ...facts, state: "disconnected", error };

    expect(describe(stopped)).toMatchObject({
      text: "Disconnected",
      detail: "It has stopped.",
      action: "Start again",
    });
  });

  test("offers no way back to a terminal that ended with its sandbox", () => {
    const error = { code: "CONTAINER_UNAVAILABLE", message: "It has stopped." };
    const stopped: Facts = { ...facts, state: "disconnected", error, isSession: false };

    expect(describe(stopped)).toMatchObject({
      text: "Gone",
      detail: "It has stopped. Run the cell again for a new terminal.",
      action: "",
    });
  });

  test("tells a login that has ended from a lost network", () => {
    const error = { code: "AUTHENTICATION_REQUIRED", message: "Log in again." };

    expect(describe({ ...facts, state: "disconnected", error })).toMatchObject({
      text: "Logged out",
      detail: "Log in again.",
      action: "Reconnect now",
    });
  });

  test("says what helps when a kernel does not answer", () => {
    const status = describe({ ...facts, state: "reconnecting", carrier: "kernel", error: lost });

    expect(status.detail).toContain("run the cell again");
  });

  test("shows a title as bounded text", () => {
    expect(titleText(`a\x1b\u202eb${"c".repeat(200)}`)).toBe(`ab${"c".repeat(98)}`);
  });
});
