/** Conversations: kept in this browser only, by user, within bounds. */

import { sources } from './ranges.js';

/** Beyond them the oldest goes first; `characters` are those of the JSON. */
export const BOUNDS = { conversations: 50, answers: 200, characters: 2_000_000 };

export const TITLE_CHARACTERS = 80;

/** The box's bounds of earlier turns; of too many, `step` are left out at a time, so that KV is reused. */
const CARRIED = { turns: 8, step: 4, sources: 32, characters: 131_072 };

/** One entry each, so that two windows do not overwrite each other's. */
const PREFIX = 'edge-rag.conversation.';

/**
 * @typedef {object} Turn A question and its answer, with what the events of the answer told.
 * @property {string[]} only Names of the documents that the question is limited to; empty for all.
 * @property {number} at Milliseconds since 1970.
 * @property {'asking'|'done'|'stopped'|'failed'} state
 * @property {object[]} citations As the box sends them, with `document_id` and `section`.
 * @property {object[]} nearest Of an answer that was not found, with what they lack.
 * @property {object[]} [given] To the model, of an unchecked answer.
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

/** Returns the latest complete turns as a question carries them, oldest first. */
export function carried(turns) {
  const done = turns.filter((each) => each.state === 'done');
  const from = Math.ceil(Math.max(0, done.length - CARRIED.turns) / CARRIED.step) * CARRIED.step;
  const kept = done.slice(from).map(({ question, answer, citations }) => {
    const cited = sources(citations).places.slice(0, CARRIED.sources);
    const source = ({ document, section, text }) => ({ document, section: [section ?? []].flat(), text });
    return { question, answer, sources: cited.map(source) };
  });
  while (kept.length && JSON.stringify(kept).length > CARRIED.characters) kept.shift();
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
