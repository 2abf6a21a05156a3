/** Jobs of the caller: what the box reads now, what waits, and what became of earlier ones. */

import { events, get, send, wait } from '../core/api.js';
import { badge, confirm, empty, errorBox, failure, button, notice, progress, spinner } from '../core/controls.js';
import { h, replace, untrusted } from '../core/dom.js';
import { href } from '../core/router.js';
import { bytes, dateTime, t } from '../core/text.js';
import { reasons, waiting } from './upload_list.js';
import { uploads } from './uploads.js';

const MOST_JOBS = 50;
const MOST_DOCUMENTS = 300; // shown of one job
const POLL_MS = { running: 2000, idle: 10_000 };
const KINDS = { added: 'good', replaced: 'good', unchanged: 'good', rejected: 'bad', superseded: 'warn', cancelled: 'warn' };

/**
 * Fills a panel with the jobs, running ones first, until the signal is aborted.
 * @param {HTMLElement} panel
 * @param {{signal: AbortSignal}} options
 */
export async function jobsPanel(panel, { signal }) {
  const list = h('ul', { class: 'jobs stack', 'aria-label': t('documents.jobs') });
  const rows = new Map(); // id -> row
  replace(panel, spinner());
  for (;;) {
    let jobs = [];
    try {
      ({ jobs } = await get('/api/v1/jobs', { query: { limit: MOST_JOBS }, signal }));
    } catch (error) {
      if (signal.aborted) return;
      if (!error.unreachable || !rows.size) {
        replace(panel, errorBox(error, () => jobsPanel(panel, { signal })));
        return;
      }
      await wait(POLL_MS.running, signal).catch(() => {});
      continue;
    }
    const running = jobs.filter((each) => each.state === 'running').sort((a, b) => a.documents_ahead - b.documents_ahead);
    const ordered = [...running, ...jobs.filter((each) => each.state !== 'running')];
    for (const [id, row] of rows) {
      if (ordered.some((each) => each.id === id)) continue;
      row.element.remove();
      rows.delete(id);
    }
    ordered.forEach((job, at) => {
      if (!rows.has(job.id)) rows.set(job.id, jobRow(job, signal));
      const { element, draw } = rows.get(job.id);
      draw(job);
      if (list.children[at] !== element) list.insertBefore(element, list.children[at] ?? null);
    });
    if (!ordered.length) replace(panel, empty(t('documents.no_jobs')));
    else if (!list.isConnected) replace(panel, list);
    for (const { id } of ordered.filter((each) => each.state !== 'running')) await rows.get(id).learn();
    await wait(running.length ? POLL_MS.running : POLL_MS.idle, signal).catch(() => {});
    if (signal.aborted) return;
  }
}

function jobRow(first, signal) {
  const heading = h('h2', {});
  const about = h('span', { class: 'hint' });
  const state = h('span', {});
  const bar = progress(null, t('documents.jobs'));
  const where = h('p', { class: 'hint' });
  const counts = h('span', { class: 'row' });
  const documents = h('div', {});
  const more = h('details', {}, h('summary', {}, t('documents.job_documents')), documents);
  const stop = button(t('documents.job_cancel'), { kind: 'quiet', icon: 'stop', on: cancelJob });
  const head = h('div', { class: 'row' }, heading, about, counts, state, stop);
  const element = h('li', { class: 'card' }, head, bar, where, more);
  let shown = '';
  let reading = false;
  let count = 0;
  let rejected = false;
  let named = false;

  async function cancelJob() {
    const options = { title: t('documents.job_cancel'), text: t('documents.job_cancel_text'), action: t('documents.job_cancel') };
    if (!(await confirm({ ...options, danger: true }))) return;
    try {
      draw((await send('POST', `/api/v1/jobs/${first.id}/cancel`)).job);
    } catch (error) {
      notice(failure(error), { kind: 'error' });
    }
  }

  function draw(job) {
    const text = JSON.stringify(job);
    if (text === shown) return;
    shown = text;
    const running = job.state === 'running';
    const known = Object.entries(job.documents).filter(([, count]) => count > 0);
    const total = known.reduce((sum, [, count]) => sum + count, 0);
    count = total;
    rejected = job.documents.rejected > 0;
    replace(about, `${bytes(job.size_bytes)} · ${dateTime(job.started_at)}`);
    const sent = uploads().find((each) => each.job?.id === job.id);
    if (!named) replace(heading, sent ? untrusted(sent.about.name) : t('documents.count', { count }));
    replace(state, badge(t(`documents.job_${job.state}`), running ? 'warn' : ''));
    bar.hidden = !running;
    bar.set(job.size_bytes ? job.done_bytes / job.size_bytes : null);
    where.hidden = !running;
    stop.hidden = !running;
    if (running) replace(where, waiting(job, null));
    replace(counts, known.map(([each, count]) => badge(t(`documents.state_${each}`, { count }), KINDS[each])));
  }

  /** Reads what became of each document; of a running job as it happens, until the list is closed. */
  async function read() {
    if (reading) return;
    reading = true;
    const closing = new AbortController();
    more.addEventListener('toggle', () => !more.open && closing.abort(), { signal: closing.signal });
    const found = new Map();
    try {
      const options = { after: 0, signal: AbortSignal.any([signal, closing.signal]) };
      for await (const { data } of events(`/api/v1/jobs/${first.id}/events`, options)) {
        for (const each of data.documents) {
          if (found.size < MOST_DOCUMENTS || each.state === 'rejected') found.set(`${each.collection}/${each.name}`, each);
        }
        const now = data.work && h('p', {}, untrusted(data.work.name), ': ', waiting(data.job, data.work));
        replace(documents, now, listed(found, data.job));
        const [only] = found.values();
        if (count !== 1 || !only) continue;
        named = true;
        const address = only.document_id && href('documents', only.collection, only.document_id);
        replace(heading, address ? h('a', { href: address }, untrusted(only.name)) : untrusted(only.name));
        more.hidden = Boolean(address) && !only.reason;
      }
    } catch (error) {
      if (!closing.signal.aborted && !signal.aborted) replace(documents, errorBox(error, read));
    } finally {
      reading = false;
      closing.abort();
    }
  }

  /** Learns the name of a job's only document, and shows what was rejected. */
  async function learn() {
    if (named || count === 0 || (count > 1 && !rejected)) return;
    named = true;
    if (rejected) more.open = true;
    else await read();
  }

  more.addEventListener('toggle', () => more.open && read());
  return { element, draw, learn };
}

function listed(found, job) {
  const all = [...found.values()].sort((a, b) => (b.state === 'rejected') - (a.state === 'rejected'));
  const shown = all.slice(0, MOST_DOCUMENTS);
  const rest = Object.values(job.documents).reduce((sum, count) => sum + count, 0) - shown.length;
  const rows = shown.map(({ collection, name, state, reason, document_id: id }) => {
    const words = state === 'rejected' ? reasons({ state, reason, code: '' }) : reason && untrusted(reason);
    return h(
      'li',
      {},
      id ? h('a', { href: href('documents', collection, id) }, untrusted(name)) : untrusted(name),
      ' ',
      badge(t(`documents.state_${state}`, { count: 1 }), KINDS[state]),
      words && h('div', {}, words),
    );
  });
  return [h('ul', { class: 'job-documents' }, rows), rest > 0 && h('p', { class: 'hint' }, t('documents.more', { count: rest }))];
}
