/** Conditions on documents as text, as `edge-rag ask --filter` takes them, and a builder for those who do not know them. */

import { get } from '../core/api.js';
import { h } from '../core/dom.js';
import { button, field, freshId, select } from '../core/controls.js';
import { t } from '../core/text.js';

const BUILTIN = { name: 'string', media_type: 'string', page: 'number', ingested_at: 'date' };
const RESERVED = new Set([...Object.keys(BUILTIN), 'and', 'or', 'not', 'in', 'has', 'true', 'false']);
const OPERATORS = ['=', '!=', '~', '>', '>=', '<', '<=', 'has'];
const NUMBER = /^[-+]?\d+(\.\d+)?$/;
const DATE = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[-+]\d\d:\d\d)?)?$/i;

/** Documents whose metadata tells which keys a collection has. */
const SAMPLE = 100;

/** Returns a text as a value of a condition. */
export function quoted(text) {
  return JSON.stringify(text);
}

/**
 * Returns a condition.
 * @param {string} key Name of a field, or a key of the metadata.
 * @param {string} operator One of `= != ~ > >= < <= has`; `~` is "begins with".
 * @param {string} value As it was typed.
 * @param {string} [kind] `string`, `number`, `boolean` or `date`; empty to judge by the look of the value.
 */
export function condition(key, operator, value, kind = BUILTIN[key] ?? '') {
  const name = RESERVED.has(key) && !(key in BUILTIN) ? `meta.${key}` : key;
  if (operator === 'has') return `has ${name}`;
  if (operator === '~') return `${name} ~ ${quoted(`${value}*`)}`;
  const bare = NUMBER.test(value) || DATE.test(value) || /^(true|false)$/.test(value);
  return `${name} ${operator} ${bare && kind !== 'string' ? value : quoted(value)}`;
}

/** Returns a filter that both holds as typed and is limited to the documents of some names. */
export function limited(filter, only) {
  const own = filter.trim();
  if (!only.length) return own;
  const names = only.map(quoted);
  const limit = names.length === 1 ? `name = ${names[0]}` : `name in (${names.join(', ')})`;
  return own ? `${limit} and (${own})` : limit;
}

/**
 * Returns the kinds of the metadata of some documents, by key.
 * @param {Array<{metadata: object}>} documents
 * @returns {Map<string, string>}
 */
export function keysOf(documents) {
  const found = new Map();
  for (const { metadata } of documents) {
    for (const [key, value] of Object.entries(metadata)) {
      const one = Array.isArray(value) ? value[0] : value;
      found.set(key, typeof one === 'string' && DATE.test(one) ? 'date' : typeof one);
    }
  }
  return found;
}

/**
 * Returns a field for a filter with a row that adds conditions.
 * @param {{collection: () => string, signal: AbortSignal, on: () => void}} options
 * @returns {HTMLElement} With `value`, `setError(text)` and `focus()`.
 */
export function filterField({ collection, signal, on }) {
  const text = h('textarea', { rows: '1', class: 'filter-text', spellcheck: 'false', dir: 'ltr', on: { input: on } });
  const labelled = field(t('ask.filter'), text, { hint: t('ask.filter_hint') });
  const list = h('datalist', { id: freshId('keys') });
  const key = h('input', { list: list.id, size: '12', autocomplete: 'off', 'aria-label': t('ask.filter_key') });
  const operator = select(
    OPERATORS.map((value) => ({ value, text: { '~': t('ask.begins_with'), has: t('ask.exists') }[value] ?? value })),
    { 'aria-label': t('ask.filter_operator'), on: (chosen) => (value.hidden = chosen === 'has') },
  );
  const value = h('input', { size: '12', autocomplete: 'off', 'aria-label': t('ask.filter_value') });
  let kinds = new Map();
  let known = null;

  async function learn() {
    if (known === collection()) return;
    known = collection();
    const path = `/api/v1/collections/${encodeURIComponent(known)}/documents`;
    const found = await get(path, { query: { limit: SAMPLE }, signal }).catch(() => ({ documents: [] }));
    kinds = keysOf(found.documents);
    list.replaceChildren(...[...Object.keys(BUILTIN), ...kinds.keys()].map((each) => h('option', { value: each })));
  }

  function add() {
    const name = key.value.trim();
    if (!name) {
      key.focus();
      return;
    }
    const added = condition(name, operator.value, value.value.trim(), kinds.get(name));
    text.value = text.value.trim() ? `${text.value.trim()} and ${added}` : added;
    key.value = '';
    value.value = '';
    element.setError('');
    on();
    key.focus();
  }

  const enter = (event) => {
    if (event.key !== 'Enter' || event.isComposing) return;
    event.preventDefault();
    add();
  };
  for (const each of [key, value]) each.addEventListener('keydown', enter);
  key.addEventListener('focus', learn);
  const builder = h(
    'div',
    { class: 'row filter-builder' },
    key,
    list,
    operator,
    value,
    button(t('ask.filter_add'), { icon: 'add', on: add }),
  );
  const element = h('div', { class: 'filter' }, labelled, builder);
  Object.defineProperty(element, 'value', { get: () => text.value, set: (next) => (text.value = next) });
  element.setError = labelled.setError;
  element.focus = () => text.focus();
  return element;
}
