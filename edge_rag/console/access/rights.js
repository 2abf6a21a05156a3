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
const NEW = { roles: ['reader'], collections: null, priority_max: 'interactive' };

/**
 * Asks for what a token shall allow until the box takes it; resolves to what that answered, undefined if the user gave up.
 * @param {(given: {name: string, settings: object, days: number|null}) => Promise<object>} take
 * @param {object} [token] The token that is changed.
 */
export async function askForRights(title, action, take, token) {
  const now = token?.identity ?? NEW;
  const known = await collections({ fresh: true });
  const name = h('input', { required: true, maxlength: '64', autocomplete: 'off', spellcheck: 'false' });
  const named = field(t('access.name'), name, { hint: t('access.name_hint') });
  const roles = ROLES.map((value) => {
    const hint = h('span.hint', t(`access.role_${value}_hint`));
    return checkbox([h('strong', t(`box.role_${value}`)), ' ', hint], { checked: now.roles.includes(value), value });
  });
  const names = new Set([...known.map((each) => each.name), ...(now.collections ?? [])]);
  const each = [...names].sort().map((value) =>
    checkbox(untrusted(value), { checked: now.collections?.includes(value), value }));
  const isForAll = now.collections === null;
  const list = h('div.choices', { hidden: isForAll }, each);
  const all = checkbox(t('access.all_collections'), { checked: isForAll, on: (checked) => (list.hidden = checked) });
  const limits = LIMITS.map((limit) => h('input', { type: 'number', min: '1', max: '999999999', value: now[limit] }));
  const priorities = PRIORITIES.map((value) => ({ value, text: t(`access.priority_${value}`) }));
  const priority = select(priorities, { value: now.priority_max });
  const kept = token?.expires ? [{ value: 'keep', text: t('access.until', { time: dateTime(token.expires) }) }] : [];
  const lives = DAYS.map((count) => ({ value: String(count), text: t('access.days', { count }) }));
  const expires = select([...kept, { value: '', text: t('access.never') }, ...lives]);
  const problem = h('p.field-error', { role: 'alert' });
  const content = [
    !token && named,
    h('fieldset', h('legend', t('access.roles')), roles),
    h('fieldset', h('legend', t('access.collections')), all, list),
    h('p.hint', t('access.limits_hint')),
    h('div.grid.limits',
      LIMITS.map((limit, at) => field(t(`box.${limit}`), limits[at])),
      field(t('access.priority'), priority),
      field(t('access.expires'), expires)),
    problem,
  ];

  function given() {
    const chosen = (boxes) => boxes.filter(({ box }) => box.checked).map(({ box }) => box.value);
    const days = Number(expires.value) || null;
    const settings = {
      roles: chosen(roles),
      collections: all.box.checked ? null : chosen(each),
      priority_max: priority.value,
      ...Object.fromEntries(LIMITS.map((limit, at) => [limit, Number(limits[at].value) || null])),
    };
    if (expires.value !== 'keep') settings.expires = days && new Date(Date.now() + days * DAY_MS).toISOString();
    return { name: name.value.trim(), days, settings };
  }

  let taken;
  const check = async () => {
    try {
      taken = await take(given());
      return true;
    } catch (error) {
      const isOfName = error.param === 'name' || error.code === 'token_exists';
      named.setError(isOfName && failure(error));
      replace(problem, !isOfName && failure(error));
      if (isOfName) name.focus();
      return false;
    }
  };
  await dialog({ title, content, actions: [{ text: t('controls.cancel') }, { text: action, kind: 'primary', check }] });
  return taken;
}

/** Returns what a token allows in short: its limits, and how urgent its requests may be. */
export function limitsText(identity) {
  const given = LIMITS.filter((limit) => identity[limit] !== null);
  const parts = given.map((limit) => `${t(`box.${limit}`)}: ${number(identity[limit])}`);
  if (identity.priority_max !== 'interactive') parts.push(t(`access.priority_${identity.priority_max}`));
  return parts.length ? parts.join(', ') : t('access.no_limits');
}
