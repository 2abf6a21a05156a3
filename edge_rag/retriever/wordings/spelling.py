"""Words of a question as the collection spells them; pure.

A word that the collection does not have, nor any form of it, is replaced by the word of the collection that is most
likely meant (the noisy channel of Kernighan, Church and Gale, A Spelling Correction Program Based on a Noisy Channel
Model, COLING 1990): few edits, a frequent word, the same beginning, and one that chunks have together with the rest of
the question. The last is computed for all words at once: the agreement of a candidate is that of the best chunk with
it, among the chunks with the most of the question and of all candidates. So a question is corrected even if each of its
words is misspelled.

A collection does not have every correct word of its language. Not corrected are:

- words with a digit, abbreviations in capitals, and words of two letters or less;
- function words of the question's language;
- words that the embedder reads as one token, since its vocabulary was made of the frequent words of many languages, and
  as two if they are long, or the nearest word is two edits away, or differs in its ending alone;
- words whose nearest word does not agree with the rest of the question, unless a long word is one edit away.

Where half of a question's words are neither known to the collection nor frequent in a language, they are taken to be
misspelled: the last three do not count, and words are compared by their stem besides, since the collection may have
another form of one. Nothing is corrected of a question in another language than the collection, which lacks the
function words of that language. The corrected question is searched for beside the original, so that no correction
loses what that one finds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from math import exp, log
from typing import Final, NamedTuple, Protocol

from edge_rag.analysis.languages import ENGLISH_FUNCTION_WORDS, FUNCTION_WORDS, language_of, sure_language_of
from edge_rag.analysis.terms import Term, plain_letters, word_term, words_of
from edge_rag.retriever.wordings.follow_up_words import FOLLOW_UP_WORDS

MAX_CHARACTERS: Final = 1024
"""Longer questions, which are mostly pasted texts, are not corrected."""

MAX_CORRECTED: Final = 16
"""Most words of a question that are looked at for corrections, the first ones that the collection does not have."""

CANDIDATES: Final = 8
"""Most candidates of a word that are compared with the rest of the question."""

CONTEXT_WORDS: Final = 12
"""Most other words of a question that candidates are compared with, those of fewest chunks."""

COUNTED_CHUNKS: Final = 1024
"""Chunks with a word are counted up to this number."""

_FREQUENT_WORDS: Final = 2
"""Most context words that are in more chunks than are counted; each makes the search for the context slower."""

_LEAST_LETTERS: Final = 3
_MOST_LETTERS: Final = 40
"""Letters of the shortest and longest words that are corrected."""

_ONE_EDIT: Final = 3
"""Most letters of words that are corrected by one edit; longer ones are by two."""

_EDIT: Final = 3.0
"""How much an edit counts against a candidate, in units of the logarithm of its chunks, halved."""

_FREQUENCY: Final = 0.5
_PREFIX: Final = 0.3
"""How much each letter of a common beginning counts for a candidate."""

_AGREEMENT: Final = 5.0
"""How much counts that a candidate is in the chunk that has most of the question."""

_LEAST_AGREEMENT: Final = 0.5
"""Least agreement of a correction."""

_LONG_WORD: Final = 7
"""Letters from which on one edit is enough, since words of one language are rarely so near to each other by chance."""

_TWO_PIECES: Final = 8
"""Letters from which on a word of two pieces is a frequent one. Of such words of English, German, Russian and Turkish
four to ten times as many are two pieces as they are with a random edit; of words of six letters about as many."""

_ENDING: Final = 2
"""Letters at the end of a word that distinguish its forms."""

_LACKED_WORDS: Final = 2
_LACKED_SHARE: Final = 0.5
"""A question may be in another language if the collection lacks two and more than this share of its function words."""

_HELD_SHARE: Final = 0.5
"""A collection is in a language if it has this share of that language's function words, relative to the language of
which it has the largest. On XQuAD the relative share is at most .41 where it is not."""

_MISSPELLED_SHARE: Final = 0.5
"""Share of words that neither the collection nor the embedder has from which on a question is misspelled throughout."""

_COMMON_SHARE: Final = 0.5
"""A word in more than this share of the chunks is no candidate, unless by one edit; likewise a function word."""

_LEAST_PART: Final = 3
"""Letters of the shorter part of a word that is split."""


class Near(NamedTuple):
    """A word of the collection near to another.

    Attributes:
        edits: Letters inserted, deleted, replaced or transposed with their neighbour (optimal string alignment), where
            accents do not count.
        chunks: Chunks that have the word, at least 1.
    """

    word: str
    edits: int
    chunks: int


class Lexicon(Protocol):
    """The words of a collection."""

    @property
    def chunks(self) -> int:
        """Number of its chunks."""
        ...

    def counts(self, words: Collection[str]) -> Mapping[str, int]:
        """Returns of how many chunks those of the words are that the collection has as they are written."""
        ...

    def term_counts(self, words: Collection[str]) -> Mapping[str, int]:
        """Returns how many chunks have a word or a form of it, counted up to ``COUNTED_CHUNKS``, of each word."""
        ...

    def near(self, word: str, edits: int) -> Sequence[Near]:
        """Returns the collection's words within so many edits of a word, in any order."""
        ...

    def near_forms(self, word: str) -> Sequence[Near]:
        """Returns the collection's words whose stem is within two edits of the beginning of a word, with any ending.

        An ending counts as one edit more.
        """
        ...

    def together(self, words: Sequence[str]) -> Iterable[Collection[int]]:
        """Returns of the chunks that have most of some words which of them each has, by position in ``words``."""
        ...

    def has_phrase(self, words: Sequence[str]) -> bool:
        """Whether some words stand one after the other in a chunk."""
        ...

    def pieces(self, word: str) -> int:
        """Returns how many tokens of the embedder's vocabulary a word is, 1 or more."""
        ...


