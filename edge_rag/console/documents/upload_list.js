/** Uploads in the documents view: buttons, an area to drop files on, and the list of what is on its way. */

import { attempt, badge, button, iconButton, progress } from '../core/controls.js';
import { h, patch, replace, untrusted, visible } from '../core/dom.js';
import { href } from '../core/router.js';
import { bytes, duration, t } from '../core/text.js';
import { cancel, clear, enqueue, explained, hasEnded, isSending, onUploads, uploads } from './uploads.js';

const MOST_ROWS = 60;
const MOST_FILES = 10_000; // of one choice
const HIDDEN = /(^|\/)(\.|Thumbs\.db$)/;
const ORDER = ['failed', 'rejected', 'reading', 'sending', 'pausing', 'waiting', 'stored'];

/** Returns a button that has files chosen and gives them to `on` as `[{file, name}]`. */
export function picker(text, { on, kind = '', ...attributes }) {
  const change = () => {
    const files = [...input.files].map((file) => ({ file, name: file.webkitRelativePath || file.name }));
    input.value = '';
    on(wanted(files));
  };
  const input = h('input', { type: 'file', hidden: true, 'aria-label': text, on: { change }, ...attributes });
  return h('span', button(text, { icon: 'upload', kind, on: () => input.click() }), input);
}

/** Takes files and folders that are dropped anywhere on an element. */
export function dropArea(element, { text, on, signal }) {
  const cover = h('div.drop-cover', { hidden: true }, h('p', text));
  const listen = (name, isOver, act) => {
    const happened = (event) => {
      if (!event.dataTransfer?.types.includes('Files')) return;
      event.preventDefault();
      cover.hidden = !isOver(event);
      act?.(event);
    };
    element.addEventListener(name, happened, { signal });
  };
  listen('dragover', () => true);
  listen('dragenter', () => true);
  listen('dragleave', (event) => element.contains(event.relatedTarget));
  listen('drop', () => false, ({ dataTransfer: { items } }) => attempt(async () => {
    // Files and entries have to be taken before the event is over.
    const found = [...items].filter((each) => each.kind === 'file').map((each) => {
      const [file, entry] = [each.getAsFile(), each.webkitGetAsEntry()];
      return entry?.isDirectory ? filesOf(entry) : [{ file, name: file.name }];
    });
    on(wanted((await Promise.all(found)).flat()));
  }));
  element.append(cover);
}

/** Returns the list of uploads, which is hidden while there are none. */
export function uploadList(signal) {
  const list = h('ul.uploads');
  const tidy = button(t('documents.tidy'), { kind: 'quiet', on: clear });
  const more = h('p.hint');
  const head = h('div.row.spread', h('h2', t('documents.uploads')), tidy);
  const element = h('section.card.upload-card', { 'aria-label': t('documents.uploads') }, head, list, more);
  const draw = () => {
    const all = uploads.toSorted((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || a.id - b.id);
    const rest = all.length - MOST_ROWS;
    element.hidden = all.length === 0;
    tidy.hidden = !all.some(hasEnded);
    replace(more, rest > 0 && t('documents.more', { count: rest }));
    patch(list, h('ul.uploads', all.slice(0, MOST_ROWS).map(uploadRow)));
  };
  onUploads(draw, signal);
  draw();
  return element;
}

function uploadRow(item) {
  const { id, state, work, sent, about: { name, size } } = item;
  const stop = () => attempt(() => cancel(item));
  const read = work?.chunks ? work.chunks_done / work.chunks : null;
  const share = work ? read : sent / Math.max(1, size);
  return h('li', { data: { id } },
    h('div.upload-name', untrusted(name), ' ', h('span.hint', bytes(size))),
    h('div.row',
      state === 'failed' && button(t('controls.retry'), { on: () => enqueue(item) }),
      !hasEnded(item) && iconButton(t('documents.cancel', { name: visible(name) }), 'close', { on: stop })),
    (work || isSending(item)) && progress(share, t('documents.progress_of', { name: visible(name) })),
    h('div.upload-state', told(item)));
}

function told(item) {
  const { state, about, job, document, reason } = item;
  if (state === 'reading') return waiting(job, item.work);
  if (state === 'stored') {
    const link = h('a', { href: href('documents', about.collection, document) }, t('documents.is_stored'));
    return [link, h('p.hint', untrusted(reason))];
  }
  if (hasEnded(item)) return [badge(t(`documents.is_${state}`), 'bad'), ' ', reasons(item)];
  return t(`documents.is_${state}`, { sent: bytes(item.sent), size: bytes(about.size) });
}

/** Returns why something is no document in the user's words, and in those of the box. */
export function reasons(item) {
  const words = explained(item);
  return [words, words !== visible(item.reason) && h('p.hint', untrusted(item.reason))];
}

/** Returns what the box does with a job, or how long it waits. */
export function waiting({ documents_ahead: count, time_left_s: left }, work) {
  if (work?.problem) return visible(work.problem);
  const what = !work && count > 0 ? t('documents.ahead', { count }) : t(`documents.phase_${work?.phase ?? 'parsing'}`);
  return left == null ? what : `${what} ${t('documents.time_left', { time: duration(Math.max(1, left)) })}`;
}

function wanted(files) {
  return files.filter(({ name }) => !HIDDEN.test(name)).slice(0, MOST_FILES);
}

/** Returns the files in a folder that was dropped. */
async function filesOf(entry) {
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    return [{ file, name: entry.fullPath.slice(1) }];
  }
  const reader = entry.createReader();
  const found = [];
  // A directory tells at most 100 entries at a time, and none at its end.
  for (let some; (some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject))).length; ) {
    found.push(...(await Promise.all(some.map(filesOf))).flat());
  }
  return found;
}
