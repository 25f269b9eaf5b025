import { describe, expect, test } from "vitest";
import { findServer, type PageDocument } from "../src/page.js";

const PAGE = "https://hub.example/user/alice/lab/tree/a.ipynb";

interface Fake {
  tag?: string;
  type?: string;
  parent?: "head" | "body" | "output";
  text?: string;
  dataset?: Record<string, string>;
}

function page({ tag = "SCRIPT", type = "application/json", ...rest }: Fake): PageDocument {
  const head = {};
  const body = { dataset: rest.dataset ?? {} };
  const parents = { head, body, output: {} };
  const element = {
    tagName: tag,
    type,
    parentElement: parents[rest.parent ?? "head"],
    textContent: rest.text ?? "",
  };
  return { head, body, getElementById: () => (rest.text === undefined ? null : element) };
}

describe("the server of a page", () => {
  test.each([
    ["/", "https://hub.example/"],
    ["/user/alice/", "https://hub.example/user/alice/"],
    ["/user/alice", "https://hub.example/user/alice/"],
    ["https://hub.example/user/alice/", "https://hub.example/user/alice/"],
  ])("with the base %s is %s", (baseUrl, expected) => {
    const text = JSON.stringify({ baseUrl, wsUrl: "" });

    expect(findServer(page({ text }), PAGE)).toBe(expected);
    expect(findServer(page({ text, parent: "body" }), PAGE)).toBe(expected);
  });

  test("is in the body's attribute of the classic notebook", () => {
    expect(findServer(page({ dataset: { baseUrl: "/x/" } }), PAGE)).toBe("https://hub.example/x/");
  });

  test("is none where nothing says so, or nothing that can be read", () => {
    expect(findServer(page({}), PAGE)).toBeUndefined();
    expect(findServer(page({ text: "{" }), PAGE)).toBeUndefined();
    expect(findServer(page({ text: "null" }), PAGE)).toBeUndefined();
    expect(findServer(page({ text: '{"baseUrl": 7}' }), PAGE)).toBeUndefined();
    expect(findServer({ ...page({}), body: null }, PAGE)).toBeUndefined();
  });

  const text = JSON.stringify({ baseUrl: "/" });

  test("is not taken from an element that an output put there", () => {
    expect(findServer(page({ text, tag: "DIV" }), PAGE)).toBeUndefined();
    expect(findServer(page({ text, tag: "FORM", parent: "output" }), PAGE)).toBeUndefined();
    expect(findServer(page({ text, type: "text/plain" }), PAGE)).toBeUndefined();
    expect(findServer(page({ text, parent: "output" }), PAGE)).toBeUndefined();
  });

  test.each(["https://evil.example/", "//evil.example/", "javascript:alert(1)", "data:,x"])(
    "is not %s, which is of another origin",
    (baseUrl) => {
      expect(findServer(page({ text: JSON.stringify({ baseUrl }) }), PAGE)).toBeUndefined();
    },
  );

  test("is none in a page that is of no server", () => {
    expect(findServer(page({ text }), "vscode-webview://abc/index.html")).toBeUndefined();
    expect(findServer(page({ text }), "about:srcdoc")).toBeUndefined();
  });
});
