/** The view in which questions are asked: the conversation, the composer, and earlier conversations. */

import { get } from '../core/api.js';
import { button, empty, iconButton, notice } from '../core/controls.js';
import { h, loadStyle, replace, untrusted } from '../core/dom.js';
import { href, rewrite } from '../core/router.js';
import { can, chooseCollection, chosenCollection, collections, identity, isSignedIn } from '../core/session.js';
import { ago, dateTime, t } from '../core/text.js';
import { AnswerView } from './answer.js';
import { ask, newTurn } from './asking.js';
import { composer } from './composer.js';
import { newConversation, Store, withTurn } from './conversation.js';
import { conversationMarkdown, fileName } from './export.js';
import { history } from './history.js';
import { Tip } from './sources.js';

/** Answers that the page holds at first, and how many more a click shows. */
const SHOWN = 30;
const CURRENT = 'edge-rag.conversation';
const SETTINGS = 'edge-rag.ask';

/** Shows the view. `#/ask/ID` is a conversation, `#/ask/new` a new one, `#/ask?q=…&collection=…` asks at once. */
export async function show(container, { parts, query, signal }) {
  const [options, known] = await Promise.all([
    get('/api/v1/ask', { signal }),
    collections({ fresh: true }),
    loadStyle('ask/ask.css'),
  ]);
  const named = known.some((each) => each.name === query.collection);
  const chosen = named ? query.collection : await chosenCollection();
  new AskView(container, { options, known, chosen, parts, query, signal });
  return t('ask.title');
}

class AskView {
  #running = null;
  #views = new Map();

  constructor(container, { options, known, chosen, parts, query, signal }) {
    this.options = options;
    this.known = known;
    this.signal = signal;
    this.store = new Store(localStorage, isSignedIn() ? identity().name : '');
    this.conversation = this.#opened(parts[0], query.q);
    this.tip = new Tip(signal);
    this.thread = h('div', { class: 'thread stack' });
    this.earlier = h('div', { class: 'earlier' });
    this.head = h('div', { class: 'row spread thread-head' });
    this.history = history({
      store: this.store,
      shown: () => this.conversation.id,
      onRename: (id, title) => this.#rename(id, title),
      onDelete: (id) => this.#delete(id),
    });
    const last = this.conversation.turns.at(-1);
    this.composer = composer({
      options,
      collections: known,
      settings: this.#settings(last, chosen),
      signal,
      onAsk: (asked) => this.#ask(asked),
      onStop: () => this.#running?.abort(),
      onCollection: chooseCollection,
    });
    this.welcome = h('div', { class: 'welcome' });
    this.column = h('div', { class: 'column' }, this.head, this.welcome, this.thread, this.composer.element);
    replace(container, h('div', { class: 'ask' }, this.history, this.column), this.tip.element);
    signal.addEventListener('abort', () => this.#running?.abort(), { once: true });
    this.#draw();
    if (query.q && known.length) this.#ask({ ...this.composer.settings(), question: query.q });
    else if (matchMedia('(hover: hover)').matches && document.activeElement === document.body) this.composer.focus();
  }

  #opened(id, question) {
    const wanted = id ?? (question ? 'new' : sessionStorage.getItem(CURRENT));
    const found = wanted && wanted !== 'new' ? this.store.get(wanted) : null;
    if (!found) {
      sessionStorage.removeItem(CURRENT);
      return newConversation(this.store.owner);
    }
    sessionStorage.setItem(CURRENT, found.id);
    // The page was closed while one was answered.
    for (const each of found.turns) if (each.state === 'asking') each.state = 'stopped';
    return found;
  }