@dataclass(frozen=True, slots=True)
class _Slot:
    """A word of a question and its candidates.

    Attributes:
        gains: Weight of each candidate where a chunk has it.
        candidates: Candidates with their scores, best first; none for a word that the collection has.
    """

    gains: Mapping[str, float]
    candidates: tuple[tuple[float, Near], ...] = ()


class _Choice(NamedTuple):
    near: Near
    agreement: float


def corrected(question: str, lexicon: Lexicon, known: Collection[str] = ()) -> str | None:
    """Returns a question with its words as the collection spells them; None if nothing is misspelled."""
    words = list(words_of(question)) if len(question) <= MAX_CHARACTERS else []
    exact = lexicon.counts({word.term for word in words}) if words else {}
    missing = [word for word in words if word.term not in exact and word.term not in ENGLISH_FUNCTION_WORDS]
    language = language_of(question)
    follow_up = FOLLOW_UP_WORDS.get(language)
    frequent = FUNCTION_WORDS.get(language, frozenset()) if follow_up is None else follow_up.function
    missing = [word for word in missing if word.term not in known and word.term not in frequent]
    if not missing or _is_foreign(question, words, exact, lexicon):
        return None
    forms = lexicon.term_counts({word.term for word in words} - ENGLISH_FUNCTION_WORDS)
    unknown = [word for word in missing if not forms[word.term]]
    open_words = [word for word in missing if _is_corrigible(word, question)][:MAX_CORRECTED]
    changes = _joined(open_words, words, question, lexicon)
    for word in open_words:
        if any(start <= word.start < end for start, end in changes):
            continue
        if forms[word.term] and (same := _respelled(word.term, lexicon)):
            changes[word.start, word.end] = same
        elif parts := _split(word.term, lexicon):
            changes[word.start, word.end] = " ".join(parts)
    open_words = [word for word in open_words if not any(start <= word.start < end for start, end in changes)]
    distinctive = [
        word
        for word in words
        if 0 < forms.get(word.term, 0) <= _COMMON_SHARE * lexicon.chunks and word.term not in ENGLISH_FUNCTION_WORDS
    ]
    strange = sum(not _is_familiar(word.term, lexicon) for word in unknown)
    all_misspelled = strange >= 2 and strange >= _MISSPELLED_SHARE * (len(unknown) + len(distinctive))
    open_words = [word for word in open_words if not forms[word.term]]
    slots = {word: _slot(word.term, lexicon, all_misspelled) for word in open_words}
    for word, choice in _choices(slots, distinctive, forms, lexicon).items():
        if all_misspelled or _is_sure(word.term, choice, lexicon):
            changes[word.start, word.end] = choice.near.word
    return _replaced(question, changes) if changes else None


