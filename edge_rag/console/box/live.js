/** The box now: stages, slots, pages, speed, latencies, heat, memory and other machines, from one stream of events. */

import { events, wait } from '../core/api.js';
import { badge, icon, notice, spinner } from '../core/controls.js';
import { announce, h, replace, untrusted } from '../core/dom.js';
import { href } from '../core/router.js';
import { bytes, duration, number, percent, t } from '../core/text.js';
import { liveTable, meter, pageMap, say, sparkline } from './charts.js';

const PAINT_MS = 900; // between two paintings; events come once a second
const FIRST_PAUSE_MS = 500; // before a lost connection is opened again; doubles
const LAST_PAUSE_MS = 8000;
const WORDS = ['client', 'state', 'now', 'progress', 'queue', 'busy'];

/**
 * Shows the state of the box until the signal is aborted.
 * @param {HTMLElement} container
 * @param {AbortSignal} signal
 */
export async function livePanel(container, signal) {
  const link = h('span', { class: 'live-link' });
  const cards = [stateCard(link), speedCard(), heatCard(), stagesCard(), slotsCard(), pagesCard()];
  cards.push(latencyCard(), memoryCard(), remotesCard());
  const all = h('div', { class: 'live' }, cards.map((each) => each.element));
  let painted = 0;
  let startedAt = null;

  function take(status) {
    if (startedAt !== null && startedAt !== status.started_at) notice(t('box.restarted'));
    startedAt = status.started_at;
    if (Date.now() - painted < PAINT_MS) return;
    painted = Date.now();
    if (!all.isConnected) replace(container, all);
    for (const card of cards) card.set(status);
  }

  function tell(kind) {
    const text = t(`box.link_${kind}`);
    if (link.textContent === text) return;
    replace(link, badge(text, kind === 'live' ? 'good' : 'warn'));
    if (kind === 'lost') announce(text);
  }

  replace(container, spinner());
  let pause = FIRST_PAUSE_MS;
  while (!signal.aborted) {
    await shown(signal);
    const hidden = new AbortController();
    const stop = () => document.hidden && hidden.abort();
    document.addEventListener('visibilitychange', stop);
    try {
      const both = AbortSignal.any([signal, hidden.signal]);
      for await (const { data } of events('/api/v1/status/events', { signal: both })) {
        tell('live');
        take(data);
        pause = FIRST_PAUSE_MS;
      }
    } catch (error) {
      if (signal.aborted) return;
      // An error within a stream, for example its longest duration, is no reason to stop; a refused caller is.
      if (!hidden.signal.aborted && error.status >= 400 && error.status < 500 && error.status !== 429) throw error;
    } finally {
      document.removeEventListener('visibilitychange', stop);
    }
    if (hidden.signal.aborted) continue;
    tell('lost');
    if (!all.isConnected) replace(container, link);
    await wait(pause, signal).catch(() => {});
    pause = Math.min(2 * pause, LAST_PAUSE_MS);
  }
}

/** Resolves when the page is visible. */
function shown(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener('visibilitychange', resolve, { once: true, signal }));
}

function card(name, ...content) {
  return h('section', { class: `card live-${name}` }, h('h2', {}, t(`box.card_${name}`)), content);
}

/** Columns of numbers, but for the first one and those with words or bars. */
function columns(...names) {
  const kind = (name, at) => (at && !WORDS.includes(name) ? 'number' : undefined);
  return names.map((name, at) => ({ text: t(`box.${name}`), kind: kind(name, at) }));
}

