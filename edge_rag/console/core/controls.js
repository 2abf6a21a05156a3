/** Controls that all views share. */

import { ApiError } from './api.js';
import { announce, h, replace, shortcuts, successive, svg, visible } from './dom.js';
import { href, rewrite } from './router.js';
import { duration, percent, t } from './text.js';

const ICONS = {
  add: 'M12 5v14M5 12h14',
  check: 'M4 13l5 5L20 6',
  close: 'M6 6l12 12M18 6L6 18',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  down: 'M5 9l7 7 7-7',
  download: 'M12 4v11m-5-4l5 5 5-5M4 20h16',
  edit: 'M4 20l1-5L16 4l4 4L9 19z',
  file: 'M6 3h8l4 4v14H6zM14 3v4h4',
  left: 'M15 5l-7 7 7 7',
  menu: 'M4 7h16M4 12h16M4 17h16',
  minus: 'M5 12h14',
  right: 'M9 5l7 7-7 7',
  search: 'M11 4a7 7 0 1 0 0 14a7 7 0 0 0 0-14zM16 16l5 5',
  send: 'M4 12l16-8-6 16-3-6z',
  settings: 'M4 7h9m5 0h2M4 17h2m5 0h9M13 4v6M7 14v6',
  stop: 'M6 6h12v12H6z',
  thumbs_down: 'M7 4h10l3 9h-7l1 6-3 1-4-7H7zM7 4H3v9h4',
  thumbs_up: 'M7 20h10l3-9h-7l1-6-3-1-4 7H7zM7 20H3v-9h4',
  trash: 'M4 7h16M9 7V4h6v3M6 7l1 14h10l1-14M10 11v6M14 11v6',
  up: 'M5 15l7-7 7 7',
  upload: 'M12 16V5m-5 5l5-5 5 5M4 20h16',
  warning: 'M12 3l10 18H2zM12 10v5M12 17.5v.5',
};

let names = 0;

/** Returns an id that no other element has. */
export function freshId(prefix) {
  return `${prefix}-${++names}`;
}

/** Returns a picture of `ICONS` that says nothing to screen readers. */
export function icon(name) {
  return svg('svg', { class: 'icon', viewBox: '0 0 24 24', 'aria-hidden': 'true' }, svg('path', { d: ICONS[name] }));
}

/**
 * Returns a button.
 * @param {{on?: () => void, kind?: 'primary'|'danger'|'quiet'|'link', icon?: string}} [options] Or attributes.
 */
export function button(text, { on, kind = '', icon: picture, ...attributes } = {}) {
  const props = { class: kind, on: { click: on }, ...attributes };
  return h('button.button', props, picture && icon(picture), text && h('span', text));
}

/** Returns a button with a picture; its name is for screen readers and a tip. */
export function iconButton(label, picture, { kind = 'quiet', ...options } = {}) {
  return button('', { icon: picture, kind: `icon-only ${kind}`, 'aria-label': label, title: label, ...options });
}

/** Makes a button tell whether what it opens is shown; `on` is told so at every change. */
export function expander(element, on = () => {}) {
  element.ariaExpanded = 'false';
  element.addEventListener('click', () => {
    const shown = element.ariaExpanded === 'false';
    element.ariaExpanded = String(shown);
    on(shown);
  });
  return element;
}

/** Returns a control with its label; `setError(text)` shows what is wrong with the value, if anything. */
export function field(label, input, { hint } = {}) {
  input.id ||= freshId('field');
  const about = hint && h('span.hint', { id: `${input.id}-hint` }, hint);
  const wrong = h('span.field-error', { id: `${input.id}-error` });
  input.setAttribute('aria-describedby', about ? `${about.id} ${wrong.id}` : wrong.id);
  const element = h('div.field', h('label', { for: input.id }, label), input, about, wrong);
  element.setError = (text) => {
    replace(wrong, text && [icon('warning'), text]);
    input.ariaInvalid = Boolean(text);
  };
  return element;
}

/** Returns a select of `{value, text}`; `on` is told the value that is chosen. */
export function select(options, { value, on = () => {}, ...attributes } = {}) {
  const items = options.map((each) => h('option', { value: each.value }, visible(each.text)));
  const element = h('select', { ...attributes, on: { change: () => on(element.value) } }, items);
  if (value !== undefined) element.value = value;
  return element;
}

