/** One question to the box: what is sent, what becomes of the events, and what is said when it fails. */

import { ApiError, events } from '../core/api.js';
import { failure } from '../core/controls.js';
import { t } from '../core/text.js';
import { limited } from './filter.js';

/** Passages that are kept of an answer that was not found, and the characters that are kept of each. */
const NEAREST = { passages: 5, characters: 600 };

/**
 * Returns a turn that has not been asked yet.
 * @param {{question: string, collection: string, mode: string, filter: string, only: string[], sentences: number}} asked
 * @returns {import('./conversation.js').Turn}
 */
export function newTurn({ question, collection, mode, filter = '', only = [], sentences = 1 }) {
  return {
    id: crypto.randomUUID(),
    question,
    collection,
    mode,
    filter,
    only,
    sentences,
    at: Date.now(),
    state: 'asking',
    answer: '',
    citations: [],
    unsupported: [],
    nearest: [],
    evidence: null,
    language: '',
    finish_reason: '',
    timings: null,
    error: '',
    rating: '',
  };
}

/**
 * Asks a turn's question and fills the turn, event by event.
 * @param {import('./conversation.js').Turn} turn
 * @param {{signal: AbortSignal, on: (event: string, data: object) => void}} options `on` is called after each event.
 * @returns {Promise<Error|null>} Why it failed; null if it did not, or was stopped.
 */
export async function ask(turn, { signal, on }) {
  let passages = [];
  try {
    const headers = { 'x-request-id': turn.id };
    for await (const { event, data } of events('/api/v1/ask', { method: 'POST', body: request(turn), headers, signal })) {
      if (event === 'passages') passages = data.passages;
      apply(turn, passages, event, data);
      on(event, data);
    }
    // A proxy or a stopped box can end the stream as if it were complete.
    if (!turn.finish_reason) throw new ApiError(0, { message: '' });
    turn.state = 'done';
    return null;
  } catch (error) {
    // A refused token ends the view before its error arrives here.
    if (signal.aborted && !(error instanceof ApiError)) {
      turn.state = 'stopped';
      return null;
    }
    turn.state = 'failed';
    turn.error = explain(turn, error);
    return error;
  }
}

function request({ question, collection, mode, filter, only, sentences }) {
  const condition = limited(filter, only);
  return {
    question,
    collection,
    mode,
    stream: true,
    ...(mode === 'quote' ? { max_sentences: sentences } : {}),
    ...(condition ? { filter: condition } : {}),
  };
}

function apply(turn, passages, event, data) {
  if (event === 'passages') {
    turn.evidence = data.evidence;
    turn.language = data.question_language ?? '';
  } else if (event === 'text') {
    turn.answer += data.text;
  } else if (event === 'citation') {
    const { document_id: id, context } = passages[data.passage] ?? {};
    turn.citations.push({ ...data, document_id: id, section: context?.at(-1) ?? '' });
  } else if (event === 'unsupported') {
    turn.unsupported.push({ start: data.start, end: data.end });
  } else if (event === 'finished') {
    turn.finish_reason = data.finish_reason;
    turn.timings = data.timings;
    if (data.finish_reason === 'not_found') turn.nearest = passages.slice(0, NEAREST.passages).map(nearest);
  }
}

function nearest({ document_id, document, page, start, end, text, score, context }) {
  const short = [...text.slice(0, 2 * NEAREST.characters)].slice(0, NEAREST.characters).join('');
  return { document_id, document, page, start, end, text: short, score, section: context.at(-1) ?? '' };
}

function explain(turn, error) {
  if (error.unreachable) return t(turn.answer ? 'ask.broken_off' : 'ask.no_connection');
  if (error.status === 401) return t('ask.signed_out');
  return failure(error);
}
