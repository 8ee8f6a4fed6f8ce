/**
 * Elements from data, without a framework: made once for each key, then brought up to date where they are, so that focus,
 * scroll position and what is folded open stay.
 */
type Child = Node | string | null;

/** An element with attributes and children; `null` leaves out. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    made.setAttribute(name, value);
  }
  made.append(...children.filter(child => child !== null));
  return made;
}

/** Write `text` where it is not there already: a screen reader or a selection is not disturbed for nothing. */
export function write(node: HTMLElement, text: string): void {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

/** Set an attribute where it has another value. */
export function attribute(node: HTMLElement, name: string, value: string): void {
  if (node.getAttribute(name) !== value) {
    node.setAttribute(name, value);
  }
}

const styled = new WeakMap<HTMLElement, string>();

/** Style a node where it looks otherwise. Not by its attribute: the service's own page lets in nothing inline. */
export function style(node: HTMLElement, text: string): void {
  if (styled.get(node) !== text) {
    styled.set(node, text);
    node.style.cssText = text;
  }
}

export function press(label: string, act: () => void): HTMLButtonElement {
  const made = element('button', { type: 'button', class: 'jp-gpufair-button' }, label);
  made.addEventListener('click', act);
  return made;
}

/** The children of a list, one for each item, in the order of the items. */
export class Rows<T, E extends HTMLElement = HTMLElement> {
  constructor(
    private readonly _list: HTMLElement,
    private readonly _key: (item: T) => string,
    private readonly _make: (item: T) => E,
    private readonly _update: (row: E, item: T) => void
  ) {}

  show(items: readonly T[]): void {
    const wanted = new Set(items.map(this._key));
    for (const [key, row] of this._rows) {
      if (!wanted.has(key)) {
        row.remove();
        this._rows.delete(key);
      }
    }
    let before: Element | null = this._list.firstElementChild;
    for (const item of items) {
      const key = this._key(item);
      let row = this._rows.get(key);
      if (!row) {
        row = this._make(item);
        this._rows.set(key, row);
      }
      this._update(row, item);
      if (row === before) {
        before = row.nextElementSibling;
      } else {
        this._list.insertBefore(row, before);
      }
    }
  }

  private readonly _rows = new Map<string, E>();
}
