/** How the panels of the box show facts, tables, numbers and states. */

import { badge, columns, table } from '../core/controls.js';
import { h } from '../core/dom.js';
import { t } from '../core/text.js';

/** Returns a list of facts: their values by their texts in the section `box`. */
export function facts(values) {
  const items = Object.entries(values).map(([name, value]) => [h('dt', t(`box.${name}`)), h('dd', value)]);
  return h('dl.facts', items);
}

/** Returns a table whose caption is heard but not seen, with a column by each text of a section. */
export function listing(caption, section, rows, texts, numbers = []) {
  const heads = columns(...[texts, numbers].map((names) => names.map((name) => `${section}.${name}`)));
  return table({ caption, columns: heads, rows, hideCaption: true });
}

/** Returns the text of a number with a bar, which is full at a share of 1. */
export function meter(text, share) {
  return h('span.meter', text, h('progress', { max: '1', value: Math.min(1, share), 'aria-hidden': 'true' }));
}

/** Returns a state of the daemon. */
export function stateBadge(state) {
  return badge(t(`box.is_${state}`), state === 'serving' ? 'good' : 'warn');
}
