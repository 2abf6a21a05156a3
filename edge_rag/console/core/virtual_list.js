/** A list of which only what is in sight exists, and whose rows are loaded when they come near. */

import { h } from './dom.js';

const MARGIN = 12; // rows kept above and below what is in sight
const PAGE = 100;
const KEPT_PAGES = 20; // before and behind what is in sight

/**
 * Makes a list of rows of one height, in CSS pixels. `load(from, to)` resolves to 100 items, `render(item, index)`
 * returns a row's content, `failed(error)` is told what could not be loaded; `refresh()` renders anew.
 */
export function virtualList({ rowHeight, count, load, render, label, failed }) {
  const pages = new Map(); // number of the page -> rows, or null while they are loaded
  const rows = new Map(); // index -> element
  const list = h('ul.virtual-rows', { 'aria-label': label, style: { height: `${count * rowHeight}px` } });
  const element = h('div.virtual', { tabindex: '0', role: 'group', 'aria-label': label }, list);
  let drawing = 0;

  function fetchPage(page) {
    if (pages.has(page)) return;
    pages.set(page, null);
    load(page * PAGE, Math.min(count, (page + 1) * PAGE)).then(
      (items) => {
        pages.set(page, items);
        for (let index = page * PAGE; index < (page + 1) * PAGE; index++) drop(index);
        draw();
      },
      (error) => {
        pages.delete(page);
        failed(error);
      },
    );
  }

  function drop(index) {
    rows.get(index)?.remove();
    rows.delete(index);
  }

  function row(index) {
    const item = pages.get(Math.floor(index / PAGE))?.[index % PAGE];
    const content = item === undefined ? h('span.placeholder') : render(item, index);
    const style = { transform: `translateY(${index * rowHeight}px)`, height: `${rowHeight}px` };
    return h('li', { 'aria-setsize': count, 'aria-posinset': index + 1, style }, content);
  }

  function draw() {
    drawing = 0;
    const first = Math.max(0, Math.floor(element.scrollTop / rowHeight) - MARGIN);
    const shown = Math.ceil((element.clientHeight || 600) / rowHeight);
    const end = Math.min(count, first + shown + 2 * MARGIN);
    for (const [index, node] of rows) {
      // What has the focus stays: without it the keyboard would lose its place.
      if ((index < first || index >= end) && !node.contains(document.activeElement)) drop(index);
    }
    for (let page = Math.floor(first / PAGE); page * PAGE < end; page++) fetchPage(page);
    for (let index = first; index < end; index++) {
      if (rows.has(index)) continue;
      const node = row(index);
      rows.set(index, node);
      // Elements stay in the order of their rows, so that Tab goes from one to the next.
      list.insertBefore(node, [...list.children].find((each) => each.ariaPosInSet > index) ?? null);
    }
    for (const page of pages.keys()) if (Math.abs(page - first / PAGE) > KEPT_PAGES) pages.delete(page);
  }

  const later = () => (drawing ||= requestAnimationFrame(draw));
  element.addEventListener('scroll', later, { passive: true });
  new ResizeObserver(later).observe(element);
  const refresh = () => {
    for (const index of [...rows.keys()]) drop(index);
    draw();
  };
  return { element, refresh };
}
