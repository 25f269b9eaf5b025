/**
 * Makes elements.  Text is always text, never markup: some of it comes from the sandbox.
 */

type Attributes = Readonly<Record<string, string>>;

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className: string,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  made.className = className;
  for (const [name, value] of Object.entries(attributes)) {
    made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

export function button(label: string, title: string, onPress: () => void): HTMLButtonElement {
  const made = element("button", "sbx-button", { type: "button", title }, label);
  made.addEventListener("click", onPress);
  return made;
}
