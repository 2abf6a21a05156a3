"""Makes questions about a passage, in four ways; pure but for the random numbers it is given."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from scripts.training.reranker.corpus import TrainingText
from scripts.training.reranker.paraphrase import Paraphraser

_WORD = re.compile(r"[^\W_]+(?:['’.+-][^\W_]+)*")
_LEAST_WORDS: Final = 6
_MOST_WORDS: Final = 24
_REMOVED: Final = 0.9
_UNCHANGED: Final = 0.3


class QuestionKind(Enum):
    """How a question is made."""

    SYNOPSIS = "synopsis"
    """The line that says what the passage is about."""
    CLOZE = "cloze"
    """A sentence of the passage, which is mostly taken out of it (inverse cloze: Lee, Chang and Toutanova, 2019)."""
    ASKED = "asked"
    """A sentence of the passage with a question word for what it says (after Lewis, Denoyer and Riedel, 2019)."""
    KEYWORDS = "keywords"
    """A few rare words of the passage."""


@dataclass(frozen=True, slots=True)
class SyntheticQuestion:
    """A question and the passage that answers it.

    Attributes:
        kind: How it was made.
        text: The question.
        passage: The passage as it is to be shown.
        source: What of the passage the question was made of: another passage that has it answers it as well.
    """

    kind: QuestionKind
    text: str
    passage: str
    source: str


@dataclass(frozen=True, slots=True)
class KindShares:
    """Relative frequency of each kind, 0 or more."""

    synopsis: float = 0.25
    cloze: float = 0.2
    asked: float = 0.4
    keywords: float = 0.15


class QuestionMaker:
    """Makes questions.

    Args:
        paraphraser: Changes their words.
        term_weights: Returns the inverse document frequency of each content word of a text.
        shares: How frequent the kinds are.
    """

    def __init__(
        self, paraphraser: Paraphraser, term_weights: Callable[[str], Mapping[str, float]], shares: KindShares
    ) -> None:
        self._paraphraser = paraphraser
        self._term_weights = term_weights
        self._shares = shares

    def make(self, text: TrainingText, chance: random.Random) -> SyntheticQuestion | None:
        """Makes a question about a passage; None where the kind that was drawn cannot be made of it."""
        kinds = list(QuestionKind)
        weights = (self._shares.synopsis, self._shares.cloze, self._shares.asked, self._shares.keywords)
        match chance.choices(kinds, weights)[0]:
            case QuestionKind.SYNOPSIS:
                return self._synopsis(text, chance)
            case QuestionKind.CLOZE:
                return self._cloze(text, chance)
            case QuestionKind.ASKED:
                return self._asked(text, chance)
            case QuestionKind.KEYWORDS:
                return self._keywords(text, chance)

    def _synopsis(self, text: TrainingText, chance: random.Random) -> SyntheticQuestion | None:
        words = _WORD.findall(text.synopsis)
        if len(words) < 2:
            return None
        asked = text.synopsis if chance.random() < 0.5 else " ".join(self._paraphraser.change(words, chance))
        return SyntheticQuestion(QuestionKind.SYNOPSIS, asked, text.text, text.synopsis)

    def _cloze(self, text: TrainingText, chance: random.Random) -> SyntheticQuestion | None:
        sentences = text.sentences()
        usable = [number for number, each in enumerate(sentences) if _fits(each)]
        if len(sentences) < 2 or not usable:
            return None
        number = chance.choice(usable)
        removed = chance.random() < _REMOVED
        shown = " ".join(sentences[:number] + sentences[number + 1 :]) if removed else text.text
        words = _WORD.findall(sentences[number])
        asked = words if chance.random() < _UNCHANGED else self._paraphraser.change(words, chance)
        return SyntheticQuestion(QuestionKind.CLOZE, " ".join(asked), shown, sentences[number])

    def _asked(self, text: TrainingText, chance: random.Random) -> SyntheticQuestion | None:
        usable = [each for each in text.sentences() if _fits(each)]
        if not usable:
            return None
        sentence = chance.choice(usable)
        words = _WORD.findall(sentence)
        length = chance.randint(1, min(4, len(words) // 3))
        start = chance.randrange(len(words) - length + 1)
        answer, rest = words[start : start + length], (words[:start], words[start + length :])
        # A question is mostly about one side of what it asks for, not about the whole sentence.
        longer = max(rest, key=len)
        asked = longer if len(longer) >= 4 and chance.random() < 0.6 else [*rest[0], *rest[1]]
        if chance.random() < 0.3:
            turn = chance.randrange(len(asked))
            asked = [*asked[turn:], *asked[:turn]]
        changed = self._paraphraser.change(asked, chance)
        return SyntheticQuestion(
            QuestionKind.ASKED, f"{question_word(answer, chance)} {' '.join(changed)}?", text.text, sentence
        )

    def _keywords(self, text: TrainingText, chance: random.Random) -> SyntheticQuestion | None:
        weights = self._term_weights(text.text)
        count = chance.randint(2, 5)
        if len(weights) < 2 * count:
            return None
        # The largest of u ** (1 / w) are a draw without replacement with weights w (Efraimidis and Spirakis, 2006).
        drawn = {term: chance.random() ** (1 / max(0.1, weight**2)) for term, weight in weights.items()}
        rare = sorted(drawn, key=lambda term: -drawn[term])[:count]
        words = self._paraphraser.change(rare, chance)
        if len(words) < 2:
            return None
        return SyntheticQuestion(QuestionKind.KEYWORDS, " ".join(words), text.text, text.text)


def question_word(answer: list[str], chance: random.Random) -> str:
    """Returns what would ask for an answer, by its looks."""
    if any(character.isdigit() for word in answer for character in word):
        return chance.choice(("How many", "How much", "When", "What year", "In what version", "Which"))
    if any(word[:1].isupper() for word in answer):
        return chance.choice(("Who", "What", "Which", "Where", "Whose", "In which"))
    return chance.choice(("What", "What", "How", "Which", "Why", "What kind of", "What does", "What is"))


def _fits(sentence: str) -> bool:
    return _LEAST_WORDS <= len(_WORD.findall(sentence)) <= _MOST_WORDS
