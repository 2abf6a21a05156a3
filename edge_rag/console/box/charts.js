/** Small pictures of numbers that change: each has its numbers as text beside it or as its name. */

import { table } from '../core/controls.js';
import { h, replace, svg } from '../core/dom.js';
import { t } from '../core/text.js';

const SAMPLES = 120; // points of a line, one a second
const CELL = 12; // CSS pixels of a cell of the page map with its gap
const GAP = 2;

/** Sets the text of a node, if it is another one: what did not change is not painted. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Returns a line of the latest values; `push(value)` adds one and drops the oldest. */
export function sparkline() {
  const values = [];
  const line = svg('polyline', { class: 'line' });
  const area = svg('polygon', { class: 'area' });
  const viewBox = `0 0 ${SAMPLES - 1} 30`;
  const props = { class: 'spark', viewBox, preserveAspectRatio: 'none', 'aria-hidden': 'true' };
  const element = svg('svg', props, area, line);
  element.push = (value) => {
    values.push(value);
    if (values.length > SAMPLES) values.shift();
    const top = Math.max(...values, 1e-9);
    const from = SAMPLES - values.length;
    const points = values.map((each, at) => `${from + at},${(29 - (27 * each) / top).toFixed(1)}`).join(' ');
    line.setAttribute('points', points);
    area.setAttribute('points', `${from},30 ${points} ${SAMPLES - 1},30`);
  };
  return element;
}

/**
 * Returns a table whose cells change in place, so that focus and selection in it stay.
 * @param {{caption: string, columns: Array<{text: string, kind?: string}>, none?: string}} options As for `table`;
 *     `none` stands there instead of a table without rows.
 * @returns {HTMLElement} With `set(rows)`; a cell is a text, a number's text with its share of a bar
 *     (`{text, share}`), or a node with a `key`, which is replaced if that changes.
 */
export function liveTable({ caption, columns, none = '' }) {
  const shown = table({ caption, columns, rows: [], hideCaption: true });
  const body = shown.querySelector('tbody');
  const nothing = h('p', { class: 'hint', hidden: true }, none);
  const element = h('div', {}, shown, nothing);
  element.set = (rows) => {
    shown.hidden = rows.length === 0;
    nothing.hidden = rows.length > 0 || !none;
    while (body.rows.length > rows.length) body.lastElementChild.remove();
    while (body.rows.length < rows.length) {
      body.append(
        h('tr', {}, columns.map(({ kind }, at) => h(at ? 'td' : 'th', { scope: at ? null : 'row', class: kind }))),
      );
    }
    rows.forEach((cells, at) => cells.forEach((cell, column) => setCell(body.rows[at].cells[column], cell)));
  };
  return element;
}

function setCell(node, value) {
  if (value instanceof Node) {
    if (node.dataset.key === value.dataset.key) return;
    node.dataset.key = value.dataset.key;
    replace(node, value);
  } else if (typeof value === 'object' && value !== null) {
    if (!node.firstElementChild) replace(node, meter());
    node.firstElementChild.set(value);
  } else {
    say(node, value ?? '');
  }
}

/** Returns a number with a bar; `set({text, share})` changes it. */
export function meter() {
  const text = h('span', {});
  const element = h('span', { class: 'meter' }, text, h('span', { class: 'bar', 'aria-hidden': 'true' }));
  element.set = ({ text: told, share }) => {
    say(text, told);
    element.style.setProperty('--share', `${Math.min(100, 100 * share).toFixed(1)}%`);
  };
  return element;
}

/** Returns a map of the pages of the KV cache; `set(engine)` draws it. Forms tell the states apart, besides colours. */
export function pageMap() {
  const canvas = h('canvas', { role: 'img', class: 'page-map' });
  const counts = Object.fromEntries(['held', 'shared', 'cached', 'free'].map((state) => [state, h('span', {})]));
  const sign = (state) => h('i', { class: `page ${state}`, 'aria-hidden': 'true' });
  const items = Object.entries(counts).map(([state, count]) => h('li', {}, sign(state), count));
  const legend = h('ul', { class: 'legend' }, items);
  const element = h('div', {}, canvas, legend);
  element.set = ({ page_map: map, pages }) => {
    const sum = (state) => map[state].reduce((all, each) => all + each, 0);
    const found = { held: sum('held'), shared: sum('shared'), cached: sum('cached') };
    found.free = pages - found.held - found.shared - found.cached;
    for (const [state, count] of Object.entries(found)) say(counts[state], t(`box.pages_${state}`, { count }));
    const told = Object.values(counts).map((each) => each.textContent);
    canvas.setAttribute('aria-label', `${t('box.page_map')}: ${told.join(', ')}`);
    draw(canvas, map);
  };
  return element;
}

function draw(canvas, map) {
  const columns = Math.max(1, Math.floor(canvas.parentElement.clientWidth / CELL));
  const rows = Math.ceil(map.held.length / columns);
  const scale = devicePixelRatio || 1;
  canvas.style.height = `${rows * CELL}px`;
  canvas.width = columns * CELL * scale;
  canvas.height = rows * CELL * scale;
  canvas.style.width = `${columns * CELL}px`;
  const style = getComputedStyle(canvas);
  const [full, second, edge, inner] = [style.color, style.outlineColor, style.borderColor, style.backgroundColor];
  const on = canvas.getContext('2d');
  on.scale(scale, scale);
  const size = CELL - GAP;
  for (let at = 0; at < map.held.length; at++) {
    const x = (at % columns) * CELL;
    const y = Math.floor(at / columns) * CELL;
    const [held, shared, cached] = [map.held[at], map.shared[at], map.cached[at]];
    const most = Math.max(held, shared, cached);
    on.fillStyle = most === 0 ? edge : most === cached && most > held && most > shared ? second : full;
    if (most === 0) on.fillRect(x + size / 2 - 1, y + size / 2 - 1, 2, 2);
    else if (most === held) on.fillRect(x, y, size, size);
    else if (most === shared) {
      on.fillRect(x, y, size, size);
      on.fillStyle = inner;
      on.fillRect(x + 3, y + 3, size - 6, size - 6);
    } else on.fillRect(x, y + size / 2, size, size / 2);
  }
}
