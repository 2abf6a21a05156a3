"""Completes a follow-up question from the turns before it, so that it can be searched for alone; pure.

Turns leave phrases in play: those of their questions, and names in citations. A follow-up gets the most important ones
that it lacks, in parentheses behind it. A question is a follow-up

- if it has a pronoun (``follow_up_words``) whose antecedent is not in the question itself;
- or, in any language, if its words weigh little (inverse document frequency in the collection). A question that weighs
  more than ``FULL`` and shares less than ``AGREES`` of that with the phrases in play begins a new topic, for itself and
  for later questions.

A question without content words ("why?") gets the phrases of the previous question. "What about ...?" and "no, I meant
..." are the previous question with a phrase of the same sort replaced. Earlier questions are completed first.

A phrase is a run of words between function words, or of words that weigh something where a language's function words
are unknown. Its importance is the mean weight of its terms, higher for names, for recurrence in questions, citations
and headings, and for recency. Rarity alone is misleading: the topic of a conversation is in many passages.

Constants were chosen on half of the conversations and topics in ``docs/benchmarks.md``, which reports the other half.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from edge_rag.analysis.languages import language_of
from edge_rag.analysis.terms import terms_of
from edge_rag.core.limits.request_fields import MAX_TURNS
from edge_rag.core.query import Turn
from edge_rag.retriever.wordings.follow_up_words import FOLLOW_UP_WORDS, FollowUpWords

SILENT: Final = 1.0
"""Weight of a question's own words, in weights of the rarest word in play, below which it names nothing."""

FULL: Final = 1.6
"""Such a weight from which a question without a pronoun may begin a new topic."""

WHOLE: Final = 3.0
"""Such a weight from which a question without a pronoun gets nothing, whatever its topic."""

INTERNAL: Final = 3.0
"""Such a weight of the words before a pronoun from which it stands for one of them."""

AGREES: Final = 0.3
"""Share of its weight that a question has in common with what is in play, from which it is about that."""

MAX_CARRIED: Final = 2
"""Most phrases that a question which names something gets from earlier questions."""

MAX_CITED: Final = 1
"""Most names that a question with a pronoun gets from the texts that the last answer cited."""

MAX_CARRIED_TO_SILENT: Final = 6
"""Most phrases that a question which names nothing gets from the one before it."""

MAX_CARRIED_CHARACTERS: Final = 240
"""Most characters that phrases add to a question."""

MAX_READ_CHARACTERS: Final = 1_000
"""Characters read of each question and of the cited texts of each answer; a longer follow-up needs no completion."""

_NAME: Final = 2.0
_NUMBER: Final = 0.7
_RECURS: Final = 0.5
_RECENT: Final = 0.9
"""Factors of a phrase's importance: of names, of numbers, added for each text in play that has it, for each turn."""

_SENTENCES: Final = 400
"""A longer citation names many unrelated things: only names that it has twice count."""

_REPLACED_IN: Final = 400
"""Characters of a question up to which a phrase of it is replaced; a longer one says too much to be asked again."""

_UNKNOWN: Final = 0.5
_UNKNOWN_ELSEWHERE: Final = 0.25
"""Weight of a word that the collection lacks or has everywhere, where function words are known and where not."""

_EMPTY: Final = 0.35
"""Weight below which a word separates phrases where function words are not known."""

_TOPIC_WORDS: Final = 6
_PHRASE_WORDS: Final = 5
_SOURCES: Final = 3
_WORD: Final = re.compile(r"[^\W_]+(?:[-.,/'’][^\W_]+)*")
_POSSESSIVE: Final = re.compile(r"['’]s$")
_OF: Final = frozenset(("of", "de", "del", "der", "di", "da", "do", "du", "van", "von"))
"""Words inside names."""

