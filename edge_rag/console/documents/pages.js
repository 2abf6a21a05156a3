/** Pages of a list that is too long to be shown at once. */

import { button } from '../core/controls.js';
import { h, replace } from '../core/dom.js';
import { t } from '../core/text.js';

/** Returns buttons for the page before, `go(-1)`, and the next one, `go(1)`; `set({from, to, count})` says what is shown. */
export function pager(label, go) {
  const where = h('span.hint');
  // What cannot be done stays reachable, so that the focus is not lost at the last page.
  const step = (text, icon, by) =>
    button(text, { icon, on: (event) => event.currentTarget.ariaDisabled === 'false' && go(by) });
  const back = step(t('chunks.back'), 'left', -1);
  const next = step(t('chunks.next'), 'right', 1);
  const element = h('nav.row.spread', { 'aria-label': label }, back, where, next);
  element.set = ({ from, to, count }) => {
    replace(where, t('chunks.shown', { from, to, count }));
    back.ariaDisabled = from === 1;
    next.ariaDisabled = to === count;
    element.hidden = from === 1 && to === count;
  };
  return element;
}
