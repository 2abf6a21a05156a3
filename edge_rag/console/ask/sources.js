/** Sources of an answer: numbers in the text, and lists of places. */

import { freshId } from '../core/controls.js';
import { h, readable, replace, untrusted, visible } from '../core/dom.js';
import { number, t } from '../core/text.js';
import { placeOf } from './export.js';

function passage(citation) {
  const { document: name, language, score, text, context, reason, lacks } = citation;
  const place = placeOf(citation).map((each) => [' · ', untrusted(each)]);
  const scored = score !== undefined && h('span.hint.score', t('ask.score', { score: number(score, 2) }));
  const quote = h('q.snippet', { lang: language, dir: 'auto' }, readable(text));
  const why = reason ? t(`ask.reason_${reason}`, { words: lacks.join(', ') }) : context && t('ask.for_context');
  const note = why && h('span.hint', untrusted(why));
  return [h('span.place-name', h('strong', untrusted(name)), place, scored), quote, note];
}

/** Returns the number of a source in the text, which shows its quote when pointed at or focused. */
export function reference(at, citation, tip, onOpen) {
  const place = visible([citation.document, ...placeOf(citation)].join(', '));
  const label = t('ask.source_number', { number: at, place });
  const element = h('button.ref', { 'aria-label': label, data: { number: at }, on: { click: onOpen } }, at);
  tip.attach(element, citation);
  return element;
}

/** Returns a list of sources or passages; `onOpen` is called with a position in it. */
export function placeList(citations, onOpen) {
  const items = citations.map((citation, at) => {
    const content = [h('span.place-number', at + 1), h('span.place-text', passage(citation))];
    return h('li', h('button.place', { data: { number: at + 1 }, on: { click: () => onOpen(at) } }, content));
  });
  return h('ol.places', items);
}

/** Returns a tip with a quote; it stays while the pointer is on it, and Escape closes it (WCAG 1.4.13). */
export function sourceTip(signal) {
  let target = null;
  let timer = 0;
  const hideSoon = () => (timer = setTimeout(hide, 200));
  const stay = { pointerenter: () => clearTimeout(timer), pointerleave: hideSoon };
  const tip = h('div.tip.card', { role: 'tooltip', id: freshId('tip'), popover: 'manual', on: stay });
  addEventListener('keydown', (event) => event.key === 'Escape' && hide(), { signal });
  addEventListener('scroll', hide, { signal, passive: true });

  function hide() {
    clearTimeout(timer);
    target?.removeAttribute('aria-describedby');
    target = null;
    tip.hidePopover();
  }

  function show(element, citation) {
    hide();
    target = element;
    replace(tip, passage(citation));
    element.setAttribute('aria-describedby', tip.id);
    tip.showPopover();
    const near = element.getBoundingClientRect();
    const { width, height } = tip.getBoundingClientRect();
    const below = near.bottom + height + 8 < innerHeight || near.top < height + 8;
    tip.style.left = `${Math.max(8, Math.min(near.left, innerWidth - width - 8))}px`;
    tip.style.top = `${below ? near.bottom + 4 : near.top - height - 4}px`;
  }

  function attach(element, citation) {
    const on = (type, listener) => element.addEventListener(type, listener);
    on('pointerenter', (event) => event.pointerType === 'mouse' && show(element, citation));
    on('pointerleave', hideSoon);
    on('focus', () => element.matches(':focus-visible') && show(element, citation));
    on('blur', hide);
    on('click', hide);
  }

  return { element: tip, attach };
}
