/** Pages of a PDF as pictures, with a range of its text in boxes over them. */

import { get, request } from '../core/api.js';
import { button, iconButton } from '../core/controls.js';
import { h, replace, visible } from '../core/dom.js';
import { percent, t } from '../core/text.js';

const MOST_WIDTH = 2_000; // of a picture, pixels
const WIDTH_STEP = 250; // pixels; pictures of few widths are found in the box's cache
const ZOOMS = [0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4];
const WIDEST_GAP = 1.5; // between words of a line, heights of the line
const LEGIBLE = { least: 8.5, wanted: 13 }; // height of a line, CSS pixels
const SIDES = Object.entries({ left: Math.min, top: Math.min, right: Math.max, bottom: Math.max });
const EDGE = 12; // beside what is marked, CSS pixels
const PAGES_TRIED = 4; // a range may begin on a page after that of its passage

/**
 * Returns a view of the pages.
 * @param {object} options
 * @param {string} options.collection
 * @param {object} options.info The document as `GET /documents/ID` tells.
 * @param {{start: number, end: number}|null} options.cited What is in boxes, in code points.
 * @param {number} options.page Page on which it is looked for first.
 * @param {string} [options.quote] Its text, for screen readers.
 * @param {(page: number) => void} options.located Told on which page the range begins.
 * @param {(error: Error) => void} options.failed Told why a page cannot be shown.
 * @param {AbortSignal} options.signal
 * @returns {{element: HTMLElement, onKey: (key: string) => boolean}}
 */