function stateCard(link) {
  const state = h('p', { class: 'row' });
  const names = ['up', 'version', 'address', 'profile', 'documents_stored', 'resident'];
  const values = Object.fromEntries(names.map((name) => [name, h('dd', {})]));
  const facts = names.map((name) => [h('dt', {}, t(`box.${name}`)), values[name]]);
  const damage = h('div', { class: 'error-box', hidden: true });
  let known = '';
  const set = (status) => {
    if (known !== status.state) {
      known = status.state;
      replace(state, badge(t(`box.is_${known}`), known === 'serving' ? 'good' : 'warn'), link);
      damage.hidden = !status.damage;
      if (status.damage) replace(damage, icon('warning'), h('p', { lang: 'en' }, status.damage.problem));
    }
    say(values.up, duration(Math.max(1, (Date.now() - Date.parse(status.started_at)) / 1000)));
    say(values.version, status.version);
    say(values.address, [status.address, status.http_address].filter(Boolean).join(', '));
    say(values.profile, status.profile);
    say(values.documents_stored, number(Object.values(status.collections).reduce((all, each) => all + each, 0)));
    say(values.resident, bytes(status.resident_bytes));
  };
  return { element: card('state', state, damage, h('dl', { class: 'facts' }, facts)), set };
}

function speedCard() {
  const parts = ['generated_per_s', 'computed_per_s'].map((name) => {
    const value = h('span', { class: 'figure' });
    const line = sparkline();
    const element = h('div', { class: 'speed' }, h('p', {}, value, ' ', t(`box.${name}`)), line);
    return { name, value, line, element };
  });
  const counts = h('p', { class: 'hint' });
  const set = ({ engine }) => {
    for (const { name, value, line } of parts) {
      say(value, number(engine[name], engine[name] < 10 ? 1 : 0));
      line.push(engine[name]);
    }
    say(counts, t('box.answers', { count: engine.completed, failed: engine.failed, refused: engine.refused }));
  };
  return { element: card('speed', parts.map((each) => each.element), counts), set };
}

function heatCard() {
  const list = liveTable({ caption: t('box.card_heat'), columns: columns('what', 'now') });
  const told = h('p', {});
  const set = ({ devices, temperatures, throttling, pressure }) => {
    list.set([
      ...devices.map(({ name, busy }) => [name.toUpperCase(), { text: percent(busy), share: busy }]),
      ...Object.entries(temperatures).map(([zone, celsius]) => {
        return [zone, { text: `${number(celsius)} °C`, share: celsius / 100 }];
      }),
      ...(throttling.watts === null ? [] : [[t('box.power'), `${number(throttling.watts, 1)} W`]]),
    ]);
    const causes = throttling.causes.map((each) => t(`box.cause_${each}`)).join(', ');
    const parts = [
      causes ? t('box.throttled', { share: percent(throttling.share), causes }) : t('box.unthrottled'),
      ...throttling.slowdowns,
      ...(pressure.shed.length ? [t('box.shed')] : []),
    ];
    told.className = causes || pressure.shed.length ? 'alarm' : 'hint';
    say(told, parts.join(' '));
  };
  return { element: card('heat', list, told), set };
}

function stagesCard() {
  const names = ['stage', 'queue', 'running', 'busy', 'p50', 'p95', 'p99', 'done', 'refused'];
  const list = liveTable({ caption: t('box.card_stages'), columns: columns(...names) });
  const span = (seconds) => (seconds === null ? '–' : duration(seconds));
  const set = ({ stages }) =>
    list.set(
      stages.map((each) => [
        t(`audit.stage_${each.name}`),
        { text: t('box.of', { count: each.waiting, most: each.capacity }), share: each.waiting / each.capacity },
        number(each.running),
        { text: percent(each.busy), share: each.busy },
        ...[each.p50_s, each.p95_s, each.p99_s].map(span),
        number(each.completed),
        number(each.refused),
      ]),
    );
  return { element: card('stages', list), set };
}

function slotsCard() {
  const names = ['request', 'client', 'progress', 'pages', 'age'];
  const list = liveTable({ caption: t('box.card_slots'), columns: columns(...names), none: t('box.no_slots') });
  const told = meter();
  const set = ({ engine }) => {
    const { slots_busy: busy, slots } = engine;
    told.set({ text: t('box.slots', { count: busy, most: slots }), share: busy / slots });
    list.set(engine.sequences.map(slotCells));
  };
  return { element: card('slots', told, list), set };
}

