// Builds dist/: one ES module and its types.  Prints the module's size.
import { execFileSync } from "node:child_process";
import { copyFileSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

process.chdir(import.meta.dirname ?? new URL(".", import.meta.url).pathname);
rmSync("dist", { recursive: true, force: true });
await build({
  entryPoints: ["./src/index.ts"],
  outfile: "dist/index.js",
  bundle: true,
  packages: "external",
  format: "esm",
  target: "es2022",
  minify: true,
  sourcemap: true,
});
const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");
execFileSync(process.execPath, [tsc, "-p", "tsconfig.build.json"], { stdio: "inherit" });
copyFileSync("../../../LICENSE", "LICENSE");

const module = readFileSync("dist/index.js");
console.log(
  `@jupyter-sandbox/xterm-addon: ${module.length} bytes, ${gzipSync(module).length} with gzip`,
);
