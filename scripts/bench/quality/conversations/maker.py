"""Makes conversations from single questions: every follow-up has the question that it was made of as its resolution.

A follow-up is made of two questions about the same paragraph or article. What the second one shares with the first one,
or with the sentence that answers it, becomes a pronoun or is left out; taken are those of which at most three words of
an open class are left, since others are found as they are. Nothing is chosen by hand, and chance has a fixed seed.

    pronoun      a noun phrase of the question became a pronoun
    elsewhere    the same, and another paragraph of the article answers than the one of the question before
    left out     it was left out with its preposition
    short        nothing but the interrogative was left, of a question that the same sentence answers as the one before
    same about   "What about ...?": the question before was the same about something else
    correction   "No, I meant ...": the same
    switch       a whole question of another article; what came before must do no harm
    back         a pronoun for something in a question after such a switch

A follow-up's earlier questions are as a user types them: of three, the second one may be a follow-up too.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from edge_rag.core.text import sentence_spans
from scripts.bench.quality.answer_quality import Asked
from scripts.bench.quality.conversations.grammars import GRAMMARS, Grammar, Pronouns

KINDS: Final = ("pronoun", "elsewhere", "left out", "short", "same about", "correction", "switch", "back")
_SEED: Final = 21
_WORD: Final = re.compile(r"[^\W_]+(?:[-.,/][^\W_]+)*")
_DETERMINERS: Final = frozenset(
    """
    one any first what which many much ein eine einen einem einer welche welcher welches viele un una qué cuántos
    cuántas
    """.split()  # noqa: SIM905 - a list of words reads better as text
)
_GO_ON: Final = frozenset(["of", "and", "or", "von", "und", "oder", "des", "de", "del", "y", "o"])
"""Words after which a noun phrase goes on."""
_CONNECTORS: Final = frozenset(["of", "de", "von", "van", "der", "del", "la", "&", "und", "and", "y"])
_STEM_LETTERS: Final = 6
_LONGEST_PHRASE: Final = 5
_LONGEST_NOUN_PHRASE: Final = 3
_BEFORE_SUBJECT: Final = 2
_LEAST_OF_HIM: Final = 2
_LEAST_SHARED: Final = 2
_COUNTING: Final = (
    *("how many", "how much", "in what year", "what year"),
    *("wie viele", "wie viel", "cuántos", "cuántas", "cuánto"),
)
_CODE: Final = re.compile(r"([A-Z]+[- ]?)(\d+)")
_LEAST_WORDS: Final = 2
_MOST_OPEN_WORDS_LEFT: Final = 3
_MOST_WORDS_LEFT: Final = 6
"""In a language without a grammar, which does not tell open classes of words."""
_YEAR: Final = re.compile(r"1\d{3}|20\d{2}")


@dataclass(frozen=True, slots=True)
class Conversation:
    """A follow-up, with what was asked before.

    Attributes:
        language: ISO 639-1 code.
        kind: One of ``KINDS``.
        article: 0-based position of the article; chance is held out by its parity.
        before: The earlier questions, oldest first.
        raw: The follow-up as asked.
        resolved: The question it was made of, which stands alone.
        document: Document that answers it.
        answers: Texts that the document may answer with.
    """

    language: str
    kind: str
    article: int
    before: tuple[str, ...]
    raw: str
    resolved: str
    document: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Phrase:
    """A noun phrase of a question.

    Attributes:
        start: First character.
        end: One past the last one.
        article: Article that it begins with, in lower case; empty if it has none.
        name: Whether it is a name, a number or a code.
        whole: Whether nothing before or after it belongs to the same noun phrase.
    """

    start: int
    end: int
    article: str
    name: bool
    whole: bool = True


def make(
    language: str,
    questions: Sequence[Asked],
    documents: Mapping[str, str],
    most: Mapping[str, int],
    together: bool = False,
) -> list[Conversation]:
    """Returns the conversations of a language, at most so many of each kind, evenly over the articles.

    A language without a grammar gets the kinds that need none: ``left out`` and ``switch``.

    Args:
        language: ISO 639-1 code.
        questions: All questions, in order of the articles.
        documents: Text of each document by name.
        most: Most conversations of each kind; a kind that is missing is not made.
        together: Whether the articles are about one thing, so that questions of two may follow each other.
    """
    chance = random.Random(f"{_SEED} {language}")
    maker = _Maker(language, questions, documents, GRAMMARS.get(language), chance, together)
    made: list[Conversation] = []
    for kind in KINDS:
        found = list(dict.fromkeys(maker.of_kind(kind)))
        chance.shuffle(found)
        made += sorted(_spread(found, most.get(kind, 0)), key=lambda each: each.article)
    return made


def _spread(found: Sequence[Conversation], most: int) -> list[Conversation]:
    """Returns up to ``most``, taking one of each article in turn."""
    by_article: dict[int, list[Conversation]] = {}
    for each in found:
        by_article.setdefault(each.article, []).append(each)
    turns = [each for round_ in range(len(found)) for left in by_article.values() for each in left[round_ : round_ + 1]]
    return turns[:most]


class _Maker:
    def __init__(
        self,
        language: str,
        questions: Sequence[Asked],
        documents: Mapping[str, str],
        grammar: Grammar | None,
        chance: random.Random,
        together: bool,
    ) -> None:
        self._language = language
        self._questions = [each for each in questions if each.text.strip()]
        self._documents = documents
        self._grammar = grammar
        self._chance = chance
        self._together = together
        self._closed: frozenset[str] = frozenset()
        if grammar is not None:
            self._closed = (
                grammar.function_words | grammar.prepositions | grammar.subject_after | frozenset(grammar.articles)
            )

    def of_kind(self, kind: str) -> Iterator[Conversation]:
        if kind == "switch":
            yield from self._switches()
        elif kind == "left out":
            yield from self._of_pairs(kind)
        elif self._grammar is not None:
            yield from {
                "pronoun": lambda: self._of_pairs("pronoun"),
                "elsewhere": lambda: self._of_pairs("elsewhere"),
                "short": self._short,
                "same about": lambda: self._other("same about"),
                "correction": lambda: self._other("correction"),
                "back": self._back,
            }[kind]()

    def _conversation(self, kind: str, before: Sequence[str], raw: str, asked: Asked) -> Conversation:
        return Conversation(
            self._language,
            kind,
            asked.article,
            tuple(before),
            raw,
            asked.text.strip(),
            asked.document,
            asked.answers,
        )

    def _pairs(self, elsewhere: bool = False) -> Iterator[tuple[Asked, Asked]]:
        """Yields pairs of questions of one paragraph, or of two of the same article."""
        for asked in self._questions:
            for first in self._questions:
                apart = first.document != asked.document
                near = self._together or first.article == asked.article
                if near and apart == elsewhere and first.text != asked.text:
                    yield first, asked

    def _of_pairs(self, kind: str) -> Iterator[Conversation]:
        for first, asked in self._pairs(kind == "elsewhere"):
            raw = self._shortened(kind, first, asked)
            if raw is None:
                continue
            yield self._conversation(kind, (first.text.strip(),), raw, asked)
            # Three turns: a question between them that was itself shortened, of the same paragraph.
            between = [each for each in self._questions if each.document == asked.document]
            between = [each for each in between if each.text not in (first.text, asked.text)]
            self._chance.shuffle(between)
            for each in between:
                second = self._shortened(kind, first, each)
                if second is not None:
                    yield self._conversation(kind, (first.text.strip(), second), raw, asked)
                    break

    def _short(self) -> Iterator[Conversation]:
        assert self._grammar is not None
        for first, asked in self._pairs():
            same_sentence = self._answering(first) == self._answering(asked)
            if not same_sentence or len(self._open(first.text) & self._open(asked.text)) < _LEAST_SHARED:
                continue
            opening = self._opening(asked.text)
            if opening and opening != self._opening(first.text):
                raw = self._chance.choice(self._grammar.asking[opening])
                yield self._conversation("short", (first.text.strip(),), raw, asked)

    def _opening(self, question: str) -> str:
        assert self._grammar is not None
        begins = question.strip().lstrip("¿").lower()
        fitting = [opening for opening in self._grammar.asking if re.match(rf"{opening}\b", begins)]
        opening = max(fitting, key=len, default="")
        follows = _WORD.search(begins, len(opening))
        whole = opening in _COUNTING or (follows is not None and follows[0] in self._closed)
        return opening if whole or not self._grammar.subject_after else ""

    def _open(self, question: str) -> set[str]:
        """Returns the stems of the words that are not of a closed class."""
        return {match[0].lower()[:_STEM_LETTERS] for match in _WORD.finditer(question) if self._is_open(match[0])}

    def _is_open(self, word: str) -> bool:
        return word.lower() not in self._closed

    def _other(self, kind: str) -> Iterator[Conversation]:
        """Yields questions that were first asked about something else of the same sort in the same article."""
        assert self._grammar is not None
        articles = self._grammar.articles
        templates = self._grammar.topics if kind == "same about" else self._grammar.corrections
        for asked in self._questions:
            near = [each for each in self._questions if each.article == asked.article and each.text != asked.text]
            for phrase in self._names(asked.text):
                stated = asked.text[phrase.start : phrase.end]
                with_article = self._before(asked.text, phrase.start)[0] in articles
                others = [
                    each.text[other.start : other.end]
                    for each in near
                    for other in self._names(each.text)
                    if _sort_of(each.text[other.start : other.end]) == _sort_of(stated)
                    and (self._before(each.text, other.start)[0] in articles) == with_article
                    and not set(_stems(each.text[other.start : other.end])) & set(_stems(stated))
                ] or self._like(stated, asked.document)
                if not others:
                    continue
                first = asked.text[: phrase.start] + self._chance.choice(others) + asked.text[phrase.end :]
                whole = asked.text[slice(*self._whole(asked.text, phrase)[:2])]
                raw = self._chance.choice(templates).format(whole)
                yield self._conversation(kind, (first.strip(),), raw, asked)

    def _like(self, code: str, document: str) -> list[str]:
        """Returns the other codes of a document that are written as one is: letters, then as many digits."""
        shape = _CODE.fullmatch(code)
        if shape is None:
            return []
        others = re.findall(rf"\b{shape[1]}\d{{{len(shape[2])}}}\b", self._documents[document])
        return sorted({each for each in others if each != code})

    def _names(self, question: str) -> list[_Phrase]:
        return [each for each in self._phrases(question) if each.name]

    def _switches(self) -> Iterator[Conversation]:
        for asked in self._questions:
            others = [each for each in self._questions if each.article != asked.article]
            first = self._chance.choice(others)
            before = [first.text.strip()]
            if self._chance.random() < 0.5:  # half of them have two turns about the other article
                more = [each for each in others if each.article == first.article and each.text != first.text]
                before += [self._chance.choice(more).text.strip()] if more else []
            yield self._conversation("switch", before, asked.text.strip(), asked)

    def _back(self) -> Iterator[Conversation]:
        for first, asked in self._pairs():
            raw = self._shortened("pronoun", first, asked)
            if raw is not None:
                other = self._chance.choice([each for each in self._questions if each.article != asked.article])
                yield self._conversation("back", (other.text.strip(), first.text.strip()), raw, asked)

    def _answering(self, asked: Asked) -> str:
        """Returns the sentence that answers a question: of those with the answer the one with most of its words."""
        text = self._documents[asked.document]
        sentences = [text[start:end] for start, end in sentence_spans(text)]
        holding = [each for each in sentences if any(answer in each for answer in asked.answers)]
        words = set(_stems(asked.text))
        return max(holding, key=lambda each: len(words & set(_stems(each))), default="")

    def _shortened(self, kind: str, first: Asked, asked: Asked) -> str | None:
        """Returns a question without the longest phrase it shares with an earlier one or its answer; None if none."""
        known = set(_stems(f"{first.text} {self._answering(first)}"))
        text = asked.text.strip()
        shared = [
            each
            for each in self._phrases(text)
            if each.whole and (stems := _stems(text[each.start : each.end])) and known.issuperset(stems)
        ]
        for phrase in sorted(shared, key=lambda each: (each.name, each.end - each.start), reverse=True):
            if kind == "left out":
                raw = self._without(text, phrase)
            else:
                raw = self._with_pronoun(text, phrase, self._documents[asked.document])
            if raw is not None and raw != text and len(_stems(raw)) >= _LEAST_WORDS and self._depends(raw):
                return raw
        return None

    def _depends(self, raw: str) -> bool:
        """Whether so little is left of a question that it needs what was stated before."""
        if self._grammar is None:
            return len(_stems(raw)) <= _MOST_WORDS_LEFT
        return len(self._open(raw)) <= _MOST_OPEN_WORDS_LEFT

    def _phrases(self, question: str) -> list[_Phrase]:
        """Returns the names of a question, and its definite noun phrases."""
        words = list(_WORD.finditer(question))
        grammar = self._grammar
        closed = self._closed
        found: list[_Phrase] = []
        place = 1
        while place < len(words):
            end = place
            while end < len(words) and end - place < _LONGEST_PHRASE and _is_name(words[end][0], closed):
                end += 1
                inside = words[end][0].lower() if end + 1 < len(words) else ""
                if inside in _CONNECTORS and _is_name(words[end + 1][0], closed):
                    end += 1
            if end > place and _joined(question, words[place:end]):
                span = words[place].start(), words[end - 1].end()
                whole = self._is_whole(question, words, place, end)
                if whole or _CODE.fullmatch(question[slice(*span)]):
                    found.append(_Phrase(*span, article="", name=True, whole=whole))
                place = end
                continue
            if grammar is not None and words[place][0].lower() in grammar.articles:
                end = place + 1
                while end < len(words) and words[end][0].lower() not in closed and end - place <= _LONGEST_NOUN_PHRASE:
                    end += 1
                follows = words[end][0].lower() if end < len(words) else ""
                if (
                    (not follows or follows in closed)
                    and follows not in _GO_ON
                    and end > place + 1
                    and _joined(question, words[place:end])
                ):
                    found.append(_Phrase(words[place].start(), words[end - 1].end(), words[place][0].lower(), False))
            place += 1
        return found

    def _is_whole(self, question: str, words: Sequence[re.Match[str]], place: int, end: int) -> bool:
        """Whether a name is a noun phrase, not a part of one: nothing before or after it belongs to it."""
        grammar = self._grammar
        if grammar is None:
            return True
        before = place - 1 if words[place - 1][0].lower() not in grammar.articles else place - 2
        previous = words[before][0].lower() if before >= 0 else ""
        follows = words[end][0] if end < len(words) and _joined(question, words[end - 1 : end + 1]) else ""
        if previous in _DETERMINERS or follows.lower() in _GO_ON or follows[:1].isupper():
            return False
        after = question[words[end - 1].end() :].lstrip(" ")[:1]
        return end == len(words) or not after.isalnum() or not self._is_open(words[end][0])

    def _before(self, text: str, at: int) -> tuple[str, int]:
        """Returns the word before a character, in lower case, and where it begins."""
        words = list(_WORD.finditer(text, 0, at))
        return (words[-1][0].lower(), words[-1].start()) if words else ("", at)

    def _without(self, text: str, phrase: _Phrase) -> str | None:
        """Returns a question without a phrase and the preposition before it."""
        start, end, article = self._whole(text, phrase)
        if text[end : end + 2] in ("'s", "’s"):
            return _clean(text[:start] + "the" + text[end + 2 :])
        if self._grammar is None:
            return _clean(text[: phrase.start] + text[phrase.end :])
        before, at = self._before(text, start)
        follows = _WORD.search(text, end)
        if before in self._grammar.prepositions:
            subject = follows is not None and follows[0].lower() in self._grammar.subject_after
            return None if subject else _clean(text[:at] + text[end:])
        if self._grammar.it.subject or article:
            return None
        return _clean(text[:start] + text[end:])

    def _whole(self, text: str, phrase: _Phrase) -> tuple[int, int, str]:
        """Returns the phrase with the article before it."""
        if phrase.article or self._grammar is None:
            return phrase.start, phrase.end, phrase.article
        before, at = self._before(text, phrase.start)
        if before in self._grammar.articles:
            return at, phrase.end, before
        return phrase.start, phrase.end, ""

    def _with_pronoun(self, text: str, phrase: _Phrase, paragraph: str) -> str | None:
        """Returns a question with a pronoun for a phrase."""
        assert self._grammar is not None
        start, end, article = self._whole(text, phrase)
        stated = text[phrase.start : phrase.end]
        pronouns = self._pronouns(stated, article, phrase.name, f"{paragraph} {text} {text}")
        before, at = self._before(text, start)
        if text[end : end + 2] in ("'s", "’s"):
            return _clean(f"{text[:start]}{pronouns.possessive}{text[end + 2 :]}")
        if phrase.name and not article and before in self._grammar.places and not _YEAR.fullmatch(stated):
            return _clean(f"{text[:at]}{self._grammar.there}{text[end:]}")
        if _YEAR.fullmatch(stated):
            return None
        prepared = self._grammar.contracted.get(before)
        if prepared is not None:
            return _clean(f"{text[:at]}{prepared} {pronouns.object}{text[end:]}")
        second_word = self._grammar.verb_second and len(_WORD.findall(text[:start])) <= _BEFORE_SUBJECT
        subject = before not in self._grammar.prepositions and (
            before in self._grammar.subject_after or not self._grammar.subject_after or second_word
        )
        return _clean(f"{text[:start]}{pronouns.subject if subject else pronouns.object}{text[end:]}")

    def _pronouns(self, stated: str, article: str, name: bool, paragraph: str) -> Pronouns:
        grammar = self._grammar
        assert grammar is not None
        by_article = grammar.articles.get(article)
        if by_article is not None:
            return by_article
        last = stated.split()[-1].lower()
        single = len(stated.split()) == 1
        if grammar.they is not None and (article or not name or single) and re.search(r"[^suia]s$", last):
            return grammar.they
        if name and not article:
            words = [match[0].lower() for match in _WORD.finditer(paragraph)]
            his, hers = (sum(word in signs for word in words) for signs in (grammar.he[0], grammar.she[0]))
            if max(his, hers) >= _LEAST_OF_HIM:
                return grammar.he[1] if his >= hers else grammar.she[1]
        return grammar.it


def _is_name(word: str, closed: frozenset[str]) -> bool:
    return (word[0].isupper() or word[0].isdigit()) and word.lower() not in closed


def _joined(question: str, words: Sequence[re.Match[str]]) -> bool:
    """Whether nothing but white space is between words."""
    return all(question[one.end() : other.start()].isspace() for one, other in pairwise(words))


def _sort_of(phrase: str) -> str:
    """Returns what sort of name this is: a year, a code or number, or a name of so many words."""
    if _YEAR.fullmatch(phrase):
        return "year"
    return "number" if any(map(str.isdigit, phrase)) else "name"


def _stems(text: str) -> list[str]:
    return [match[0].lower()[:_STEM_LETTERS] for match in _WORD.finditer(text)]


def _clean(text: str) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"\s+([?.,!])", r"\1", text).replace("¿ ", "¿")
    for mark in ("", "¿"):
        if text.startswith(mark) and len(text) > len(mark):
            text = mark + text[len(mark)].upper() + text[len(mark) + 1 :] if mark or text[0] != "¿" else text
    return text