function slotCells(slot) {
  const { request_id: id, generated_tokens: written, computed_tokens: read, prompt_tokens: prompt } = slot;
  const reading = written === 0 && read < prompt;
  const [done, most] = reading ? [read, prompt] : [written, slot.max_tokens];
  return [
    keyed(id, h('a', { href: href('box', 'requests', id) }, untrusted(id.slice(0, 12)))),
    keyed(slot.client, untrusted(slot.client)),
    { text: t(reading ? 'box.reading' : 'box.writing', { done, most }), share: done / (most || 1) },
    number(slot.pages),
    duration(slot.age_s),
  ];
}

function keyed(key, node) {
  node.dataset.key = key;
  return node;
}

function pagesCard() {
  const map = pageMap();
  const about = h('p', { class: 'hint' });
  const set = ({ engine }) => {
    map.set(engine);
    say(about, t('box.pages_about', { count: engine.pages, tokens: engine.page_tokens, size: bytes(engine.kv_bytes) }));
  };
  return { element: card('pages', about, map), set };
}

function latencyCard() {
  const names = ['what', 'p50', 'p95', 'p99', 'samples'];
  const list = liveTable({ caption: t('box.card_latency'), columns: columns(...names) });
  const set = ({ latencies }) =>
    list.set(
      Object.entries(latencies).map(([measure, each]) => [
        t(`box.latency_${measure}`),
        ...[each.p50_s, each.p95_s, each.p99_s].map((seconds) => duration(seconds)),
        number(each.samples),
      ]),
    );
  return { element: card('latency', list), set };
}

function memoryCard() {
  const bar = h('div', { class: 'stacked', 'aria-hidden': 'true' });
  const list = h('ol', { class: 'plan' });
  const total = h('p', {});
  const now = h('p', { class: 'hint' });
  let known = '';
  const set = ({ memory, pressure, resident_bytes: resident }) => {
    const left = pressure.headroom_bytes === null ? '–' : bytes(pressure.headroom_bytes);
    say(now, t('box.memory_now', { resident: bytes(resident), left, stalled: percent(pressure.waiting ?? 0) }));
    const key = JSON.stringify(memory);
    if (key === known) return;
    known = key;
    say(total, t('box.memory_plan', { planned: bytes(memory.planned_bytes), budget: bytes(memory.budget_bytes) }));
    const items = [...memory.items].sort((one, other) => other.bytes - one.bytes);
    const shares = items.map((each) => each.bytes / memory.planned_bytes);
    replace(bar, shares.map((share, at) => h('span', { style: { '--share': share } }, share > 0.04 ? at + 1 : '')));
    const line = ({ name, bytes: size, detail }) =>
      h('li', { title: detail }, h('span', { lang: 'en' }, name), h('span', { class: 'size' }, bytes(size)));
    replace(list, items.map(line));
  };
  return { element: card('memory', total, bar, list, now), set };
}

function remotesCard() {
  const names = ['machine', 'state', 'in_flight', 'answered', 'failures', 'answer_time', 'sent_bytes'];
  const list = liveTable({ caption: t('box.card_remotes'), columns: columns(...names), none: t('box.no_remotes') });
  const set = ({ remotes }) =>
    list.set(
      remotes.map((each) => [
        keyed(each.name, h('span', {}, untrusted(each.name), h('br'), untrusted(each.address))),
        keyed(
          `${each.breaker} ${each.last_problem}`,
          h(
            'span',
            {},
            badge(t(`box.breaker_${each.breaker}`), each.breaker === 'closed' ? 'good' : 'warn'),
            each.last_problem && h('span', { class: 'hint', lang: 'en' }, ' ', each.last_problem),
          ),
        ),
        number(each.in_flight),
        number(each.answers),
        number(each.failures),
        each.answer_s === null ? '–' : duration(each.answer_s),
        bytes(each.sent_bytes),
      ]),
    );
  return { element: card('remotes', list), set };
}
