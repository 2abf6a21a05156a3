/** The view in which questions are asked. */

import { get } from '../core/api.js';
import { button, empty, iconButton, notice } from '../core/controls.js';
import { h, loadStyle, replace, untrusted } from '../core/dom.js';
import { href, rewrite } from '../core/router.js';
import { can, chosenCollection, collections, identity, isSignedIn } from '../core/session.js';
import { ago, t } from '../core/text.js';
import { answerView } from './answer.js';
import { ask, newTurn } from './asking.js';
import { composer } from './composer.js';
import { newConversation, Store, withTurn } from './conversation.js';
import { conversationMarkdown } from './export.js';
import { history } from './history.js';
import { sourceTip } from './sources.js';

/** Answers on the page at first, and added by a click. */
const SHOWN = 30;
const FILE_NAME_CHARACTERS = 60;
const CURRENT = 'edge-rag.conversation';
const SETTINGS = 'edge-rag.ask';

/** `#/ask/ID` is a conversation, `#/ask/new` a new one, `#/ask?q=…&collection=…` asks at once. */
export async function show(container, { parts, query, signal }) {
  const reading = [get('/api/v1/ask', { signal }), collections({ fresh: true }), loadStyle('ask/ask.css')];
  const [options, known] = await Promise.all(reading);
  const names = known.map((each) => each.name);
  const chosen = names.includes(query.collection) ? query.collection : await chosenCollection();
  const store = new Store(isSignedIn() ? identity().name : '');
  let conversation = opened(store, parts[0] ?? (query.q ? 'new' : sessionStorage.getItem(CURRENT)));
  let running = null;
  /** Answers on the page, by the id of their turn. */
  const views = new Map();

  const tip = sourceTip(signal);
  const head = h('div.row.spread.thread-head');
  const welcome = h('div');
  const earlier = h('div.earlier');
  const thread = h('div.thread.stack');
  const kept = history({ store, shown: () => conversation.id, onRename: rename, onDelete: remove });
  const onStop = () => running.abort();
  const writing = composer({ options, collections: known, settings: settings(), onAsk: askAgain, onStop });
  const column = h('div.column', head, welcome, thread, writing.element);
  replace(container, h('div.ask', kept, column), tip.element);
  signal.addEventListener('abort', () => running?.abort());
  draw(SHOWN);
  if (query.q && names.length) askAgain({ ...writing.current(), question: query.q });
  else if (matchMedia('(hover: hover)').matches && document.activeElement === document.body) writing.focus();
  return t('ask.title');

  /** Of the last question, or as chosen last. */
  function settings() {
    const last = JSON.parse(localStorage.getItem(SETTINGS) ?? '{}');
    const first = { collection: chosen, mode: options.default_mode, sentences: 0, filter: '', only: [], ...last };
    const begun = conversation.turns.at(-1) ?? first;
    return {
      ...begun,
      mode: options.modes.includes(begun.mode) ? begun.mode : options.modes[0],
      collection: names.includes(begun.collection) ? begun.collection : chosen,
    };
  }

  function draw(most) {
    views.clear();
    for (const turn of conversation.turns.slice(-most)) views.set(turn.id, viewOf(turn));
    replace(thread, earlier, [...views.values()].map((each) => each.element));
    drawAround();
  }

  function viewOf(turn) {
    return answerView(turn, {
      tip,
      again: () => askAgain(turn),
      only: (name) => writing.setOnly([name]),
      changed: () => save(turn),
    });
  }

  function drawAround() {
    const { title, turns, dropped } = conversation;
    const begun = turns.length > 0;
    const folded = turns.length - views.size;
    const showMore = { icon: 'up', on: () => draw(views.size + SHOWN) };
    if (folded) replace(earlier, button(t('ask.earlier', { count: folded }), showMore));
    else replace(earlier, dropped > 0 && h('p.hint', t('ask.dropped', { count: dropped })));
    // The name of a conversation is its first question, which stands below it at first.
    const named = turns.length > 1 || (begun && !turns[0].question.startsWith(title));
    const heading = named ? h('h1.ellipsis.conversation-title', untrusted(title)) : h('h1.sr-only', t('ask.title'));
    replace(head, heading, begun && iconButton(t('ask.download'), 'download', { on: download }));
    replace(welcome, !begun && beginning());
    writing.element.hidden = !begun && known.every((each) => each.documents === 0);
    writing.showBegun(begun);
    column.classList.toggle('begun', begun);
    kept.update();
  }

  function beginning() {
    const filled = known.filter((each) => each.documents > 0);
    if (!filled.length) {
      const add = h('a.button.primary', { href: href('documents') }, t('ask.add_documents'));
      return can('writer') ? empty(t('ask.no_documents'), add) : empty(t('ask.no_documents_reader'));
    }
    const cards = filled.map(({ name, documents, ingested_at: newest, settings: { title, description } }) => {
      const facts = [
        h('strong', untrusted(title || name)),
        description && h('span.hint', untrusted(description)),
        h('span', t('ask.documents', { count: documents })),
        newest && h('span.hint', t('ask.newest', { ago: ago(newest) })),
      ];
      const choose = () => writing.choose(name);
      return h('li', h('button.card.collection', { on: { click: choose } }, facts));
    });
    const list = h('ul.grid.collections', { 'aria-label': t('ask.collections') }, cards);
    return [h('h2.welcome-title', t('ask.welcome')), h('p.hint', t('ask.welcome_hint')), list];
  }

  /** Asks a question, or a turn's once more. */
  async function askAgain(asked) {
    if (running) return undefined;
    running = new AbortController();
    const turn = newTurn(asked);
    const earlier = conversation.turns.filter((each) => !(each.at >= asked.at)); // a new question has no time yet
    localStorage.setItem(SETTINGS, JSON.stringify({ mode: turn.mode, sentences: turn.sentences }));
    const view = add(turn);
    writing.showBusy(true);
    const error = await ask(turn, earlier, { signal: running.signal, on: view.received });
    running = null;
    writing.showBusy(false);
    if (error && writing.showError(error, turn)) return withdraw(turn);
    if (!signal.aborted) view.ended();
    return save(turn);
  }

  function add(turn) {
    conversation = withTurn(conversation, turn);
    rewrite(href('ask', conversation.id));
    const view = viewOf(turn);
    views.set(turn.id, view);
    thread.append(view.element);
    // The oldest answers leave the page; they come back by a click.
    for (const id of [...views.keys()].slice(0, -SHOWN)) takeAway(id);
    save(turn);
    drawAround();
    view.element.scrollIntoView();
    return view;
  }

  function takeAway(id) {
    views.get(id).element.remove();
    views.delete(id);
  }

  /** Takes back a question of which the box refused a field. */
  function withdraw({ id }) {
    const turns = conversation.turns.filter((each) => each.id !== id);
    conversation = { ...conversation, turns, title: turns.length ? conversation.title : '' };
    if (turns.length) store.save(conversation);
    else store.remove(conversation.id);
    takeAway(id);
    drawAround();
  }

  function save(turn) {
    conversation = withTurn(conversation, turn);
    if (!store.save(conversation)) notice(t('ask.not_kept'), { kind: 'error' });
    if (!signal.aborted) kept.update();
  }

  function rename(id, title) {
    store.save({ ...store.get(id), title });
    if (id === conversation.id) conversation = { ...conversation, title };
    drawAround();
  }

  function remove(id) {
    store.remove(id);
    if (id === conversation.id) location.hash = href('ask', 'new');
    else kept.update();
  }

  function download() {
    const name = conversation.title.replace(/[^\p{L}\p{N}]+/gu, '-').slice(0, FILE_NAME_CHARACTERS);
    const address = URL.createObjectURL(new Blob([conversationMarkdown(conversation)], { type: 'text/markdown' }));
    h('a', { href: address, download: `${name}.md` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  }
}

function opened(store, id) {
  const found = store.get(id) ?? newConversation(store.owner);
  sessionStorage.setItem(CURRENT, found.id);
  // The page was closed while one was answered.
  for (const each of found.turns) if (each.state === 'asking') each.state = 'stopped';
  return found;
}
