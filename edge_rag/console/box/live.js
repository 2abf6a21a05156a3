/** The box now: stages, slots, pages, speed, latencies, heat, memory and other machines, from one stream of events. */

import { events, wait } from '../core/api.js';
import { badge, columns, icon, notice, spinner, table } from '../core/controls.js';
import { announce, h, patch, replace, svg, untrusted } from '../core/dom.js';
import { href } from '../core/router.js';
import { bytes, duration, number, percent, t } from '../core/text.js';
import { facts, meter, stateBadge } from './facts.js';

const FIRST_PAUSE_MS = 500; // before a lost connection is opened again; doubles
const LAST_PAUSE_MS = 8000;
const SAMPLES = 120; // points of a line, one a second
const PERCENTILES = ['box.p50', 'box.p95', 'box.p99'];

const CARDS = {
  state: stateCard,
  speed: speedCard,
  heat: heatCard,
  stages: stagesCard,
  slots: slotsCard,
  pages: pagesCard,
  latency: latencyCard,
  memory: memoryCard,
  remotes: remotesCard,
};

/** Shows the state of the box until the signal is aborted. */
export async function show(container, signal) {
  const speeds = { generated_per_s: [], computed_per_s: [] };
  let status = null;
  let link = null;

  function paint() {
    const connection = badge(t(`box.link_${link}`), link === 'live' ? 'good' : 'warn');
    const card = ([name, content]) =>
      h('section', { class: `card live-${name}` }, h('h2', {}, t(`box.card_${name}`)), content(status, connection, speeds));
    patch(container.firstElementChild, status ? h('div', { class: 'live' }, Object.entries(CARDS).map(card)) : connection);
  }

  function take(fresh) {
    if (status && status.started_at !== fresh.started_at) notice(t('box.restarted'));
    status = fresh;
    link = 'live';
    for (const [name, values] of Object.entries(speeds)) {
      values.push(status.engine[name]);
      if (values.length > SAMPLES) values.shift();
    }
    paint();
  }

  /** Shows what comes until the signal is aborted or the box refuses the caller. */
  async function follow(whileSeen) {
    for (let pause = FIRST_PAUSE_MS; !whileSeen.aborted; pause = Math.min(2 * pause, LAST_PAUSE_MS)) {
      try {
        for await (const { data } of events('/api/v1/status/events', { signal: whileSeen })) {
          take(data);
          pause = FIRST_PAUSE_MS;
        }
      } catch (error) {
        // An error within a stream, for example its longest duration, is no reason to stop; a refused caller is.
        if (error.status >= 400 && error.status < 500 && error.status !== 429) throw error;
      }
      if (whileSeen.aborted) return;
      if (link !== 'lost') announce(t('box.link_lost'));
      link = 'lost';
      paint();
      await wait(pause, whileSeen).catch(() => {});
    }
  }

  replace(container, spinner());
  while (!signal.aborted) {
    if (document.hidden) await visibilityChange(signal);
    const hidden = new AbortController();
    visibilityChange(signal).then(() => hidden.abort());
    await follow(AbortSignal.any([signal, hidden.signal]));
  }
}

function visibilityChange(signal) {
  return new Promise((resolve) => document.addEventListener('visibilitychange', resolve, { once: true, signal }));
}

/** A table of what changes, or a hint that there is nothing. */
function listed(name, heads, rows, none = '') {
  if (rows.length === 0) return h('p', { class: 'hint' }, none);
  return table({ caption: t(`box.card_${name}`), columns: heads, rows, hideCaption: true });
}

function seconds(value) {
  return value === null ? '–' : duration(value);
}

function stateCard(status, connection) {
  return [
    h('p', { class: 'row' }, stateBadge(status.state), connection),
    status.damage && h('div', { class: 'error-box' }, icon('warning'), h('p', { lang: 'en' }, status.damage.problem)),
    facts({
      up: duration(Math.max(1, (Date.now() - Date.parse(status.started_at)) / 1000)),
      version: status.version,
      address: [status.address, status.http_address].filter(Boolean).join(', '),
      profile: status.profile,
      documents_stored: number(Object.values(status.collections).reduce((all, each) => all + each, 0)),
      resident: bytes(status.resident_bytes),
    }),
  ];
}

function speedCard({ engine }, connection, speeds) {
  return [
    Object.entries(speeds).map(([name, values]) => [
      h('p', {}, h('span', { class: 'figure' }, number(engine[name], engine[name] < 10 ? 1 : 0)), ' ', t(`box.${name}`)),
      sparkline(values),
    ]),
    h('p', { class: 'hint' }, t('box.answers', { count: engine.completed, failed: engine.failed, refused: engine.refused })),
  ];
}

