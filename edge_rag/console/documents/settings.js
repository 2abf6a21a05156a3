/** Settings of a collection with what they do, and its end. */

import { get, send } from '../core/api.js';
import { button, dialog, empty, failure, field, notice, select, spinner } from '../core/controls.js';
import { h, loadStyle, replace, untrusted, visible } from '../core/dom.js';
import { go, href } from '../core/router.js';
import { can, collections } from '../core/session.js';
import { t } from '../core/text.js';

const BOOST = /^([^=]+?)\s*=\s*(.+?)\s*\*\s*([\d.]+)$/;
const NO_RECENCY = { key: null, half_life_days: 180, weight: 0 };
const AMOUNT = { type: 'number', step: 'any', min: '0', required: true };
const BOX = { type: 'checkbox' };

/** Settings by group: the element, then its attributes or choices. */
const GROUPS = {
  about: { title: ['input', { maxlength: '256' }], description: ['textarea', { maxlength: '4096' }] },
  ingest: { chunk_tokens: ['input', { type: 'number', min: '16', max: '8192' }] },
  search: {
    'fusion.dense': ['input', AMOUNT],
    'fusion.lexical': ['input', AMOUNT],
    drop_duplicates: ['input', BOX],
    merge_neighbours: ['input', BOX],
    'recency.weight': ['input', AMOUNT],
    'recency.half_life_days': ['input', AMOUNT],
    'recency.key': ['input', {}],
    boosts: ['textarea', { rows: '3' }],
  },
  answers: { offload: ['select', ['never', 'redacted', 'allowed']], kv_reuse: ['select', ['exact', 'passage']] },
  index: { index: ['select', ['faiss', 'milvus']] },
};
const HINTED = ['index', 'chunk_tokens', 'fusion.dense', 'merge_neighbours', 'recency.weight', 'recency.key', 'boosts'];

/** Shows the settings of a collection, which administrators may change. */
export async function settingsPanel(container, { collection, signal }) {
  await loadStyle('documents/panels.css');
  if (!can('admin')) return void replace(container, empty(t('settings.admins_only')));
  const path = `/api/v1/collections/${encodeURIComponent(collection)}`;
  replace(container, spinner());
  const [{ collection: info }, status] = await Promise.all([path, '/api/v1/status'].map((each) => get(each, { signal })));
  const { kind } = status.indexes.find((each) => each.collection === collection) ?? {};
  const settings = { ...info.settings, index: kind === 'milvus' ? 'milvus' : 'faiss' };
  replace(container, h('div.settings', form(path, settings, signal), danger(path, info)));
}

/** Returns the form; it sends the settings that were changed and no others. */
function form(path, saved, signal) {
  const inputs = {};
  const fields = {};
  let before = {};

  function shown([name, [tag, given]]) {
    const key = `settings.${name.replace('.', '_')}`;
    const choice = tag === 'select' && select(given.map((value) => ({ value, text: t(`${key}_${value}`) })));
    inputs[name] = choice || h(tag, given);
    fields[name] = field(t(key), inputs[name], { hint: HINTED.includes(name) && t(`${key}_hint`) });
    return fields[name];
  }

  /** Shows the saved settings, and remembers how they look. */
  function write() {
    const boosts = saved.boosts.map(({ key, value, factor }) => `${key} = ${value} * ${factor}`).join('\n');
    const values = { ...saved, boosts, recency: saved.recency ?? NO_RECENCY };
    for (const [name, input] of Object.entries(inputs)) {
      const value = name.split('.').reduce((outer, inner) => outer[inner], values);
      if (input.type === 'checkbox') input.checked = value;
      else input.value = value ?? '';
    }
    before = read();
  }

  /** Returns the settings that the form shows; boosts that cannot be read are null. */
  function read() {
    const now = { fusion: { ...saved.fusion }, recency: {} };
    for (const [name, { type, checked, value }] of Object.entries(inputs)) {
      const [outer, inner] = name.split('.');
      const number = value ? Number(value) : null;
      const given = type === 'checkbox' ? checked : type === 'number' ? number : value.trim();
      if (inner) now[outer][inner] = given;
      else now[outer] = given;
    }
    now.recency.key ||= null;
    return { ...now, boosts: parsed(now.boosts), recency: now.recency.weight ? now.recency : null };
  }

  async function submit(event) {
    event.preventDefault();
    const now = read();
    for (const [name, input] of Object.entries(inputs)) {
      fields[name].setError(name === 'boosts' && !now.boosts ? t('settings.boosts_hint') : input.validationMessage);
    }
    const wrong = Object.values(inputs).find((each) => each.ariaInvalid === 'true');
    if (wrong) return void wrong.focus();
    const isNew = ([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name]);
    const { index, ...settings } = Object.fromEntries(Object.entries(now).filter(isNew));
    const inForm = Object.keys(settings).length > 0;
    if (!inForm && !index) return void notice(t('settings.unchanged'));
    try {
      if (inForm) {
        const { collection } = await send('PATCH', path, { settings }, { signal });
        saved = { ...collection.settings, index: saved.index };
      }
      if (index) {
        await send('PUT', `${path}/index`, { backend: index }, { signal });
        saved.index = index;
      }
      write();
      notice(t('chunk_tokens' in settings ? 'settings.saved_later' : 'settings.saved'));
      await collections({ fresh: true });
    } catch (error) {
      if (signal.aborted) return;
      const refused = error.param?.replace('settings.', '') || '-';
      const name = Object.keys(fields).find((each) => refused.startsWith(each) || each.startsWith(refused));
      fields[name]?.setError(visible(error.message));
      inputs[name]?.focus();
      notice(failure(error), { kind: 'error' });
    }
  }

  const groups = Object.entries(GROUPS).map(([name, parts]) =>
    h('fieldset', h('legend', t(`settings.group_${name}`)), Object.entries(parts).map(shown)));
  write();
  const save = button(t('settings.save'), { kind: 'primary', type: 'submit' });
  return h('form', { novalidate: true, on: { submit } }, groups, save);
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

function danger(path, { name, documents: count }) {
  const action = t('settings.delete');
  async function erase() {
    const typed = h('input', { autocomplete: 'off' });
    const asked = field(t('settings.type_name', { name }), typed);
    const check = async () => {
      const wrong = typed.value === name ? await send('DELETE', path).then(() => '', failure) : t('settings.wrong_name');
      asked.setError(wrong);
      return !wrong;
    };
    const told = h('p', t('settings.delete_text', { count }), ' ', h('strong', untrusted(name)));
    const actions = [{ text: action, kind: 'danger', value: true, check }];
    if (!(await dialog({ title: action, content: [told, asked], actions }))) return;
    notice(t('settings.deleted', { name }));
    go(href('documents'));
  }
  return h('section.danger-zone', h('p', t('settings.danger_hint')),
    button(action, { kind: 'danger', icon: 'trash', on: erase }));
}
