/**
 * Conversations: kept in this browser only, by user, within bounds. The functions over plain values are pure; `Store`
 * keeps one entry a conversation, so that two windows do not overwrite each other's.
 */

/** Bounds of what a browser keeps; beyond them the oldest goes first. `characters` are those of the JSON. */
export const BOUNDS = { conversations: 50, answers: 200, characters: 2_000_000 };

/** Most characters of a conversation's name. */
export const TITLE_CHARACTERS = 80;

const PREFIX = 'edge-rag.conversation.';

/**
 * @typedef {object} Turn A question and its answer; texts are empty and lists without elements until they are known.
 * @property {string} id The request's id on the box.
 * @property {string[]} only Names of the documents that the question is limited to; empty for all.
 * @property {number} at Milliseconds since 1970.
 * @property {'asking'|'done'|'stopped'|'failed'} state
 * @property {object[]} citations As the box sends them, with `document_id` and `section`.
 * @property {object[]} nearest Best passages of an answer that was not found.
 * @property {string} error What went wrong, for people.
 * @property {''|'up'|'down'} rating
 */

/** Returns an empty conversation. */
export function newConversation(owner, now = Date.now()) {
  return { id: crypto.randomUUID(), owner, title: '', updated: now, turns: [], dropped: 0 };
}

/** Returns a conversation with a turn added or, by its id, replaced; it is named after its first question. */
export function withTurn(conversation, turn, now = Date.now()) {
  const at = conversation.turns.findIndex((each) => each.id === turn.id);
  const turns = at < 0 ? [...conversation.turns, turn] : conversation.turns.with(at, turn);
  const extra = Math.max(0, turns.length - BOUNDS.answers);
  const title = conversation.title || [...turn.question.trim().replace(/\s+/gu, ' ')].slice(0, TITLE_CHARACTERS).join('');
  return { ...conversation, title, updated: now, turns: turns.slice(extra), dropped: conversation.dropped + extra };
}

/**
 * Chooses what is kept: the latest conversations within the bounds. Only of the latest one the oldest turns go, if it
 * alone is over them.
 * @param {object[]} conversations
 * @param {typeof BOUNDS} [bounds]
 * @returns {object[]} The latest first.
 */
export function bounded(conversations, bounds = BOUNDS) {
  const kept = [];
  let { answers, characters } = bounds;
  for (const each of conversations.toSorted((a, b) => b.updated - a.updated).slice(0, bounds.conversations)) {
    const fitting = kept.length ? each : shortened(each, answers, characters);
    answers -= fitting.turns.length;
    characters -= size(fitting);
    if (kept.length && (answers < 0 || characters < 0)) break;
    kept.push(fitting);
  }
  return kept;
}

function shortened(conversation, answers, characters) {
  let left = characters - size({ ...conversation, turns: [] });
  let first = conversation.turns.length;
  while (first > 0 && conversation.turns.length - first < answers) {
    left -= size(conversation.turns[first - 1]) + 1;
    if (left < 0) break;
    first--;
  }
  if (first === 0) return conversation;
  return { ...conversation, turns: conversation.turns.slice(first), dropped: conversation.dropped + first };
}

function size(value) {
  return JSON.stringify(value).length;
}

/** Conversations of one user in a `Storage`, such as `localStorage`. */
export class Store {
  /**
   * @param {Storage} storage
   * @param {string} owner Name of the user as the box knows it.
   */
  constructor(storage, owner) {
    this.storage = storage;
    this.owner = owner;
  }

  /** Returns the user's conversations, the latest first. */
  list() {
    return this.#all()
      .filter((each) => each.owner === this.owner)
      .sort((a, b) => b.updated - a.updated);
  }

  /** Returns a conversation of the user by its id, or null. */
  get(id) {
    const found = this.#read(PREFIX + id);
    return found?.owner === this.owner ? found : null;
  }

  /**
   * Keeps a conversation, and drops the oldest ones, of any user, that are over the bounds.
   * @returns {boolean} Whether it is kept; the browser may have no room or allow nothing.
   */
  save(conversation) {
    try {
      const others = this.#all().filter((each) => each.id !== conversation.id);
      const kept = bounded([conversation, ...others]);
      for (const { id } of others) if (!kept.some((each) => each.id === id)) this.remove(id);
      const own = kept.find((each) => each.id === conversation.id);
      if (own) this.storage.setItem(PREFIX + own.id, JSON.stringify(own));
      return Boolean(own);
    } catch {
      return false;
    }
  }

  remove(id) {
    this.storage.removeItem(PREFIX + id);
  }

  #all() {
    const keys = Array.from({ length: this.storage.length }, (_, at) => this.storage.key(at));
    return keys
      .filter((each) => each.startsWith(PREFIX))
      .map((each) => this.#read(each))
      .filter(Boolean);
  }

  #read(key) {
    try {
      const found = JSON.parse(this.storage.getItem(key));
      return Array.isArray(found?.turns) ? found : null;
    } catch {
      return null;
    }
  }
}
