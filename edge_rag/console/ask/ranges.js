/** Places in an answer: the box counts Unicode characters, JavaScript UTF-16 units. Pure. */

const SENTENCES = new Intl.Segmenter(undefined, { granularity: 'sentence' });

/** Returns a citation of each source, and of each citation its source's number, from 1 on. */
export function sources(citations) {
  const keys = citations.map(({ document_id: id, start, end }) => `${id} ${start} ${end}`);
  const distinct = [...new Set(keys)];
  return {
    places: distinct.map((key) => citations[keys.indexOf(key)]),
    numbers: keys.map((key) => distinct.indexOf(key) + 1),
  };
}

/** Cuts an answer where citations, told by their positions, and unsupported parts begin and end. */
export function parts(answer, citations, unsupported) {
  const characters = [...answer];
  const marks = [
    ...citations.map((each, index) => ({ from: each.answer_start, to: each.answer_end, index })),
    ...unsupported.map((each) => ({ from: each.start, to: each.end, index: -1 })),
  ];
  const ends = marks.flatMap(({ from, to }) => [from, to]).filter((each) => each < characters.length);
  const cuts = [...new Set([0, ...ends, characters.length])].sort((a, b) => a - b);
  return cuts.slice(1).map((to, at) => {
    const over = marks.filter((each) => each.from <= cuts[at] && each.to >= to).map((each) => each.index);
    return {
      text: characters.slice(cuts[at], to).join(''),
      citations: over.filter((index) => index >= 0),
      unsupported: over[0] < 0,
    };
  });
}

/** Splits a growing text into sentences. */
export class Sentences {
  #kept = '';

  /** Returns the sentences that a text completes; `ends` says that the last one is complete, too. */
  append(text, ends = false) {
    const found = [...SENTENCES.segment(this.#kept + text)].map((each) => each.segment);
    this.#kept = ends ? '' : (found.pop() ?? '');
    return found.map((each) => each.trim()).filter(Boolean);
  }
}
