/** Settings of a collection with what they do, and its end. */

import { get, send } from '../core/api.js';
import { button, dialog, empty, errorBox, failure, field, notice, select, spinner } from '../core/controls.js';
import { h, loadStyle, replace, untrusted, visible } from '../core/dom.js';
import { go, href } from '../core/router.js';
import { can, collections } from '../core/session.js';
import { t } from '../core/text.js';

const BOOST = /^([^=]+?)\s*=\s*(.+?)\s*\*\s*([\d.]+)$/;
const NO_RECENCY = { key: null, half_life_days: 180, weight: 0 };
const AMOUNT = { type: 'number', step: 'any', min: '0', required: true };
const BOX = { type: 'checkbox' };

/** Settings by group, those inside another named after both: the element, then its attributes or choices. */
const GROUPS = {
  about: { title: ['input', { maxlength: '256' }], description: ['textarea', { maxlength: '4096' }] },
  ingest: { chunk_tokens: ['input', { type: 'number', min: '16', max: '8192' }] },
  search: {
    fusion_dense: ['input', AMOUNT],
    fusion_lexical: ['input', AMOUNT],
    drop_duplicates: ['input', BOX],
    merge_neighbours: ['input', BOX],
    recency_weight: ['input', AMOUNT],
    recency_half_life_days: ['input', AMOUNT],
    recency_key: ['input', {}],
    boosts: ['textarea', { rows: '3' }],
  },
  answers: { offload: ['select', ['never', 'redacted', 'allowed']], kv_reuse: ['select', ['exact', 'passage']] },
  index: { index: ['select', ['faiss', 'milvus']] },
};
const HINTED = ['index', 'chunk_tokens', 'fusion_dense', 'merge_neighbours', 'recency_weight', 'recency_key', 'boosts'];

/**
 * Shows the settings of a collection, which administrators may change.
 * @param {HTMLElement} container
 * @param {{collection: string, signal: AbortSignal}} options
 */
export async function settingsPanel(container, { collection, signal }) {
  await loadStyle('documents/panels.css');
  if (!can('admin')) {
    replace(container, empty(t('settings.admins_only')));
    return;
  }
  const path = `/api/v1/collections/${encodeURIComponent(collection)}`;
  replace(container, spinner());
  try {
    const reading = [path, '/api/v1/status'].map((each) => get(each, { signal }));
    const [{ collection: info }, status] = await Promise.all(reading);
    const { kind } = status.indexes.find((each) => each.collection === collection) ?? {};
    const settings = { ...info.settings, index: kind === 'milvus' ? 'milvus' : 'faiss' };
    replace(container, h('div', { class: 'settings' }, form(path, settings, signal), danger(path, info)));
  } catch (error) {
    if (!signal.aborted) replace(container, errorBox(error, () => settingsPanel(container, { collection, signal })));
  }
}

