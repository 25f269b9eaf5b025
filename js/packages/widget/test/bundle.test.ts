/** What is in the Python package is what the sources make. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";

const KEPT = fileURLToPath(new URL("../../../../sandbox_kernel/widget/static", import.meta.url));
let fresh = "";

beforeAll(() => {
  fresh = mkdtempSync(join(tmpdir(), "widget-"));
  const build = fileURLToPath(new URL("../build.mjs", import.meta.url));
  execFileSync(process.execPath, [build, fresh], { stdio: "pipe" });
});

afterAll(() => rmSync(fresh, { recursive: true, force: true }));

test("the kept bundle is the one of these sources: else run `make bundle` and commit it", () => {
  expect(readdirSync(KEPT).sort()).toEqual(readdirSync(fresh).sort());
  for (const name of readdirSync(fresh)) {
    expect(readFileSync(join(KEPT, name)).equals(readFileSync(join(fresh, name))), name).toBe(true);
  }
});

test("the loader stays small, and imports by name only what the kernel says", () => {
  const loader = readFileSync(join(fresh, "loader.js"), "utf8");

  expect(loader.length).toBeLessThan(1600);
  expect(loader).not.toMatch(/(?:^|[;}])\s*import[ {*"]/);
});

test("the bundle has no imports of its own, and a size that is looked after", () => {
  const name = readdirSync(fresh).find((each) => each.startsWith("terminal.")) ?? "";
  const bundle = readFileSync(join(fresh, name), "utf8");

  expect(bundle.length).toBeLessThan(480_000);
  expect(bundle).not.toMatch(/(?:^|[;}])\s*import[ {*"]/);
});
