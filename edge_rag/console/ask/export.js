/** Conversations as Markdown. */

import { visible } from '../core/dom.js';
import { dateTime, t } from '../core/text.js';
import { parts, sources } from './ranges.js';

export function conversationMarkdown({ title, turns }) {
  return [`# ${escapedLine(title)}`, '', ...turns.map(turnMarkdown)].join('\n');
}

/** Returns a turn as Markdown: question, answer with numbers, sources. */
export function turnMarkdown(turn) {
  const { places, numbers } = sources(turn.citations);
  const about = [t(`ask.mode_${turn.mode}`), escapedLine(turn.collection), dateTime(turn.at)].join(' · ');
  const lines = [`## ${escapedLine(turn.question)}`, '', answerLines(turn, numbers), '', `*${about}*`, ''];
  for (const said of [searched(turn), ending(turn)]) if (said) lines.push(`*${escapedLine(said)}*`, '');
  places.forEach((citation, at) => {
    const place = placeOf(citation).map((each) => `, ${escapedLine(each)}`).join('');
    lines.push(`${at + 1}. **${escapedLine(citation.document)}**${place}`, '');
    lines.push(...escaped(citation.text).split('\n').map((line) => `   > ${line}`), '');
  });
  return lines.join('\n');
}

/** Tells what was searched for besides the question as asked. */
export function searched({ question, standalone_question: standalone, did_you_mean: meant }) {
  if (meant) return t('ask.did_you_mean', { question: visible(meant) });
  return (standalone ?? question) !== question ? t('ask.searched_for', { question: visible(standalone) }) : '';
}

/** Returns why a turn has no whole answer, if so. */
export function ending({ state, error, finish_reason: reason }) {
  if (state === 'failed') return error;
  if (state === 'stopped') return t('ask.stopped');
  return reason === 'length' ? t('ask.finish_length') : '';
}

/** Returns page, line and headings, as far as they are known. */
export function placeOf({ page, line, section = [] }) {
  return [page && t('ask.page', { page }), line && t('ask.line', { line }), [section].flat().join(' › ')].filter(Boolean);
}

function answerLines(turn, numbers) {
  const written = parts(turn.answer, turn.citations, turn.unsupported).map(({ text, citations, unsupported }) => {
    const marks = new Set(citations.map((index) => `\\[${numbers[index]}\\]`));
    const [, lead, words, space] = text.match(/^(\s*)(.*?)(\s*)$/su);
    const note = unsupported ? ` *(${t('ask.unsupported')})*` : '';
    return `${lead}${escaped(words)}${marks.size ? ' ' : ''}${[...marks].join('')}${note}${space}`;
  });
  return written.join('').trim().replace(/\n+/g, '\\\n') || '–';
}

/** Returns lines in which Markdown, HTML and links have no meaning and nothing is invisible. */
function escaped(text) {
  const line = (each) =>
    visible(each.replace(/\t/g, ' ').trim())
      .replace(/[\\`*_[\]<>#|~&!$^@"]|:(?=\/\/)|(?<=\bwww)\./gi, '\\$&')
      .replace(/^(\d*)([-+=.)])/, '$1\\$2');
  return text.split(/\r\n|[\n\r\u2028\u2029]/u).map(line).join('\n');
}

function escapedLine(text) {
  return escaped(text.replace(/\s+/gu, ' '));
}