Weigh = Callable[[str], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class _Phrase:
    """A phrase of a text: its words, where they are, their terms and mean weight, and whether it is a name."""

    text: str
    start: int
    end: int
    terms: frozenset[str]
    weight: float
    name: bool


@dataclass(frozen=True, slots=True)
class _Own:
    """What a question says itself: the weight of its words, how much of that is in play, whether it refers to more."""

    weight: float
    in_play: float
    refers: bool


def standalone(question: str, turns: Sequence[Turn], weigh: Weigh) -> str | None:
    """Returns a question, completed from earlier turns; None if it is complete.

    Args:
        turns: Earlier turns, oldest first; the last ``MAX_TURNS`` are read.

    Returns:
        The question and up to ``MAX_CARRIED_CHARACTERS`` more, or the question before it with a part replaced.
    """
    if not turns or len(question) > MAX_READ_CHARACTERS:
        return None
    turns = [replace(turn, question=turn.question[:MAX_READ_CHARACTERS]) for turn in turns[-MAX_TURNS:]]
    texts = [text for turn in turns for text in (turn.question, _cited(turn), _above(turn))]
    weights = weigh("\n".join((question, *texts)))
    before, topic = turns[0].question, 0
    for place, turn in enumerate(turns[1:], 1):
        play = _Play(before, turns[topic:place], weights)
        alone = play.resolved(turn.question)
        if alone is None and play.ends_with(turn.question):
            topic = place
        before = alone or turn.question
    return _Play(before, turns[topic:], weights).resolved(question)


def _cited(turn: Turn) -> str:
    return "\n".join(source.text for source in turn.sources)[:MAX_READ_CHARACTERS] or turn.answer[:MAX_READ_CHARACTERS]


def _above(turn: Turn) -> str:
    texts = (text for source in turn.sources[:_SOURCES] for text in (source.document, *source.section))
    return "\n".join(dict.fromkeys(texts))[:MAX_READ_CHARACTERS]


class _Play:
    """What is in play after turns about one topic.

    Args:
        before: The last question, made to stand alone.
        turns: Turns about the topic, oldest first, at least one.
    """

    def __init__(self, before: str, turns: Sequence[Turn], weights: Mapping[str, float]) -> None:
        self._before = before
        self._questions = [turn.question for turn in turns]
        self._cited = _cited(turns[-1])
        self._weights = weights
        self._rarest = max(weights.values(), default=0.0)
        texts = (self._cited, _above(turns[-1]), *self._questions)
        self._texts = [_terms(text) for text in texts]
        self._terms = _terms(before).union(*self._texts)
        self._words: FollowUpWords | None = None

    def resolved(self, question: str) -> str | None:
        """Returns a question, completed; None if it is complete."""
        self._words = FOLLOW_UP_WORDS.get(language_of(f"{self._questions[-1]} {question}"))
        if (other := self._about_other(question)) is not None:
            return other
        own = self._own(question)
        if self._stands_alone(own):
            return None
        has = _terms(question)
        if own.weight < SILENT * self._rarest and not own.refers:
            lacking = [each for each in self._phrases(self._before) if not each.terms <= has]
            chosen = sorted(lacking, key=self._importance, reverse=True)[:MAX_CARRIED_TO_SILENT]
            chosen.sort(key=lambda phrase: phrase.start)
        else:
            chosen = self._carried(has)
        if own.refers:
            chosen += self._named(has)
        return _with(question, (each.text for each in chosen))

    def ends_with(self, question: str) -> bool:
        own = self._own(question)
        return own.in_play < AGREES * own.weight

    def _stands_alone(self, own: _Own) -> bool:
        if own.refers or own.weight < FULL * self._rarest:
            return False
        return own.weight >= WHOLE * self._rarest or own.in_play < AGREES * own.weight

    def _carried(self, has: set[str]) -> list[_Phrase]:
        """Returns the phrases of the topic's questions that matter most, of overlapping ones one."""
        found: dict[frozenset[str], tuple[float, _Phrase]] = {}
        for age, text in enumerate((self._before, *reversed(self._questions))):
            for phrase in self._phrases(text):
                value = self._importance(phrase) * _RECENT ** max(0, age - 1)
                if not phrase.terms <= has and value > found.get(phrase.terms, (0.0,))[0]:
                    found[phrase.terms] = value, phrase
        chosen: list[_Phrase] = []
        for _, phrase in sorted(found.values(), key=lambda each: each[0], reverse=True):
            apart = not any(phrase.terms <= each.terms or each.terms <= phrase.terms for each in chosen)
            if apart and len(chosen) < MAX_CARRIED:
                chosen.append(phrase)
        return chosen

    def _named(self, has: set[str]) -> list[_Phrase]:
        known = has.union(_terms(self._before), *(_terms(text) for text in self._questions))
        found = self._phrases(self._cited)
        named = [each for each in found if each.name and not each.terms & known and any(map(str.isalpha, each.text))]
        if len(self._cited) > _SENTENCES:
            named = [each for each in named if self._cited.count(each.text) > 1]
        return sorted(named, key=self._importance, reverse=True)[:MAX_CITED]

    def _importance(self, phrase: _Phrase) -> float:
        kind = 1.0
        if phrase.name:
            kind = _NAME if any(map(str.isalpha, phrase.text)) else _NUMBER
        return phrase.weight * kind * (1 + _RECURS * sum(phrase.terms <= terms for terms in self._texts))

    def _own(self, question: str) -> _Own:
        words = self._words
        unknown = (_UNKNOWN_ELSEWHERE if words is None else _UNKNOWN) * self._rarest
        matches = list(_WORD.finditer(question))
        spoken = [match[0].lower() for match in matches]
        impersonal = words is not None and any(each in " ".join(spoken) for each in words.impersonal)
        weight = in_play = 0.0
        refers = named = False
        seen: set[str] = set()
        for place, (match, word) in enumerate(zip(matches, spoken, strict=True)):
            if words is not None:
                inside = weight >= INTERNAL * self._rarest or (named and not words.capitalizes_nouns)
                pronoun = not words.pronouns.isdisjoint(re.split("[-'’]", word))
                points = word in words.pointers and 0 < place == len(matches) - 1
                refers = refers or ((pronoun or points) and not inside and not impersonal)
                if pronoun or word in words.function:
                    continue
            named = named or (place > 0 and word[0] != match[0][0])
            for term in _terms(match[0]) - seen:
                seen.add(term)
                weight += self._weights.get(term, unknown)
                in_play += self._weights.get(term, 0.0) if term in self._terms else 0.0
        return _Own(weight, in_play, refers)

    def _phrases(self, text: str) -> list[_Phrase]:
        """Returns the distinct phrases of a text, in order."""
        found: dict[frozenset[str], _Phrase] = {}
        for run, name in self._runs(text):
            start = run[0].start()
            stated = _POSSESSIVE.sub("", text[start : run[-1].end()])
            terms = frozenset(_terms(stated))
            weight = sum(self._weights.get(term, 0.0) for term in terms) / max(1, len(terms))
            if weight > 0:
                found.setdefault(terms, _Phrase(stated, start, start + len(stated), terms, weight, name))
        return list(found.values())

    def _runs(self, text: str, begins: bool = True) -> Iterator[tuple[list[re.Match[str]], bool]]:
        """Yields runs of adjacent words that say something, and whether they are names; at least one word each.

        Args:
            begins: Whether its first word begins a sentence, so that a capital letter does not make it a name.
        """
        run: list[re.Match[str]] = []
        names = False
        for match in _WORD.finditer(text):
            word = match[0]
            name = (word[0].isupper() and not begins) or any(map(str.isdigit, word))
            begins = text[match.end() : match.end() + 1] in tuple(".?!\n")
            inside = bool(run) and names and word in _OF
            empty = not inside and self._is_empty(word)
            ends = bool(run) and (
                not text[run[-1].end() : match.start()].isspace()
                or len(run) >= _PHRASE_WORDS
                or _POSSESSIVE.search(run[-1][0]) is not None
            )
            if run and (ends or empty or (name != names and not inside)):
                yield from _trimmed(run, names)
                run = []
            if not empty and (run or word not in _OF):
                names = names if inside and run else name
                run.append(match)
        yield from _trimmed(run, names)

    def _is_empty(self, word: str) -> bool:
        if self._words is not None:
            return word.lower() in self._words.function or word.lower() in self._words.pronouns
        heaviest = max((self._weights.get(term, 0.0) for term in _terms(word)), default=0.0)
        return heaviest < _EMPTY * self._rarest

    def _about_other(self, question: str) -> str | None:
        """Returns the question before about something else, if that is what a question asks for."""
        words = self._words
        if words is None:
            return None
        for openings in (words.corrections, words.topics):
            stated = _after(question, openings, apart=openings is words.corrections)
            matches = list(_WORD.finditer(stated))
            spoken = [match[0].lower() for match in matches]
            content = [match for match, word in zip(matches, spoken, strict=True) if word not in words.function]
            if not content or len(matches) > _TOPIC_WORDS:
                continue
            if spoken[0] not in words.asking and words.pronouns.isdisjoint(spoken):
                stated = stated[content[0].start() :]
                if len(self._before) <= _REPLACED_IN:
                    return self._replaced(stated)
                carried = (phrase.text for phrase in self._phrases(self._before))
                return _with(stated, carried)
        return None

    def _replaced(self, stated: str) -> str:
        """Returns the question before with a code, name or noun replaced by one of the same sort, or with it added."""
        before = self._before
        codes = [match for match in _WORD.finditer(before) if _has_digit(match[0])]
        for own in (match[0] for match in _WORD.finditer(stated) if _has_digit(match[0])):
            same = [match for match in codes if _shape(match[0]) == _shape(own)]
            if same:
                return before[: same[-1].start()] + own + before[same[-1].end() :]
        phrases = self._phrases(before)
        names = [each for each in phrases if each.name]
        new = [stated[run[0].start() : run[-1].end()] for run, name in self._runs(stated, begins=False) if name]
        if new and names:
            length = len(new[-1].split())
            old = min(names, key=lambda each: (abs(len(each.text.split()) - length), -each.start))
            return before[: old.start] + new[-1] + before[old.end :]
        head = _terms(stated.split()[-1])
        for phrase in reversed(phrases):
            for match in _WORD.finditer(before, phrase.start, phrase.end):
                if _terms(match[0]) == head:
                    return before[: phrase.start] + stated + before[match.end() :]
        return f"{before} ({stated})"


def _trimmed(run: list[re.Match[str]], names: bool) -> Iterator[tuple[list[re.Match[str]], bool]]:
    while run and run[-1][0] in _OF:
        run.pop()
    if run:
        yield run, names


def _with(question: str, phrases: Iterable[str]) -> str | None:
    """Returns a question with phrases in parentheses, as many as there is room for; None if there are none."""
    kept: list[str] = []
    room = MAX_CARRIED_CHARACTERS - len(" ()")
    for text in dict.fromkeys(phrases):
        if len(text) + len(", ") <= room:
            kept.append(text)
            room -= len(text) + len(", ")
    return f"{question} ({', '.join(kept)})" if kept else None


def _after(question: str, openings: Sequence[str], apart: bool) -> str:
    """Returns what follows the longest opening that a question begins with; empty if there is none.

    Args:
        openings: Words with spaces between them, longest first.
        apart: Whether a mark must follow an opening of one word: "no, the pump" is not "no pump".
    """
    matches = list(_WORD.finditer(question))
    spoken = [match[0].lower() for match in matches]
    for opening in openings:
        parts = opening.split()
        if spoken[: len(parts)] != parts or len(matches) == len(parts):
            continue
        mark = question[matches[len(parts) - 1].end()]
        if len(parts) > 1 or not apart or not mark.isspace():
            return question[matches[len(parts)].start() : matches[-1].end()]
    return ""


def _terms(text: str) -> set[str]:
    return {term for _, _, term in terms_of(text)}


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))


def _shape(code: str) -> str:
    return re.sub(r"\d", "9", re.sub(r"[^\W\d_]+", "a", code))
