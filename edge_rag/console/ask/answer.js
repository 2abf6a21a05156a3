/** One question with its answer as it arrives, and what can be done with it. */

import { get } from '../core/api.js';
import { attempt, badge, button, copied, expander, freshId, icon, iconButton, notice, spinner } from '../core/controls.js';
import { announce, h, readable, replace, untrusted } from '../core/dom.js';
import { can } from '../core/session.js';
import { dateTime, duration, t } from '../core/text.js';
import { ending, searched, turnMarkdown } from './export.js';
import { feedback } from './feedback.js';
import { parts, Sentences, sources } from './ranges.js';
import { placeList, reference } from './sources.js';

const MOST_ONLY = 3; // documents that a follow-up can be limited to with one click

/** Shows a turn; `received` is called for an event that the turn already has. */
export function answerView(turn, { tip, again, only, changed }) {
  const told = new Sentences();
  let drawn = [];
  let frame = 0;
  const heading = h('h2.ask-question', { id: freshId('question'), dir: 'auto' }, readable(turn.question));
  const body = h('div.answer-text', { dir: 'auto' });
  const below = h('div.stack.below');
  const also = h('p.hint.searched', searched(turn));
  const card = h('div.card.answer', about(), also, body, below);
  const element = h('article.turn', { 'aria-labelledby': heading.id }, heading, card);
  if (turn.state === 'asking') {
    body.ariaBusy = 'true';
    replace(body, spinner(t('ask.searching')));
  } else {
    complete();
  }

  function received(event, data) {
    // Quoted and checked text comes by whole sentences, other text by words.
    if (event === 'text') told.append(data.text, turn.mode !== 'free').forEach(announce);
    if (event !== 'passages') frame ||= requestAnimationFrame(draw);
    else if (searched(turn)) announce(replace(also, searched(turn)).textContent);
  }

  function ended() {
    cancelAnimationFrame(frame);
    told.append('', true).forEach(announce);
    complete();
    if (turn.state !== 'done') announce(ending(turn));
    else if (isFound()) announce(t('ask.complete', { count: sources(turn.citations).places.length }));
  }

  function isFound() {
    return turn.finish_reason !== 'not_found';
  }

  function about() {
    const limits = [turn.filter, ...turn.only].filter(Boolean).map((each) => [' ', untrusted(each)]);
    const limited = limits.length > 0 && h('span', t('ask.limited_to'), limits);
    const mode = badge(t(`ask.mode_${turn.mode}`), turn.mode === 'free' ? 'warn' : 'good');
    return h('p.hint.about', mode, untrusted(turn.collection), limited, h('span', dateTime(turn.at)));
  }

  /** Draws what has changed of the text: parts that are as before stay, and with them the focus. */
  function draw() {
    frame = 0;
    const found = parts(turn.answer, turn.citations, turn.unsupported);
    const keys = found.map((each) => JSON.stringify(each));
    let same = 0;
    while (same < keys.length && keys[same] === drawn[same]) same++;
    while (body.childElementCount > same) body.lastElementChild.remove();
    const { places, numbers } = sources(turn.citations);
    for (const each of found.slice(same)) body.append(part(each, places, numbers));
    drawn = keys;
  }

  function part({ text, citations, unsupported }, places, numbers) {
    const language = turn.mode === 'quote' ? turn.citations[citations[0]]?.language : turn.language;
    const cited = [...new Set(citations.map((index) => numbers[index]))];
    const references = cited.map((number) => reference(number, places[number - 1], tip, () => open(number - 1)));
    const words = h('span', { lang: language }, readable(text));
    let note = null;
    if (cited.length) {
      words.className = 'answer-cited';
      words.classList.toggle('for-context', citations.every((index) => turn.citations[index].context));
      words.addEventListener('click', () => getSelection().isCollapsed && references[0].click());
    } else if (unsupported && text.trim()) {
      words.className = 'unsupported';
      note = h('span.badge.warn.unsupported-note', t('ask.unsupported'));
    }
    return h('span.answer-part', words, note, references);
  }

  /** What is listed below the answer, and which places. */
  function listed() {
    if (!isFound()) return ['ask.nearest', turn.nearest];
    return turn.given ? ['ask.given', turn.given] : ['ask.sources', sources(turn.citations).places];
  }

  function open(index) {
    const citations = listed()[1].map((each) => ({ ...each, collection: turn.collection }));
    const onShow = (shown) => {
      for (const each of element.querySelectorAll('[data-number]')) {
        each.ariaCurrent = each.dataset.number - 1 === shown ? 'true' : null;
      }
    };
    attempt(async () => (await import('../source/pane.js')).openSource({ citations, index, onShow }));
  }

  function complete() {
    body.ariaBusy = null;
    draw();
    const failed = turn.state === 'failed' && h('div.error-box', icon('warning'), h('p', turn.error));
    const unchecked = turn.mode === 'free' && turn.answer && h('p.hint', t('ask.mode_free_hint'));
    replace(below, failed || h('p.ending', ending(turn)), unchecked, places(), actions());
  }

  function places() {
    const [title, found] = listed();
    if (!found.length) return !isFound() && h('p.hint', t('ask.nothing_near'));
    return h('section.sources', h('h3', t(title)), placeList(found, open), isFound() && onlyIn(found));
  }

  function onlyIn(places) {
    const names = [...new Set(places.map((each) => each.document))].slice(0, MOST_ONLY);
    const chip = (name) => button([t('ask.only'), ' ', untrusted(name)], { kind: 'chip', on: () => only(name) });
    return h('div.row.chips', { role: 'group', 'aria-label': t('ask.follow_up') }, names.map(chip));
  }

  function actions() {
    const copy = async () => notice(await copied(turnMarkdown(turn)));
    return h(
      'div.row.actions',
      turn.answer && iconButton(t('ask.copy'), 'copy', { on: copy }),
      button(t('ask.again'), { kind: turn.state === 'failed' ? 'primary' : 'quiet', on: again }),
      turn.state === 'done' && [feedback(turn, changed), timing()],
    );
  }

  function timing() {
    const panel = h('div.timing', { id: freshId('time'), hidden: true });
    const seconds = turn.timings.stages.reduce((sum, each) => sum + each.queue_s + each.compute_s, 0);
    const toggle = button(t('ask.took', { time: duration(seconds) }), { kind: 'quiet', 'aria-controls': panel.id });
    const show = (shown) => {
      panel.hidden = !shown;
      if (shown) attempt(() => timeline(panel));
    };
    return [expander(toggle, show), panel];
  }

  /** Shows the decisions about the request if they may be read, else what the answer tells. */
  async function timeline(panel) {
    const { requestTimeline, stagesTimeline } = await import('../box/timeline.js');
    const query = { request_id: turn.id };
    const { events } = can('admin') ? await get('/api/v1/audit', { query }) : { events: [] };
    await (events.length ? requestTimeline(panel, events) : stagesTimeline(panel, turn.timings));
  }

  return { element, received, ended };
}