/** Returns a checkbox, which is its `box`, with its text. */
export function checkbox(text, { on = () => {}, ...attributes } = {}) {
  const box = h('input', { type: 'checkbox', on: { change: () => on(box.checked) }, ...attributes });
  const element = h('label.checkbox', box, h('span', text));
  element.box = box;
  return element;
}

/**
 * Opens a modal dialog; resolves to the value of the chosen action, undefined if it was closed.
 * @param {{title: string, content: any, actions: Array<{text: string, kind?: string, value: any, check?: Function}>}}
 *     options An action whose `check` says no leaves it open.
 */
export function dialog({ title, content, actions }) {
  const { promise, resolve } = Promise.withResolvers();
  const heading = h('h2', { id: freshId('dialog') }, title);
  const close = iconButton(t('controls.close'), 'close', { on: () => element.close() });
  const buttons = actions.map(({ text, kind, value, check = () => true }) => {
    const on = async () => {
      if (!(await check())) return;
      resolve(value);
      element.close();
    };
    return button(text, { kind, on });
  });
  const closed = () => {
    resolve();
    element.remove();
  };
  const parts = [h('header', heading, close), h('div.dialog-content', content), h('footer', buttons)];
  const element = h('dialog', { 'aria-labelledby': heading.id, on: { close: closed } }, parts);
  document.body.append(element);
  element.showModal();
  return promise;
}

/** Asks before something is done; resolves to whether it shall be. */
export async function confirm({ title, text, action, danger }) {
  const actions = [{ text: t('controls.cancel') }, { text: action, kind: danger ? 'danger' : 'primary', value: true }];
  return (await dialog({ title, content: h('p', text), actions })) === true;
}

/** Copies a text, also where a page without TLS has no clipboard; resolves to a sentence about it. */
export async function copied(text, done = t('controls.copied')) {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else copySelected(text);
    return done;
  } catch {
    return t('controls.not_copied');
  }
}

function copySelected(text) {
  const focused = document.activeElement;
  const area = h('textarea.sr-only', text);
  // What is outside of an open dialog cannot be selected.
  (focused.closest('dialog') ?? document.body).append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  focused.focus();
  if (!done) throw new Error();
}

/** Shows a sentence for some seconds, longer if its kind is `error`, also to screen readers. */
export function notice(text, { kind } = {}) {
  const wrong = kind === 'error';
  const close = iconButton(t('controls.close'), 'close', { on: () => element.remove() });
  const element = h('div.notice', { class: kind }, wrong && icon('warning'), h('span', text), close);
  const list = document.getElementById('notices');
  list.append(element);
  if (list.childElementCount > 4) list.firstElementChild.remove();
  announce(text);
  setTimeout(() => element.remove(), wrong ? 15_000 : 6_000);
}

/**
 * Returns tabs; `show(panel, signal)` of an item fills the panel until another is shown.
 * @param {Array<{id: string, text: string, show: Function}>} items
 */
export function tabs(items, { selected, label, on, signal }) {
  const panel = h('div', { role: 'tabpanel', tabindex: '0' });
  const heads = items.map(({ text }, at) => h('button', { role: 'tab', on: { click: () => choose(at) } }, text));
  const list = h('div.tabs', { role: 'tablist', 'aria-label': label }, heads);
  const begin = successive(signal);
  let chosen = 0;

  async function choose(at) {
    chosen = (at + items.length) % items.length;
    const { id, text, show } = items[chosen];
    const ending = begin();
    heads.forEach((head, index) => {
      head.ariaSelected = index === chosen;
      head.tabIndex = index === chosen ? 0 : -1;
    });
    panel.ariaLabel = text;
    const fresh = h('div.tab-content');
    replace(panel, fresh);
    on(id);
    try {
      await show(fresh, ending);
    } catch (error) {
      if (!ending.aborted) replace(fresh, errorBox(error, () => choose(chosen)));
    }
  }

  function move(to) {
    choose(to);
    heads[chosen].focus();
  }
  const actions = { ArrowRight: () => move(chosen + 1), ArrowLeft: () => move(chosen - 1) };
  shortcuts(list, { ...actions, Home: () => move(0), End: () => move(-1) }, signal);
  choose(Math.max(0, items.findIndex((each) => each.id === selected)));
  return h('div', list, panel);
}

