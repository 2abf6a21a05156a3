/** Conversations as Markdown with numbered references. Pure: the texts come with the call. */

import { visible } from '../core/dom.js';
import { sources, sourceKey, parts, GrowingText } from './ranges.js';

/**
 * Returns a text in which Markdown, HTML and links have no meaning. Invisible characters and those that change the
 * direction are written as their code points; lines stay lines.
 * @param {string} text
 * @returns {string}
 */
export function escaped(text) {
  return String(text)
    .split(/\r\n|[\n\r\u2028\u2029]/u)
    .map((line) =>
      visible(line.replace(/\t/g, ' ').trim())
        .replace(/[\\`*_[\]<>#|~&!$^@"]/g, '\\$&')
        .replace(/:(?=\/\/)/g, '\\:')
        .replace(/\bwww\./gi, (found) => `${found.slice(0, 3)}\\.`)
        .replace(/^([-+=]|\d+[.)])/, (mark) => `${mark.slice(0, -1)}\\${mark.at(-1)}`),
    )
    .join('\n');
}

/** Returns a text of one line, escaped. */
export function escapedLine(text) {
  return escaped(String(text).replace(/\s+/gu, ' '));
}

/**
 * Returns a turn as Markdown: the question, the answer with the numbers of its sources, and these.
 * @param {import('./conversation.js').Turn} turn
 * @param {{t: (key: string, values?: object) => string, dateTime: (ms: number) => string}} texts
 * @returns {string}
 */
export function turnMarkdown(turn, { t, dateTime }) {
  const found = sources(turn.citations);
  const lines = [`## ${escapedLine(turn.question)}`, '', answerLines(turn, found, t), ''];
  const about = [t(`ask.mode_${turn.mode}`), escapedLine(turn.collection), dateTime(turn.at)];
  lines.push(`*${about.join(' · ')}*`, '');
  if (turn.state === 'stopped') lines.push(`*${t('ask.stopped')}*`, '');
  if (turn.state === 'failed') lines.push(`*${escapedLine(turn.error)}*`, '');
  if (turn.finish_reason === 'length') lines.push(`*${t('ask.finish_length')}*`, '');
  for (const { number, citation } of found) {
    const place = placeOf(citation, t).map(escapedLine).join(', ');
    lines.push(`${number}. **${escapedLine(citation.document)}**${place ? `, ${place}` : ''}`, '');
    lines.push(...escaped(citation.text).split('\n').map((line) => `   > ${line}`), '');
  }
  return lines.join('\n');
}

/** Returns a conversation as Markdown. */
export function conversationMarkdown(conversation, texts) {
  const turns = conversation.turns.map((turn) => turnMarkdown(turn, texts));
  return [`# ${escapedLine(conversation.title)}`, '', ...turns].join('\n');
}

/** Returns where in its document a citation or a passage is: its page and its section, as far as they are known. */
export function placeOf({ page, section }, t) {
  return [page ? t('ask.page', { page }) : '', section ?? ''].filter(Boolean);
}

/** Returns a name for a file: letters, digits and hyphens of a title. */
export function fileName(title, extension) {
  const words = title.normalize('NFKC').match(/[\p{L}\p{N}]+/gu) ?? ['conversation'];
  return `${[...words.join('-')].slice(0, 60).join('')}.${extension}`;
}

function answerLines(turn, found, t) {
  const numbers = new Map(found.map(({ number, citation }) => [sourceKey(citation), number]));
  const answer = new GrowingText();
  answer.append(turn.answer);
  const written = parts(answer, turn.citations, turn.unsupported).map(({ text, citations, unsupported }) => {
    const marks = [...new Set(citations.map((index) => numbers.get(sourceKey(turn.citations[index]))))];
    const refs = marks.map((number) => `\\[${number}\\]`).join('');
    const space = text.match(/\s*$/u)[0];
    const lead = text.trim() ? text.match(/^\s*/u)[0] : '';
    const note = unsupported ? ` *(${t('ask.unsupported')})*` : '';
    return `${lead}${escaped(text.trim())}${refs && ` ${refs}`}${note}${space}`;
  });
  return written.join('').trim().replace(/\n+/g, '\\\n') || '–';
}
