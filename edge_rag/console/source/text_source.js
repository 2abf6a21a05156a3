/** A document's text with a range marked: headings and tables as such, further text as it is scrolled to. */

import { get } from '../core/api.js';
import { attempt, button, errorBox, scrolling, spinner } from '../core/controls.js';
import { h, readable, replace } from '../core/dom.js';
import { t } from '../core/text.js';

// In characters of the stored text; the box widens each range to whole paragraphs.
const BEFORE = 2_500;
const AFTER = 4_500;
const MORE = 6_000;
const LONGEST = 16_384; // that the box gives at once
const KEPT = 8; // ranges that are in the page at once

/** Returns a scrollable view of the text. */
export function textSource({ collection, info, cited, signal }) {
  const ranges = []; // in order, each {start, end, element}
  const up = button(t('source.earlier'), { kind: 'quiet', hidden: true, on: () => extend(true) });
  const down = button(t('source.later'), { kind: 'quiet', hidden: true, on: () => extend(false) });
  const list = h('div.source-ranges', spinner());
  const props = { tabindex: '0', role: 'region', 'aria-label': t('source.text') };
  const element = h('div.source-text', props, up, list, down);
  let loading = false;

  const near = new IntersectionObserver(
    (entries) => entries.forEach((each) => each.isIntersecting && extend(each.target === up)),
    { root: element, rootMargin: '400px' },
  );
  signal.addEventListener('abort', () => near.disconnect());

  async function read(start, end) {
    const path = `/documents/${encodeURIComponent(info.id)}`;
    const found = await get(path, { query: { collection, start, end, parts: true }, signal });
    return { start: found.start, end: found.end, element: h('div', rendered(found, cited)) };
  }

  function watch() {
    if ([up, down].includes(document.activeElement)) element.focus({ preventScroll: true });
    up.hidden = ranges[0].start === 0;
    down.hidden = ranges.at(-1).end >= info.characters;
    near.disconnect();
    // Observing anew reports a button that is still in sight.
    near.observe(up);
    near.observe(down);
  }

  async function begin() {
    try {
      const start = Math.max(0, (cited?.start ?? 0) - BEFORE);
      const end = Math.min((cited?.end ?? 0) + AFTER, start + LONGEST);
      ranges.push(await read(start, end));
      replace(list, ranges[0].element);
      // The mark stands in the upper third, below what it follows from.
      const mark = list.querySelector('mark');
      if (mark) element.scrollTop += top(mark) - top(element) - element.clientHeight / 3;
      watch();
    } catch (error) {
      if (!signal.aborted) replace(list, errorBox(error, begin));
    }
  }

  async function extend(upwards) {
    if (loading) return;
    loading = true;
    await attempt(async () => {
      const beside = ranges.at(upwards ? 0 : -1);
      const { start, end } = beside;
      const more = await (upwards ? read(Math.max(0, start - MORE), start) : read(end, end + MORE));
      const before = top(beside.element);
      if (upwards) beside.element.before(more.element);
      else beside.element.after(more.element);
      ranges.splice(upwards ? 0 : ranges.length, 0, more);
      if (ranges.length > KEPT) (upwards ? ranges.pop() : ranges.shift()).element.remove();
      element.scrollTop += top(beside.element) - before;
      watch();
    });
    loading = false;
  }

  begin();
  return element;
}

/** Returns the elements of a range of the text, as `GET /documents/ID` gives it with `parts`. */
export function rendered(found, cited) {
  const characters = [...found.text];
  const slice = (start, end) => readable(characters.slice(start - found.start, end - found.start).join(''));
  const marked = ({ start, end }) => {
    const first = Math.max(start, cited?.start ?? end);
    const past = Math.min(end, cited?.end ?? end);
    if (first >= past) return slice(start, end);
    return [slice(start, first), h('mark', slice(first, past)), slice(past, end)];
  };
  return found.parts.map((part) => {
    if (part.kind === 'table') return table(part, marked);
    const heading = part.kind === 'heading';
    const level = heading ? `level-${Math.min(part.level, 4)}` : null;
    return h(heading ? 'h3' : 'p', { class: level, dir: 'auto' }, marked(part));
  });
}

function top(node) {
  return node.getBoundingClientRect().top;
}

function table({ rows, columns, header }, marked) {
  const heads = header === null ? 0 : header + 1;
  const lines = rows.map((cells, at) => {
    const [tag, scope] = at === header ? ['th', 'col'] : ['td', null];
    const made = [];
    let column = 0;
    const fillTo = (end) => {
      for (; column < end; column++) made.push(h('td'));
    };
    for (const cell of cells) {
      fillTo(cell.column);
      made.push(h(tag, { scope, colspan: cell.columns, dir: 'auto' }, marked(cell)));
      column += cell.columns;
    }
    fillTo(columns);
    return h('tr', made);
  });
  const label = t('source.table', { count: rows.length - heads });
  const parts = [heads > 0 && h('thead', lines.slice(0, heads)), h('tbody', lines.slice(heads))];
  return scrolling(label, h('table', h('caption.sr-only', label), parts));
}
