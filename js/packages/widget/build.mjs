// Builds the loader and the bundle into the Python package, or into the folder that is named.
// The bundle's name holds a digest of it, so that a page never keeps an old one.  Prints their sizes.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const folder = resolve(process.argv[2] ?? resolve(here, "../../../sandbox_kernel/widget/static"));

// Where letters are inverse, xterm.js 6.0 measures their contrast against a ground of their own colour
// and so makes them grey.  A build that finds another xterm.js says so.
const INVERSE = /(_applyMinimumContrast\(\w+,\w+,)(\w+)\.foreground(,\w+,\w+,\w+\)\|\|)(\w+)(&&)/g;
const inverseText = {
  name: "inverse-text",
  setup({ onLoad }) {
    onLoad({ filter: /@xterm[\\/]xterm[\\/]lib[\\/]xterm\.mjs$/ }, ({ path }) => {
      let count = 0;
      const contents = readFileSync(path, "utf8").replace(
        INVERSE,
        (_, call, colours, rest, is, and) => {
          count += 1;
          return `${call}${is}?${colours}.background:${colours}.foreground${rest}${is}${and}`;
        },
      );
      return count === 1 ? { contents } : { errors: [{ text: `inverse text: ${count} places` }] };
    });
  },
};

const { outputFiles } = await build({
  absWorkingDir: here,
  plugins: [inverseText],
  entryPoints: { loader: "src/loader.ts", terminal: "src/index.ts" },
  outdir: "dist",
  write: false,
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  charset: "utf8",
  legalComments: "none",
  loader: { ".css": "text" },
});
// What is bundled, and its licence, which asks for this.
const parts = ["xterm", "addon-fit", "addon-search", "addon-unicode-graphemes", "addon-web-links"];
const banner = parts
  .map((part) => {
    const at = resolve(here, "../../node_modules/@xterm", part);
    const { name, version } = JSON.parse(readFileSync(`${at}/package.json`, "utf8"));
    const licence = readFileSync(`${at}/LICENSE`, "utf8").trim();
    return { what: `${name} ${version}`, licence };
  })
  .reduce((kept, { what, licence }) => {
    kept.set(licence, [...(kept.get(licence) ?? []), what]);
    return kept;
  }, new Map());
const notices = [...banner].map(([licence, names]) => `${names.join(", ")}:\n\n${licence}\n`);

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
for (const { path, contents } of outputFiles) {
  const isLoader = path.endsWith("loader.js");
  const digest = createHash("sha256").update(contents).digest("hex").slice(0, 16);
  const name = isLoader ? "loader.js" : `terminal.${digest}.js`;
  writeFileSync(`${folder}/${name}`, contents);
  console.log(`${name}: ${contents.length} bytes, ${gzipSync(contents).length} with gzip`);
}
writeFileSync(`${folder}/LICENSES.txt`, notices.join("\n---\n\n"));
