/** Elements without HTML parsing: every text that comes from elsewhere becomes a text node. */

const SVG = 'http://www.w3.org/2000/svg';

/** Controls, directions, joiners, tags: they change how the text around them is shown. */
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/gu;

const OVERRIDES = /[\u202a-\u202e\u2066-\u2069]/g;

/** Path of this release's assets. */
export const BASE = document.documentElement.dataset.base;

/**
 * Builds an element: `h('p.hint', { lang: 'de', hidden: true }, 'Text', [node], null)`. Attributes that are null or
 * false are left out; `on` has listeners, `data` data attributes, `style` CSS properties. Texts are not parsed.
 */
export function h(name, ...content) {
  const [tag, ...classes] = name.split('.');
  const node = document.createElement(tag);
  if (tag === 'button') node.type = 'button'; // not one that sends a form
  fill(node, content);
  node.classList.add(...classes);
  return node;
}

/** Builds an SVG element, otherwise as `h`. */
export function svg(tag, ...content) {
  return fill(document.createElementNS(SVG, tag), content);
}

/** Replaces all children of a node. */
export function replace(node, ...children) {
  node.replaceChildren(...flat(children));
  return node;
}

/**
 * Makes a node what a fresh one is, but leaves what is alike in place, with its listeners, focus and scrolling. Rows of a
 * list are told from each other by `data-id`.
 */
export function patch(node, fresh) {
  if (node.isEqualNode(fresh)) return;
  if (!node.cloneNode().isEqualNode(fresh.cloneNode()) || node.nodeType !== Node.ELEMENT_NODE) {
    node.replaceWith(fresh);
    return;
  }
  const children = [...fresh.childNodes];
  const ids = new Set(children.map((each) => each.dataset?.id));
  for (const each of [...node.children]) if (!ids.has(each.dataset.id)) each.remove();
  const known = new Set([...node.childNodes].map((each) => each.dataset?.id));
  children.forEach((child, at) => {
    const place = node.childNodes[at];
    if (place && known.has(child.dataset?.id)) patch(place, child);
    else node.insertBefore(child, place ?? null);
  });
  while (node.childNodes.length > children.length) node.lastChild.remove();
}

/** Returns foreign text of one line, such as a name: as `visible` shows it, with its own direction. */
export function untrusted(text) {
  return h('bdi', visible(text));
}

/** Returns a text with invisible characters as their code points. */
export function visible(text) {
  return String(text).replace(INVISIBLE, (each) => `⟨U+${each.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`);
}

/** Returns a text of many lines in which only what overrides directions is a code point. */
export function readable(text) {
  return text.replace(OVERRIDES, visible);
}

/** Acts on keys that are pressed alone and not in a field; an action that returns false leaves its key alone. */
export function shortcuts(node, actions, signal) {
  const onKey = (event) => {
    const { key, target, defaultPrevented, ctrlKey, metaKey, altKey } = event;
    const used = defaultPrevented || ctrlKey || metaKey || altKey || target.matches('input, select, textarea');
    if (!used && actions[key] && actions[key]() !== false) event.preventDefault();
  };
  node.addEventListener('keydown', onKey, { signal });
}

/** Has a screen reader say a sentence once it is silent. */
export function announce(text) {
  const live = document.getElementById('live');
  live.append(h('p', readable(text)));
  // What was read has to go, or the region grows with every answer.
  while (live.childElementCount > 20) live.firstElementChild.remove();
}

/** Returns a function that returns a signal, which is aborted with `signal` and when the next one is returned. */
export function successive(signal) {
  let last = new AbortController();
  return () => {
    last.abort();
    last = new AbortController();
    return AbortSignal.any([signal, last.signal]);
  };
}

const styles = new Map();

/** Loads a stylesheet of the console once; resolves when it applies. */
export function loadStyle(path) {
  if (!styles.has(path)) {
    const { promise, resolve } = Promise.withResolvers();
    const on = { load: resolve, error: resolve };
    document.head.append(h('link', { rel: 'stylesheet', href: `${BASE}/${path}`, on }));
    styles.set(path, promise);
  }
  return styles.get(path);
}

function fill(node, content) {
  const hasProps = content[0]?.constructor === Object;
  const { on = {}, data, style = {}, ...attributes } = hasProps ? content.shift() : {};
  for (const [name, value] of Object.entries(attributes)) {
    if (isGiven(value)) node.setAttribute(name, value === true ? '' : value);
  }
  for (const [event, listener] of Object.entries(on)) node.addEventListener(event, listener);
  Object.assign(node.dataset, data);
  for (const [name, value] of Object.entries(style)) node.style.setProperty(name, value);
  node.append(...flat(content));
  return node;
}

function flat(children) {
  return children.flat(Infinity).filter(isGiven);
}

function isGiven(value) {
  return value !== null && value !== undefined && value !== false;
}
