/**
 * Finds the Jupyter server that the page came from.
 */

/** The part of a document that is looked at. */
export interface PageDocument {
  readonly head: unknown;
  readonly body: { readonly dataset: Record<string, string | undefined> } | null;
  getElementById(id: string): PageElement | null;
}

interface PageElement {
  readonly tagName: string;
  readonly type?: unknown;
  readonly parentElement: unknown;
  readonly textContent: string | null;
}

/**
 * The server's address with a slash at its end, or undefined where there is none.
 *
 * JupyterLab and Notebook 7 have their configuration in a script element; the classic notebook has
 * an attribute of the body.  An output in the page may hold an element of the same id: only a script
 * that stands directly in head or body is the page's own.  The server must be the page's origin, as
 * the login cookie goes nowhere else.
 */
export function findServer(document: PageDocument, pageAddress: string): string | undefined {
  const base = configuredBase(document) ?? document.body?.dataset["baseUrl"];
  if (base === undefined) {
    return undefined;
  }
  try {
    const page = new URL(pageAddress);
    const server = new URL(base, page);
    if (!/^https?:$/.test(server.protocol) || server.origin !== page.origin) {
      return undefined;
    }
    return server.origin + server.pathname.replace(/\/*$/, "/");
  } catch {
    return undefined;
  }
}

function configuredBase(document: PageDocument): string | undefined {
  const element = document.getElementById("jupyter-config-data");
  if (
    element?.tagName !== "SCRIPT" ||
    element.type !== "application/json" ||
    (element.parentElement !== document.head && element.parentElement !== document.body)
  ) {
    return undefined;
  }
  try {
    const base: unknown = JSON.parse(element.textContent ?? "").baseUrl;
    return typeof base === "string" ? base : undefined;
  } catch {
    return undefined;
  }
}
