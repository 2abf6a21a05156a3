/** The source pane: a column beside the view on wide screens, a sheet over it on narrow ones. */

import { announce, h, loadStyle, replace, shortcuts, successive, untrusted, visible } from '../core/dom.js';
import { freshId, iconButton } from '../core/controls.js';
import { t } from '../core/text.js';
import { documentReader } from './reader.js';

const WIDTH = 'edge-rag.source-width';
const STEP = 40; // CSS pixels
const NARROW = matchMedia('(width < 50rem)');

const aside = document.getElementById('aside');
let opened = null;

/**
 * Opens the pane, or shows another source in it. Focus moves into it.
 * @param {{citations: object[], index: number, onShow: (index: number|null) => void}} options Citations or passages
 *     with their `collection`; `onShow` is told which one is shown, null when the pane closes.
 */
export async function openSource({ citations, index, onShow }) {
  const trigger = document.activeElement;
  await loadStyle('source/source.css');
  opened?.closing.abort();
  const closing = new AbortController();
  const { signal } = closing;
  opened = { closing, trigger, onShow, pushed: NARROW.matches };

  const title = h('h2', { id: freshId('source'), tabindex: '-1' });
  const place = h('p.hint.source-place');
  const count = h('span.hint.source-count');
  const actions = h('div.source-actions');
  const body = h('div.source-body');
  const total = citations.length;
  const step = (by) => show((index + by + total) % total);
  const close = iconButton(t('source.close'), 'close', { on: closeSource });
  const previous = iconButton(t('source.previous'), 'up', { on: () => step(-1) });
  const next = iconButton(t('source.next'), 'down', { on: () => step(1) });
  const props = { role: 'group', 'aria-label': t('source.citations'), hidden: total < 2 };
  const steps = h('div.source-steps', props, previous, count, next);
  const bar = h('div.source-bar', steps, actions);
  const header = h('header.source-header', h('div.source-title', title, close), place, bar);
  replace(aside, handle(signal), header, body);
  aside.className = 'source-pane';
  aside.setAttribute('aria-labelledby', title.id);
  aside.hidden = false;
  adapt();

  const begin = successive(signal);
  function show(to) {
    index = to;
    const { document: name, document_id: id, text: quote, page, ...citation } = citations[index];
    replace(title, untrusted(name));
    replace(count, t('source.count', { position: index + 1, total }));
    replace(place);
    const shown = h('div');
    // What has the focus goes with the source before it.
    if (body.contains(document.activeElement)) title.focus({ preventScroll: true });
    replace(body, shown);
    const onPlace = (headings, found) => {
      const path = headings.map((each, at) => [at ? ' › ' : '', untrusted(each)]);
      const on = found !== null && h('span.source-page', t('source.page', { page: found }));
      replace(place, h('span', path), on);
    };
    const options = { ...citation, document: id || name, page, quote, actions, keys: aside, onPlace };
    documentReader(shown, { ...options, signal: begin() });
    const said = page === null ? 'source.shown' : 'source.shown_page';
    announce(t(said, { position: index + 1, total, name: visible(name), page }));
    onShow(index);
  }

  if (total > 1) shortcuts(aside, { n: () => step(1), p: () => step(-1) }, signal);
  const onKey = (event) => {
    if (event.key !== 'Escape' || event.defaultPrevented || document.querySelector('dialog[open]')) return;
    event.preventDefault();
    closeSource();
  };
  document.addEventListener('keydown', onKey, { signal });
  // Going back closes a sheet, as people expect on phones.
  if (opened.pushed) history.pushState(null, '');
  addEventListener('popstate', () => opened.pushed && leave(), { signal });
  addEventListener('hashchange', leave, { signal });
  addEventListener('resize', adapt, { signal });
  show(index);
  title.focus({ preventScroll: true });
}

/** Closes the pane; focus returns to what opened it. */
function closeSource() {
  if (opened.pushed) history.back();
  leave();
}

/** Closes the pane when the history has already been left behind. */
function leave() {
  const { closing, trigger, onShow } = opened;
  const focused = aside.contains(document.activeElement);
  closing.abort();
  aside.hidden = true;
  replace(aside);
  adapt();
  if (focused && trigger.isConnected) trigger.focus();
  onShow(null);
}

/** A sheet hides what is below it from everybody; a column is beside it, below the bar of the console. */
function adapt() {
  aside.style.setProperty('--top', `${document.querySelector('.top').offsetHeight}px`);
  const sheet = !aside.hidden && NARROW.matches;
  for (const each of document.querySelectorAll('.top, main, .skip')) each.inert = sheet;
  aside.role = sheet ? 'dialog' : null;
  aside.ariaModal = sheet ? 'true' : null;
}

/** Returns the left edge of the pane, moved by the pointer or the arrow keys within the bounds of the stylesheet. */
function handle(signal) {
  function fit(width) {
    aside.style.setProperty('--source-width', `${width}px`);
    edge.ariaValueNow = Math.round((100 * width) / innerWidth);
  }
  function set(width) {
    localStorage.setItem(WIDTH, width);
    fit(width);
  }
  const on = {
    pointerdown(event) {
      edge.setPointerCapture(event.pointerId);
      event.preventDefault();
    },
    pointermove: (event) => edge.hasPointerCapture(event.pointerId) && set(innerWidth - event.clientX),
  };
  const props = { role: 'separator', tabindex: '0', 'aria-orientation': 'vertical', on };
  const edge = h('div.source-edge', { ...props, 'aria-label': t('source.width') });
  const grow = (by) => set(aside.offsetWidth + by);
  shortcuts(edge, { ArrowLeft: () => grow(STEP), ArrowRight: () => grow(-STEP) }, signal);
  fit(localStorage.getItem(WIDTH) ?? Math.round(innerWidth * 0.42));
  return edge;
}
