/** Usage by client since the start of the daemon, and what is left of quotas. */

import { get } from '../core/api.js';
import { button, empty } from '../core/controls.js';
import { h, replace, untrusted } from '../core/dom.js';
import { dateTime, duration, number, t } from '../core/text.js';
import { facts, listing, meter } from './facts.js';

const COUNTS = ['generated', 'prompt', 'cached', 'requests', 'refused', 'slot_time', 'ingest_time'];

/** Shows the usage. */
export async function show(container, signal) {
  const { since, clients, quotas } = await get('/api/v1/usage', { signal });
  const tokens = (each) => each.prompt_tokens + each.generated_tokens;
  const most = Math.max(1, ...clients.map(tokens));
  const rows = clients.toSorted((one, other) => tokens(other) - tokens(one)).map((each) => [
    each.client === null ? t('box.other_clients') : untrusted(each.client),
    meter(number(tokens(each)), tokens(each) / most),
    ...[each.generated_tokens, each.prompt_tokens, each.cached_prompt_tokens, each.requests, each.refused].map((count) =>
      number(count)),
    duration(each.slot_s),
    duration(each.ingest_s),
  ]);
  const again = button(t('audit.refresh'), { on: () => show(container, signal) });
  const hint = (text) => h('p.hint', text);
  replace(
    container,
    h('div.row.spread', h('h2', t('box.usage')), again),
    hint(t('box.since', { time: dateTime(since) })),
    clients.length ? listing(t('box.usage'), 'box', rows, ['client', 'tokens'], COUNTS) : empty(t('box.no_usage')),
    h('h2', t('box.quotas')),
    quotas.length ? h('div.grid', quotas.map(quotaCard)) : hint(t('box.no_quotas')),
  );
}

function quotaCard(quota) {
  const used = {
    requests_per_minute: quota.requests_per_minute - quota.requests_left,
    tokens_per_minute: quota.tokens_per_minute - quota.tokens_left,
    concurrent_requests: quota.in_flight,
  };
  const limits = Object.entries(used).filter(([limit]) => quota[limit] !== null);
  const lines = limits.map(([limit, count]) =>
    [limit, meter(t('box.of', { count, most: quota[limit] }), count / quota[limit])]);
  return h('section.card', h('h3', untrusted(quota.client)), facts(Object.fromEntries(lines)));
}
