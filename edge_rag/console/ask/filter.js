/** Conditions on documents, as `edge-rag ask --filter` takes them, for those who do not know how to write them. */

import { get } from '../core/api.js';
import { h, replace } from '../core/dom.js';
import { button, freshId, select } from '../core/controls.js';
import { t } from '../core/text.js';

const BUILTIN = ['name', 'media_type', 'page', 'ingested_at'];
const RESERVED = ['and', 'or', 'not', 'in', 'has', 'true', 'false'];
const OPERATORS = ['=', '!=', '~', '>', '>=', '<', '<=', 'has'];
/** Values that are written without quotes: numbers, flags and dates. */
const BARE = /^([-+]?\d+(\.\d+)?|true|false|\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[-+]\d\d:\d\d)?)?)$/i;
const DATE = /^\d{4}-\d\d-\d\d/;

/** Documents whose metadata tells which keys a collection has. */
const SAMPLE = 100;

/**
 * Returns a row of controls that makes conditions.
 * @param {{collection: () => string, signal: AbortSignal, on: (condition: string) => void}} options
 */
export function conditions({ collection, signal, on }) {
  const list = h('datalist', { id: freshId('keys') });
  const key = h('input', { list: list.id, size: '12', autocomplete: 'off', 'aria-label': t('ask.filter_key') });
  const texts = { '~': t('ask.begins_with'), has: t('ask.exists') };
  const operator = select(
    OPERATORS.map((each) => ({ value: each, text: texts[each] ?? each })),
    { 'aria-label': t('ask.filter_operator'), on: (chosen) => (value.hidden = chosen === 'has') },
  );
  const value = h('input', { size: '12', autocomplete: 'off', 'aria-label': t('ask.filter_value') });
  let texted = new Set(['name', 'media_type']);
  let known;

  /** Learns which keys there are, and which of them have texts, though they may look like numbers. */
  async function learn() {
    if (known === collection()) return;
    known = collection();
    const path = `/api/v1/collections/${encodeURIComponent(known)}/documents`;
    const { documents } = await get(path, { query: { limit: SAMPLE }, signal }).catch(() => ({ documents: [] }));
    const found = documents.flatMap(({ metadata }) => Object.entries(metadata));
    const isText = ([, each]) => typeof [each].flat()[0] === 'string' && !DATE.test(each);
    texted = new Set(['name', 'media_type', ...found.filter(isText).map(([name]) => name)]);
    const names = new Set([...BUILTIN, ...found.map(([name]) => name)]);
    replace(list, [...names].map((each) => h('option', { value: each })));
  }

  function condition() {
    const name = RESERVED.includes(key.value.trim()) ? `meta.${key.value.trim()}` : key.value.trim();
    const given = value.value.trim();
    if (operator.value === 'has') return `has ${name}`;
    if (operator.value === '~') return `${name} ~ ${JSON.stringify(`${given}*`)}`;
    const bare = BARE.test(given) && !texted.has(name);
    return `${name} ${operator.value} ${bare ? given : JSON.stringify(given)}`;
  }

  function add() {
    if (key.value.trim()) {
      on(condition());
      key.value = '';
      value.value = '';
    }
    key.focus();
  }

  const enter = (event) => {
    if (event.key !== 'Enter' || event.isComposing) return;
    event.preventDefault();
    add();
  };
  for (const each of [key, value]) each.addEventListener('keydown', enter);
  key.addEventListener('focus', learn);
  const adding = button(t('ask.filter_add'), { icon: 'add', on: add });
  return h('div', { class: 'row conditions' }, key, list, operator, value, adding);
}
