/** What a request went through and why it took its time: a bar by stage, and its decisions in words. */

import { badge } from '../core/controls.js';
import { h, loadStyle, replace, untrusted } from '../core/dom.js';
import { duration, number, t } from '../core/text.js';

const ENDS = { finished: 'good', refused: 'bad', cancelled: 'warn', expired: 'bad', failed: 'bad' };
const LEAST_S = 0.0005; // less is shown as 0 ms, and not worth a word
const STAGES = ['retriever', 'reranker', 'generator'];
const KINDS = ['deferred', 'preempted', 'paused', 'placed', 'sent', 'hedged', 'taken_over'];

/**
 * Returns what is known of a request by its audit events.
 * @param {Array<object>} events Its events as `GET /api/v1/audit` tells them, in order.
 * @returns {{id: string, client: string, priority: string|null, at: number, begin: number, outcome: string,
 *     seconds: number, parts: Array<{stage: string, kind: 'wait'|'work'|'pause', start: number, end: number}>,
 *     tokens: number|null}}
 *     `at` is when it began, in ms since 1970, `begin` in seconds of the box's monotonic clock, which `seconds` and
 *     `parts` count from; `outcome` is the kind of its last event, or `running`; `tokens` how many the model wrote,
 *     null if it wrote none or has not finished.
 */