export function pageSource({ collection, info, cited, page, quote, located, failed, signal }) {
  const pages = info.pages;
  const base = `/documents/${encodeURIComponent(info.id)}/pages`;
  const picture = h('img', { alt: '', draggable: 'false' });
  const boxes = h('div', { class: 'page-boxes', 'aria-hidden': 'true' });
  const about = h('figcaption', { class: 'sr-only' });
  const sheet = h('figure', { class: 'page-sheet', 'aria-busy': 'true' }, picture, boxes, about);
  const props = { class: 'page-view', tabindex: '0', role: 'region', 'aria-label': t('source.pages') };
  const viewport = h('div', props, sheet);
  const entry = { type: 'number', min: '1', max: pages, inputmode: 'numeric', 'aria-label': t('source.page_number') };
  const input = h('input', entry);
  const zoomed = h('span', { class: 'page-zoom' });
  const key = (name, on) => ({ on, 'aria-keyshortcuts': name });
  const before = iconButton(t('source.page_before'), 'left', key('ArrowLeft', () => go(shown - 1)));
  const after = iconButton(t('source.page_after'), 'right', key('ArrowRight', () => go(shown + 1)));
  const back = button(t('source.to_citation'), { kind: 'link', on: () => go(citedOn) });
  const more = button('', { kind: 'link', on: () => go(citedOn + 1) });
  const smaller = iconButton(t('source.smaller'), 'minus', key('-', () => zoomBy(-1)));
  const larger = iconButton(t('source.larger'), 'add', key('+', () => zoomBy(1)));
  const note = h('p', { class: 'page-note', hidden: true }, back, more);
  const looking = h('p', { class: 'page-looking', hidden: true }, t('source.looking'));
  const element = h(
    'div',
    { class: 'source-pages' },
    h(
      'div',
      { class: 'page-bar', role: 'group', 'aria-label': t('source.pages') },
      h('span', { class: 'row' }, before, input, h('span', {}, t('source.of_pages', { count: pages })), after),
      h('span', { class: 'row' }, smaller, zoomed, larger),
    ),
    note,
    viewport,
    looking,
  );
  let shown = Math.min(Math.max(1, page), pages);
  let citedOn = null; // page on which the range begins
  let continues = false;
  let zoom = 1;
  let asked = { number: 0, width: 0 }; // the picture that was asked for last; its width in pixels
  let url = '';
  let turn = new AbortController();
  signal.addEventListener('abort', () => URL.revokeObjectURL(url), { once: true });

  function wantedWidth() {
    const wide = sheet.clientWidth * devicePixelRatio;
    return Math.min(MOST_WIDTH, Math.ceil(wide / WIDTH_STEP) * WIDTH_STEP);
  }

  async function draw(number, ending) {
    const mine = (asked = { number, width: wantedWidth() });
    const query = new URLSearchParams({ collection, width: mine.width });
    const headers = { accept: 'image/png' };
    const response = await request('GET', `${base}/${number}?${query}`, { signal: ending, headers });
    const fresh = URL.createObjectURL(await response.blob());
    if (ending.aborted || asked !== mine) return URL.revokeObjectURL(fresh);
    picture.src = fresh;
    await picture.decode().catch(() => {});
    URL.revokeObjectURL(url);
    url = fresh;
    picture.alt = t('source.page_of', { page: number, name: visible(info.name) });
    sheet.setAttribute('aria-busy', 'false');
  }

  const find = (number, ending) => get(`${base}/${number}/boxes`, { query: { collection, ...cited }, signal: ending });

  /** Finds the page on which the range begins: the passage's, or one after it. */
  async function locate(ending) {
    for (let tried = 0; tried < PAGES_TRIED && shown + tried <= pages; tried++) {
      const found = await find(shown + tried, ending);
      if (found.boxes.length) {
        citedOn = found.page;
        located(citedOn);
        continues = found.continues;
        return found;
      }
      if (!found.continues) break;
    }
    return { page: shown, boxes: [] };
  }

  async function go(number, first = false) {
    if (!first && (number < 1 || number > pages || number === shown)) return sync();
    turn.abort();
    turn = new AbortController();
    const ending = AbortSignal.any([signal, turn.signal]);
    sheet.setAttribute('aria-busy', 'true');
    shown = number;
    sync();
    if (!first) {
      replace(boxes);
      viewport.scrollTop = 0;
    }
    // The first question about a long document takes a while; its page can be read meanwhile.
    let drawn = draw(number, ending);
    drawn.catch(() => {});
    try {
      if (cited) {
        looking.hidden = false;
        const found = await (first ? locate(ending) : find(number, ending));
        if (ending.aborted) return;
        if (first) zoom = legibleZoom(found);
        shown = found.page;
        sync();
        if (shown !== number || wantedWidth() > asked.width) drawn = draw(shown, ending);
        await drawn;
        if (!ending.aborted) place(found);
      } else {
        await drawn;
      }
    } catch (error) {
      if (!ending.aborted) failed(error);
    } finally {
      if (!ending.aborted) looking.hidden = true;
    }
  }

  function place(found) {
    replace(
      boxes,
      joined(found).map(({ left, top, right, bottom }) => {
        const part = (value) => `${(100 * value).toFixed(3)}%`;
        const style = { left: part(left), top: part(top), width: part(right - left), height: part(bottom - top) };
        return h('div', { class: 'page-box', style });
      }),
    );
    replace(about, found.boxes.length && quote ? t('source.marked', { quote: visible(quote) }) : null);
    const marks = [...boxes.children].map((each) => each.getBoundingClientRect());
    if (!marks.length) return;
    const around = viewport.getBoundingClientRect();
    viewport.scrollTop += marks[0].top - around.top - around.height / 3;
    // From the leftmost box on, but the first one is in sight.
    const left = Math.min(...marks.map((each) => each.left));
    const least = marks[0].right - around.width;
    viewport.scrollLeft += Math.min(Math.max(left, least + 2 * EDGE), marks[0].left) - around.left - EDGE;
  }

  function sync() {
    input.value = shown;
    disable(before, shown === 1);
    disable(after, shown === pages);
    zoomed.textContent = percent(zoom);
    disable(smaller, zoom === ZOOMS[0]);
    disable(larger, zoom === ZOOMS.at(-1));
    sheet.style.setProperty('--zoom', zoom);
    // The focus does not vanish with a button.
    if (note.contains(document.activeElement)) viewport.focus({ preventScroll: true });
    back.hidden = citedOn === null || shown === citedOn;
    more.hidden = !continues || shown !== citedOn;
    if (!more.hidden) more.textContent = t('source.continues', { page: citedOn + 1 });
    note.hidden = back.hidden && more.hidden;
  }

  /** Returns a zoom at which what is marked can be read, with all of it in sight if there is room. */
  function legibleZoom({ boxes: found, width, height }) {
    if (!found.length) return 1;
    const paper = sheet.clientWidth / zoom;
    const line = (((found[0].bottom - found[0].top) * height) / width) * paper;
    if (line >= LEGIBLE.least) return 1;
    const wide = (Math.max(...found.map((each) => each.right)) - Math.min(...found.map((each) => each.left))) * paper;
    const legible = ZOOMS.filter((each) => each * line >= LEGIBLE.least);
    const fitting = legible.filter((each) => each * wide + 2 * EDGE <= viewport.clientWidth);
    return fitting.find((each) => each * line >= LEGIBLE.wanted) ?? fitting.at(-1) ?? legible[0] ?? ZOOMS.at(-1);
  }

  function zoomBy(by) {
    setZoom(ZOOMS[Math.min(ZOOMS.length - 1, Math.max(0, ZOOMS.indexOf(zoom) + by))]);
  }

  function setZoom(value) {
    const [x, y] = [viewport.scrollLeft + viewport.clientWidth / 2, viewport.scrollTop + viewport.clientHeight / 2];
    const grown = value / zoom;
    zoom = value;
    sync();
    viewport.scrollLeft = x * grown - viewport.clientWidth / 2;
    viewport.scrollTop = y * grown - viewport.clientHeight / 2;
    if (wantedWidth() > asked.width) draw(shown, AbortSignal.any([signal, turn.signal])).catch(() => {});
  }

  input.addEventListener('change', () => go(Math.round(Number(input.value)) || shown));

  function onKey(key) {
    if (key === '+' || key === '=') zoomBy(1);
    else if (key === '-') zoomBy(-1);
    else if (key === '0') setZoom(1);
    else if (key === 'ArrowLeft' && zoom <= 1) go(shown - 1);
    else if (key === 'ArrowRight' && zoom <= 1) go(shown + 1);
    else return false;
    return true;
  }

  sync();
  // The width of the pane is known once the view is in it.
  requestAnimationFrame(() => !signal.aborted && go(shown, true));
  return { element, onKey };
}

/** Returns boxes of which the words of a line, set apart to fill it, are one. */
function joined({ boxes, width, height }) {
  const lines = [];
  for (const box of boxes) {
    const last = lines.at(-1);
    const tall = box.bottom - box.top;
    const same = last && Math.abs(box.top - last.top) < tall / 2 && Math.abs(box.bottom - last.bottom) < tall / 2;
    const gap = same ? ((box.left - last.right) * width) / (tall * height) : Infinity;
    if (gap > -1 && gap < WIDEST_GAP) {
      for (const [side, choose] of SIDES) last[side] = choose(last[side], box[side]);
    } else lines.push({ ...box });
  }
  return lines;
}

/** A button that loses its use keeps the focus. */
function disable(node, off) {
  node.setAttribute('aria-disabled', String(off));
}
