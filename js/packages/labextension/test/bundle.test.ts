/** What is installed for JupyterLab is what the sources make, and has the shape it looks for. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { runInNewContext } from "node:vm";
import { afterAll, beforeAll, expect, test } from "vitest";

const NAME = "@jupyter-sandbox/labextension";
const KEPT = fileURLToPath(new URL(`../../../../data/labextensions/${NAME}`, import.meta.url));
let fresh = "";

beforeAll(() => {
  fresh = mkdtempSync(join(tmpdir(), "labextension-"));
  const build = fileURLToPath(new URL("../build.mjs", import.meta.url));
  execFileSync(process.execPath, [build, fresh], { stdio: "pipe" });
});

afterAll(() => rmSync(fresh, { recursive: true, force: true }));

test("the kept extension is the one of these sources: else run `make bundle` and commit it", () => {
  const files = (folder: string) =>
    ["package.json", ...readdirSync(join(folder, "static")).map((name) => `static/${name}`)].map(
      (name) => [name, readFileSync(join(folder, name), "utf8")],
    );

  expect(files(KEPT)).toEqual(files(fresh));
});

test("JupyterLab finds one plugin, which listens to frames and notebooks and starts by itself", async () => {
  const { jupyterlab } = JSON.parse(readFileSync(join(fresh, "package.json"), "utf8"));
  const script = readFileSync(join(fresh, jupyterlab._build.load), "utf8");
  const heard: string[] = [];
  const window: Record<string, unknown> = {
    addEventListener: (type: string) => heard.push(type),
  };
  runInNewContext(script, { window });
  const containers = window["_JUPYTERLAB"] as Record<
    string,
    {
      init(): void;
      get(
        name: string,
      ): Promise<
        () => { __esModule: true; default: { autoStart: boolean; activate(app: object): void } }
      >;
    }
  >;
  const container = containers[NAME];
  container?.init();
  const module = (await container?.get(jupyterlab._build.extension))?.();
  const found = module?.default;
  const watched: string[] = [];
  found?.activate({
    docRegistry: { addWidgetExtension: (factory: string) => watched.push(factory) },
  });

  expect(module).toHaveProperty("__esModule", true);
  expect(found?.autoStart).toBe(true);
  expect(heard).toEqual(["message", "focusin", "keydown", "blur"]);
  expect(watched).toEqual(["Notebook"]);
  await expect(container?.get("./style")).rejects.toThrow();
});
