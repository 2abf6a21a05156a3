/**
 * The source pane: where an answer's citations lead. A column beside the view on wide screens, a sheet over it on
 * narrow ones.
 *
 * @typedef {object} Source A citation of the JSON API, with the document's id and collection.
 * @property {string} collection Name of the collection.
 * @property {string} [document_id] Id of the document, as its passage has it; without it the name is taken.
 * @property {string} document Name of the document.
 * @property {number|null} page 1-based page on which the passage starts.
 * @property {number} start First character in the stored text, counted in code points.
 * @property {number} end One past the last.
 * @property {string} text The cited text.
 */

import { announce, h, loadStyle, replace, untrusted, visible } from '../core/dom.js';
import { freshId, iconButton } from '../core/controls.js';
import { current } from '../core/router.js';
import { t } from '../core/text.js';
import { documentReader, isShortcut } from './reader.js';

export { documentReader };

const WIDTH = 'edge-rag.source-width';
const WIDTHS = { least: 320, most: 1600, step: 40 }; // CSS pixels
const LEAST_REST = 360; // CSS pixels that the view beside the pane keeps
const NARROW = matchMedia('(width < 50rem)');

const aside = document.getElementById('aside');
let opened = null;

/**
 * Opens the pane, or shows another source in it. Focus moves into it.
 * @param {object} options
 * @param {Source[]} options.citations The sources, in the order of the answer.
 * @param {number} [options.index] Position of the one that is shown first.
 * @param {HTMLElement} [options.trigger] What the focus returns to.
 * @param {(index: number|null) => void} [options.onShow] Told which source is shown, and null when the pane closes.
 */
export async function openSource({ citations, index = 0, trigger = document.activeElement, onShow = () => {} }) {
  await loadStyle('source/source.css');
  const pushed = Boolean(opened?.pushed);
  end();
  const closing = new AbortController();
  const { signal } = closing;
  opened = { closing, trigger, onShow, pushed, view: current().view };

  const title = h('h2', { id: freshId('source'), tabindex: '-1' });
  const place = h('p', { class: 'source-place', hidden: true });
  const count = h('span', { class: 'source-count' });
  const actions = h('div', { class: 'source-actions' });
  const body = h('div', { class: 'source-body' });
  const several = citations.length > 1;
  const step = (by) => show((index + by + citations.length) % citations.length);
  const key = (letter) => ({ 'aria-keyshortcuts': letter });
  const steps =
    several &&
    h(
      'div',
      { class: 'source-steps', role: 'group', 'aria-label': t('source.citations') },
      iconButton(t('source.previous'), 'up', { on: () => step(-1), ...key('p') }),
      count,
      iconButton(t('source.next'), 'down', { on: () => step(1), ...key('n') }),
    );
  const close = iconButton(t('source.close'), 'close', { on: closeSource, ...key('Escape') });
  const header = h('header', { class: 'source-header' }, h('div', { class: 'source-title' }, title, close), place);
  header.append(h('div', { class: 'source-bar' }, steps || null, actions));
  replace(aside, handle(signal), header, body);
  aside.className = 'source-pane';
  aside.setAttribute('aria-labelledby', title.id);
  aside.hidden = false;
  adapt();

  let reading = new AbortController();
  function show(to) {
    index = to;
    reading.abort();
    reading = new AbortController();
    const citation = citations[index];
    replace(title, untrusted(citation.document));
    replace(count, t('source.count', { position: index + 1, total: citations.length }));
    place.hidden = true;
    const shown = h('div');
    // What has the focus goes with the source before it.
    if (body.contains(document.activeElement)) title.focus({ preventScroll: true });
    replace(body, shown);
    documentReader(shown, {
      collection: citation.collection,
      document: citation.document_id || citation.document,
      page: citation.page,
      start: citation.start,
      end: citation.end,
      quote: citation.text,
      actions,
      keys: aside,
      signal: AbortSignal.any([signal, reading.signal]),
      onPlace: (headings, page) => {
        place.hidden = !headings.length && page === null;
        replace(
          place,
          headings.length > 0 && h('span', {}, headings.map((each, at) => [at ? ' › ' : '', untrusted(each)])),
          page !== null && h('span', { class: 'source-page' }, t('source.page', { page })),
        );
      },
    });
    const words = { position: index + 1, total: citations.length, name: visible(citation.document) };
    announce(t(citation.page === null ? 'source.shown' : 'source.shown_page', { ...words, page: citation.page ?? 0 }));
    onShow(index);
  }

  aside.addEventListener(
    'keydown',
    (event) => {
      const by = { n: 1, p: -1 }[event.key];
      if (by === undefined || !several || !isShortcut(event)) return;
      event.preventDefault();
      step(by);
    },
    { signal },
  );
  document.addEventListener(
    'keydown',
    (event) => {
      if (event.key !== 'Escape' || event.defaultPrevented || document.querySelector('dialog[open]')) return;
      event.preventDefault();
      closeSource();
    },
    { signal },
  );
  // Going back closes a sheet, as people expect on phones.
  if (NARROW.matches && !pushed) {
    history.pushState(null, '');
    opened.pushed = true;
  }
  addEventListener('popstate', () => opened?.pushed && leave(), { signal });
  addEventListener('hashchange', () => current().view !== opened?.view && leave(), { signal });
  addEventListener('resize', adapt, { signal });
  show(index);
  title.focus({ preventScroll: true });
}

