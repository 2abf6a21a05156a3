/** Conversations: kept in this browser only, by user, within bounds. */

/** Beyond them the oldest goes first; `characters` are those of the JSON. */
export const BOUNDS = { conversations: 50, answers: 200, characters: 2_000_000 };

export const TITLE_CHARACTERS = 80;

/** One entry a conversation, so that two windows do not overwrite each other's. */
const PREFIX = 'edge-rag.conversation.';

/**
 * @typedef {object} Turn A question and its answer, with what the events of the answer told.
 * @property {string[]} only Names of the documents that the question is limited to; empty for all.
 * @property {number} at Milliseconds since 1970.
 * @property {'asking'|'done'|'stopped'|'failed'} state
 * @property {object[]} citations As the box sends them, with `document_id` and `section`.
 * @property {object[]} nearest Best passages of an answer that was not found.
 * @property {''|'up'|'down'} rating
 */

export function newConversation(owner) {
  return { id: crypto.randomUUID(), owner, title: '', updated: Date.now(), turns: [], dropped: 0 };
}

/** Returns a conversation with a turn added or replaced. */
export function withTurn(conversation, turn) {
  const at = conversation.turns.findIndex((each) => each.id === turn.id);
  const turns = at < 0 ? [...conversation.turns, turn] : conversation.turns.with(at, turn);
  const title = conversation.title || [...turn.question.replace(/\s+/gu, ' ')].slice(0, TITLE_CHARACTERS).join('');
  const [kept] = bounded([{ ...conversation, title, updated: Date.now(), turns }]);
  return kept;
}

/** Returns the latest conversations within the bounds, and of the very latest at least its latest turns. */
export function bounded(conversations, { conversations: most, answers, characters } = BOUNDS) {
  const fits = (each) => each.turns.length <= answers && JSON.stringify(each).length <= characters;
  const kept = [];
  for (let each of latestFirst(conversations).slice(0, most)) {
    while (!kept.length && each.turns.length && !fits(each)) {
      each = { ...each, turns: each.turns.slice(1), dropped: each.dropped + 1 };
    }
    if (kept.length && !fits(each)) break;
    answers -= each.turns.length;
    characters -= JSON.stringify(each).length;
    kept.push(each);
  }
  return kept;
}

function latestFirst(conversations) {
  return conversations.toSorted((a, b) => b.updated - a.updated);
}

/** The conversations in this browser of one user. */
export class Store {
  constructor(owner) {
    this.owner = owner;
  }

  list() {
    return latestFirst(all().filter((each) => each.owner === this.owner));
  }

  get(id) {
    return this.list().find((each) => each.id === id);
  }

  /** Keeps a conversation in the place of the oldest ones, of any user; false if there is no room. */
  save(conversation) {
    const others = all().filter((each) => each.id !== conversation.id);
    const kept = bounded([conversation, ...others]).map((each) => each.id);
    for (const { id } of others) if (!kept.includes(id)) this.remove(id);
    try {
      localStorage.setItem(PREFIX + conversation.id, JSON.stringify(conversation));
      return true;
    } catch {
      return false;
    }
  }

  remove(id) {
    localStorage.removeItem(PREFIX + id);
  }
}

function all() {
  const keys = Object.keys(localStorage).filter((each) => each.startsWith(PREFIX));
  return keys.map((each) => JSON.parse(localStorage.getItem(each)));
}
