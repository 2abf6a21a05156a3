/** What a token allows, as a form: its name, roles, collections, limits and life. */

import { checkbox, dialog, failure, field, select } from '../core/controls.js';
import { h, replace, untrusted } from '../core/dom.js';
import { collections } from '../core/session.js';
import { dateTime, number, t } from '../core/text.js';

const ROLES = ['reader', 'writer', 'peer', 'admin'];
const PRIORITIES = ['interactive', 'normal', 'batch'];
const DAYS = [7, 30, 90, 365];
const DAY_MS = 86_400_000;

const LIMITS = ['requests_per_minute', 'tokens_per_minute', 'concurrent_requests'];

/**
 * Asks for what a token shall allow, until the box takes it.
 * @param {string} title
 * @param {string} action
 * @param {(form: {name: () => string, settings: () => object, days: () => number|null}) => Promise<object>} take
 * @param {{token?: object, more?: HTMLElement}} [options] The token that is changed; what else is asked for.
 * @returns {Promise<object|undefined>} What the box answered; undefined if the user gave up.
 */
export async function askForRights(title, action, take, { token, more } = {}) {
  const form = rightsForm(await collections({ fresh: true }), token);
  let taken;
  const check = async () => {
    try {
      taken = await take(form);
      return true;
    } catch (error) {
      form.refused(error);
      return false;
    }
  };
  const actions = [{ text: t('controls.cancel') }, { text: action, kind: 'primary', check }];
  await dialog({ title, content: [form.content, more], actions });
  return taken;
}

function rightsForm(known, token) {
  const now = token?.identity ?? { name: '', roles: ['reader'], collections: null, priority_max: 'interactive' };
  const name = h('input', { name: 'name', required: true, maxlength: '64', autocomplete: 'off', spellcheck: 'false' });
  const named = field(t('access.name'), name, { hint: t('access.name_hint') });
  const roles = ROLES.map((value) => {
    const hint = h('span', { class: 'hint' }, t(`access.role_${value}_hint`));
    return checkbox([h('strong', {}, t(`box.role_${value}`)), ' ', hint], { checked: now.roles.includes(value), value });
  });
  const names = new Set([...known.map((each) => each.name), ...(now.collections ?? [])]);
  const each = [...names].sort().map((value) =>
    checkbox(untrusted(value), { checked: now.collections?.includes(value), value }),
  );
  const isForAll = now.collections === null;
  const list = h('div', { class: 'choices', hidden: isForAll }, each);
  const all = checkbox(t('access.all_collections'), { checked: isForAll, on: (checked) => (list.hidden = checked) });
  const limits = LIMITS.map((limit) => h('input', { type: 'number', min: '1', max: '999999999', value: now[limit] }));
  const priority = select(
    PRIORITIES.map((value) => ({ value, text: t(`access.priority_${value}`) })),
    { value: now.priority_max },
  );
  const kept = token?.expires ? [{ value: 'keep', text: t('access.until', { time: dateTime(token.expires) }) }] : [];
  const lives = DAYS.map((count) => ({ value: String(count), text: t('access.days', { count }) }));
  const expires = select([...kept, { value: '', text: t('access.never') }, ...lives]);
  const problem = h('p', { class: 'field-error', role: 'alert' });
  const content = [
    !token && named,
    h('fieldset', {}, h('legend', {}, t('access.roles')), roles),
    h('fieldset', {}, h('legend', {}, t('access.collections')), all, list),
    h('p', { class: 'hint' }, t('access.limits_hint')),
    h('div', { class: 'grid limits' }, [
      LIMITS.map((limit, at) => field(t(`box.${limit}`), limits[at])),
      field(t('access.priority'), priority),
      field(t('access.expires'), expires),
    ]),
    problem,
  ];
  const chosen = (boxes) => boxes.filter(({ box }) => box.checked).map(({ box }) => box.value);
  const days = () => Number(expires.value) || null;
  return {
    content,
    name: () => name.value.trim(),
    days,
    settings() {
      const given = Object.fromEntries(LIMITS.map((limit, at) => [limit, Number(limits[at].value) || null]));
      return {
        roles: chosen(roles),
        collections: all.box.checked ? null : chosen(each),
        priority_max: priority.value,
        ...given,
        ...(expires.value === 'keep' ? {} : { expires: days() && new Date(Date.now() + days() * DAY_MS).toISOString() }),
      };
    },
    refused(error) {
      const isOfName = error.param === 'name' || error.code === 'token_exists';
      named.setError(isOfName && failure(error));
      replace(problem, !isOfName && failure(error));
      if (isOfName) name.focus();
    },
  };
}

/** Returns what a token allows in short: its limits, and how urgent its requests may be. */
export function limitsText(identity) {
  const given = LIMITS.filter((limit) => identity[limit] !== null);
  const parts = given.map((limit) => `${t(`box.${limit}`)}: ${number(identity[limit])}`);
  if (identity.priority_max !== 'interactive') parts.push(t(`access.priority_${identity.priority_max}`));
  return parts.length ? parts.join(', ') : t('access.no_limits');
}
