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

/** `name` is what a screen reader says where the label is a sign. */
export function button(
  label: string,
  title: string,
  onPress: () => void,
  name = label,
): HTMLButtonElement {
  const named: Attributes = name === label ? {} : { "aria-label": name };
  const made = element("button", "sbx-button", { type: "button", title, ...named }, label);
  made.addEventListener("click", onPress);
  return made;
}
