/** Conditions on documents, for those who do not know how `edge-rag ask --filter` wants them. */

import { get } from '../core/api.js';
import { button, freshId, select } from '../core/controls.js';
import { h, replace } from '../core/dom.js';
import { t } from '../core/text.js';

const OPERATORS = ['=', '!=', '~', '>', '>=', '<', '<=', 'has'];
/** Keys that every document has, each with a value. */
const BUILTIN = { name: '', media_type: '', page: 1, ingested_at: '2000-01-01' };
const DATE = /^\d{4}-\d\d-\d\d/;
/** Values that are written without quotes: numbers, flags and dates. */
const BARE = /^([-+]?\d+(\.\d+)?|true|false|\d{4}-\d\d-\d\d(T[\d:.]+(Z|[-+][\d:]+)?)?)$/i;
/** Documents whose metadata tells which keys there are. */
const SAMPLE = 100;

/** Returns a row of controls that makes conditions. */
export function conditions({ collection, on }) {
  const list = h('datalist', { id: freshId('keys') });
  const key = h('input', { list: list.id, size: '12', autocomplete: 'off', 'aria-label': t('ask.filter_key') });
  const texts = { '~': t('ask.begins_with'), has: t('ask.exists') };
  const operators = OPERATORS.map((each) => ({ value: each, text: texts[each] ?? each }));
  const showValue = (chosen) => (value.hidden = chosen === 'has');
  const operator = select(operators, { 'aria-label': t('ask.filter_operator'), on: showValue });
  const value = h('input', { size: '12', autocomplete: 'off', 'aria-label': t('ask.filter_value') });
  let values = BUILTIN;
  let known;

  /** Learns which keys there are, and which have texts, though they may look like numbers. */
  async function learn() {
    if (known === collection()) return;
    known = collection();
    const path = `/api/v1/collections/${encodeURIComponent(known)}/documents`;
    const { documents } = await get(path, { query: { limit: SAMPLE } }).catch(() => ({ documents: [] }));
    values = Object.assign({}, ...documents.map((each) => each.metadata), BUILTIN);
    replace(list, Object.keys(values).map((each) => h('option', { value: each })));
  }

  function condition(name, given) {
    if (operator.value === 'has') return `has ${name}`;
    if (operator.value === '~') return `${name} ~ ${JSON.stringify(`${given}*`)}`;
    const [sample] = [values[name]].flat();
    const isText = typeof sample === 'string' && !DATE.test(sample);
    return `${name} ${operator.value} ${BARE.test(given) && !isText ? given : JSON.stringify(given)}`;
  }

  function add() {
    if (key.value.trim()) on(condition(key.value.trim(), value.value.trim()));
    key.value = value.value = '';
    key.focus();
  }

  const enter = (event) => {
    if (event.key !== 'Enter' || event.isComposing) return;
    event.preventDefault();
    add();
  };
  for (const each of [key, value]) each.addEventListener('keydown', enter);
  key.addEventListener('focus', learn);
  return h('div.row.conditions', key, list, operator, value, button(t('ask.filter_add'), { icon: 'add', on: add }));
}
