/** One question with its answer: the text with its sources as it arrives, and what can be done with it. */

import { get } from '../core/api.js';
import { badge, button, errorBox, freshId, icon, iconButton, notice } from '../core/controls.js';
import { announce, h, readable, replace, untrusted } from '../core/dom.js';
import { href } from '../core/router.js';
import { can } from '../core/session.js';
import { dateTime, duration, percent, t } from '../core/text.js';
import { turnMarkdown } from './export.js';
import { feedback } from './feedback.js';
import { GrowingText, parts, Sentences, sourceKey, sources } from './ranges.js';
import { open, placeList, reference } from './sources.js';

const MODE_KINDS = { quote: 'good', cite: 'good', free: 'warn' };
/** Documents that a follow-up can be limited to with one click. */
const MOST_ONLY = 3;
/** Decisions about a request that its timeline shows. */
const MOST_DECISIONS = 200;

/** The element of a turn. */
export class AnswerView {
  #text = new GrowingText();
  #keys = [];
  #frame = 0;

  /**
   * @param {import('./conversation.js').Turn} turn Shown as it is; `received` and `ended` show what has changed.
   * @param {{tip: import('./sources.js').Tip, notFoundBelow: number, again: () => void, only: (names: string[]) => void,
   *     changed: () => void}} context
   */
  constructor(turn, context) {
    this.turn = turn;
    this.context = context;
    this.sentences = new Sentences(turn.language);
    const heading = h('h2', { class: 'ask-question', id: freshId('question'), dir: 'auto' }, readable(turn.question));
    this.body = h('div', { class: 'answer-text', dir: 'auto' });
    this.below = h('div', { class: 'stack below' });
    this.element = h(
      'article',
      { class: 'turn', 'aria-labelledby': heading.id },
      heading,
      h('div', { class: 'card answer' }, this.#about(), this.body, this.below),
    );
    this.#text.append(turn.answer);
    if (turn.state === 'asking') this.#wait();
    else this.#complete();
  }

  /** Shows an event of the answer that the turn already has. */
  received(event, data) {
    if (event === 'text') {
      this.#text.append(data.text);
      // Quoted and checked text comes by whole sentences, other text by words.
      this.#say(data.text, this.turn.mode !== 'free');
    }
    if (event === 'passages') this.sentences = new Sentences(this.turn.language);
    if (event === 'passages' || event === 'finished') return;
    this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  /** Shows the end of the answer. */
  ended() {
    cancelAnimationFrame(this.#frame);
    this.#say('', true);
    this.#complete();
    const { state, error, finish_reason: reason, citations } = this.turn;
    if (state === 'failed') announce(error);
    else if (state === 'stopped') announce(t('ask.stopped'));
    else if (reason !== 'not_found') announce(t('ask.complete', { count: sources(citations).length }));
  }

  #say(text, ends) {
    this.sentences.append(text, ends).forEach(announce);
  }

  #about() {
    const { mode, collection, filter, only, at } = this.turn;
    const hint = badge(t(`ask.mode_${mode}`), MODE_KINDS[mode]);
    hint.title = t(`ask.mode_${mode}_hint`);
    const filtered = [filter && h('code', {}, untrusted(filter)), only.map((name) => [' ', untrusted(name)])];
    return h(
      'p',
      { class: 'about' },
      hint,
      h('span', {}, untrusted(collection)),
      (filter || only.length > 0) && h('span', { class: 'limited' }, t('ask.limited_to'), ' ', filtered),
      h('time', { datetime: new Date(at).toISOString() }, dateTime(at)),
    );
  }

  #wait() {
    this.body.setAttribute('aria-busy', 'true');
    replace(this.body, h('span', { class: 'waiting' }, t('ask.searching')));
  }

