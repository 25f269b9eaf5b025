/** What npm would publish. */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { beforeAll, expect, test } from "vitest";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

beforeAll(() => {
  if (!existsSync(`${ROOT}dist/index.js`)) {
    throw new Error("There is nothing built: run `npm run build` first.");
  }
});

test("the package holds the module, its types and no sources or tests", () => {
  const output = execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], {
    cwd: ROOT,
    encoding: "utf-8",
    stdio: ["ignore", "pipe", "ignore"],
  });
  const [packed] = JSON.parse(output) as [{ size: number; files: { path: string }[] }];
  const paths = packed.files.map(({ path }) => path);

  expect(paths).toEqual(
    expect.arrayContaining([
      "LICENSE",
      "README.md",
      "package.json",
      "dist/index.js",
      "dist/index.d.ts",
      "dist/addon.d.ts",
    ]),
  );
  expect(paths.filter((path) => /^(src|test)\/|tsconfig|build/.test(path))).toEqual([]);
  expect(packed.size).toBeLessThan(64 * 1024);
}, 30_000);

test("the built module exports the public names and imports nothing", async () => {
  const built = await import(`${ROOT}dist/index.js`);
  const source = readFileSync(`${ROOT}dist/index.js`, "utf-8");

  expect(Object.keys(built).sort()).toEqual([
    "SandboxAddon",
    "TerminalError",
    "TerminalExitedError",
  ]);
  expect(source).not.toMatch(/\bimport\b/);
  expect(source.length).toBeLessThan(24 * 1024);
});

test("nothing in the sources knows of Jupyter or of a machine", () => {
  const types = readFileSync(`${ROOT}dist/addon.d.ts`, "utf-8");
  const manifest = JSON.parse(readFileSync(`${ROOT}package.json`, "utf-8"));

  expect(types).not.toMatch(/jupyter/i);
  expect(manifest.dependencies).toBeUndefined();
  expect(manifest.peerDependenciesMeta["@xterm/xterm"].optional).toBe(true);
});