/** The latest values as a line, which ends at the right. */
function sparkline(values) {
  const top = Math.max(...values, 1e-9);
  const from = SAMPLES - values.length;
  const points = values.map((each, at) => `${from + at},${(29 - (27 * each) / top).toFixed(1)}`).join(' ');
  return svg(
    'svg',
    { class: 'spark', viewBox: `0 0 ${SAMPLES - 1} 30`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    svg('polygon', { class: 'area', points: `${from},30 ${points} ${SAMPLES - 1},30` }),
    svg('polyline', { class: 'line', points }),
  );
}

function heatCard({ devices, temperatures, throttling, pressure }) {
  const rows = [
    ...devices.map(({ name, busy }) => [name.toUpperCase(), meter(percent(busy), busy)]),
    ...Object.entries(temperatures).map(([zone, celsius]) => [zone, meter(`${number(celsius)} °C`, celsius / 100)]),
  ];
  if (throttling.watts !== null) rows.push([t('box.power'), `${number(throttling.watts, 1)} W`]);
  const causes = throttling.causes.map((each) => t(`box.cause_${each}`)).join(', ');
  const told = [
    causes ? t('box.throttled', { share: percent(throttling.share), causes }) : t('box.unthrottled'),
    ...throttling.slowdowns,
  ];
  if (pressure.shed.length) told.push(t('box.shed'));
  return [
    listed('heat', columns(['box.what', 'box.now']), rows),
    h('p', { class: causes || pressure.shed.length ? 'alarm' : 'hint' }, told.join(' ')),
  ];
}

function stagesCard({ stages }) {
  const numbers = ['box.running', ...PERCENTILES, 'box.done', 'box.refused'];
  const rows = stages.map((each) => [
    t(`audit.stage_${each.name}`),
    meter(t('box.of', { count: each.waiting, most: each.capacity }), each.waiting / each.capacity),
    meter(percent(each.busy), each.busy),
    number(each.running),
    ...[each.p50_s, each.p95_s, each.p99_s].map(seconds),
    number(each.completed),
    number(each.refused),
  ]);
  return listed('stages', columns(['box.stage', 'box.queue', 'box.busy'], numbers), rows);
}

function slotsCard({ engine: { slots_busy: busy, slots, sequences } }) {
  const rows = sequences.map((slot) => {
    const { request_id: id, generated_tokens: written, computed_tokens: read, prompt_tokens: prompt } = slot;
    const reading = written === 0 && read < prompt;
    const [done, most] = reading ? [read, prompt] : [written, slot.max_tokens];
    return [
      h('a', { href: href('box', 'requests', id) }, untrusted(id.slice(0, 12))),
      untrusted(slot.client),
      meter(t(reading ? 'box.reading' : 'box.writing', { done, most }), done / most),
      number(slot.pages),
      duration(slot.age_s),
    ];
  });
  const heads = columns(['box.request', 'box.client', 'box.progress'], ['box.pages', 'box.age']);
  return [meter(t('box.slots', { count: busy, most: slots }), busy / slots), listed('slots', heads, rows, t('box.no_slots'))];
}

/** The pages of the KV cache, each cell as most of its pages are. Forms tell the states apart, besides colours. */
function pagesCard({ engine }) {
  const { page_map: map, pages } = engine;
  const states = ['held', 'shared', 'cached'];
  const counts = Object.fromEntries(states.map((state) => [state, map[state].reduce((all, each) => all + each, 0)]));
  counts.free = pages - counts.held - counts.shared - counts.cached;
  const sign = (state) => h('i', { class: `page ${state}` });
  const told = Object.entries(counts).map(([state, count]) => [state, t(`box.pages_${state}`, { count })]);
  const cells = map.held.map((_, at) => {
    const most = Math.max(...states.map((state) => map[state][at]));
    return sign(most ? states.find((state) => map[state][at] === most) : 'free');
  });
  const label = `${t('box.page_map')}: ${told.map(([, text]) => text).join(', ')}`;
  return [
    h('p', { class: 'hint' }, t('box.pages_about', { count: pages, tokens: engine.page_tokens, size: bytes(engine.kv_bytes) })),
    h('div', { class: 'page-map', role: 'img', 'aria-label': label }, cells),
    h('ul', { class: 'legend' }, told.map(([state, text]) => h('li', {}, sign(state), text))),
  ];
}

function latencyCard({ latencies }) {
  const rows = Object.entries(latencies).map(([measure, each]) => [
    t(`box.latency_${measure}`),
    ...[each.p50_s, each.p95_s, each.p99_s].map(duration),
    number(each.samples),
  ]);
  return listed('latency', columns(['box.what'], [...PERCENTILES, 'box.samples']), rows);
}

function memoryCard({ memory, pressure, resident_bytes: resident }) {
  const { headroom_bytes: headroom, waiting } = pressure;
  const items = memory.items.toSorted((one, other) => other.bytes - one.bytes);
  const part = (share, at) => h('span', { style: { '--share': share } }, share > 0.04 && at + 1);
  const left = headroom === null ? '–' : bytes(headroom);
  return [
    h('p', {}, t('box.memory_plan', { planned: bytes(memory.planned_bytes), budget: bytes(memory.budget_bytes) })),
    h('div', { class: 'stacked', 'aria-hidden': 'true' }, items.map((each, at) => part(each.bytes / memory.planned_bytes, at))),
    h('ol', { class: 'plan' }, items.map(({ name, bytes: size, detail }) =>
      h('li', { title: detail }, h('span', { lang: 'en' }, name), h('span', { class: 'size' }, bytes(size))),
    )),
    h('p', { class: 'hint' }, t('box.memory_now', { resident: bytes(resident), left, stalled: percent(waiting ?? 0) })),
  ];
}

function remotesCard({ remotes }) {
  const numbers = ['in_flight', 'answered', 'failures', 'answer_time', 'sent_bytes'].map((name) => `box.${name}`);
  const rows = remotes.map((each) => [
    [untrusted(each.name), h('br'), untrusted(each.address)],
    [
      badge(t(`box.breaker_${each.breaker}`), each.breaker === 'closed' ? 'good' : 'warn'),
      each.last_problem && h('span', { class: 'hint', lang: 'en' }, ' ', each.last_problem),
    ],
    number(each.in_flight),
    number(each.answers),
    number(each.failures),
    seconds(each.answer_s),
    bytes(each.sent_bytes),
  ]);
  return listed('remotes', columns(['box.machine', 'box.state'], numbers), rows, t('box.no_remotes'));
}
