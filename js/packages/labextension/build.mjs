// Builds the extension into the folder that the Python package installs for JupyterLab, or into the
// one that is named.  The script's name holds a digest of it, so that no page keeps an old one.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const { name, version, description, license } = JSON.parse(
  readFileSync(resolve(here, "package.json"), "utf8"),
);
const folder = resolve(process.argv[2] ?? resolve(here, "../../../data/labextensions", name));

const {
  outputFiles: [script],
} = await build({
  absWorkingDir: here,
  entryPoints: ["src/index.ts"],
  write: false,
  bundle: true,
  format: "iife",
  target: "es2022",
  minify: true,
  charset: "utf8",
  legalComments: "none",
});
const digest = createHash("sha256").update(script.contents).digest("hex").slice(0, 16);
const load = `static/remoteEntry.${digest}.js`;
const about = {
  name,
  version,
  description,
  license,
  jupyterlab: { extension: true, _build: { load, extension: "./extension" } },
};

rmSync(folder, { recursive: true, force: true });
mkdirSync(resolve(folder, "static"), { recursive: true });
writeFileSync(resolve(folder, load), script.contents);
writeFileSync(resolve(folder, "package.json"), `${JSON.stringify(about, null, 2)}\n`);
console.log(`${load}: ${script.contents.length} bytes`);
