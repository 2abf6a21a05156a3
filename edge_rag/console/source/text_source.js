/** A document's text with a range marked: headings and tables as such, further text as it is scrolled to. */

import { get } from '../core/api.js';
import { button, errorBox, spinner } from '../core/controls.js';
import { h, readable, replace } from '../core/dom.js';
import { t } from '../core/text.js';

// In characters of the stored text; the box widens each range to whole paragraphs.
const BEFORE = 2_500;
const AFTER = 4_500;
const MORE = 6_000;
const LONGEST = 16_384; // that the box gives at once
const KEPT = 8; // ranges that are in the page at once
const SHORT = 12; // characters of a cell that is not broken into lines

/**
 * Returns a scrollable view of the text.
 * @param {object} options
 * @param {string} options.collection
 * @param {object} options.info The document as `GET /documents/ID` tells.
 * @param {{start: number, end: number}|null} options.cited What is marked, in code points.
 * @param {AbortSignal} options.signal
 * @returns {{element: HTMLElement}}
 */
export function textSource({ collection, info, cited, signal }) {
  const ranges = []; // in order, each {start, end, element}
  const up = button(t('source.earlier'), { kind: 'quiet', on: () => extend(true) });
  const down = button(t('source.later'), { kind: 'quiet', on: () => extend(false) });
  const list = h('div', { class: 'source-ranges' }, spinner());
  const props = { class: 'source-text', tabindex: '0', role: 'region', 'aria-label': t('source.text') };
  const element = h('div', props, up, list, down);
  let loading = false;
  up.hidden = down.hidden = true;

  const near = new IntersectionObserver(
    (entries) => {
      for (const each of entries) if (each.isIntersecting) extend(each.target === up);
    },
    { root: element, rootMargin: '400px' },
  );
  signal.addEventListener('abort', () => near.disconnect(), { once: true });

  async function read(start, end) {
    const path = `/documents/${encodeURIComponent(info.id)}`;
    const found = await get(path, { query: { collection, start, end, parts: true }, signal });
    return { start: found.start, end: found.end, element: h('div', {}, rendered(found, cited)) };
  }

  function watch() {
    if (document.activeElement === up || document.activeElement === down) element.focus({ preventScroll: true });
    up.hidden = ranges[0].start === 0;
    down.hidden = ranges.at(-1).end >= info.characters;
    near.disconnect();
    // Observing anew reports a button that is still in sight.
    for (const each of [up, down]) if (!each.hidden) near.observe(each);
  }

  async function begin() {
    try {
      const start = Math.max(0, (cited?.start ?? 0) - BEFORE);
      const end = Math.min((cited?.end ?? 0) + AFTER, start + LONGEST);
      const first = await read(start, end);
      ranges.push(first);
      replace(list, first.element);
      const mark = list.querySelector('mark');
      if (mark) {
        // The mark stands in the upper third, below what it follows from; the header of a table stays in sight.
        const table = mark.closest('table');
        const above = table ? top(mark) - top(table) : Infinity;
        const fits = above < 0.6 * element.clientHeight;
        element.scrollTop += top(mark) - top(element) - (fits ? above + 8 : element.clientHeight / 3);
      }
      watch();
    } catch (error) {
      if (!signal.aborted) replace(list, errorBox(error, begin));
    }
  }

  async function extend(upwards) {
    if (loading || signal.aborted || (upwards ? up : down).hidden) return;
    loading = true;
    try {
      const at = upwards ? ranges[0].start : ranges.at(-1).end;
      const more = upwards ? await read(Math.max(0, at - MORE), at) : await read(at, at + MORE);
      const anchor = upwards ? ranges[0].element : ranges.at(-1).element;
      const before = top(anchor);
      if (upwards) {
        ranges.unshift(more);
        list.prepend(more.element);
      } else {
        ranges.push(more);
        list.append(more.element);
      }
      if (ranges.length > KEPT) (upwards ? ranges.pop() : ranges.shift()).element.remove();
      element.scrollTop += top(anchor) - before;
      watch();
    } catch (error) {
      if (signal.aborted) return;
      near.disconnect();
      const box = errorBox(error, () => {
        box.remove();
        extend(upwards);
      });
      if (upwards) list.prepend(box);
      else list.append(box);
    } finally {
      loading = false;
    }
  }

  begin();
  return { element };
}

/**
 * Returns the elements of a range of the text.
 * @param {{text: string, start: number, parts: object[]}} found As `GET /documents/ID` gives it with `parts`.
 * @param {{start: number, end: number}|null} cited What is marked, in code points.
 */
export function rendered(found, cited) {
  const slice = slicer(found.text, found.start);
  const marked = (start, end) => {
    const first = Math.max(start, cited?.start ?? end);
    const past = Math.min(end, cited?.end ?? end);
    if (first >= past) return readable(slice(start, end));
    const mark = h('mark', {}, readable(slice(first, past)));
    return [readable(slice(start, first)), mark, readable(slice(past, end))].filter(Boolean);
  };
  return found.parts.map((part) => {
    if (part.kind === 'heading') {
      return h('h3', { class: `level-${Math.min(part.level, 4)}`, dir: 'auto' }, marked(part.start, part.end));
    }
    if (part.kind === 'table') return table(part, cited, marked);
    return h('p', { dir: 'auto' }, marked(part.start, part.end));
  });
}

/** Returns a function that takes characters of a text by their positions in code points. */
function slicer(text, first) {
  const units = [];
  let at = 0;
  for (const character of text) {
    units.push(at);
    at += character.length;
  }
  units.push(at);
  return (start, end) => text.slice(units[start - first], units[end - first]);
}

function top(node) {
  return node.getBoundingClientRect().top;
}

function table({ rows, columns, header }, cited, marked) {
  const line = (cells, at) => {
    const made = [];
    let column = 0;
    for (const cell of cells) {
      for (; column < cell.column; column++) made.push(h('td'));
      const head = at === header;
      const whole = cited && cited.start <= cell.start && cell.end <= cited.end;
      const short = cell.end - cell.start <= SHORT;
      const classes = [whole && 'source-cited', short && 'source-short'].filter(Boolean).join(' ');
      const props = { scope: head ? 'col' : null, colspan: cell.columns > 1 ? cell.columns : null, dir: 'auto' };
      made.push(h(head ? 'th' : 'td', { ...props, class: classes || null }, marked(cell.start, cell.end)));
      column += cell.columns;
    }
    for (; column < columns; column++) made.push(h('td'));
    return h('tr', {}, made);
  };
  const heads = header === null ? 0 : header + 1;
  const lines = rows.map(line);
  const label = t('source.table', { count: rows.length - heads });
  return h(
    'div',
    { class: 'table-scroll', tabindex: '0', role: 'region', 'aria-label': label },
    h(
      'table',
      {},
      h('caption', { class: 'sr-only' }, label),
      heads > 0 && h('thead', {}, lines.slice(0, heads)),
      h('tbody', {}, lines.slice(heads)),
    ),
  );
}
