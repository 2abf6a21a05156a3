/** Settings of a collection with what they do, and its end. */

import { get, send } from '../core/api.js';
import { button, checkbox, dialog, empty, errorBox, failure, field, freshId } from '../core/controls.js';
import { notice, select, spinner } from '../core/controls.js';
import { h, loadStyle, replace, untrusted, visible } from '../core/dom.js';
import { go, href } from '../core/router.js';
import { can, collections } from '../core/session.js';
import { t } from '../core/text.js';

const BOOST = /^([^=]+)=(.+)\*\s*([\d.]+)$/;
const NO_RECENCY = { key: null, half_life_days: 180, weight: 0 };

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
    const index = status.indexes.find((each) => each.collection === collection);
    const shown = [form(path, info.settings, signal), index && move(path, index, signal), danger(path, info)];
    replace(container, h('div', { class: 'settings' }, shown));
  } catch (error) {
    if (!signal.aborted) replace(container, errorBox(error, () => settingsPanel(container, { collection, signal })));
  }
}

/** Returns the form; it sends the settings that were changed and no others. */
function form(path, settings, signal) {
  let saved = settings;
  const parts = new Map();

  /** Adds a control: `write` shows a setting in it, `read` returns its value, undefined for one that cannot be. */
  function part(name, input, write, read, hint = '') {
    const element = field(t(`settings.${name}`), input, { hint: hint && t(`settings.${hint}`) });
    parts.set(name, { input, write, read, element });
    return element;
  }
  const text = (name, tag, most) =>
    part(name, h(tag, { maxlength: most }), (from) => from[name], (value) => value.trim());
  const amount = (name, get, hint, attributes = { min: '0', required: true }) =>
    part(name, h('input', { type: 'number', step: 'any', ...attributes }), (from) => get(from) ?? '',
      (value) => (value === '' ? null : Number(value)), hint);
  function choice(name, values) {
    const options = values.map((value) => ({ value, text: t(`settings.${name}_${value}`) }));
    return part(name, select(options), (from) => from[name], (value) => value);
  }
  function flag(name, hint) {
    const about = h('span', { class: 'hint', id: freshId('about') }, hint && t(`settings.${hint}`));
    const element = checkbox(t(`settings.${name}`), { 'aria-describedby': hint && about.id });
    parts.set(name, { input: element.box, write: (from) => from[name], read: (value) => value, element });
    return h('div', {}, element, hint && about);
  }
  const group = (name, ...fields) => h('fieldset', {}, h('legend', {}, t(`settings.group_${name}`)), fields);
  const recency = (from) => from.recency ?? NO_RECENCY;
  const key = (input) => (input.type === 'checkbox' ? 'checked' : 'value');

  const element = h('form', { novalidate: true, on: { submit } },
    group('about', text('title', 'input', 256), text('description', 'textarea', 4096)),
    group('ingest',
      amount('chunk_tokens', (from) => from.chunk_tokens, 'chunk_tokens_hint', { step: '1', min: '16', max: '8192' })),
    group('search',
      amount('dense', (from) => from.fusion.dense, 'dense_hint'),
      amount('lexical', (from) => from.fusion.lexical),
      flag('drop_duplicates'),
      flag('merge_neighbours', 'merge_neighbours_hint'),
      amount('recency_weight', (from) => recency(from).weight, 'recency_weight_hint'),
      amount('half_life_days', (from) => recency(from).half_life_days),
      part('recency_key', h('input'), (from) => recency(from).key ?? '', (each) => each.trim() || null,
        'recency_key_hint'),
      part('boosts', h('textarea', { rows: '3' }), (from) => written(from.boosts), readBoosts, 'boosts_hint')),
    group('answers', choice('offload', ['never', 'redacted', 'allowed']), choice('kv_reuse', ['exact', 'passage'])),
    button(t('settings.save'), { kind: 'primary', type: 'submit' }));

  function write() {
    for (const { input, write: shown } of parts.values()) input[key(input)] = shown(saved);
  }

  /** Returns the settings as the form has them; null after saying which one cannot be. */
  function read() {
    const found = {};
    for (const [name, { input, read: value, element: shown }] of parts) {
      found[name] = input.validity.valid ? value(input[key(input)]) : undefined;
      shown.setError?.(found[name] === undefined ? input.validationMessage || t('settings.boosts_hint') : '');
    }
    const wrong = [...parts.keys()].find((name) => found[name] === undefined);
    parts.get(wrong)?.input.focus();
    if (wrong) return null;
    const { dense, lexical, recency_weight: weight, half_life_days, recency_key, ...rest } = found;
    // A boost whose date or tag was not edited stays of its type.
    if (written(saved.boosts) === written(rest.boosts)) rest.boosts = saved.boosts;
    const recent = weight ? { key: recency_key, half_life_days, weight } : null;
    return { ...rest, fusion: { ...saved.fusion, dense, lexical }, recency: recent };
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
    try {
      saved = (await send('PATCH', path, { settings: Object.fromEntries(changes) }, { signal })).collection.settings;
      write();
      notice(t(changes.some(([name]) => name === 'chunk_tokens') ? 'settings.saved_later' : 'settings.saved'));
      await collections({ fresh: true });
    } catch (error) {
      if (signal.aborted) return;
      const names = (error.param ?? '').replace('recency.weight', 'recency_weight').split(/[.[]/);
      const refused = parts.get([...parts.keys()].find((name) => names.includes(name)));
      refused?.element.setError?.(visible(error.message));
      refused?.input.focus();
      notice(failure(error), { kind: 'error' });
    }
  }

  write();
  return element;
}

/** A value as text, whatever the order of its names. */
function canonical(value) {
  const ordered = (_, each) => (each?.constructor === Object ? Object.fromEntries(Object.entries(each).sort()) : each);
  return JSON.stringify(value, ordered);
}

function written(boosts) {
  return boosts.map((each) => `${each.key} = ${each.value} * ${each.factor}`).join('\n');
}

function readBoosts(value) {
  const lines = value.split('\n').map((line) => line.trim()).filter(Boolean);
  const found = lines.map((line) => BOOST.exec(line)?.slice(1).map((each) => each.trim()));
  if (found.some((each) => !each)) return undefined;
  return found.map(([key, text, factor]) => ({ key, value: plain(text), factor: Number(factor) }));
}

/** A number or a truth value, where a text is one. */
function plain(text) {
  if (text === 'true' || text === 'false') return text === 'true';
  return Number.isNaN(Number(text)) ? text : Number(text);
}

function move(path, index, signal) {
  const value = index.kind === 'milvus' ? 'milvus' : 'faiss';
  const backends = ['faiss', 'milvus'].map((each) => ({ value: each, text: t(`settings.index_${each}`) }));
  const chosen = select(backends, { value, 'aria-label': t('settings.index') });
  const start = button(t('settings.move'), {
    on: async () => {
      start.disabled = true;
      try {
        await send('PUT', `${path}/index`, { backend: chosen.value }, { signal });
        notice(t('settings.moved'));
      } catch (error) {
        if (!signal.aborted) notice(failure(error), { kind: 'error' });
      }
      start.disabled = false;
    },
  });
  const text = h('p', { class: 'hint' }, t('settings.index_hint'));
  return h('fieldset', {}, h('legend', {}, t('settings.index')), text, h('div', { class: 'row' }, chosen, start));
}

function danger(path, info) {
  const { name, documents: count } = info;
  async function erase() {
    const typed = h('input', { autocomplete: 'off', spellcheck: 'false' });
    const shown = field(t('settings.type_name', { name }), typed);
    const check = async () => {
      shown.setError(typed.value === name ? '' : t('settings.wrong_name'));
      if (typed.value !== name) return false;
      const refused = await send('DELETE', path).then(() => '', failure);
      shown.setError(refused);
      return !refused;
    };
    const told = h('p', {}, t('settings.delete_text', { count }), ' ', h('strong', {}, untrusted(name)));
    const actions = [{ text: t('settings.delete'), kind: 'danger', value: true, check }];
    if (!(await dialog({ title: t('settings.delete'), content: [told, shown], actions }))) return;
    notice(t('settings.deleted', { name }));
    await collections({ fresh: true });
    go(href('documents'));
  }
  return h('section', { class: 'danger-zone' }, h('p', {}, t('settings.danger_hint')),
    button(t('settings.delete'), { kind: 'danger', icon: 'trash', on: erase }));
}