/** Closes the pane, if it is open; focus returns to what opened it. */
export function closeSource() {
  if (opened?.pushed) history.back();
  leave();
}

/** Closes the pane when the history has already been left behind. */
function leave() {
  if (opened === null) return;
  const { trigger, onShow } = opened;
  const focused = aside.contains(document.activeElement);
  end();
  aside.hidden = true;
  replace(aside);
  adapt();
  if (focused && trigger?.isConnected) trigger.focus();
  onShow(null);
}

function end() {
  opened?.closing.abort();
  opened = null;
}

/** A sheet hides what is below it from everybody; a column is beside it, below the bar of the console. */
function adapt() {
  aside.style.setProperty('--top', `${document.querySelector('.top').offsetHeight}px`);
  const sheet = !aside.hidden && NARROW.matches;
  for (const each of document.querySelectorAll('body > .top, body > main, body > .skip')) each.inert = sheet;
  for (const [name, value] of Object.entries({ role: 'dialog', 'aria-modal': 'true' })) {
    if (sheet) aside.setAttribute(name, value);
    else aside.removeAttribute(name);
  }
}

/** Returns the left edge of the pane, by which its width is changed with the pointer or the arrow keys. */
function handle(signal) {
  const most = () => Math.max(WIDTHS.least, Math.min(WIDTHS.most, innerWidth - LEAST_REST));
  const edge = h('div', {
    class: 'source-edge',
    role: 'separator',
    tabindex: '0',
    'aria-orientation': 'vertical',
    'aria-label': t('source.width'),
    'aria-valuemin': WIDTHS.least,
  });
  const kept = Number(localStorage.getItem(WIDTH)) || Math.round(innerWidth * 0.42);
  let width = 0;
  function set(wanted) {
    width = Math.round(Math.min(most(), Math.max(WIDTHS.least, wanted)));
    aside.style.setProperty('--source-width', `${width}px`);
    edge.setAttribute('aria-valuenow', width);
    edge.setAttribute('aria-valuemax', most());
  }
  const keep = () => localStorage.setItem(WIDTH, width);
  edge.addEventListener('pointerdown', (event) => {
    edge.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  edge.addEventListener('pointermove', (event) => {
    if (edge.hasPointerCapture(event.pointerId)) set(innerWidth - event.clientX);
  });
  edge.addEventListener('pointerup', keep);
  edge.addEventListener('keydown', (event) => {
    const by = { ArrowLeft: WIDTHS.step, ArrowRight: -WIDTHS.step, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    set(width + by);
    keep();
  });
  addEventListener('resize', () => set(width), { signal });
  set(kept);
  return edge;
}
