/**
 * Saved widgets of notebooks: a page makes them as soon as a notebook is opened, some with code that
 * the file brings along, whether anybody trusts it or not.
 */

const SAVED = "widgets";
const OURS = "sandbox-";

/** What this needs of a notebook's model. */
export interface Notebook {
  getMetadata(key?: string): unknown;
  readonly cells: Iterable<{ readonly type: string; readonly trusted: boolean }>;
}

const guarded = new WeakSet<Notebook>();

/**
 * Show no reader of the model the saved widgets, unless the page trusts the notebook and its cells
 * run on the host.
 *
 * Widgets of a sandbox come from its kernel, by way of the wall; the file may be anybody's.  What is
 * saved stays in the notebook.  `kernel` tells the name of the kernel that is connected, if any.
 */
export function withholdWidgets(notebook: Notebook, kernel: () => string | undefined): void {
  if (guarded.has(notebook)) {
    return;
  }
  guarded.add(notebook);
  const read = notebook.getMetadata.bind(notebook);
  notebook.getMetadata = (key) => {
    if (key === SAVED && !(isTrusted(notebook) && isOfHost(kernel(), read("kernelspec")))) {
      return undefined;
    }
    return key === undefined ? read() : read(key);
  };
}

function isTrusted(notebook: Notebook): boolean {
  const codes = [...notebook.cells].filter(({ type }) => type === "code");
  return codes.length > 0 && codes.every(({ trusted }) => trusted);
}

function isOfHost(connected: string | undefined, saved: unknown): boolean {
  const { name } = (saved ?? {}) as { name?: unknown };
  return ![connected, name].some((each) => typeof each === "string" && each.startsWith(OURS));
}
