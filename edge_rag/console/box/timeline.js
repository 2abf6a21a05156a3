/** What a request went through: a bar by stage, and the decisions in words. */

import { badge } from '../core/controls.js';
import { h, loadStyle, replace, untrusted } from '../core/dom.js';
import { duration, number, t } from '../core/text.js';

const ENDS = { finished: 'good', refused: 'bad', cancelled: 'warn', expired: 'bad', failed: 'bad' };
/** What the generator does with a request after an event. */
const BEGINNINGS = { queued: 'wait', admitted: 'work', resumed: 'work', preempted: 'pause', paused: 'pause' };
const LEAST_S = 0.0005; // less would be told as 0 ms
const KINDS = ['deferred', 'preempted', 'paused', 'placed', 'sent', 'hedged', 'taken_over'];

/**
 * Returns what is known of a request by its audit events, which are as `GET /api/v1/audit` tells them, in order: `at` is
 * when it began, in ms since 1970, `begin` in seconds of the box's monotonic clock, from which `seconds`, the whole, and
 * `parts`, its stages, count; `outcome` is the kind of its last event, or `running`; `tokens` how many the model wrote.
 */
export function summary(events) {
  const [first, last] = [events[0], events.at(-1)];
  const lead = first.kind === 'stage_done' ? first.numbers.queue_s + first.numbers.compute_s : 0;
  const begin = first.monotonic_s - lead;
  const seconds = last.monotonic_s - begin;
  const parts = [];
  let open = null;
  for (const each of events) {
    const at = each.monotonic_s - begin;
    const beginning = BEGINNINGS[each.kind];
    if (each.kind === 'stage_done') {
      const { queue_s: wait, compute_s: work } = each.numbers;
      parts.push(...waitAndWork(stageOf(each), at - work - wait, at - work, at));
    } else if (beginning || ENDS[each.kind]) {
      // What is quoted needs no slot: its time in the generator is work.
      if (open?.kind === 'wait' && each.kind === 'finished') open.kind = 'work';
      if (open) parts.push({ ...open, end: at });
      open = beginning && { stage: 'generator', kind: beginning, start: at };
    }
  }
  if (open) parts.push({ ...open, end: seconds });
  return {
    id: first.request_id,
    client: last.client || first.client,
    priority: first.priority,
    at: Date.parse(first.at) - lead * 1000,
    begin,
    outcome: ENDS[last.kind] ? last.kind : 'running',
    seconds,
    parts: parts.filter((each) => each.end > each.start),
    tokens: last.kind === 'finished' && last.numbers.model_steps ? last.numbers.generated_tokens : null,
  };
}

/** Returns the outcome of a request as a word on a coloured ground. */
export function outcomeBadge(outcome) {
  return badge(t(`audit.outcome_${outcome}`), ENDS[outcome] ?? '');
}

/** Fills a container with where the time of a request went, and what was decided, with reasons. */
export async function requestTimeline(container, events) {
  await loadStyle('box/box.css');
  const { outcome, seconds, begin, parts } = summary(events);
  const items = events.map((each) => {
    const after = duration(Math.max(0, each.monotonic_s - begin));
    return h('li', h('span.at', `+${after}`), h('span', words(each)));
  });
  replace(
    container,
    h('p.timeline-total', outcomeBadge(outcome), ' ', duration(seconds)),
    bars(parts, seconds),
    h('ol.timeline-events', items),
  );
}

/** Fills it with what an answer tells of its stages itself (`timings`), for callers who may not read the audit log. */
export async function stagesTimeline(container, timings) {
  await loadStyle('box/box.css');
  let at = 0;
  const parts = timings.stages.flatMap(({ stage, queue_s: wait, compute_s: work }) => {
    const start = at;
    at += wait + work;
    return waitAndWork(stage, start, start + wait, at);
  });
  replace(container, h('p.timeline-total', duration(at)), bars(parts, at));
}

function waitAndWork(stage, queued, begun, end) {
  return [{ stage, kind: 'wait', start: queued, end: begun }, { stage, kind: 'work', start: begun, end }];
}

function stageOf(event) {
  return event.reason.includes('reranker') ? 'reranker' : 'retriever';
}

/** A bar for each stage, all on one scale of time. The same is told in words beside it. */
function bars(parts, seconds) {
  const share = (span) => `${(100 * span) / (seconds || 1)}%`;
  const rows = Object.entries(Object.groupBy(parts, (each) => each.stage)).map(([stage, own]) => {
    const spent = { wait: 0, work: 0, pause: 0 };
    for (const { kind, start, end } of own) spent[kind] += end - start;
    const told = Object.entries(spent).filter(([, time]) => time >= LEAST_S);
    const track = own.map(({ kind, start, end }) =>
      h(`span.part.${kind}`, { style: { '--from': share(start), '--size': share(end - start) } }));
    return h('li',
      h('span.stage', t(`audit.stage_${stage}`)),
      h('span.track', { 'aria-hidden': 'true' }, track),
      h('span.told', told.map(([kind, time]) => t(`audit.${kind}`, { time: duration(time) })).join(', ')));
  });
  return h('ul.timeline', rows);
}

/** A decision in words. What the daemon says itself is English, and marked as that. */
function words(event) {
  const { kind, numbers: of } = event;
  const given = Object.entries(of).filter(([, value]) => value !== null);
  switch (kind) {
    case 'stage_done': {
      const spent = t('audit.stage_done', { wait: duration(of.queue_s), work: duration(of.compute_s) });
      return `${t(`audit.stage_${stageOf(event)}`)}: ${spent}`;
    }
    case 'queued':
      return t('audit.queued', { others: of.waiting_requests ?? 0 });
    case 'admitted':
    case 'resumed':
      return t('audit.admitted', { time: duration(of.waited_s), tokens: of.prompt_tokens, cached: of.cached_tokens });
    case 'finished':
      return of.model_steps
        ? t('audit.finished', { tokens: of.generated_tokens, steps: of.model_steps })
        : t('audit.finished_quoted');
    default:
      return [
        `${wordOf(kind)}: `,
        h('bdi', { lang: 'en' }, event.reason),
        event.preempted_for && [' (', t('audit.preempted_for'), ' ', untrusted(event.preempted_for), ')'],
        h('span.numbers', { lang: 'en' }, given.map(told).join(' · ')),
      ];
  }
}

/** A decision in a word; one that is newer than this page by the name that the box gives it. */
function wordOf(kind) {
  if (ENDS[kind]) return t(`audit.outcome_${kind}`);
  return KINDS.includes(kind) ? t(`audit.kind_${kind}`) : kind;
}

/** A number behind a decision that has no words of its own, as the box names it. */
function told([name, value]) {
  return name.endsWith('_s') ? `${name.slice(0, -2)} ${duration(value)}` : `${name} ${number(value, 2)}`;
}
