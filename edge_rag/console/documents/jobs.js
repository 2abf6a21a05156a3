/** Jobs of the caller: what the box reads now, what waits, and what became of earlier ones. */

import { events, get, send, wait } from '../core/api.js';
import { attempt, badge, button, confirmed, empty, progress, spinner } from '../core/controls.js';
import { h, replace, untrusted } from '../core/dom.js';
import { href } from '../core/router.js';
import { bytes, dateTime, t } from '../core/text.js';
import { keyedRows, reasons, waiting } from './upload_list.js';

const MOST_JOBS = 50;
const MOST_DOCUMENTS = 300; // shown of one job
const POLL_MS = 2000;
const KINDS = { added: 'good', replaced: 'good', unchanged: 'good', rejected: 'bad', superseded: 'warn', cancelled: 'warn' };

/** Fills a panel with the jobs, running ones first, until the signal is aborted. */
export async function jobsPanel(panel, { signal }) {
  const list = h('ul', { class: 'jobs stack', 'aria-label': t('documents.jobs') });
  const show = keyedRows(list, (job) => jobRow(job, signal));
  replace(panel, spinner());
  for (;;) {
    try {
      const { jobs } = await get('/api/v1/jobs', { query: { limit: MOST_JOBS }, signal });
      const [running, others] = [true, false].map((is) => jobs.filter((each) => (each.state === 'running') === is));
      const rows = show([...running.sort((a, b) => a.documents_ahead - b.documents_ahead), ...others]);
      if (!jobs.length) replace(panel, empty(t('documents.no_jobs')));
      else if (!list.isConnected) replace(panel, list);
      for (const row of rows) await row.learn();
    } catch (error) {
      if (!error.unreachable || !list.isConnected) throw error;
    }
    await wait(POLL_MS, signal);
  }
}

function jobRow(job, signal) {
  const path = `/api/v1/jobs/${job.id}`;
  const heading = h('h2', {});
  const about = h('span', { class: 'hint' });
  const bar = progress(null, t('documents.jobs'));
  const where = h('p', { class: 'hint' });
  const states = h('span', { class: 'row' });
  const documents = h('div', {});
  const toggle = () => more.open && attempt(read);
  const more = h('details', { on: { toggle } }, h('summary', {}, t('documents.job_documents')), documents);
  const cancel = () => confirmed(t('documents.job_cancel'), t('documents.job_cancel_text'), async () =>
    draw((await send('POST', `${path}/cancel`)).job));
  const stop = button(t('documents.job_cancel'), { kind: 'quiet', icon: 'stop', on: cancel });
  const element = h('li', { class: 'card' }, h('div', { class: 'row' }, heading, about, states, stop), bar, where, more);
  let count = 0;
  let learned = ''; // the state in which the documents were read
  let reading = false;

  function draw(now) {
    job = now;
    const running = job.state === 'running';
    const known = Object.entries(job.documents).filter(([, each]) => each > 0);
    count = known.reduce((sum, [, each]) => sum + each, 0);
    if (!learned || count > 1) replace(heading, t('documents.count', { count }));
    replace(about, `${bytes(job.size_bytes)} · ${dateTime(job.started_at)}`);
    replace(
      states,
      known.map(([state, each]) => badge(t(`documents.state_${state}`, { count: each }), KINDS[state])),
      badge(t(`documents.job_${job.state}`), running && 'warn'),
    );
    bar.hidden = where.hidden = stop.hidden = !running;
    bar.set(job.size_bytes ? job.done_bytes / job.size_bytes : null);
    replace(where, waiting(job, null));
  }

  /** Reads what became of each document; while the list is open also as it happens. */
  async function read() {
    if (reading) return;
    reading = true;
    const found = new Map();
    try {
      for await (const { data } of events(`${path}/events`, { after: 0, signal })) {
        for (const each of data.documents) {
          const isShown = found.size < MOST_DOCUMENTS || each.state === 'rejected';
          if (isShown) found.set(`${each.collection}/${each.name}`, each);
        }
        const now = data.work && h('p', {}, untrusted(data.work.name), ': ', waiting(data.job, data.work));
        replace(documents, now, listed([...found.values()], count));
        const [only] = found.values();
        if (count === 1 && only) {
          replace(heading, linked(only));
          more.hidden = Boolean(only.document_id) && !only.reason;
        }
        if (!more.open) break;
      }
    } finally {
      reading = false;
    }
  }

  /** Learns the name of a job's only document, and shows what was rejected. */
  async function learn() {
    if (learned === job.state || count === 0) return;
    learned = job.state;
    if (job.documents.rejected && job.state !== 'running') more.open = true;
    else if (count === 1) await read();
  }

  return { element, draw, learn };
}

function linked({ collection, name, document_id: id }) {
  return id ? h('a', { href: href('documents', collection, id) }, untrusted(name)) : untrusted(name);
}

function listed(found, count) {
  const shown = found.sort((a, b) => (b.state === 'rejected') - (a.state === 'rejected')).slice(0, MOST_DOCUMENTS);
  const rows = shown.map((each) => {
    const state = badge(t(`documents.state_${each.state}`, { count: 1 }), KINDS[each.state]);
    return h('li', {}, linked(each), ' ', state, ' ', reasons(each));
  });
  const rest = count - shown.length;
  return [h('ul', { class: 'job-documents' }, rows), rest > 0 && h('p', { class: 'hint' }, t('documents.more', { count: rest }))];
}
