/**
 * Files on their way into collections: sent two at a time, then read by the box. What is here goes on when the view is
 * left; the element `background` of the page tells how far it is.
 *
 * @typedef {object} Upload
 * @property {number} id
 * @property {import('./tus.js').About} about
 * @property {File|null} file Null after a reload: it has to be chosen again.
 * @property {'missing'|'waiting'|'sending'|'pausing'|'reading'|'stored'|'rejected'|'failed'} state
 * @property {number} sent Bytes that the box has.
 * @property {object|null} job The job that reads it, as `GET /api/v1/jobs/ID` tells.
 * @property {object|null} work What is being done to it, as events of its job tell.
 * @property {string} reason Why it was rejected or has failed; also what was left out of a stored one.
 * @property {string} code Class of a failure.
 * @property {string|null} document Id of the stored document.
 */

import { events, get, send, wait } from '../core/api.js';
import { notice } from '../core/controls.js';
import { announce, h, replace, visible } from '../core/dom.js';
import { href } from '../core/router.js';
import { t } from '../core/text.js';
import { discard, sendFile, unfinished } from './tus.js';

const AT_ONCE = 2;
const MOST_ENDED = 200; // uploads that are shown after their end
const POLL_MS = 1500;
const ENDED = ['stored', 'rejected', 'failed'];

const items = [];
const listeners = new Set();
const controllers = new Map(); // id -> AbortController of the sending
let ids = 0;
let batch = []; // uploads since the last time that none was on its way
let polling = false;
let following = false;
let telling = 0;

/** All uploads, in the order in which they were added. */
export function uploads() {
  return items;
}

/** Whether an upload has come to its end. */
export function hasEnded(item) {
  return ENDED.includes(item.state);
}

/** The upload of a document's name that is on its way, or undefined. */
export function pending(collection, name) {
  return items.find((each) => each.about.collection === collection && each.about.name === name && !hasEnded(each));
}

/** Calls back after changes, at most ten times a second, and at once with an upload that was stored. */
export function onUploads(listener, signal) {
  listeners.add(listener);
  signal.addEventListener('abort', () => listeners.delete(listener), { once: true });
}

/**
 * Adds files; one that was begun before goes on where it was.
 * @param {Array<{file: File, name: string}>} files
 * @param {string} collection
 */
export function add(files, collection) {
  for (const { file, name: given } of files) {
    const name = given.normalize('NFC');
    const about = { collection, name, size: file.size, lastModified: file.lastModified };
    const same = items.find((each) => !hasEnded(each) && JSON.stringify(each.about) === JSON.stringify(about));
    if (same && same.file) continue;
    const item = same ?? fresh(about);
    Object.assign(item, { file, state: 'waiting' });
    if (!same) items.push(item);
    batch.push(item);
  }
  next();
  changed();
}

/** Sends an upload again that has failed. */
export function retry(item) {
  Object.assign(item, { state: item.file ? 'waiting' : 'missing', reason: '', code: '', job: null, work: null, sent: 0 });
  batch.push(item);
  next();
  changed();
}

/** Ends an upload that is on its way; what the box has of it is deleted. */
export async function cancel(item) {
  const { job } = item;
  remove(item);
  controllers.get(item.id)?.abort();
  next();
  changed();
  if (job) await send('POST', `/api/v1/jobs/${job.id}/cancel`);
  else await discard(item.about);
}

/** Takes ended uploads off the list. */
export function clear() {
  items.filter(hasEnded).forEach(remove);
  changed();
}

function fresh(about) {
  ids += 1;
  return { id: ids, about, file: null, state: 'missing', sent: 0, job: null, work: null, reason: '', code: '', document: null };
}

function remove(item) {
  items.splice(items.indexOf(item), 1);
  batch = batch.filter((each) => each !== item);
}

function next() {
  const sending = items.filter((each) => each.state === 'sending' || each.state === 'pausing').length;
  items
    .filter((each) => each.state === 'waiting')
    .slice(0, Math.max(0, AT_ONCE - sending))
    .forEach(begin);
}

async function begin(item) {
  const controller = new AbortController();
  const { signal } = controller;
  controllers.set(item.id, controller);
  item.state = 'sending';
  try {
    const job = await sendFile(item.file, item.about, {
      signal,
      sent(bytes) {
        item.sent = bytes;
        changed();
      },
      pausing(reason) {
        item.state = reason === null ? 'sending' : 'pausing';
        changed();
      },
    });
    Object.assign(item, { state: 'reading', sent: item.about.size, job: { id: job, documents_ahead: 0, time_left_s: null } });
    poll();
    follow();
  } catch (error) {
    if (!signal.aborted) end(item, 'failed', error.message, error.code ?? '');
  } finally {
    controllers.delete(item.id);
    next();
    changed();
  }
}