  /** Draws what has changed of the text: parts that are as before stay, and with them the focus. */
  #draw() {
    this.#frame = 0;
    const { turn, body } = this;
    const found = parts(this.#text, turn.citations, turn.unsupported);
    const keys = found.map((each) => JSON.stringify(each));
    let same = 0;
    while (same < keys.length && keys[same] === this.#keys[same]) same++;
    if (!this.#keys.length) replace(body);
    while (body.childElementCount > same) body.lastElementChild.remove();
    const numbered = new Map(sources(turn.citations).map((each) => [sourceKey(each.citation), each]));
    for (const part of found.slice(same)) body.append(this.#part(part, numbered));
    this.#keys = keys;
  }

  #part({ text, citations, unsupported }, numbered) {
    const { turn } = this;
    const cited = citations.map((index) => turn.citations[index]);
    const found = [...new Set(cited.map((each) => numbered.get(sourceKey(each))))];
    const language = turn.mode === 'quote' ? cited[0]?.language : turn.language;
    const words = h('span', { lang: language || null }, readable(text));
    if (found.length) {
      words.className = 'answer-cited';
      words.addEventListener('click', () => getSelection().isCollapsed && words.parentElement.querySelector('.ref').click());
    }
    if (unsupported && text.trim()) words.className = 'unsupported';
    return h(
      'span',
      { class: 'answer-part' },
      words,
      unsupported && text.trim() && h('span', { class: 'unsupported-note' }, icon('warning'), t('ask.unsupported')),
      found.map((each) => reference(each, this.context.tip, () => this.#open(each.citation))),
    );
  }

  #open(citation) {
    const { turn, element } = this;
    const cited = sources(turn.citations).map((each) => each.citation);
    const all = turn.finish_reason === 'not_found' ? turn.nearest : cited;
    const index = all.findIndex((each) => sourceKey(each) === sourceKey(citation));
    const onShow = (at) => {
      for (const each of element.querySelectorAll('[data-number]')) {
        if (at !== null && each.dataset.number === String(at + 1)) each.setAttribute('aria-current', 'true');
        else each.removeAttribute('aria-current');
      }
    };
    open(turn.collection, all, index, onShow).catch((error) => notice(error.message, { kind: 'error' }));
  }

  #complete() {
    const { turn } = this;
    this.body.removeAttribute('aria-busy');
    if (turn.answer) this.#draw();
    else replace(this.body);
    const found = sources(turn.citations);
    const parts = [this.#problem()];
    if (turn.finish_reason === 'not_found') parts.push(this.#nearest());
    if (turn.mode === 'free' && turn.answer) parts.push(h('p', { class: 'hint' }, t('ask.mode_free_hint')));
    if (found.length) {
      const list = placeList(found, (citation) => this.#open(citation));
      parts.push(h('section', { class: 'sources' }, h('h3', {}, t('ask.sources')), list, this.#only(found)));
    }
    parts.push(this.#actions());
    replace(this.below, parts);
  }

  #problem() {
    const { state, error, finish_reason: reason } = this.turn;
    if (state === 'failed') {
      const again = button(t('ask.again'), { kind: 'primary', on: this.context.again });
      return h('div', { class: 'error-box' }, icon('warning'), h('p', {}, error), again);
    }
    if (state === 'stopped') return h('p', { class: 'ending' }, t('ask.stopped'));
    if (reason === 'stop' || reason === 'not_found') return null;
    return h('p', { class: 'ending' }, reason === 'length' ? t('ask.finish_length') : t('ask.finish_other', { reason }));
  }

  #nearest() {
    const { nearest, evidence } = this.turn;
    if (!nearest.length) return h('p', { class: 'hint' }, t('ask.nothing_near'));
    const { notFoundBelow } = this.context;
    const shares = { evidence: percent(evidence, 1), needed: percent(notFoundBelow, 1) };
    // With enough evidence it was the check of the written text that left nothing.
    const why = evidence < notFoundBelow ? t('ask.why_not', shares) : t('ask.why_unsupported');
    return h(
      'section',
      { class: 'sources' },
      h('h3', {}, t('ask.nearest')),
      h('p', { class: 'hint' }, why),
      placeList(nearest.map((citation) => ({ citation })), (citation) => this.#open(citation)),
    );
  }

  #only(found) {
    const names = [...new Set(found.map((each) => each.citation.document))];
    const offered = [...names.slice(0, MOST_ONLY).map((each) => [each]), ...(names.length > 1 ? [names] : [])];
    const chips = offered.map((each) => {
      const text = each.length > 1 ? t('ask.only_these') : t('ask.only');
      const chip = button(text, { kind: 'chip', on: () => this.context.only(each) });
      if (each.length === 1) chip.lastElementChild.append(' ', untrusted(each[0]));
      return chip;
    });
    return h('div', { class: 'row chips', role: 'group', 'aria-label': t('ask.follow_up') }, chips);
  }

  #actions() {
    const { turn } = this;
    const shared = new URL(href('ask', { q: turn.question, collection: turn.collection }), location.href);
    const markdown = () => turnMarkdown(turn, { t, dateTime });
    const copy = (text) => () =>
      navigator.clipboard.writeText(text()).then(
        () => notice(t('ask.copied')),
        () => notice(t('ask.not_copied'), { kind: 'error' }),
      );
    return h(
      'div',
      { class: 'row actions' },
      turn.answer && iconButton(t('ask.copy'), 'copy', { on: copy(markdown) }),
      iconButton(t('ask.share'), 'link', { on: copy(() => shared.href) }),
      turn.state !== 'failed' && button(t('ask.again'), { kind: 'quiet', on: this.context.again }),
      turn.state === 'done' && feedback(turn, this.context.changed),
      turn.timings && this.#timing(),
    );
  }

  /** The time of an answer, and on demand where it went. */
  #timing() {
    const panel = h('div', { id: freshId('time'), class: 'timing', hidden: true });
    const total = this.turn.timings.stages.reduce((sum, each) => sum + each.queue_s + each.compute_s, 0);
    const toggle = button(t('ask.took', { time: duration(total) }), {
      kind: 'quiet',
      'aria-expanded': 'false',
      'aria-controls': panel.id,
      on: () => {
        panel.hidden = !panel.hidden;
        toggle.setAttribute('aria-expanded', String(!panel.hidden));
        if (panel.hidden || panel.childElementCount) return;
        this.#timeline(panel).catch((error) => replace(panel, errorBox(error)));
      },
    });
    return [toggle, panel];
  }

  /** Shows the decisions about the request to those who may read them, and to others what the answer itself tells. */
  async #timeline(panel) {
    const { requestTimeline, stagesTimeline } = await import('../box/timeline.js');
    const query = { request_id: this.turn.id, limit: MOST_DECISIONS };
    const found = can('admin') ? await get('/api/v1/audit', { query }) : { events: [] };
    if (found.events.length) await requestTimeline(panel, found.events);
    else await stagesTimeline(panel, this.turn.timings);
  }
}
