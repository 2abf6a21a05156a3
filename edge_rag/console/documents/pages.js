/** Pages of a list that is too long to be shown at once. */

import { button } from '../core/controls.js';
import { h, replace } from '../core/dom.js';
import { t } from '../core/text.js';

/**
 * Returns what goes back and forth between pages.
 * @param {string} label Name of the list.
 * @param {(step: number) => any} go Shows the page before (-1) or the next one (1).
 * @returns {HTMLElement} With a method `set({from, to, count}, before, after)`: what is shown, and whether there are
 *     pages before and after it.
 */
export function pager(label, go) {
  const where = h('span', { class: 'hint' });
  // What cannot be done stays reachable, so that the focus is not lost at the last page.
  const step = (text, icon, by) =>
    button(text, { icon, on: (event) => event.currentTarget.getAttribute('aria-disabled') === 'false' && go(by) });
  const back = step(t('chunks.back'), 'left', -1);
  const next = step(t('chunks.next'), 'right', 1);
  const element = h('nav', { class: 'row spread', 'aria-label': label, hidden: true }, back, where, next);
  element.set = (shown, before, after) => {
    replace(where, t('chunks.shown', shown));
    back.setAttribute('aria-disabled', String(!before));
    next.setAttribute('aria-disabled', String(!after));
    element.hidden = !before && !after;
  };
  return element;
}