function end(item, state, reason = '', code = '', document = null) {
  if (hasEnded(item) || !items.includes(item)) return;
  Object.assign(item, { state, reason, code, document, work: null, job: null, file: state === 'failed' ? item.file : null });
  listeners.forEach((each) => each(state === 'stored' ? item : null));
  items.filter((each) => each.state === 'stored').slice(0, -MOST_ENDED).forEach((each) => items.splice(items.indexOf(each), 1));
  if (batch.some((each) => !hasEnded(each))) return;
  const count = batch.filter((each) => each.state === 'stored').length;
  const failed = batch.length - count;
  if (batch.length) {
    const told = [t('documents.sum_stored', { count }), failed > 0 && t('documents.sum_failed', { count: failed })];
    notice(told.filter(Boolean).join(' '), { kind: failed ? 'error' : 'info' });
  }
  batch = [];
}

/** Learns position and time left of all that the box reads, and which of it has ended. */
async function poll() {
  if (polling) return;
  polling = true;
  for (let reading; (reading = items.filter((each) => each.state === 'reading')).length > 0; ) {
    try {
      const { jobs } = await get('/api/v1/jobs', { query: { limit: Math.min(1000, 20 + 2 * reading.length) } });
      const known = new Map(jobs.map((job) => [job.id, job]));
      for (const item of reading.filter((each) => each.job)) {
        const job = known.get(item.job.id);
        if (job?.state === 'running') item.job = job;
        else await conclude(item);
      }
    } catch {
      // The box cannot be reached, or is busy: it is asked again.
    }
    changed();
    await wait(POLL_MS);
  }
  polling = false;
}

/** Follows the events of the first job that the box reads, for its progress. */
async function follow() {
  if (following) return;
  following = true;
  for (let item; (item = items.find((each) => each.state === 'reading' && each.job)); ) {
    try {
      for await (const { data } of events(`/api/v1/jobs/${item.job.id}/events`)) {
        if (item.state !== 'reading') break;
        Object.assign(item, { job: data.job, work: data.work });
        settle(item, data.documents);
        changed();
      }
    } catch {
      await wait(POLL_MS);
    }
    if (item.state === 'reading' && item.job?.state !== 'running') await wait(POLL_MS);
  }
  following = false;
}

/** Learns how a job ended that runs no more. */
async function conclude(item) {
  try {
    for await (const { data } of events(`/api/v1/jobs/${item.job.id}/events`)) {
      settle(item, data.documents);
      if (hasEnded(item) || data.job.state === 'running') return;
    }
  } catch (error) {
    if (error.status !== 404) throw error;
  }
  end(item, 'failed', '', 'forgotten');
}

function settle(item, documents) {
  for (const { state, reason, document_id: document } of documents) {
    if (['added', 'replaced', 'unchanged'].includes(state)) end(item, 'stored', reason, '', document);
    else if (state === 'rejected') {
      end(item, 'rejected', reason);
      announce(t('documents.told_rejected', { name: visible(item.about.name), reason: explained(item) }));
    } else if (state !== 'queued') end(item, 'failed', reason, state);
  }
}

const CAUSES = [
  ['password', /password|encrypted/i],
  ['empty', /empty|no text/i],
  ['large', /at most|too large|limit/i],
  ['unread', /not read|not text|not a document|unknown kind|archive/i],
  ['damaged', /damaged|not be read|cannot be read|invalid|broken/i],
];

/** Returns why an upload did not become a document, and what to do. */
export function explained({ state, reason, code }) {
  if (['document_too_large', 'storage_full', 'file_changed', 'forgotten', 'superseded', 'cancelled'].includes(code)) {
    return t(`documents.why_${code}`);
  }
  const cause = state === 'rejected' && CAUSES.find(([, pattern]) => pattern.test(reason));
  return cause ? t(`documents.why_${cause[0]}`) : visible(reason);
}

function changed() {
  telling ||= setTimeout(() => {
    telling = 0;
    listeners.forEach((each) => each(null));
    showBackground();
  }, 100);
}

function showBackground() {
  const underway = batch.filter((each) => !hasEnded(each)).length;
  const place = document.getElementById('background');
  if (!underway) return replace(place);
  const text = t('documents.background', { done: batch.length - underway, total: batch.length });
  const link = place.querySelector('a') ?? h('a', { class: 'badge', href: href('documents') });
  if (!link.isConnected) replace(place, link);
  return replace(link, text);
}

addEventListener('beforeunload', (event) => {
  if (controllers.size > 0) event.preventDefault();
});

for (const about of unfinished()) items.push(fresh(about));
