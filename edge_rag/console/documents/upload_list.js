/** What the documents view has for uploads: buttons, an area to drop files on, and the list of what is on its way. */

import { attempt, badge, button, iconButton, notice, progress } from '../core/controls.js';
import { h, replace, untrusted, visible } from '../core/dom.js';
import { href } from '../core/router.js';
import { bytes, duration, t } from '../core/text.js';
import { cancel, clear, enqueue, explained, hasEnded, onUploads, uploads } from './uploads.js';

const MOST_ROWS = 60;
const MOST_FILES = 10_000; // of one choice
const ORDER = ['failed', 'rejected', 'missing', 'reading', 'sending', 'pausing', 'waiting', 'stored'];

/** Returns a button that has files chosen, and gives them to `on` as `[{file, name}]`; further options are attributes. */
export function picker(text, { on, kind = '', ...attributes }) {
  const change = () => {
    const files = [...input.files].map((file) => ({ file, name: file.webkitRelativePath || file.name }));
    input.value = '';
    on(files.filter(({ name }) => !name.split('/').some(isHidden)).slice(0, MOST_FILES));
  };
  const input = h('input', { type: 'file', hidden: true, 'aria-label': text, on: { change }, ...attributes });
  return h('span', {}, button(text, { icon: 'upload', kind, on: () => input.click() }), input);
}

/** Takes files and folders that are dropped anywhere on an element. */
export function dropArea(element, { text, on, signal }) {
  const cover = h('div', { class: 'drop-cover', hidden: true }, h('p', {}, text));
  const listen = (name, isOver, act) => {
    const happened = (event) => {
      if (!event.dataTransfer?.types.includes('Files')) return;
      event.preventDefault();
      cover.hidden = !isOver(event);
      act?.(event);
    };
    element.addEventListener(name, happened, { signal });
  };
  listen('dragenter', () => true);
  listen('dragover', () => true);
  listen('dragleave', (event) => element.contains(event.relatedTarget));
  listen('drop', () => false, ({ dataTransfer: { items, files } }) => attempt(async () => {
    // Entries have to be taken before the event is over.
    const entries = [...items].map((each) => each.webkitGetAsEntry()).filter(Boolean);
    const plain = [...files].map((file) => ({ file, name: file.name })).slice(0, MOST_FILES);
    on(entries.some((each) => each.isDirectory) ? await walk(entries) : plain);
  }));
  element.append(cover);
}

/** Returns the list of uploads, which is hidden while there are none. */
export function uploadList(signal) {
  const list = h('ul', { class: 'uploads' });
  const tidy = button(t('documents.tidy'), { kind: 'quiet', on: clear });
  const more = h('p', { class: 'hint' });
  const head = h('div', { class: 'row spread' }, h('h2', {}, t('documents.uploads')), tidy);
  const element = h('section', { class: 'card upload-card', 'aria-label': t('documents.uploads') }, head, list, more);
  const show = keyedRows(list, uploadRow);
  const draw = () => {
    const all = uploads().toSorted((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || a.id - b.id);
    const rest = all.length - MOST_ROWS;
    element.hidden = all.length === 0;
    tidy.hidden = !all.some(hasEnded);
    replace(more, rest > 0 && t('documents.more', { count: rest }));
    show(all.slice(0, MOST_ROWS));
  };
  onUploads(draw, signal);
  draw();
  return element;
}

/**
 * Returns what shows items in a list and returns their rows; the row of an item stays the same element.
 * @param {HTMLElement} list
 * @param {(item: {id: any}) => {element: HTMLElement, draw: (item: object) => void}} make
 */
export function keyedRows(list, make) {
  let rows = new Map();
  return (items) => {
    const kept = new Map(items.map((each) => [each.id, rows.get(each.id) ?? make(each)]));
    rows.forEach((row, id) => kept.has(id) || row.element.remove());
    rows = kept;
    return items.map((item, at) => {
      const row = rows.get(item.id);
      row.draw(item);
      if (list.children[at] !== row.element) list.insertBefore(row.element, list.children[at] ?? null);
      return row;
    });
  };
}

function uploadRow(item) {
  const { name, size, lastModified } = item.about;
  const state = h('div', { class: 'upload-state' });
  const bar = progress(0, t('documents.progress_of', { name: visible(name) }));
  const actions = h('div', { class: 'row' });
  const title = h('div', { class: 'upload-name' }, untrusted(name), ' ', h('span', { class: 'hint' }, bytes(size)));
  let drawn = '';

  const stop = () => attempt(() => cancel(item));
  const again = ([given]) => {
    if (!given) return;
    const { file } = given;
    if (file.size === size && file.lastModified === lastModified) enqueue(item, file);
    else notice(t('documents.other_file'), { kind: 'error' });
  };

  function draw() {
    const { work } = item;
    bar.hidden = !(work || ['sending', 'pausing'].includes(item.state));
    if (work) bar.set(work.chunks ? work.chunks_done / work.chunks : null);
    else bar.set(size ? item.sent / size : 0);
    replace(state, told(item));
    if (drawn === item.state) return; // the buttons keep the focus
    drawn = item.state;
    replace(
      actions,
      drawn === 'missing' && picker(t('documents.choose_again'), { on: again }),
      drawn === 'failed' && item.file && button(t('controls.retry'), { on: () => enqueue(item) }),
      !hasEnded(item) && iconButton(t('documents.cancel', { name: visible(name) }), 'close', { on: stop }),
    );
  }
  return { element: h('li', {}, title, actions, bar, state), draw };
}

function told(item) {
  const { state, about, job, document, reason } = item;
  if (state === 'reading') return waiting(job, item.work);
  if (state === 'stored') {
    const link = h('a', { href: href('documents', about.collection, document) }, t('documents.is_stored'));
    return [link, h('p', { class: 'hint' }, untrusted(reason))];
  }
  if (hasEnded(item)) return [badge(t(`documents.is_${state}`), 'bad'), ' ', reasons(item)];
  return t(`documents.is_${state}`, { sent: bytes(item.sent), size: bytes(about.size) });
}

/** Returns why an upload did not become a document in the user's words, and in those of the box. */
export function reasons(item) {
  const words = explained(item);
  return [words, item.reason && words !== visible(item.reason) && h('p', { class: 'hint' }, untrusted(item.reason))];
}

/** Returns what the box does with a job: position and time left while it waits, else how far it is. */
export function waiting({ documents_ahead: count, time_left_s: left }, work) {
  if (work?.problem) return visible(work.problem);
  const what = !work && count > 0 ? t('documents.ahead', { count }) : t(`documents.phase_${work?.phase ?? 'parsing'}`);
  return left == null ? what : `${what} ${t('documents.time_left', { time: duration(Math.max(1, left)) })}`;
}

function isHidden(name) {
  return name.startsWith('.') || name === 'Thumbs.db';
}

/** Returns the files of dropped entries, also of those in folders. */
async function walk(entries) {
  const found = [];
  const left = [...entries];
  while (left.length && found.length < MOST_FILES) {
    const entry = left.shift();
    if (isHidden(entry.name)) continue;
    if (entry.isFile) {
      const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
      found.push({ file, name: entry.fullPath.slice(1) });
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
