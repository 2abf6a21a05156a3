/** Pages of a PDF as pictures, with a range of its text in boxes over them. */

import { get, request } from '../core/api.js';
import { button, iconButton } from '../core/controls.js';
import { h, replace, shortcuts, successive, visible } from '../core/dom.js';
import { percent, t } from '../core/text.js';

const MOST_WIDTH = 2_000; // of a picture, pixels
const WIDTH_STEP = 250; // pixels; pictures of few widths are found in the box's cache
const ZOOMS = [0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4];
const WIDEST_GAP = 1.5; // between words of a line, heights of the line
const LEGIBLE = 8.5; // height of a line, CSS pixels
const EDGE = 12; // beside what is marked, CSS pixels
const PAGES_TRIED = 4; // a range may begin on a page after that of its passage

/** Returns a view of a document's pages; `located` is told on which one, from `page` on, the cited range begins. */
export function pageSource({ collection, info, cited, page, quote, keys, located, failed, signal }) {
  const { pages } = info;
  const base = `/documents/${encodeURIComponent(info.id)}/pages`;
  const picture = h('img', { alt: '', draggable: 'false' });
  const sheet = h('figure.page-sheet');
  const viewport = h('div.page-view', { tabindex: '0', role: 'region', 'aria-label': t('source.pages') }, sheet);
  const entry = { type: 'number', min: '1', max: pages, 'aria-label': t('source.page_number') };
  const input = h('input', { ...entry, on: { change: () => go(Math.round(input.value)) } });
  const zoomed = h('span.page-zoom');
  const before = iconButton(t('source.page_before'), 'left', { on: () => go(shown - 1) });
  const after = iconButton(t('source.page_after'), 'right', { on: () => go(shown + 1) });
  const smaller = iconButton(t('source.smaller'), 'minus', { on: () => zoomBy(-1) });
  const larger = iconButton(t('source.larger'), 'add', { on: () => zoomBy(1) });
  const lead = button('', { kind: 'link', on: () => go(shown === citedOn ? citedOn + 1 : citedOn) });
  const note = h('p.page-note', { hidden: true }, lead);
  const looking = h('p.page-looking', { hidden: true }, t('source.looking'));
  let shown = 0;
  let citedOn = null; // page on which the range begins
  let continues = false;
  let zoom = 1;
  let drawn = '';
  const begin = successive(signal);

  function draw() {
    const wanted = Math.ceil((sheet.clientWidth * devicePixelRatio) / WIDTH_STEP) * WIDTH_STEP;
    const width = Math.min(MOST_WIDTH, wanted);
    const path = `${base}/${shown}?${new URLSearchParams({ collection, width })}`;
    if (path !== drawn) picture.src = drawn = path;
  }

  picture.onload = () => {
    picture.alt = t('source.page_of', { page: shown, name: visible(info.name) });
    sheet.ariaBusy = 'false';
  };
  // A picture does not tell why it cannot be had; the same request does.
  picture.onerror = () => request('GET', drawn, { signal }).catch((error) => signal.aborted || failed(error));

  const find = (number, ending) => get(`${base}/${number}/boxes`, { query: { collection, ...cited }, signal: ending });

  /** Finds the page on which the range begins: the passage's, or one after it. */
  async function locate(number, ending) {
    for (let tried = 0; tried < PAGES_TRIED && number + tried <= pages; tried++) {
      const found = await find(number + tried, ending);
      if (found.boxes.length) {
        citedOn = found.page;
        continues = found.continues;
        zoom = legibleZoom(found);
        located(citedOn);
        return found;
      }
      if (!found.continues) break;
    }
    return { page: number, boxes: [] };
  }

  async function go(number, search = find) {
    if (!(number >= 1 && number <= pages) || number === shown) return sync();
    const ending = begin();
    replace(sheet, picture);
    sheet.ariaBusy = 'true';
    viewport.scrollTop = 0;
    show(number);
    if (!cited) return;
    // The first question about a long document takes a while; its page can be read meanwhile.
    looking.hidden = false;
    try {
      const found = await search(number, ending);
      show(found.page);
      while (!picture.complete) await new Promise((done) => picture.addEventListener('load', done, { once: true }));
      if (ending.aborted) return;
      place(found);
      looking.hidden = true;
    } catch (error) {
      if (!ending.aborted) failed(error);
    }
  }

  function place(found) {
    const marks = joined(found).map(({ left, top, right, bottom }) => {
      const inset = [top, 1 - right, 1 - bottom, left].map((each) => `${100 * each}%`).join(' ');
      return h('div.page-box', { style: { inset } });
    });
    if (!marks.length) return;
    sheet.append(...marks, h('figcaption.sr-only', quote && t('source.marked', { quote: visible(quote) })));
    const [first, ...others] = marks.map((each) => each.getBoundingClientRect());
    const around = viewport.getBoundingClientRect();
    viewport.scrollTop += first.top - around.top - around.height / 3;
    // From the leftmost box on, but the first one is in sight.
    const left = Math.max(Math.min(...others.map((each) => each.left)), first.right - around.width + 2 * EDGE);
    viewport.scrollLeft += Math.min(left, first.left) - around.left - EDGE;
  }

  function show(number) {
    shown = number;
    sync();
    draw();
  }

  function sync() {
    input.value = shown;
    before.ariaDisabled = shown === 1;
    after.ariaDisabled = shown === pages;
    zoomed.textContent = percent(zoom);
    smaller.ariaDisabled = zoom === ZOOMS[0];
    larger.ariaDisabled = zoom === ZOOMS.at(-1);
    sheet.style.setProperty('--zoom', zoom);
    // The focus does not vanish with a button.
    if (note.contains(document.activeElement)) viewport.focus({ preventScroll: true });
    const isCited = shown === citedOn;
    lead.textContent = isCited ? t('source.continues', { page: citedOn + 1 }) : t('source.to_citation');
    note.hidden = citedOn === null || (isCited && !continues);
  }

  /** Returns the least zoom at which what is marked can be read. */
  function legibleZoom({ boxes: [{ top, bottom }], width: across, height }) {
    const line = (((bottom - top) * height) / across) * (sheet.clientWidth / zoom);
    return ZOOMS.find((each) => each >= 1 && each * line >= LEGIBLE) ?? ZOOMS.at(-1);
  }

  const zoomBy = (by) => setZoom(ZOOMS[ZOOMS.indexOf(zoom) + by] ?? zoom);

  function setZoom(value) {
    const [x, y] = [viewport.clientWidth / 2, viewport.clientHeight / 2]; // what is there stays there
    const grown = value / zoom;
    const [left, top] = [(viewport.scrollLeft + x) * grown - x, (viewport.scrollTop + y) * grown - y];
    zoom = value;
    show(shown);
    viewport.scrollTo(left, top);
  }

  const turned = (by) => zoom <= 1 && go(shown + by);
  const zooms = { '+': () => zoomBy(1), '-': () => zoomBy(-1), 0: () => setZoom(1) };
  const turns = { ArrowLeft: () => turned(-1), ArrowRight: () => turned(1) };
  shortcuts(keys, { ...zooms, ...turns }, signal);
  // The width of the pane is known once the view is in it.
  requestAnimationFrame(() => signal.aborted || go(Math.min(Math.max(1, page), pages), locate));
  const turning = h('span.row', before, input, t('source.of_pages', { count: pages }), after);
  const zooming = h('span.row', smaller, zoomed, larger);
  const bar = h('div.page-bar', { role: 'group', 'aria-label': t('source.pages') }, turning, zooming);
  return h('div.source-pages', bar, note, viewport, looking);
}

/** Joins the words of a line, which are set apart to fill it. */
function joined({ boxes, width, height }) {
  const lines = [];
  for (const box of boxes) {
    const last = lines.at(-1);
    const tall = box.bottom - box.top;
    const gap = last && ((box.left - last.right) * width) / (tall * height);
    if (last && Math.abs(box.top - last.top) < tall / 2 && Math.abs(gap) < WIDEST_GAP) {
      last.top = Math.min(last.top, box.top);
      last.right = Math.max(last.right, box.right);
      last.bottom = Math.max(last.bottom, box.bottom);
    } else lines.push({ ...box });
  }
  return lines;
}