def allowed_edits(word: str) -> int:
    """Returns by how many edits a word is corrected at most."""
    letters = len(word)
    if not _LEAST_LETTERS <= letters <= _MOST_LETTERS:
        return 0
    return 1 if letters <= _ONE_EDIT else 2


def _is_foreign(question: str, words: Sequence[Term], exact: Mapping[str, int], lexicon: Lexicon) -> bool:
    """Whether a question is in a language that the collection is not in, by all function words of each language."""
    language, languages = language_of(question), FUNCTION_WORDS
    used = languages.get(language, frozenset()) & {word.term for word in words}
    lacked = used - exact.keys()
    is_lacking = len(lacked) >= _LACKED_WORDS and len(lacked) > _LACKED_SHARE * len(used)
    if language not in languages or not (is_lacking or sure_language_of(question) == language):
        return False
    held = lexicon.counts(frozenset().union(*languages.values())).keys()
    shares = {tag: len(frequent & held) / len(frequent) for tag, frequent in languages.items()}
    return shares[language] < _HELD_SHARE * max(shares.values())


def _is_corrigible(word: Term, question: str) -> bool:
    """Whether a word may be misspelled: not one that names something by its capitals, unless all are capitals."""
    written = question[word.start : word.end]
    before, after = question[word.start - 1 : word.start], question[word.end : word.end + 1]
    is_part = before.isdigit() or after.isdigit()
    return allowed_edits(word.term) > 0 and not is_part and (not written.isupper() or question.isupper())


def _is_sure(word: str, choice: _Choice, lexicon: Lexicon) -> bool:
    edits, agreement = choice.near.edits, choice.agreement
    if edits == 0:
        return True
    agrees = agreement >= _LEAST_AGREEMENT or (edits == 1 and len(word) >= _LONG_WORD)
    return agrees and not _is_familiar(word, lexicon, edits > 1 or _is_form(word, choice.near.word))


def _is_familiar(word: str, lexicon: Lexicon, even_short: bool = False) -> bool:
    return lexicon.pieces(word) <= (2 if even_short or len(word) >= _TWO_PIECES else 1)


def _is_form(word: str, other: str) -> bool:
    stem = plain_letters(word)[:-_ENDING]
    return len(stem) >= _LEAST_LETTERS and plain_letters(other).startswith(stem)


def _respelled(word: str, lexicon: Lexicon) -> str | None:
    """Corrects a word that the collection has other forms of: returns it with its missing accents, or with an edit
    inside, since forms of a word differ at its end."""
    term, letters = word_term(word), plain_letters(word)
    same = [
        near
        for near in lexicon.near(word, 1)
        if (letters == word if near.edits == 0 else word_term(near.word) == term)
        and plain_letters(near.word).endswith(letters[-_ENDING:])
    ]
    best = min(same, key=lambda near: (near.edits, -near.chunks, near.word), default=None)
    return None if best is None or _is_familiar(word, lexicon, best.edits > 0) else best.word


def _joined(
    unknown: Sequence[Term], words: Sequence[Term], question: str, lexicon: Lexicon
) -> dict[tuple[int, int], str]:
    """Returns words of the collection that stand in two parts with a space in between, one of them unknown."""
    places = {(word.start, word.end) for word in unknown}
    pairs = {
        (first.start, second.end): first.term + second.term
        for first, second in pairwise(words)
        if places & {(first.start, first.end), (second.start, second.end)} and question[first.end : second.start] == " "
    }
    held = lexicon.counts(set(pairs.values())) if pairs else {}
    changes: dict[tuple[int, int], str] = {}
    end = 0
    for place, word in sorted(pairs.items()):
        if word in held and place[0] >= end:
            changes[place] = word
            end = place[1]
    return changes


