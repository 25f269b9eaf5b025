/** Saved widgets of a notebook are made only where they may act. */
import { expect, test, vi } from "vitest";
import { withholdWidgets } from "../src/widgets.js";

const saved = { state: {} };

function notebook(kernelspec: string, ...trusted: boolean[]) {
  const metadata: Record<string, unknown> = { widgets: saved, kernelspec: { name: kernelspec } };
  return {
    cells: [
      ...trusted.map((each) => ({ type: "code", trusted: each })),
      { type: "markdown", trusted: false },
    ],
    getMetadata: vi.fn((key?: string): unknown => (key === undefined ? metadata : metadata[key])),
  };
}

test.each([
  ["a trusted notebook of the host", "python3", "python3", [true, true], saved],
  ["one without a kernel", "python3", undefined, [true], saved],
  ["one that is not trusted", "python3", "python3", [true, false], undefined],
  ["one without cells to trust", "python3", "python3", [], undefined],
  ["one in a sandbox", "python3", "sandbox-python", [true], undefined],
  ["one for a sandbox", "sandbox-python", undefined, [true], undefined],
])("%s", (_, kernelspec, connected, trusted, expected) => {
  const model = notebook(kernelspec, ...trusted);
  withholdWidgets(model, () => connected);

  expect(model.getMetadata("widgets")).toBe(expected);
  expect(model.getMetadata("kernelspec")).toEqual({ name: kernelspec });
});

test("what is saved stays in the notebook, however many views it has", () => {
  const model = notebook("sandbox-python", true);
  withholdWidgets(model, () => undefined);
  const once = model.getMetadata;
  withholdWidgets(model, () => undefined);

  expect(model.getMetadata).toBe(once);
  expect(model.getMetadata()).toMatchObject({ widgets: saved });
});
