// Bundles page.mjs and its style into the folder that is named, beside page.html.  The packages are
// those of js/ (make js).
import { copyFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const js = fileURLToPath(new URL("../../../../js/", import.meta.url));
const { build } = createRequire(`${js}package.json`)("esbuild");
copyFileSync(`${here}page.html`, `${process.argv[2]}/addons.html`);
await build({
  absWorkingDir: here,
  entryPoints: { addons: "page.mjs" },
  outdir: process.argv[2],
  nodePaths: [`${js}node_modules`],
  // As it is in the tree, not as it was built last.
  alias: { "@jupyter-sandbox/xterm-addon": `${js}packages/addon/src/index.ts` },
  bundle: true,
  format: "esm",
  target: "es2022",
});
