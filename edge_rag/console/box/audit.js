/** The latest requests, and the trail of one of them. */

import { events, get } from '../core/api.js';
import { attempt, button, empty, field, icon, select } from '../core/controls.js';
import { h, replace, untrusted } from '../core/dom.js';
import { go, href } from '../core/router.js';
import { dateTime, duration, t } from '../core/text.js';
import { listing } from './facts.js';
import { outcomeBadge, requestTimeline, summary } from './timeline.js';

const PAGE = 1000; // events read at once, about 200 requests
const MOST_EVENTS = 10_000; // events in memory; the oldest go
const MOST_ROWS = 200;
const PAUSE_MS = 1000; // between two looks at what is new
const OUTCOMES = ['running', 'finished', 'refused', 'cancelled', 'expired', 'failed'];
const COLUMNS = ['time', 'outcome', 'took', 'answer', 'client', 'priority', 'id'];

/** Shows the latest requests, or the trail of the one with an id. */
export function show(container, signal, id) {
  return id ? showRequest(container, signal, id) : showRequests(container, signal);
}

async function showRequest(container, signal, id) {
  const { events: found } = await get('/api/v1/audit', { query: { request_id: id, limit: PAGE }, signal });
  const heading = h('h2', { tabindex: '-1' }, t('audit.request'), ' ', untrusted(id));
  const back = h('a.button.quiet', { href: href('box', 'requests') }, icon('left'), t('audit.back'));
  const again = button(t('audit.refresh'), { on: () => showRequest(container, signal, id) });
  const about = h('p.hint');
  const trail = h('div.card');
  if (found.length > 0) {
    const { client, at, priority } = summary(found);
    replace(about, dateTime(at), ' · ', untrusted(client), priority && ` · ${t(`audit.priority_${priority}`)}`);
    await requestTimeline(trail, found);
  } else {
    replace(trail, t('audit.not_kept'));
  }
  replace(container, h('div.row.spread', back, again), heading, about, trail);
  heading.focus({ preventScroll: true });
}

async function showRequests(container, signal) {
  let kept = new Map(); // number -> event, in order
  let before = null; // number of the event that earlier ones are before
  let shownUpTo = 0;
  let looking = 0;
  const list = h('div');
  const offer = button('', { on: draw });
  const older = button(t('audit.older'), { on: () => attempt(more) });
  const client = h('input', { type: 'search', on: { input: draw } });
  const id = h('input', { type: 'search', on: { input: draw } });
  const outcomes = OUTCOMES.map((value) => ({ value, text: t(`audit.outcome_${value}`) }));
  const outcome = select([{ value: '', text: t('audit.any') }, ...outcomes], { on: draw });

  async function more() {
    const page = await get('/api/v1/audit', { query: { limit: PAGE, before }, signal });
    kept = new Map([...page.events.map((each) => [each.number, each]), ...kept]);
    before = page.next;
    draw();
  }

  function draw() {
    const all = [...kept.values()];
    shownUpTo = all.at(-1)?.number ?? 0;
    offer.hidden = true;
    older.hidden = before === null || kept.size >= MOST_EVENTS;
    const part = (text, input) => text.toLowerCase().includes(input.value.trim().toLowerCase());
    const trails = Map.groupBy(all.filter((each) => each.request_id !== null), (each) => each.request_id);
    const found = [...trails.values()]
      .map(summary)
      .filter((each) => part(each.client, client) && part(each.id, id))
      .filter((each) => !outcome.value || each.outcome === outcome.value)
      .sort((one, other) => other.at - one.at);
    const rows = found.slice(0, MOST_ROWS).map((each) => [
      h('a.when', { href: href('box', 'requests', each.id) }, dateTime(each.at)),
      outcomeBadge(each.outcome),
      duration(each.seconds),
      answer(each),
      untrusted(each.client),
      each.priority && t(`audit.priority_${each.priority}`),
      h('code', untrusted(each.id)),
    ]);
    replace(list, rows.length ? listing(t('audit.title'), 'audit', rows, COLUMNS) : empty(t('audit.none')));
  }

  /** Offers what is new: the list does not move by itself. */
  function look() {
    looking = 0;
    const later = [...kept.values()].filter((each) => each.number > shownUpTo && each.request_id !== null);
    const { size: count } = new Set(later.map((each) => each.request_id));
    offer.hidden = count === 0;
    replace(offer, t('audit.new', { count }));
  }

  async function follow() {
    for await (const { event, data } of events(`/api/v1/audit/events?after=${shownUpTo}`, { signal })) {
      if (event !== 'event') continue;
      kept.set(data.number, data);
      if (kept.size > MOST_EVENTS) kept.delete(kept.keys().next().value);
      looking ||= setTimeout(look, PAUSE_MS);
    }
  }

  await more();
  const reload = button(t('audit.refresh'), { on: () => go(href('box', 'requests'), { replace: true }) });
  replace(
    container,
    h('div.row.spread', h('h2', t('audit.title')), reload),
    h('div.filters', { role: 'search' },
      field(t('audit.client'), client),
      field(t('audit.outcome'), outcome),
      field(t('audit.id'), id)),
    offer,
    list,
    older,
  );
  // The stream ends with the daemon; then the list stays as it is until it is refreshed.
  follow().catch(() => {});
}

function answer({ outcome, tokens }) {
  if (outcome !== 'finished') return null;
  return tokens === null ? t('audit.quoted') : t('audit.tokens', { count: tokens });
}
