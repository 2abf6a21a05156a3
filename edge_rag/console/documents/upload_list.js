/** What the documents view has for uploads: buttons, an area to drop files on, and the list of what is on its way. */

import { badge, button, failure, iconButton, notice, progress } from '../core/controls.js';
import { h, replace, untrusted, visible } from '../core/dom.js';
import { href } from '../core/router.js';
import { bytes, duration, t } from '../core/text.js';
import { cancel, clear, explained, hasEnded, onUploads, retry, uploads } from './uploads.js';

const MOST_ROWS = 60;
const MOST_FILES = 10_000; // of one choice
const ORDER = ['failed', 'rejected', 'missing', 'reading', 'sending', 'pausing', 'waiting', 'stored'];

/**
 * Returns a button that has files chosen.
 * @param {string} text
 * @param {{folder?: boolean, several?: boolean, kind?: string, on: (files: Array<{file: File, name: string}>) => void}} options
 * @returns {HTMLElement}
 */
export function picker(text, { folder = false, several = true, kind = '', on }) {
  const input = h('input', { type: 'file', hidden: true, multiple: several, webkitdirectory: folder, 'aria-label': text });
  input.addEventListener('change', () => {
    const chosen = [...input.files].map((file) => ({ file, name: file.webkitRelativePath || file.name }));
    input.value = '';
    on(chosen.filter(({ name }) => !isHidden(name)).slice(0, MOST_FILES));
  });
  return h('span', {}, button(text, { icon: 'upload', kind, on: () => input.click() }), input);
}

/** Takes files and folders that are dropped anywhere on an element. */
export function dropArea(element, { text, on, signal }) {
  const cover = h('div', { class: 'drop-cover', hidden: true }, h('p', {}, text));
  let depth = 0;
  const listen = (event, act) =>
    element.addEventListener(
      event,
      (happened) => {
        if (!happened.dataTransfer?.types.includes('Files')) return;
        happened.preventDefault();
        act(happened);
        cover.hidden = depth <= 0;
      },
      { signal },
    );
  listen('dragenter', () => (depth += 1));
  listen('dragleave', () => (depth -= 1));
  listen('dragover', (event) => (event.dataTransfer.dropEffect = 'copy'));
  listen('drop', (event) => {
    depth = 0;
    // Entries have to be taken before the event is over.
    const entries = [...event.dataTransfer.items].map((each) => each.webkitGetAsEntry?.()).filter(Boolean);
    const plain = [...event.dataTransfer.files].map((file) => ({ file, name: file.name }));
    if (!entries.some((each) => each.isDirectory)) on(plain.slice(0, MOST_FILES));
    else walked(entries).then(on, (error) => notice(failure(error), { kind: 'error' }));
  });
  element.append(cover);
}

/** Returns the list of uploads, which is hidden while there are none. */
export function uploadList(signal) {
  const list = h('ul', { class: 'uploads' });
  const whole = progress(0, t('documents.uploads'));
  const heading = h('h2', {}, t('documents.uploads'));
  const tidy = button(t('documents.tidy'), { kind: 'quiet', on: clear });
  const element = h('section', { class: 'card upload-card', 'aria-label': t('documents.uploads') });
  const rows = new Map(); // id -> row
  const more = h('p', { class: 'hint' });
  replace(element, h('div', { class: 'row spread' }, heading, tidy), whole, list, more);

  function draw() {
    const all = [...uploads()].sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || a.id - b.id);
    element.hidden = all.length === 0;
    tidy.hidden = !all.some(hasEnded);
    const total = all.reduce((sum, each) => sum + each.about.size, 0);
    const done = all.reduce((sum, each) => sum + (hasEnded(each) ? each.about.size : each.sent), 0);
    whole.set(total ? done / total : 1);
    whole.hidden = all.filter((each) => !hasEnded(each)).length < 2;
    // What is stored is in the list of documents; only what was left out of it is worth a row.
    const plain = all.filter((each) => each.state === 'stored' && !each.reason).length;
    const rest = all.filter((each) => each.state !== 'stored' || each.reason);
    const shown = rest.slice(0, MOST_ROWS);
    replace(
      more,
      rest.length > shown.length && t('documents.more', { count: rest.length - shown.length }),
      ' ',
      plain > 0 && t('documents.sum_stored', { count: plain }),
    );
    for (const [id, row] of rows) {
      if (shown.some((each) => each.id === id)) continue;
      row.element.remove();
      rows.delete(id);
    }
    shown.forEach((item, at) => {
      if (!rows.has(item.id)) rows.set(item.id, uploadRow(item));
      const { element: row, draw: redraw } = rows.get(item.id);
      redraw();
      if (list.children[at] !== row) list.insertBefore(row, list.children[at] ?? null);
    });
  }
  onUploads(draw, signal);
  draw();
  return element;
}

