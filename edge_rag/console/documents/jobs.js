/** Jobs of the caller: what the box reads now, what waits, and what became of earlier ones. */

import { events, get, send, wait } from '../core/api.js';
import { badge, button, confirmed, empty, progress, spinner } from '../core/controls.js';
import { h, patch, replace, untrusted } from '../core/dom.js';
import { href } from '../core/router.js';
import { bytes, dateTime, t } from '../core/text.js';
import { reasons, waiting } from './upload_list.js';

const MOST_JOBS = 50;
const MOST_TOLD = 300; // documents of a job that are told with a reason
const POLL_MS = 2000;
const KINDS = { added: 'good', replaced: 'good', unchanged: 'good', rejected: 'bad', superseded: 'warn', cancelled: 'warn' };

/** Fills a panel with the jobs, running ones first, until the signal is aborted. */
export async function jobsPanel(panel, { signal }) {
  const cards = (all) => h('ul.jobs.stack', { 'aria-label': t('documents.jobs') }, all);
  const list = cards();
  const known = new Map(); // by id: a job as it was, and what became of its documents
  const isRunning = ({ state }) => state === 'running';
  replace(panel, spinner());
  for (;;) {
    try {
      const { jobs } = await get('/api/v1/jobs', { query: { limit: MOST_JOBS }, signal });
      const ordered = jobs.toSorted((a, b) => isRunning(b) - isRunning(a) || a.documents_ahead - b.documents_ahead);
      const draw = () => patch(list, cards(ordered.map((job) => jobCard(job, known.get(job.id)))));
      draw();
      if (!jobs.length) replace(panel, empty(t('documents.no_jobs')));
      else if (!list.isConnected) replace(panel, list);
      for (const job of jobs) {
        const state = JSON.stringify([job.state, job.documents]);
        if (known.get(job.id)?.state !== state) known.set(job.id, { state, ...(await outcome(job, signal)) });
      }
      draw();
    } catch (error) {
      if (!error.unreachable || !list.isConnected) throw error;
    }
    await wait(POLL_MS, signal);
  }
}

/** Reads the first document of a job, and those of which there is something to tell. */
async function outcome(job, signal) {
  let first = null;
  const told = [];
  for await (const { data } of events(`/api/v1/jobs/${job.id}/events`, { signal })) {
    first ??= data.documents[0];
    told.push(...data.documents.filter((each) => each.reason));
    if (data.job.state === 'running') break;
  }
  return { first, told: told.sort((a, b) => (b.state === 'rejected') - (a.state === 'rejected')).slice(0, MOST_TOLD) };
}

function jobCard(job, { first, told = [] } = {}) {
  const { id, state, size_bytes: size, done_bytes: done } = job;
  const running = state === 'running';
  const states = Object.entries(job.documents).filter(([, each]) => each > 0);
  const count = states.reduce((sum, [, each]) => sum + each, 0);
  const cancel = () => confirmed(t('documents.job_cancel'), t('documents.job_cancel_text'), () =>
    send('POST', `/api/v1/jobs/${id}/cancel`));
  return h('li.card', { data: { id } },
    h('div.row',
      h('h2', count === 1 && first ? linked(first) : t('documents.count', { count })),
      h('span.hint', `${bytes(size)} · ${dateTime(job.started_at)}`),
      states.map(([each, of]) => badge(t(`documents.state_${each}`, { count: of }), KINDS[each])),
      badge(t(`documents.job_${state}`), running ? 'warn' : ''),
      running && button(t('documents.job_cancel'), { kind: 'quiet', icon: 'stop', on: cancel })),
    running && [progress(size ? done / size : null, t('documents.jobs')), h('p.hint', waiting(job, null))],
    h('ul.job-documents', told.map((each) => h('li', count > 1 && [linked(each), ' '], reasons(each)))));
}

function linked({ collection, name, document_id: id }) {
  return id ? h('a', { href: href('documents', collection, id) }, untrusted(name)) : untrusted(name);
}
