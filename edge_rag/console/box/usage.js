/** Usage by client since the start of the daemon, and what is left of quotas. */

import { get } from '../core/api.js';
import { button, empty, table } from '../core/controls.js';
import { h, replace, untrusted } from '../core/dom.js';
import { dateTime, duration, number, t } from '../core/text.js';
import { meter } from './charts.js';

const COUNTS = ['generated', 'prompt', 'cached', 'requests', 'refused', 'slot_time', 'ingest_time'];
const QUOTAS = [
  ['requests_per_minute', 'requests_left'],
  ['tokens_per_minute', 'tokens_left'],
];

/** Shows the usage. */
export async function usagePanel(container, signal) {
  const { since, clients, quotas } = await get('/api/v1/usage', { signal });
  const most = Math.max(1, ...clients.map(tokensOf));
  const rows = [...clients].sort((one, other) => tokensOf(other) - tokensOf(one)).map((each) => [
    each.client === null ? t('box.other_clients') : untrusted(each.client),
    bar(number(tokensOf(each)), tokensOf(each) / most),
    number(each.generated_tokens),
    number(each.prompt_tokens),
    number(each.cached_prompt_tokens),
    number(each.requests),
    number(each.refused),
    duration(each.slot_s),
    duration(each.ingest_s),
  ]);
  const columns = ['client', 'tokens'].map((name) => ({ text: t(`box.${name}`) }));
  columns.push(...COUNTS.map((name) => ({ text: t(`box.${name}`), kind: 'number' })));
  const caption = t('box.since', { time: dateTime(since) });
  const again = button(t('audit.refresh'), { on: () => usagePanel(container, signal) });
  replace(
    container,
    h('div', { class: 'row spread' }, h('h2', {}, t('box.usage')), again),
    clients.length ? table({ caption, columns, rows }) : empty(t('box.no_usage')),
    h('h2', {}, t('box.quotas')),
    quotas.length ? h('div', { class: 'grid' }, quotas.map(quotaCard)) : h('p', { class: 'hint' }, t('box.no_quotas')),
  );
}

function tokensOf(client) {
  return client.prompt_tokens + client.generated_tokens;
}

function bar(text, share) {
  const element = meter();
  element.set({ text, share });
  return element;
}

function line(limit, count, most) {
  return [h('dt', {}, t(`box.${limit}`)), h('dd', {}, bar(t('box.of', { count, most }), count / most))];
}

function quotaCard(quota) {
  const lines = QUOTAS.filter(([limit]) => quota[limit] !== null).map(([limit, left]) => {
    const used = quota[limit] - quota[left];
    return line(limit, used, quota[limit]);
  });
  if (quota.concurrent_requests !== null) {
    lines.push(line('concurrent_requests', quota.in_flight, quota.concurrent_requests));
  }
  return h('section', { class: 'card' }, h('h3', {}, untrusted(quota.client)), h('dl', { class: 'facts' }, lines));
}