export function summary(events) {
  const first = events[0];
  const last = events.at(-1);
  const lead = first.kind === 'stage_done' ? first.numbers.queue_s + first.numbers.compute_s : 0;
  const begin = first.monotonic_s - lead;
  const parts = [];
  let open = null;
  const close = (at) => {
    if (open && at > open.start) parts.push({ ...open, end: at });
    open = null;
  };
  for (const each of events) {
    const at = each.monotonic_s - begin;
    if (each.kind === 'stage_done') {
      const { queue_s: wait = 0, compute_s: work = 0 } = each.numbers;
      const stage = stageOf(each);
      parts.push({ stage, kind: 'wait', start: Math.max(0, at - work - wait), end: at - work });
      parts.push({ stage, kind: 'work', start: Math.max(0, at - work), end: at });
    } else if (each.kind === 'queued') {
      open = { stage: 'generator', kind: 'wait', start: at };
    } else if (each.kind === 'admitted' || each.kind === 'resumed') {
      close(at);
      open = { stage: 'generator', kind: 'work', start: at };
    } else if (each.kind === 'preempted' || each.kind === 'paused') {
      close(at);
      open = { stage: 'generator', kind: 'pause', start: at };
    } else if (ENDS[each.kind]) {
      // What is quoted needs no slot: its time in the generator is work.
      if (open?.kind === 'wait' && each.kind === 'finished') open.kind = 'work';
      close(at);
    }
  }
  const seconds = last.monotonic_s - begin;
  close(seconds);
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

/**
 * Shows where the time of a request went: a bar for each stage, then what was decided about it, with reasons.
 * @param {HTMLElement} container Its content is replaced.
 * @param {Array<object>} events As for `summary`; none shows that nothing is kept.
 */
export async function requestTimeline(container, events) {
  await loadStyle('box/box.css');
  if (events.length === 0) {
    replace(container, h('p', { class: 'hint' }, t('audit.not_kept')));
    return;
  }
  const request = summary(events);
  replace(
    container,
    h('p', { class: 'timeline-total' }, outcomeBadge(request.outcome), ' ', duration(request.seconds)),
    bars(request.parts, request.seconds),
    h(
      'ol',
      { class: 'timeline-events' },
      events.map((each) => {
        const after = duration(Math.max(0, each.monotonic_s - request.begin));
        return h('li', {}, h('span', { class: 'at' }, `+${after}`), h('span', {}, words(each)));
      }),
    ),
  );
}

/**
 * Shows where the time of an answer went by what the answer itself tells, for callers who may not read the audit log.
 * @param {HTMLElement} container Its content is replaced.
 * @param {{stages: Array<{stage: string, queue_s: number, compute_s: number}>}} timings As in `finished` of an answer.
 */
export async function stagesTimeline(container, timings) {
  await loadStyle('box/box.css');
  let at = 0;
  const parts = timings.stages.flatMap(({ stage, queue_s, compute_s }) => {
    const work = at + queue_s;
    const wait = { stage, kind: 'wait', start: at, end: work };
    at = work + compute_s;
    return [wait, { stage, kind: 'work', start: work, end: at }];
  });
  replace(container, h('p', { class: 'timeline-total' }, duration(at)), bars(parts, at));
}

function stageOf(event) {
  return STAGES.find((each) => event.reason.includes(each)) ?? event.reason;
}

function stageName(stage) {
  return STAGES.includes(stage) ? t(`audit.stage_${stage}`) : untrusted(stage);
}

/** A bar for each stage, all on one scale of time. The same is told in words beside it. */
function bars(parts, seconds) {
  const stages = [...new Set(parts.map((each) => each.stage))];
  const share = (span) => `${(100 * span) / (seconds || 1)}%`;
  const rows = stages.map((stage) => {
    const own = parts.filter((each) => each.stage === stage);
    const sum = (kind) =>
      own.filter((each) => each.kind === kind).reduce((all, each) => all + each.end - each.start, 0);
    const told = ['wait', 'work', 'pause']
      .filter((kind) => sum(kind) >= LEAST_S)
      .map((kind) => t(`audit.${kind}`, { time: duration(sum(kind)) }));
    return h(
      'li',
      {},
      h('span', { class: 'stage' }, stageName(stage)),
      h(
        'span',
        { class: 'track', 'aria-hidden': 'true' },
        own.map(({ kind, start, end }) =>
          h('span', { class: `part ${kind}`, style: { '--from': share(start), '--size': share(end - start) } }),
        ),
      ),
      h('span', { class: 'told' }, told.join(', ')),
    );
  });
  return h('ul', { class: 'timeline' }, rows);
}

/** A decision in words. What the daemon says itself is English, and marked as that. */
function words(event) {
  const { kind, numbers: of } = event;
  const time = (name) => duration(of[name] ?? 0);
  switch (kind) {
    case 'stage_done': {
      const spent = t('audit.stage_done', { wait: time('queue_s'), work: time('compute_s') });
      return [stageName(stageOf(event)), ': ', spent];
    }
    case 'queued':
      return t('audit.queued', { others: of.waiting_requests ?? 0 });
    case 'admitted':
    case 'resumed': {
      const given = { time: time('waited_s'), tokens: of.prompt_tokens ?? 0, cached: of.cached_tokens ?? 0 };
      return t('audit.admitted', given);
    }
    case 'finished':
      return of.model_steps
        ? t('audit.finished', { tokens: of.generated_tokens, steps: of.model_steps })
        : t('audit.finished_quoted');
    case 'prefetched':
      return t('audit.prefetched', { tokens: of.computed_tokens ?? 0 });
    default:
      return [
        h('span', {}, wordOf(kind), ': '),
        h('bdi', { lang: 'en' }, event.reason),
        event.preempted_for && [' (', t('audit.preempted_for'), ' ', untrusted(event.preempted_for), ')'],
        numbersOf(event),
      ];
  }
}

/** A decision in a word; one that is newer than this page by the name that the box gives it. */
function wordOf(kind) {
  if (ENDS[kind]) return t(`audit.outcome_${kind}`);
  return KINDS.includes(kind) ? t(`audit.kind_${kind}`) : kind;
}

/** The numbers behind a decision that has no words of its own, as the box names them. */
function numbersOf({ numbers }) {
  const found = Object.entries(numbers).filter(([, value]) => value !== null);
  if (found.length === 0) return null;
  const told = found.map(([name, value]) =>
    name.endsWith('_s') ? `${name.slice(0, -2)} ${duration(value)}` : `${name} ${number(value, 2)}`,
  );
  return h('span', { class: 'numbers', lang: 'en' }, told.join(' · '));
}
