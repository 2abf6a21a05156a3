/** What a token allows, as a form: its name, roles, collections, limits and life. */

import { checkbox, failure, field, select } from '../core/controls.js';
import { h, replace, untrusted } from '../core/dom.js';
import { dateTime, number, t } from '../core/text.js';

const ROLES = ['reader', 'writer', 'peer', 'admin'];
const PRIORITIES = ['interactive', 'normal', 'batch'];
const DAYS = [7, 30, 90, 365];
const DAY_MS = 86_400_000;

/** Names of the limits, as in the API. */
export const LIMITS = ['requests_per_minute', 'tokens_per_minute', 'concurrent_requests'];

/**
 * Returns the form of a token.
 * @param {Array<{name: string}>} collections Those of the box.
 * @param {object|null} token The token that is changed, as the API tells it; null for a new one.
 * @returns {{content: HTMLElement, name: () => string, settings: () => object, days: () => number|null,
 *     refused: (error: Error) => void}} `refused` shows why the box did not take it, beside the field if it names one.
 */
export function rightsForm(collections, token = null) {
  const now = token?.identity ?? { name: '', roles: ['reader'], collections: null, priority_max: 'interactive' };
  const name = h('input', { name: 'name', required: true, maxlength: '64', autocomplete: 'off', spellcheck: 'false' });
  const named = field(t('access.name'), name, { hint: t('access.name_hint') });
  const roles = ROLES.map((role) =>
    checkbox([h('strong', {}, t(`box.role_${role}`)), ' ', h('span', { class: 'hint' }, t(`access.role_${role}_hint`))], {
      checked: now.roles.includes(role),
      value: role,
    }),
  );
  const names = [...new Set([...collections.map((each) => each.name), ...(now.collections ?? [])])].sort();
  const each = names.map((value) =>
    checkbox(untrusted(value), { checked: now.collections?.includes(value) ?? false, value }),
  );
  const list = h('div', { class: 'choices', hidden: now.collections === null }, each);
  const all = checkbox(t('access.all_collections'), {
    checked: now.collections === null,
    on: (checked) => (list.hidden = checked),
  });
  const limits = LIMITS.map((limit) => h('input', { type: 'number', min: '1', max: '999999999', value: now[limit] }));
  const priority = select(
    PRIORITIES.map((value) => ({ value, text: t(`access.priority_${value}`) })),
    { value: now.priority_max },
  );
  const kept = token?.expires ? [{ value: 'keep', text: t('access.until', { time: dateTime(token.expires) }) }] : [];
  const ends = [...kept, { value: '', text: t('access.never') }];
  for (const count of DAYS) ends.push({ value: String(count), text: t('access.days', { count }) });
  const expires = select(ends, { value: ends[0].value });
  const problem = h('p', { class: 'field-error', role: 'alert' });
  const content = h(
    'div',
    {},
    token ? null : named,
    h('fieldset', {}, h('legend', {}, t('access.roles')), roles),
    h('fieldset', {}, h('legend', {}, t('access.collections')), all, list),
    h('p', { class: 'hint' }, t('access.limits_hint')),
    h('div', { class: 'grid limits' }, [
      LIMITS.map((limit, at) => field(t(`box.${limit}`), limits[at])),
      field(t('access.priority'), priority),
      field(t('access.expires'), expires),
    ]),
    problem,
  );
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
      const ofName = error.param === 'name' || error.code === 'token_exists';
      named.setError(ofName ? failure(error) : '');
      replace(problem, ofName ? null : failure(error));
      if (ofName) name.focus();
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
