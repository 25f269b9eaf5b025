/**
 * The widget's own module, which is kept small: it travels with every widget and is saved in
 * notebooks.  It gets the terminal itself from the Jupyter server, or from the kernel.
 */

import type { Message, Model } from "./model.js";
import { findServer } from "./page.js";

interface Bundle {
  render(context: { model: Model; el: HTMLElement; server: string | undefined }): () => void;
}

// Once, before outputs of later cells could put something in its place.
const server = findServer(document, location.href);
// One for all widgets of the page, each of which has a module of its own.
const page = globalThis as Record<symbol, unknown>;
const key = Symbol.for("jupyter-sandbox");
page[key] ??= {};
const kept = page[key] as Record<string, Promise<Bundle>>;

async function load(model: Model): Promise<[Bundle, string?]> {
  const name = String(model.get("_bundle"));
  if (server !== undefined && model.get("carrier") !== "kernel") {
    try {
      // It says no when it is not of the kernel's machine, or has another version.
      const address = `${server}sandbox/static/${name}?home=${model.get("_home")}`;
      return [await import(address), server];
    } catch (error) {
      if (model.get("carrier") === "server") {
        throw error;
      }
    }
  }
  kept[name] ??= fromKernel(model);
  kept[name].catch(() => delete kept[name]);
  return [await kept[name]];
}

function fromKernel(model: Model): Promise<Bundle> {
  return new Promise((resolve, reject) => {
    const take = (message: Message, buffers: readonly DataView[]): void => {
      if (message["type"] === "bundle") {
        model.off("msg:custom", take);
        clearTimeout(timer);
        const blob = new Blob(buffers as DataView<ArrayBuffer>[], { type: "text/javascript" });
        resolve(import(URL.createObjectURL(blob)));
      }
    };
    const timer = setTimeout(() => {
      model.off("msg:custom", take);
      reject(Error("no answer from the kernel"));
    }, 3e4);
    model.on("msg:custom", take);
    model.send({ type: "bundle" });
  });
}

export default {
  async render({ model, el }: { model: Model; el: HTMLElement }): Promise<() => void> {
    el.textContent = "Loading the terminal …";
    try {
      const [bundle, origin] = await load(model);
      el.textContent = "";
      return bundle.render({ model, el, server: origin });
    } catch (error) {
      el.textContent = `The terminal cannot be loaded (${error}). Run the cell again.`;
      return () => {};
    }
  },
};