def _split(word: str, lexicon: Lexicon) -> tuple[str, str] | None:
    cuts = range(_LEAST_PART, len(word) - _LEAST_PART + 1)
    held = lexicon.counts({part for cut in cuts for part in (word[:cut], word[cut:])}) if cuts else {}
    pairs = [(word[:cut], word[cut:]) for cut in cuts if word[:cut] in held and word[cut:] in held]
    pairs.sort(key=lambda pair: (-min(held[part] for part in pair), pair))
    return next((pair for pair in pairs if lexicon.has_phrase(pair)), None)


def _choices(
    slots: Mapping[Term, _Slot], known: Sequence[Term], forms: Mapping[str, int], lexicon: Lexicon
) -> dict[Term, _Choice]:
    """Returns the most likely correction of each unknown word that has candidates."""
    slots = {word: slot for word, slot in slots.items() if slot.candidates}
    if not slots:
        return {}
    others = sorted({word.term for word in known}, key=lambda word: (forms[word], word))
    rare = sum(forms[word] < COUNTED_CHUNKS for word in others)
    others = others[: min(CONTEXT_WORDS, rare + _FREQUENT_WORDS)]
    context = [_Slot({word: _weight(lexicon.chunks, forms[word])}) for word in others]
    choices: dict[Term, _Choice] = {}
    for (word, slot), agreements in zip(slots.items(), _agreements([*slots.values(), *context], lexicon), strict=False):
        rated = [
            (score + _AGREEMENT * agreements[near.word], _Choice(near, agreements[near.word]))
            for score, near in slot.candidates
        ]
        choices[word] = max(rated, key=lambda each: (each[0], each[1].near.word))[1]
    return choices


def _slot(word: str, lexicon: Lexicon, by_stem: bool) -> _Slot:
    plain = plain_letters(word)
    by_stem = by_stem and not _is_familiar(word, lexicon)
    found = {near.word: near for near in lexicon.near_forms(word)} if by_stem else {}
    found |= {near.word: near for near in lexicon.near(word, allowed_edits(word))}
    scored = sorted(
        (
            (_score(plain, near), near)
            for near in found.values()
            if near.edits <= 1
            or not (near.word in ENGLISH_FUNCTION_WORDS or near.chunks > _COMMON_SHARE * lexicon.chunks)
        ),
        reverse=True,
    )[:CANDIDATES]
    gains = {near.word: _weight(lexicon.chunks, near.chunks) * exp(score - scored[0][0]) for score, near in scored}
    return _Slot(gains, tuple(scored))


def _score(plain: str, near: Near) -> float:
    pairs = zip(plain, plain_letters(near.word), strict=False)
    prefix = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return _FREQUENCY * log(near.chunks) - _EDIT * near.edits + _PREFIX * prefix


def _agreements(slots: Sequence[_Slot], lexicon: Lexicon) -> list[dict[str, float]]:
    """Returns how well each word of each slot agrees with the other slots, 0 to 1; 1 where there is nothing else."""
    words = list(dict.fromkeys(word for slot in slots for word in slot.gains))
    held = [{words[position] for position in positions} for positions in lexicon.together(words)]
    gains = [
        [max((slot.gains[word] for word in slot.gains.keys() & had), default=0.0) for slot in slots] for had in held
    ]
    agreements = []
    for index, slot in enumerate(slots):
        rest = [sum(each) - each[index] for each in gains]
        most = max(rest, default=0.0)
        best = dict.fromkeys(slot.gains, 0.0 if most > 0 else 1.0)
        for had, other in zip(held, rest, strict=True):
            for word in slot.gains.keys() & had if most > 0 else ():
                best[word] = max(best[word], other / most)
        agreements.append(best)
    return agreements


def _weight(chunks: int, having: int) -> float:
    """Returns the inverse document frequency of Robertson and Spärck Jones, at least 0."""
    return max(0.0, log((chunks + 1) / (having + 0.5)))


def _replaced(question: str, changes: Mapping[tuple[int, int], str]) -> str:
    parts, at = [], 0
    for (start, end), word in sorted(changes.items()):
        parts += [question[at:start], _in_case(question[start:end], word)]
        at = end
    return "".join((*parts, question[at:]))


def _in_case(written: str, word: str) -> str:
    if written.isupper() and len(written) > 1:
        return word.upper()
    return word[:1].upper() + word[1:] if written[:1].isupper() else word