/** Returns the form; it sends the settings that were changed and no others. */
function form(path, settings, signal) {
  let saved = settings;
  const fields = {};

  function shown([name, [tag, given]]) {
    const options = tag === 'select' && given.map((value) => ({ value, text: t(`settings.${name}_${value}`) }));
    const input = options ? select(options) : h(tag, given);
    const hint = HINTED.includes(name) ? t(`settings.${name}_hint`) : '';
    fields[name] = { input, element: field(t(`settings.${name}`), input, { hint }) };
    return fields[name].element;
  }

  function write() {
    const { fusion, recency, ...rest } = saved;
    const values = { ...rest, boosts: written(rest.boosts) };
    Object.entries(fusion).forEach(([name, value]) => (values[`fusion_${name}`] = value));
    Object.entries(recency ?? NO_RECENCY).forEach(([name, value]) => (values[`recency_${name}`] = value));
    for (const [name, { input }] of Object.entries(fields)) {
      if (input.type === 'checkbox') input.checked = values[name];
      else input.value = values[name] ?? '';
    }
  }

  /** Returns the settings as the form has them; null after saying which one cannot be. */
  function read() {
    const found = {};
    for (const [name, { input }] of Object.entries(fields)) {
      const text = input.value.trim();
      found[name] = { number: text ? Number(text) : null, checkbox: input.checked }[input.type];
      if (found[name] === undefined) found[name] = text;
    }
    // A boost by a date or a tag that was not edited stays of its type.
    const boosts = found.boosts === written(saved.boosts) ? saved.boosts : parsed(found.boosts);
    let wrong = null;
    for (const [name, { input, element }] of Object.entries(fields)) {
      const why = name === 'boosts' && !boosts ? t('settings.boosts_hint') : input.validationMessage;
      element.setError(why);
      if (why) wrong ??= input;
    }
    wrong?.focus();
    if (wrong) return null;
    const whole = { boosts, fusion: { ...saved.fusion }, recency: {} };
    for (const [name, value] of Object.entries(found)) {
      const [, outer, inner] = /^(fusion|recency)_(.*)$/.exec(name) ?? [];
      if (outer) whole[outer][inner] = value === '' ? null : value;
      else whole[name] ??= value;
    }
    return { ...whole, recency: whole.recency.weight ? whole.recency : null };
  }

  async function submit(event) {
    event.preventDefault();
    const wanted = read();
    if (!wanted) return;
    const changes = Object.entries(wanted).filter(([name, value]) => canonical(value) !== canonical(saved[name]));
    if (!changes.length) {
      notice(t('settings.unchanged'));
      return;
    }
    const { index, ...rest } = Object.fromEntries(changes);
    try {
      if (changes.length > (index ? 1 : 0)) {
        const { collection } = await send('PATCH', path, { settings: rest }, { signal });
        saved = { ...collection.settings, index: saved.index };
        write();
      }
      if (index) {
        await send('PUT', `${path}/index`, { backend: index }, { signal });
        saved.index = index;
      }
      notice(t('chunk_tokens' in rest ? 'settings.saved_later' : 'settings.saved'));
      await collections({ fresh: true });
    } catch (error) {
      if (signal.aborted) return;
      const refused = error.param?.replace('settings.', '').replace('.', '_') || '-';
      const found = fields[Object.keys(fields).find((name) => refused.startsWith(name) || name.startsWith(refused))];
      found?.element.setError(visible(error.message));
      found?.input.focus();
      notice(failure(error), { kind: 'error' });
    }
  }

  const groups = Object.entries(GROUPS).map(([name, parts]) =>
    h('fieldset', {}, h('legend', {}, t(`settings.group_${name}`)), Object.entries(parts).map(shown)));
  write();
  const save = button(t('settings.save'), { kind: 'primary', type: 'submit' });
  return h('form', { novalidate: true, on: { submit } }, groups, save);
}

/** A value as text, whatever the order of its names. */
function canonical(value) {
  const ordered = (_, each) => (each?.constructor === Object ? Object.fromEntries(Object.entries(each).sort()) : each);
  return JSON.stringify(value, ordered);
}

function written(boosts) {
  return boosts.map((each) => `${each.key} = ${each.value} * ${each.factor}`).join('\n');
}

/** Returns the boosts that lines stand for; null if a line is none. */
function parsed(lines) {
  const found = lines.split('\n').filter((line) => line.trim()).map((line) => BOOST.exec(line.trim()));
  if (found.includes(null)) return null;
  return found.map(([, key, text, factor]) => ({ key, value: plain(text), factor: Number(factor) }));
}

/** A number or a truth value, where a text is one. */
function plain(text) {
  if (text === 'true' || text === 'false') return text === 'true';
  return Number.isNaN(Number(text)) ? text : Number(text);
}

function danger(path, info) {
  const { name, documents: count } = info;
  async function erase() {
    const typed = h('input', { autocomplete: 'off' });
    const asked = field(t('settings.type_name', { name }), typed);
    const check = async () => {
      const wrong = typed.value !== name && t('settings.wrong_name');
      asked.setError(wrong || (await send('DELETE', path).then(() => '', failure)));
      return typed.getAttribute('aria-invalid') === 'false';
    };
    const told = h('p', {}, t('settings.delete_text', { count }), ' ', h('strong', {}, untrusted(name)));
    const actions = [{ text: t('settings.delete'), kind: 'danger', value: true, check }];
    if (!(await dialog({ title: t('settings.delete'), content: [told, asked], actions }))) return;
    notice(t('settings.deleted', { name }));
    await collections({ fresh: true });
    go(href('documents'));
  }
  return h('section', { class: 'danger-zone' }, h('p', {}, t('settings.danger_hint')),
    button(t('settings.delete'), { kind: 'danger', icon: 'trash', on: erase }));
}
