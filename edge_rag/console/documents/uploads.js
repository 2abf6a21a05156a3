/**
 * Files on their way into collections, also when the view is left: sent two at a time, then read by the box. Each has its
 * `state` (waiting, sending, pausing, reading, stored, rejected or failed), what it is (`about`, see send_file.js), its
 * `file` and how many bytes were sent (`sent`); then the `job` that reads it and what that
 * does now (`work`); at last a `reason`, the `code` of a failure, or the id of the `document`.
 */

import { events, get, send, wait } from '../core/api.js';
import { notice } from '../core/controls.js';
import { announce, h, replace, visible } from '../core/dom.js';
import { href } from '../core/router.js';
import { t } from '../core/text.js';
import { sendFile } from './send_file.js';

const AT_ONCE = 2;
const POLL_MS = 1000;
const NEW = { state: 'waiting', sent: 0, job: null, work: null, reason: '', code: '', document: null };

/** All uploads but those that were stored as a whole. */
export const uploads = [];

const listeners = new Set();
let ids = 0;
let batch = []; // uploads since the last time that none was on its way
let watching = false;
let telling = 0;

/** Whether an upload has come to its end. */
export function hasEnded({ state }) {
  return ['stored', 'rejected', 'failed'].includes(state);
}

/** Whether the browser sends it. */
export function isSending({ state }) {
  return state === 'sending' || state === 'pausing';
}

/** Calls back after changes, at most ten times a second, and at once with an upload that was stored. */
export function onUploads(listener, signal) {
  listeners.add(listener);
  signal.addEventListener('abort', () => listeners.delete(listener));
}

/** Adds files, as `[{file, name}]`, to a collection, except those that are on their way into it. */
export function add(files, collection) {
  const underway = new Set(uploads.filter((each) => !hasEnded(each)).map((each) => JSON.stringify(each.about)));
  for (const { file, name } of files) {
    const about = { collection, name: name.normalize('NFC'), size: file.size, lastModified: file.lastModified };
    if (!underway.has(JSON.stringify(about))) enqueue(fresh(about, file));
  }
}

/** Sends an upload, also one that has failed. */
export function enqueue(item) {
  Object.assign(item, NEW);
  batch.push(item);
  next();
}

/** Ends an upload that is on its way. */
export async function cancel(item) {
  const { job } = item;
  remove(item);
  item.controller?.abort();
  next();
  if (job) await send('POST', `/api/v1/jobs/${job.id}/cancel`);
}

/** Takes ended uploads off the list. */
export function clear() {
  uploads.filter(hasEnded).forEach(remove);
  changed();
}

function fresh(about, file) {
  ids += 1;
  const item = { ...NEW, id: ids, about, file };
  uploads.push(item);
  return item;
}

function remove(item) {
  uploads.splice(uploads.indexOf(item), 1);
  batch = batch.filter((each) => each !== item);
}

function next() {
  const free = Math.max(0, AT_ONCE - uploads.filter(isSending).length);
  uploads.filter((each) => each.state === 'waiting').slice(0, free).forEach(begin);
  changed();
}

async function begin(item) {
  item.controller = new AbortController();
  item.state = 'sending';
  const { signal } = item.controller;
  const on = (change) => {
    Object.assign(item, change);
    changed();
  };
  try {
    const job = await sendFile(item.file, item.about, { signal, on });
    Object.assign(item, { state: 'reading', job });
    watch();
  } catch (error) {
    if (!signal.aborted) end(item, 'failed', error.message, error.code);
  }
  next();
}

function end(item, state, reason, code = '', document = null) {
  if (hasEnded(item) || !uploads.includes(item)) return;
  Object.assign(item, { state, reason, code, document, work: null, job: null });
  listeners.forEach((each) => each(state === 'stored' ? item : null));
  // What is stored is in the list of documents; only what was left out of it is told here as well.
  if (state === 'stored' && !reason) uploads.splice(uploads.indexOf(item), 1);
  if (!batch.length || !batch.every(hasEnded)) return;
  const count = batch.filter((each) => each.state === 'stored').length;
  const failed = batch.length - count;
  const told = t('documents.sum_stored', { count }) + (failed ? ` ${t('documents.sum_failed', { count: failed })}` : '');
  notice(told, { kind: failed ? 'error' : 'info' });
  batch = [];
}

/** Learns how far all are that the box reads, and how they ended. */
async function watch() {
  if (watching) return;
  watching = true;
  for (let reading; (reading = uploads.filter((each) => each.state === 'reading')).length > 0; ) {
    try {
      const { jobs } = await get('/api/v1/jobs', { query: { limit: Math.min(1000, 20 + 2 * reading.length) } });
      for (const item of reading) {
        const job = jobs.find((each) => each.id === item.job.id);
        if (job?.state === 'running') item.job = job;
        if (job?.state !== 'running' || job.documents_ahead === 0) await look(item);
      }
    } catch {
      // The box cannot be reached, or is busy: it is asked again.
    }
    changed();
    await wait(POLL_MS);
  }
  watching = false;
}

/** Reads what a job does now, or how it ended. */
async function look(item) {
  try {
    for await (const { data } of events(`/api/v1/jobs/${item.job.id}/events`)) {
      item.work = data.work;
      data.documents.forEach((each) => settle(item, each));
      if (hasEnded(item) || data.job.state === 'running') return;
    }
  } catch (error) {
    if (error.status !== 404) throw error;
  }
  end(item, 'failed', '', 'forgotten');
}

function settle(item, { state, reason, document_id: document }) {
  if (['added', 'replaced', 'unchanged'].includes(state)) end(item, 'stored', reason, '', document);
  else if (state === 'rejected') {
    end(item, state, reason);
    announce(t('documents.told_rejected', { name: visible(item.about.name), reason: explained(item) }));
  } else if (state !== 'queued') end(item, 'failed', reason, state);
}

const CODES = ['document_too_large', 'storage_full', 'file_changed', 'cut_off', 'forgotten', 'superseded', 'cancelled'];
const CAUSES = {
  password: /password|encrypted/i,
  empty: /empty|no text/i,
  large: /at most|too large|limit/i,
  unread: /not read|not text|not a document|unknown kind|archive/i,
  damaged: /damaged|not be read|invalid|broken/i,
};

/** Returns why an upload did not become a document, and what to do. */
export function explained({ state, reason, code }) {
  const cause = state === 'rejected' && Object.keys(CAUSES).find((each) => CAUSES[each].test(reason));
  const known = CODES.includes(code) ? code : cause;
  return known ? t(`documents.why_${known}`) : visible(reason);
}

function changed() {
  telling ||= setTimeout(() => {
    telling = 0;
    listeners.forEach((each) => each(null));
    showBackground();
  }, 100);
}

function showBackground() {
  const place = document.getElementById('background');
  const done = batch.filter(hasEnded).length;
  if (done === batch.length) return void replace(place);
  // The link stays the same element, so that it keeps the focus.
  const link = place.firstChild ?? place.appendChild(h('a.badge', { href: href('documents') }));
  replace(link, t('documents.background', { done, total: batch.length }));
}

addEventListener('beforeunload', (event) => {
  if (uploads.some(isSending)) event.preventDefault();
});