/** Fills a view with tabs that the address names; `load` imports what exports `show(panel, signal, part)`. */
export function tabbedView(container, { view, title, parts: [selected, part], signal }, items) {
  let first = true;
  const panels = items.map(({ load, ...item }) => {
    const show = async (panel, ending) => {
      const given = first ? part : undefined;
      first = false;
      await (await load()).show(panel, ending, given);
    };
    return { ...item, show };
  });
  const on = (id) => first || rewrite(href(view, id));
  const list = tabs(panels, { selected, label: title, signal, on });
  replace(container, h('h1', title), list);
  list.querySelector('[aria-selected=true]').scrollIntoView({ block: 'nearest' });
}

/** Returns what scrolls sideways within itself where it is too wide. */
export function scrolling(label, content) {
  return h('div.table-scroll', { tabindex: '0', role: 'region', 'aria-label': label }, content);
}

/** Returns a table of rows, each an array of cells of which the first is the heading. */
export function table({ caption, columns, rows, hideCaption }) {
  const heads = columns.map(({ text, kind }) => h('th', { scope: 'col', class: kind }, text));
  const cell = (content, at) => h(at ? 'td' : 'th', { scope: at ? null : 'row', class: columns[at].kind }, content);
  const body = rows.map((cells) => h('tr', cells.map(cell)));
  const head = h('thead', h('tr', heads));
  const title = h('caption', { class: hideCaption && 'sr-only' }, caption);
  return scrolling(caption, h('table', title, head, h('tbody', body)));
}

/** Returns the columns of a table by the keys of their headings, those of numbers last. */
export function columns(texts, numbers = []) {
  return [...texts.map((key) => ({ text: t(key) })), ...numbers.map((key) => ({ text: t(key), kind: 'number' }))];
}

/** Returns a progress bar with a method `set(share)`: 0 to 1, or null while nobody knows. */
export function progress(share, label) {
  const element = h('progress', { 'aria-label': label });
  element.set = (value) => {
    if (value === null) element.removeAttribute('value');
    else element.value = value;
    element.title = value === null ? '' : percent(value);
  };
  element.set(share);
  return element;
}

/** Returns what is shown while something loads. */
export function spinner(text = t('app.loading')) {
  return h('p.loading', text);
}

/** Returns what stands where there is nothing. */
export function empty(text, ...actions) {
  return h('div.empty', h('p', text), actions);
}

/** Returns a short word; `kind` is good, bad, warn or empty. */
export function badge(text, kind = '') {
  return h('span.badge', { class: kind }, text);
}

/** Returns what happened and what to do. */
export function failure(error) {
  const told = visible(error.message);
  if (!(error instanceof ApiError)) return t('controls.failed', { error: told });
  if (error.unreachable) return t('controls.unreachable');
  if (error.status === 403) return t('controls.forbidden', { error: told });
  if (error.retryAfterMs === null) return told;
  return t('controls.busy', { error: told, time: duration(Math.max(1, error.retryAfterMs / 1000)) });
}

/** Does what the user asked for and tells if it fails; resolves to whether it was done. */
export async function attempt(work) {
  try {
    await work();
    return true;
  } catch (error) {
    if (error.name !== 'AbortError') notice(failure(error), { kind: 'error' });
    return false;
  }
}

/** Does what cannot be undone once the user has confirmed it; resolves to whether it was done. */
export async function confirmed(action, text, work, title = action) {
  return (await confirm({ title, text, action, danger: true })) && attempt(work);
}

/** Returns a failure in the place of what could not be shown. */
export function errorBox(error, retry) {
  const id = error.requestId && h('p.hint', t('controls.request', { id: error.requestId }));
  const again = retry && button(t('controls.retry'), { on: retry });
  return h('div.error-box', { role: 'alert' }, icon('warning'), h('p', failure(error)), again, id);
}
