/**
 * Listens to frames and notebooks, and is found by JupyterLab as an extension that was built before.
 */

import { FocusGuard } from "./focus.js";
import { askedHeight, FrameHeight } from "./heights.js";
import { type Notebook, withholdWidgets } from "./widgets.js";

const FRAMES = "iframe.jupyter-sandbox-frame";
const NAME = "@jupyter-sandbox/labextension";

/** Give the page's frames the heights that they ask for. */
function listen(page: Window): void {
  const heights = new WeakMap<HTMLIFrameElement, FrameHeight>();
  page.addEventListener("message", ({ source, data }) => {
    const asked = askedHeight(data);
    if (asked === undefined || source === null) {
      return;
    }
    for (const frame of page.document.querySelectorAll<HTMLIFrameElement>(FRAMES)) {
      // Its own window and no other says how high a frame is.
      if (frame.contentWindow !== source || !isWalledOff(frame)) {
        continue;
      }
      const height = heights.get(frame) ?? new FrameHeight();
      heights.set(frame, height);
      const next = height.next(asked, frame.style.height);
      if (next !== undefined) {
        frame.style.height = next;
      }
    }
  });
}

/** Keep the focus where the user is, whatever the page's frames do. */
function watch(page: Window): void {
  const guard = new FocusGuard(() => page.focus());
  const passively = { capture: true, passive: true };
  page.addEventListener(
    "focusin",
    ({ target }) => {
      if (target instanceof HTMLElement && !target.matches(FRAMES)) {
        guard.focused(target);
      }
    },
    passively,
  );
  page.addEventListener(
    "keydown",
    ({ key, timeStamp }) => guard.pressed(key, timeStamp),
    passively,
  );
  page.addEventListener("blur", ({ timeStamp }) => {
    const active = page.document.activeElement;
    if (active instanceof HTMLIFrameElement && active.matches(FRAMES)) {
      // Once the browser has moved it as well.
      page.setTimeout(() => guard.taken(active, timeStamp));
    }
  });
}

/** Whether it is a frame as the output wall makes them. */
function isWalledOff(frame: HTMLIFrameElement): boolean {
  return frame.sandbox.length === 1 && frame.sandbox.contains("allow-scripts");
}

// What this needs of JupyterLab's own objects.
interface DocumentContext {
  readonly model: object;
  readonly sessionContext: { readonly session?: { readonly kernel?: { readonly name: string } } };
}
interface Application {
  readonly docRegistry: {
    addWidgetExtension(
      factory: string,
      extension: { createNew(panel: unknown, context: DocumentContext): void },
    ): unknown;
  };
}

/** Keep what a notebook's file says of widgets from those who would make them. */
function guard(app: Application): void {
  app.docRegistry.addWidgetExtension("Notebook", {
    createNew: (_, { model, sessionContext }) => {
      if ("getMetadata" in model && "cells" in model) {
        withholdWidgets(model as Notebook, () => sessionContext.session?.kernel?.name);
      }
    },
  });
}

const plugin = {
  id: `${NAME}:frames`,
  description:
    "Gives framed outputs of sandboxes the height of what they show, and no focus; and keeps saved" +
    " widgets of notebooks that are not trusted, or of sandboxes, from acting.",
  autoStart: true,
  activate: (app: Application) => {
    listen(window);
    watch(window);
    guard(app);
  },
};

// What JupyterLab expects of a script that brings an extension: a container of modules, as module
// federation has them.  Nothing is shared with the page, so that there is nothing to begin with.
interface Container {
  init(): void;
  get(name: string): Promise<() => { __esModule: true; default: typeof plugin }>;
}
const page = window as Window & { _JUPYTERLAB?: Record<string, Container> };
page._JUPYTERLAB ??= {};
page._JUPYTERLAB[NAME] = {
  init: () => {},
  get: async (name) => {
    if (name !== "./extension") {
      throw new Error(`${NAME} has no ${name}`);
    }
    // Without the mark of a module, the page takes the whole for a plugin.
    return () => ({ __esModule: true, default: plugin });
  },
};
