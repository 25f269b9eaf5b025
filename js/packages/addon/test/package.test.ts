/** What npm would publish. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
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
    "pageEnvironment",
  ]);
  expect(source).not.toMatch(/\bimport\b/);
  expect(source.length).toBeLessThan(24 * 1024);
});

test("the package needs nothing, and knows nothing of Jupyter", () => {
  const types = readFileSync(`${ROOT}dist/addon.d.ts`, "utf-8");
  const manifest = JSON.parse(readFileSync(`${ROOT}package.json`, "utf-8"));

  expect(types).not.toMatch(/jupyter/i);
  expect(manifest.dependencies).toBeUndefined();
  expect(manifest.peerDependenciesMeta["@xterm/xterm"].optional).toBe(true);
});

test("the version is that of the Python package", () => {
  const manifest = JSON.parse(readFileSync(`${ROOT}package.json`, "utf-8"));
  const python = readFileSync(`${ROOT}../../../sandbox_kernel/__init__.py`, "utf-8");

  expect(python).toContain(`__version__ = "${manifest.version}"`);
});

test("the README's example has the right types", () => {
  const example = /```ts\n([\s\S]*?)```/.exec(readFileSync(`${ROOT}README.md`, "utf-8"))?.[1];
  const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");
  // Inside node_modules, where both packages are found as a user finds them.
  const cache = `${ROOT}../../node_modules/.cache`;
  mkdirSync(cache, { recursive: true });
  const folder = mkdtempSync(`${cache}/example-`);
  try {
    writeFileSync(`${folder}/package.json`, '{ "type": "module" }');
    writeFileSync(`${folder}/example.ts`, example ?? "");
    writeFileSync(
      `${folder}/tsconfig.json`,
      JSON.stringify({
        compilerOptions: {
          module: "nodenext",
          target: "es2022",
          lib: ["es2022", "dom"],
          types: [],
          strict: true,
          noEmit: true,
          skipLibCheck: true,
        },
        files: ["example.ts"],
      }),
    );
    execFileSync(process.execPath, [tsc, "-p", folder], { encoding: "utf-8" });
  } finally {
    rmSync(folder, { recursive: true });
  }
}, 60_000);
