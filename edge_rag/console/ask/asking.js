/** One question to the box, and what becomes of the events. */

import { ApiError, events } from '../core/api.js';
import { failure } from '../core/controls.js';
import { t } from '../core/text.js';
import { carried } from './conversation.js';

const KEPT_CHARACTERS = 600; // of a passage

/** Returns a new turn, of what the composer tells or of another turn. */
export function newTurn({ question, collection, mode, filter, only, sentences }) {
  const asked = { id: crypto.randomUUID(), at: Date.now(), question, collection, mode, filter, only, sentences };
  return { ...asked, state: 'asking', answer: '', citations: [], unsupported: [], nearest: [], rating: '' };
}

/** Fills a turn event by event, each told to `on`; resolves to why it failed, if it did and was not stopped. */
export async function ask(turn, earlier, { signal, on }) {
  const { id, question, collection, mode, sentences } = turn;
  const body = { question, collection, mode, filter: limited(turn), turns: carried(earlier), stream: true };
  if (mode === 'quote') body.max_sentences = sentences || undefined;
  let passages = [];
  try {
    const options = { method: 'POST', body, headers: { 'x-request-id': id }, signal };
    for await (const { event, data } of events('/api/v1/ask', options)) {
      if (event === 'passages') passages = data.passages;
      apply(turn, passages, event, data);
      on(event, data);
    }
    // A proxy or a stopped box can end the stream as if it were complete.
    if (!turn.finish_reason) throw new ApiError(0, { message: '' });
    turn.state = 'done';
  } catch (error) {
    // A refused token ends the view before its error arrives here.
    const stopped = signal.aborted && !(error instanceof ApiError);
    turn.state = stopped ? 'stopped' : 'failed';
    if (stopped) return undefined;
    if (error.unreachable) turn.error = t(turn.answer ? 'ask.broken_off' : 'ask.no_connection');
    else turn.error = error.status === 401 ? t('ask.signed_out') : failure(error);
    return error;
  }
}

function limited({ filter, only }) {
  if (!only.length) return filter || undefined;
  const limit = `name in (${only.map((each) => JSON.stringify(each)).join(', ')})`;
  return filter ? `${limit} and (${filter})` : limit;
}

function apply(turn, passages, event, data) {
  if (event === 'passages') {
    const { question_language: language, standalone_question, did_you_mean } = data;
    Object.assign(turn, { language, standalone_question, did_you_mean });
  } else if (event === 'text') {
    turn.answer += data.text;
  } else if (event === 'citation') {
    const { document_id, context } = passages[data.passage];
    turn.citations.push({ ...data, document_id, section: data.section ?? context });
  } else if (event === 'unsupported') {
    turn.unsupported.push(data);
  } else if (event === 'finished') {
    turn.finish_reason = data.finish_reason;
    turn.timings = data.timings;
    turn.nearest = data.nearest.map((each) => ({ ...place(passages[each.passage]), ...each }));
    if (turn.mode === 'free') turn.given = passages.slice(0, data.prompt_passages).map(place);
  }
}

/** Returns where a passage is, with its beginning. */
function place({ document_id, document, page, start, end, text, context }) {
  return { document_id, document, page, start, end, section: context, text: [...text].slice(0, KEPT_CHARACTERS).join('') };
}
