// Builds dist/: one ES module and its types.  Prints the module's size.
import { execFileSync } from "node:child_process";
import { copyFileSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
process.chdir(here);
rmSync("dist", { recursive: true, force: true });
await build({
  absWorkingDir: here,
  entryPoints: ["src/index.ts"],
  outfile: "dist/index.js",
  bundle: true,
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
