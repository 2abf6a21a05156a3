/** The box now, from one stream of events. */

import { events, wait } from '../core/api.js';
import { badge, icon, notice, spinner } from '../core/controls.js';
import { announce, h, patch, replace, svg, untrusted } from '../core/dom.js';
import { href } from '../core/router.js';
import { bytes, duration, number, percent, t } from '../core/text.js';
import { facts, listing, meter, stateBadge } from './facts.js';

const PAUSE_MS = { first: 500, last: 8000 }; // before a lost connection is opened again; doubles
const SAMPLES = 120; // points of a line, one a second
const PERCENTILES = ['p50', 'p95', 'p99'];

/** Shows the state of the box until the signal is aborted. */
export async function show(container, signal) {
  const speeds = { generated_per_s: [], computed_per_s: [] };
  let status = null;
  let link = null;

  function paint() {
    const connection = badge(t(`box.link_${link}`), link === 'live' ? 'good' : 'warn');
    const card = ([name, content]) =>
      h(`section.card.live-${name}`, h('h2', t(`box.card_${name}`)), content(status, connection, speeds));
    patch(container.firstElementChild, status ? h('div.live', Object.entries(CARDS).map(card)) : connection);
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
    for (let pause = PAUSE_MS.first; !whileSeen.aborted; pause = Math.min(2 * pause, PAUSE_MS.last)) {
      try {
        for await (const { data } of events('/api/v1/status/events', { signal: whileSeen })) {
          take(data);
          pause = PAUSE_MS.first;
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

const seconds = (value) => (value === null ? '–' : duration(value));
const percentiles = (each) => PERCENTILES.map((name) => seconds(each[`${name}_s`]));
const hint = (text) => h('p.hint', text);
const rowsOf = (card, rows, texts, numbers) => listing(t(`box.card_${card}`), 'box', rows, texts, numbers);

/** The latest values as a line, which ends at the right. */
function sparkline(values) {
  const top = Math.max(...values, 1e-9);
  const from = SAMPLES - values.length;
  const points = values.map((each, at) => `${from + at},${(29 - (27 * each) / top).toFixed(1)}`).join(' ');
  const props = { class: 'spark', viewBox: `0 0 ${SAMPLES - 1} 30`, preserveAspectRatio: 'none', 'aria-hidden': 'true' };
  return svg('svg', props, svg('polyline', { points }));
}

/** The cards in their order. */
const CARDS = {
  state(status, connection) {
    return [
      h('p.row', stateBadge(status.state), connection),
      status.damage && h('div.error-box', icon('warning'), h('p', { lang: 'en' }, status.damage.problem)),
      facts({
        up: duration(Math.max(1, (Date.now() - Date.parse(status.started_at)) / 1000)),
        version: status.version,
        address: [status.address, status.http_address].filter(Boolean).join(', '),
        profile: status.profile,
        documents_stored: number(Object.values(status.collections).reduce((all, each) => all + each, 0)),
        resident: bytes(status.resident_bytes),
      }),
    ];
  },

  speed({ engine }, connection, speeds) {
    return [
      Object.entries(speeds).map(([name, values]) => [
        h('p', h('span.figure', number(engine[name], 1)), ' ', t(`box.${name}`)),
        sparkline(values),
      ]),
      hint(t('box.answers', { count: engine.completed, failed: engine.failed, refused: engine.refused })),
    ];
  },

  heat({ devices, temperatures, throttling, pressure }) {
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
      rowsOf('heat', rows, ['what', 'now']),
      h(causes || pressure.shed.length ? 'p.alarm' : 'p.hint', told.join(' ')),
    ];
  },

  stages({ stages }) {
    const rows = stages.map((each) => [
      t(`audit.stage_${each.name}`),
      meter(t('box.of', { count: each.waiting, most: each.capacity }), each.waiting / each.capacity),
      meter(percent(each.busy), each.busy),
      number(each.running),
      ...percentiles(each),
      number(each.completed),
      number(each.refused),
    ]);
    return rowsOf('stages', rows, ['stage', 'queue', 'busy'], ['running', ...PERCENTILES, 'done', 'refused']);
  },

  slots({ engine: { slots_busy: busy, slots, sequences } }) {
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
    const inUse = meter(t('box.slots', { count: busy, most: slots }), busy / slots);
    if (!rows.length) return [inUse, hint(t('box.no_slots'))];
    return [inUse, rowsOf('slots', rows, ['request', 'client', 'progress'], ['pages', 'age'])];
  },

  /** The pages of the KV cache, each cell as most of its pages are. Forms tell the states apart, besides colours. */
  pages({ engine: { page_map: map, pages, page_tokens: tokens, kv_bytes: size } }) {
    const states = ['held', 'shared', 'cached'];
    const counts = Object.fromEntries(states.map((state) => [state, map[state].reduce((all, each) => all + each, 0)]));
    counts.free = pages - counts.held - counts.shared - counts.cached;
    const sign = (state) => h(`i.page.${state}`);
    const told = Object.entries(counts).map(([state, count]) => [state, t(`box.pages_${state}`, { count })]);
    const cells = map.held.map((_, at) => {
      const most = Math.max(...states.map((state) => map[state][at]));
      return sign(most ? states.find((state) => map[state][at] === most) : 'free');
    });
    const label = `${t('box.page_map')}: ${told.map(([, text]) => text).join(', ')}`;
    return [
      hint(t('box.pages_about', { count: pages, tokens, size: bytes(size) })),
      h('div.page-map', { role: 'img', 'aria-label': label }, cells),
      h('ul.legend', told.map(([state, text]) => h('li', sign(state), text))),
    ];
  },

  latency({ latencies }) {
    const rows = Object.entries(latencies).map(([measure, each]) =>
      [t(`box.latency_${measure}`), ...percentiles(each), number(each.samples)]);
    return rowsOf('latency', rows, ['what'], [...PERCENTILES, 'samples']);
  },

  memory({ memory: { items, planned_bytes: planned, budget_bytes: budget }, pressure, resident_bytes: used }) {
    const { headroom_bytes: headroom, waiting } = pressure;
    const left = headroom === null ? '–' : bytes(headroom);
    return [
      h('p', t('box.memory_plan', { planned: bytes(planned), budget: bytes(budget) })),
      h('ol.plan', items.toSorted((one, other) => other.bytes - one.bytes).map(({ name, detail, bytes: size }) =>
        h('li', { title: detail }, h('span', { lang: 'en' }, name), meter(bytes(size), size / planned)))),
      hint(t('box.memory_now', { resident: bytes(used), left, stalled: percent(waiting ?? 0) })),
    ];
  },

  remotes({ remotes }) {
    const rows = remotes.map((each) => [
      [untrusted(each.name), h('br'), untrusted(each.address)],
      [
        badge(t(`box.breaker_${each.breaker}`), each.breaker === 'closed' ? 'good' : 'warn'),
        each.last_problem && h('span.hint', { lang: 'en' }, ' ', each.last_problem),
      ],
      number(each.in_flight),
      number(each.answers),
      number(each.failures),
      seconds(each.answer_s),
      bytes(each.sent_bytes),
    ]);
    if (!rows.length) return hint(t('box.no_remotes'));
    const numbers = ['in_flight', 'answered', 'failures', 'answer_time', 'sent_bytes'];
    return rowsOf('remotes', rows, ['machine', 'state'], numbers);
  },
};