  /** What the composer begins with: what the last question of the conversation had, or what was chosen last. */
  #settings(last, chosen) {
    const kept = JSON.parse(localStorage.getItem(SETTINGS) ?? '{}');
    const { mode, sentences } = { mode: this.options.default_mode, sentences: 1, ...kept };
    const begun = last ?? { collection: chosen, mode, sentences, filter: '', only: [] };
    const names = this.known.map((each) => each.name);
    return {
      ...begun,
      mode: this.options.modes.includes(begun.mode) ? begun.mode : this.options.modes[0],
      collection: names.includes(begun.collection) ? begun.collection : chosen,
    };
  }

  #draw(shown = SHOWN) {
    this.#views = new Map(this.conversation.turns.slice(-shown).map((turn) => [turn.id, this.#viewOf(turn)]));
    replace(this.thread, this.earlier, [...this.#views.values()].map((each) => each.element));
    this.#around();
  }

  #viewOf(turn) {
    return new AnswerView(turn, {
      tip: this.tip,
      notFoundBelow: this.options.not_found_below,
      again: () => this.#ask(turn),
      only: (names) => this.composer.set({ only: names }),
      changed: () => this.#save(turn),
    });
  }

  /** Shows what stands around the answers. */
  #around() {
    const { title, turns, dropped } = this.conversation;
    const begun = turns.length > 0;
    const folded = turns.length - this.#views.size;
    const showMore = { icon: 'up', on: () => this.#draw(this.#views.size + SHOWN) };
    const more = folded > 0 && button(t('ask.earlier', { count: folded }), showMore);
    const lost = !folded && dropped > 0 && h('p', { class: 'hint' }, t('ask.dropped', { count: dropped }));
    replace(this.earlier, more, lost);
    const download = iconButton(t('ask.download'), 'download', { on: () => this.#download() });
    // The name of a conversation is its first question, which stands below it at first.
    const named = turns.length > 1 || (begun && !turns[0].question.startsWith(title));
    const heading = h('h1', { class: named ? 'conversation-title' : 'sr-only' }, named ? untrusted(title) : t('ask.title'));
    replace(this.head, heading, begun && download);
    replace(this.welcome, !begun && this.#welcome());
    this.composer.element.hidden = !begun && this.known.every((each) => each.documents === 0);
    this.composer.showFollowing(begun);
    this.column.classList.toggle('begun', begun);
    this.history.update();
  }

  /** What can be asked, before the first question. */
  #welcome() {
    const filled = this.known.filter((each) => each.documents > 0);
    const add = h('a', { class: 'button primary', href: href('documents') }, t('ask.add_documents'));
    if (!filled.length) return empty(t(can('writer') ? 'ask.no_documents' : 'ask.no_documents_reader'), can('writer') && add);
    const cards = filled.map((each) => {
      const { title, description } = each.settings;
      const when = each.ingested_at && h('span', { class: 'hint' }, t('ask.newest', { ago: ago(each.ingested_at) }));
      const parts = [
        h('strong', {}, untrusted(title || each.name)),
        description && h('span', { class: 'hint' }, untrusted(description)),
        h('span', {}, t('ask.documents', { count: each.documents })),
        when,
      ];
      const choose = { click: () => this.#pick(each.name) };
      return h('li', {}, h('button', { type: 'button', class: 'card collection', on: choose }, parts));
    });
    return [
      h('h2', { class: 'welcome-title' }, t('ask.welcome')),
      h('p', { class: 'hint' }, t('ask.welcome_hint')),
      h('ul', { class: 'grid collections', 'aria-label': t('ask.collections') }, cards),
    ];
  }

  #pick(name) {
    chooseCollection(name);
    this.composer.set({ collection: name });
    this.composer.focus();
  }

  async #ask(asked) {
    if (this.#running) return;
    const turn = newTurn({ ...asked });
    const running = new AbortController();
    this.#running = running;
    localStorage.setItem(SETTINGS, JSON.stringify({ mode: turn.mode, sentences: turn.sentences }));
    const view = this.#add(turn);
    this.composer.showBusy(true);
    const error = await ask(turn, { signal: running.signal, on: (event, data) => view.received(event, data) });
    this.#running = null;
    this.composer.showBusy(false);
    if (error && this.composer.showError(error, turn)) {
      this.#withdraw(turn);
      return;
    }
    if (!this.signal.aborted) view.ended();
    this.#save(turn);
  }

  #add(turn) {
    this.conversation = withTurn(this.conversation, turn);
    sessionStorage.setItem(CURRENT, this.conversation.id);
    rewrite(href('ask', this.conversation.id));
    const view = this.#viewOf(turn);
    this.#views.set(turn.id, view);
    this.thread.append(view.element);
    // The oldest answers leave the page; they come back by a click.
    for (const [id, each] of [...this.#views].slice(0, -SHOWN)) {
      each.element.remove();
      this.#views.delete(id);
    }
    this.#save(turn);
    this.#around();
    const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
    view.element.scrollIntoView({ block: 'start', behavior: still ? 'auto' : 'smooth' });
    return view;
  }

  /** Takes back a question of which the box refused a field. */
  #withdraw(turn) {
    const turns = this.conversation.turns.filter((each) => each.id !== turn.id);
    this.conversation = { ...this.conversation, turns, title: turns.length ? this.conversation.title : '' };
    if (turns.length) this.store.save(this.conversation);
    else this.store.remove(this.conversation.id);
    this.#views.get(turn.id).element.remove();
    this.#views.delete(turn.id);
    this.#around();
  }

  #save(turn) {
    this.conversation = withTurn(this.conversation, turn);
    if (!this.store.save(this.conversation)) notice(t('ask.not_kept'), { kind: 'error' });
    if (!this.signal.aborted) this.history.update();
  }

  #rename(id, title) {
    const found = this.store.get(id);
    if (!found) return;
    this.store.save({ ...found, title });
    if (id === this.conversation.id) this.conversation = { ...this.conversation, title };
    this.#around();
  }

  #delete(id) {
    this.store.remove(id);
    if (id === this.conversation.id) location.hash = href('ask', 'new');
    else this.history.update();
  }

  #download() {
    const text = conversationMarkdown(this.conversation, { t, dateTime });
    const address = URL.createObjectURL(new Blob([text], { type: 'text/markdown' }));
    h('a', { href: address, download: fileName(this.conversation.title, 'md') }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  }
}
