/** The latest requests, and the trail of one of them. */

import { events, get } from '../core/api.js';
import { button, empty, errorBox, field, icon, select, table } from '../core/controls.js';
import { h, replace, untrusted } from '../core/dom.js';
import { go, href } from '../core/router.js';
import { dateTime, duration, t } from '../core/text.js';
import { outcomeBadge, requestTimeline, summary } from './timeline.js';

const PAGE = 1000; // events read at once, about 200 requests
const MOST_EVENTS = 10_000; // events in memory; the oldest go
const MOST_ROWS = 200;
const PAUSE_MS = 1000; // between two looks at what is new
const OUTCOMES = ['running', 'finished', 'refused', 'cancelled', 'expired', 'failed'];

/**
 * Shows the latest requests, or the trail of one.
 * @param {HTMLElement} container
 * @param {{request?: string, signal: AbortSignal}} options
 */
export async function auditPanel(container, { request, signal }) {
  if (request) await showRequest(container, request, signal);
  else await showRequests(container, signal);
}

async function showRequest(container, id, signal) {
  const trail = h('div', { class: 'card' });
  const { events: found } = await get('/api/v1/audit', { query: { request_id: id, limit: PAGE }, signal });
  const heading = h('h2', { tabindex: '-1' }, t('audit.request'), ' ', untrusted(id));
  const list = href('box', 'requests');
  const back = h('a', { class: 'button quiet', href: list }, icon('left'), h('span', {}, t('audit.back')));
  let about = null;
  if (found.length > 0) {
    const { client, at, priority } = summary(found);
    const rank = priority && ` · ${t(`audit.priority_${priority}`)}`;
    about = h('p', { class: 'hint' }, dateTime(at), ' · ', untrusted(client), rank);
  }
  await requestTimeline(trail, found);
  const again = button(t('audit.refresh'), { on: () => showRequest(container, id, signal) });
  replace(container, h('div', { class: 'row spread' }, back, again), heading, about, trail);
  heading.focus({ preventScroll: true });
}

async function showRequests(container, signal) {
  const kept = new Map(); // number -> event, in order
  const known = { next: null, dropped: 0 };
  const wanted = { client: '', outcome: '', id: '' };
  const list = h('div');
  const fresh = button('', { hidden: true, on: () => draw() });
  const older = button(t('audit.older'), { hidden: true, on: () => more().catch(failed) });
  let shownUpTo = 0;

  function failed(error) {
    if (!signal.aborted) replace(list, errorBox(error, () => showRequests(container, signal)));
  }

  async function more() {
    const query = { limit: PAGE, before: known.next };
    const page = await get('/api/v1/audit', { query, signal });
    const later = [...kept];
    kept.clear();
    for (const each of [...page.events.map((event) => [event.number, event]), ...later]) kept.set(...each);
    known.next = kept.size < MOST_EVENTS ? page.next : null;
    draw();
  }

  function requests() {
    const found = new Map();
    for (const each of kept.values()) {
      if (each.request_id === null) continue;
      if (!found.has(each.request_id)) found.set(each.request_id, []);
      found.get(each.request_id).push(each);
    }
    return [...found.values()].map(summary).sort((one, other) => other.at - one.at);
  }

  function draw() {
    shownUpTo = [...kept.keys()].at(-1) ?? 0;
    fresh.hidden = true;
    older.hidden = known.next === null;
    const all = requests();
    const part = (text, of) => text.toLowerCase().includes(of.trim().toLowerCase());
    const found = all.filter(
      (each) =>
        part(each.client, wanted.client) &&
        part(each.id, wanted.id) &&
        (!wanted.outcome || each.outcome === wanted.outcome),
    );
    if (found.length === 0) {
      replace(list, empty(t('audit.none')));
      return;
    }
    const rows = found.slice(0, MOST_ROWS).map((each) => [
      h('a', { class: 'when', href: href('box', 'requests', each.id) }, dateTime(each.at)),
      outcomeBadge(each.outcome),
      duration(each.seconds),
      answer(each),
      untrusted(each.client),
      each.priority && t(`audit.priority_${each.priority}`),
      h('code', {}, untrusted(each.id)),
    ]);
    const columns = ['time', 'outcome', 'took', 'answer', 'client', 'priority', 'id'].map((name) => ({
      text: t(`audit.${name}`),
      kind: name === 'took' ? 'number' : undefined,
    }));
    replace(list, table({ caption: t('audit.title'), columns, rows, hideCaption: true }));
  }

  async function follow() {
    let told = 0;
    for await (const { event, data } of events(`/api/v1/audit/events?after=${shownUpTo}`, { signal })) {
      if (event !== 'event') continue;
      kept.set(data.number, data);
      if (kept.size > MOST_EVENTS) kept.delete(kept.keys().next().value);
      if (Date.now() - told < PAUSE_MS) continue;
      told = Date.now();
      setTimeout(offer, PAUSE_MS);
    }
  }

  function offer() {
    if (document.hidden) return;
    const later = [...kept.values()].filter((each) => each.number > shownUpTo && each.request_id !== null);
    const count = new Set(later.map((each) => each.request_id)).size;
    fresh.hidden = count === 0;
    fresh.querySelector('span').textContent = t('audit.new', { count });
  }

  const text = (name) => {
    const input = h('input', { type: 'search', on: { input: () => ((wanted[name] = input.value), draw()) } });
    return field(t(`audit.${name}`), input);
  };
  const outcomes = OUTCOMES.map((value) => ({ value, text: t(`audit.outcome_${value}`) }));
  outcomes.unshift({ value: '', text: t('audit.any') });
  const outcome = select(outcomes, { on: (value) => ((wanted.outcome = value), draw()) });
  const filters = h(
    'form',
    { class: 'filters', role: 'search', on: { submit: (event) => event.preventDefault() } },
    text('client'),
    field(t('audit.outcome'), outcome),
    text('id'),
  );
  const reload = button(t('audit.refresh'), { on: () => go(href('box', 'requests'), { replace: true }) });
  const head = h('div', { class: 'row spread' }, h('h2', {}, t('audit.title')), reload);
  replace(container, head, filters, fresh, list, older);
  await more();
  // The stream ends with the daemon; then the list stays as it is until it is refreshed.
  follow().catch(() => {});
}

function answer({ outcome, tokens }) {
  if (outcome !== 'finished') return null;
  return tokens === null ? t('audit.quoted') : t('audit.tokens', { count: tokens });
}
