/** Sources of an answer: numbers in the text that tell and open the cited place, and lists of places. */

import { freshId } from '../core/controls.js';
import { h, readable, replace, untrusted, visible } from '../core/dom.js';
import { number, t } from '../core/text.js';
import { placeOf } from './export.js';

/**
 * Opens a place beside the answer, from where the pane goes on to the others.
 * @param {string} collection
 * @param {object[]} all Citations or passages, in order.
 * @param {number} index Position of the one that is opened.
 * @param {(index: number|null) => void} onShow Told which one is shown, null when the pane closes.
 */
export async function open(collection, all, index, onShow) {
  const { openSource } = await import('../source/pane.js');
  await openSource({ citations: all.map((each) => ({ ...each, collection })), index, onShow });
}

/** Returns document, place and text of a citation, and the score of a passage. */
function passage(citation) {
  const { document: name, language, score, text } = citation;
  const place = placeOf(citation, t).map((each) => [' · ', untrusted(each)]);
  const scored = score !== undefined && h('span', { class: 'score' }, t('ask.score', { score: number(score, 2) }));
  return [
    h('span', { class: 'place-name' }, h('strong', {}, untrusted(name)), place, scored),
    h('q', { lang: language ?? null, dir: 'auto', class: 'snippet' }, readable(text)),
  ];
}

/**
 * Returns the number of a source in the text; it shows quote and place when pointed at or focused, and opens them.
 * @param {{number: number, citation: object}} source
 * @param {Tip} tip
 * @param {() => void} onOpen
 */
export function reference({ number: shown, citation }, tip, onOpen) {
  const place = visible([citation.document, ...placeOf(citation, t)].join(', '));
  const label = t('ask.source_number', { number: shown, place });
  const element = h('button', { type: 'button', class: 'ref', 'aria-label': label, data: { number: shown } }, String(shown));
  element.addEventListener('click', () => {
    tip.hide();
    onOpen();
  });
  tip.attach(element, citation);
  return element;
}

/**
 * Returns the list of sources below an answer, or of nearest passages.
 * @param {Array<{number?: number, citation: object}>} found
 * @param {(citation: object) => void} onOpen
 */
export function placeList(found, onOpen) {
  const items = found.map(({ number: shown, citation }) => {
    return h(
      'li',
      {},
      h(
        'button',
        { type: 'button', class: 'place', data: { number: shown ?? '' }, on: { click: () => onOpen(citation) } },
        shown ? h('span', { class: 'place-number' }, String(shown)) : null,
        h('span', { class: 'place-text' }, passage(citation)),
      ),
    );
  });
  return h('ol', { class: 'places' }, items);
}

/**
 * A tip with the quote of a source. It stays while the pointer is on it, and Escape closes it (WCAG 1.4.13).
 */
export class Tip {
  #at = null;
  #timer = 0;

  /** @param {AbortSignal} signal Ends it. */
  constructor(signal) {
    const stay = { pointerenter: () => clearTimeout(this.#timer), pointerleave: () => this.#hideSoon() };
    this.element = h('div', { class: 'tip card', role: 'tooltip', id: freshId('tip'), popover: 'manual', on: stay });
    const close = (event) => event.key === 'Escape' && this.#at && this.hide();
    addEventListener('keydown', close, { signal });
    addEventListener('scroll', () => this.hide(), { signal, passive: true });
  }

  /** Shows the quote of a citation while an element is pointed at or focused. */
  attach(element, citation) {
    element.addEventListener('pointerenter', (event) => event.pointerType === 'mouse' && this.#show(element, citation));
    element.addEventListener('pointerleave', () => this.#hideSoon());
    element.addEventListener('focus', () => element.matches(':focus-visible') && this.#show(element, citation));
    element.addEventListener('blur', () => this.hide());
  }

  hide() {
    clearTimeout(this.#timer);
    this.#at?.removeAttribute('aria-describedby');
    this.#at = null;
    if (this.element.matches(':popover-open')) this.element.hidePopover();
  }

  #hideSoon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.hide(), 200);
  }

  #show(element, citation) {
    this.hide();
    this.#at = element;
    replace(this.element, passage(citation));
    element.setAttribute('aria-describedby', this.element.id);
    this.element.showPopover();
    const near = element.getBoundingClientRect();
    const own = this.element.getBoundingClientRect();
    const below = near.bottom + own.height + 8 < innerHeight || near.top < own.height + 8;
    this.element.style.left = `${Math.max(8, Math.min(near.left, innerWidth - own.width - 8))}px`;
    this.element.style.top = `${below ? near.bottom + 4 : near.top - own.height - 4}px`;
  }
}