function uploadRow(item) {
  const { name, size } = item.about;
  const state = h('div', { class: 'upload-state' });
  const bar = progress(0, t('documents.progress_of', { name: visible(name) }));
  const actions = h('div', { class: 'row' });
  const title = h('div', { class: 'upload-name' }, untrusted(name), ' ', h('span', { class: 'hint' }, bytes(size)));
  const element = h('li', {}, title, actions, bar, state);
  let drawn = '';

  const stop = () => cancel(item).catch((error) => notice(failure(error), { kind: 'error' }));
  const again = (files) => {
    const { file } = files[0] ?? {};
    if (!file) return;
    if (file.size !== size || file.lastModified !== item.about.lastModified) {
      notice(t('documents.other_file'), { kind: 'error' });
      return;
    }
    item.file = file;
    retry(item);
  };

  function draw() {
    bar.hidden = !(item.work || ['sending', 'pausing'].includes(item.state));
    bar.set(item.work ? share(item.work) : item.about.size ? item.sent / item.about.size : 0);
    replace(state, told(item));
    if (drawn === item.state) return;
    drawn = item.state;
    const label = { name: visible(name) };
    replace(
      actions,
      item.state === 'missing' && picker(t('documents.choose_again'), { several: false, on: again }),
      item.state === 'failed' && item.file && button(t('controls.retry'), { on: () => retry(item) }),
      !hasEnded(item) && iconButton(t('documents.cancel', label), 'close', { on: stop }),
    );
  }
  return { element, draw };
}

function told(item) {
  const { state, about, job, document } = item;
  switch (state) {
    case 'missing':
      return t('documents.is_missing');
    case 'waiting':
      return t('documents.is_waiting');
    case 'sending':
      return t('documents.is_sending', { sent: bytes(item.sent), size: bytes(about.size) });
    case 'pausing':
      return t('documents.is_pausing');
    case 'reading':
      return waiting(job, item.work);
    case 'stored': {
      const note = h('p', { class: 'hint' }, untrusted(item.reason));
      return [h('a', { href: href('documents', about.collection, document) }, t('documents.is_stored')), note];
    }
    default:
      return [badge(t(`documents.is_${state}`), 'bad'), ' ', reasons(item)];
  }
}

/** Returns why an upload did not become a document in the user's words, and in those of the box. */
export function reasons(item) {
  const words = explained(item);
  return [words, item.reason && words !== visible(item.reason) && h('p', { class: 'hint' }, untrusted(item.reason))];
}

/** Returns what the box does with a job: position and time left while it waits, else how far it is. */
export function waiting(job, work) {
  const left = job?.time_left_s ?? null;
  const time = left === null ? '' : t('documents.time_left', { time: duration(Math.max(1, left)) });
  if (work?.problem) return visible(work.problem);
  const ahead = job?.documents_ahead ?? 0;
  const what = !work && ahead > 0 ? t('documents.ahead', { count: ahead }) : t(`documents.phase_${work?.phase ?? 'parsing'}`);
  return time ? `${what} ${time}` : what;
}

function share(work) {
  return work?.chunks ? work.chunks_done / work.chunks : null;
}

function isHidden(path) {
  return path.split('/').some((part) => part.startsWith('.') || part === 'Thumbs.db');
}

async function walked(entries) {
  const found = [];
  const left = [...entries];
  while (left.length && found.length < MOST_FILES) {
    const entry = left.shift();
    const name = entry.fullPath.replace(/^\//, '');
    if (isHidden(name)) continue;
    if (entry.isFile) {
      found.push({ file: await new Promise((resolve, reject) => entry.file(resolve, reject)), name });
      continue;
    }
    const reader = entry.createReader();
    // A directory tells at most 100 entries at a time, and none at its end.
    for (let some; (some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject))).length; ) {
      left.push(...some);
    }
  }
  return found;
}
