/** Places in an answer: the box counts Unicode characters, JavaScript UTF-16 units. Pure. */

/** A text that grows, with the UTF-16 offset of each of its characters. */
export class GrowingText {
  #units = [];

  text = '';

  /** Appends whole characters. */
  append(more) {
    for (const character of more) {
      this.#units.push(this.text.length);
      this.text += character;
    }
  }

  /** Number of characters (code points). */
  get length() {
    return this.#units.length;
  }

  /** Returns the UTF-16 offset of a character by its position; the end of the text beyond it. */
  offset(position) {
    return position < this.#units.length ? this.#units[Math.max(0, position)] : this.text.length;
  }
}

/**
 * Gives each source a number, in the order of the answer. Citations of the same range share theirs.
 * @param {Array<object>} citations As the box sends them.
 * @returns {Array<{number: number, citation: object, index: number}>} One element a source; `index` is that of its first
 *     citation.
 */
export function sources(citations) {
  const found = new Map();
  citations.forEach((citation, index) => {
    const key = sourceKey(citation);
    if (!found.has(key)) found.set(key, { number: found.size + 1, citation, index });
  });
  return [...found.values()];
}

/** Returns the key of a citation's source: equal for equal ranges of one document. */
export function sourceKey({ document_id: id, document, start, end }) {
  return JSON.stringify([id ?? document, start, end]);
}

/**
 * Cuts an answer where citations and unsupported parts begin and end.
 * @param {GrowingText} answer
 * @param {Array<{answer_start: number, answer_end: number}>} citations In characters.
 * @param {Array<{start: number, end: number}>} unsupported In characters.
 * @returns {Array<{text: string, citations: number[], unsupported: boolean}>} The whole text in order; `citations` are
 *     positions in `citations` of those that support the part.
 */
export function parts(answer, citations, unsupported) {
  const marks = [
    ...citations.map((each, index) => ({ from: each.answer_start, to: each.answer_end, index })),
    ...unsupported.map((each) => ({ from: each.start, to: each.end, index: -1 })),
  ].filter((each) => each.from < each.to && each.from < answer.length);
  const cuts = [0, answer.length];
  for (const { from, to } of marks) cuts.push(from, Math.min(to, answer.length));
  const sorted = [...new Set(cuts)].sort((a, b) => a - b);
  const found = [];
  for (let at = 0; at + 1 < sorted.length; at++) {
    const over = marks.filter((each) => each.from <= sorted[at] && each.to >= sorted[at + 1]);
    found.push({
      text: answer.text.slice(answer.offset(sorted[at]), answer.offset(sorted[at + 1])),
      citations: over.filter((each) => each.index >= 0).map((each) => each.index),
      unsupported: over.some((each) => each.index < 0),
    });
  }
  return found;
}

/** Splits a growing text into sentences, for what must be read out as a whole. */
export class Sentences {
  #kept = '';

  /** @param {string} [language] A BCP 47 tag. */
  constructor(language) {
    this.segmenter = new Intl.Segmenter(language || undefined, { granularity: 'sentence' });
  }

  /**
   * Appends text and returns the sentences that it completed.
   * @param {string} text
   * @param {boolean} [ends] Whether it ends with a whole sentence.
   * @returns {string[]}
   */
  append(text, ends = false) {
    this.#kept += text;
    const found = [...this.segmenter.segment(this.#kept)].map((each) => each.segment);
    this.#kept = ends ? '' : (found.pop() ?? '');
    return found.map((each) => each.trim()).filter(Boolean);
  }
}
