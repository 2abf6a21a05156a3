"""Questions about a sentence: something of it is left out and asked for, the rest is told in other words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

from scripts.training.quoter.text.wordnet import WordNet
from scripts.training.quoter.text.words import Lexicon, core, is_content

Words = tuple[str, ...]


class Asked(Enum):
    """What a question asks for; the value is how such questions begin."""

    YEAR = (
        *("When", "When did", "When was", "When were"),
        *("In what year did", "In what year was", "What year did", "In which year"),
    )
    SHARE = ("What percentage of", "What percent of", "How much of", "What proportion of")
    COUNT = ("How many", "How many", "How many", "How much", "What number of", "What is the number of")
    REASON = (
        *("Why", "Why did", "Why is", "Why does"),
        *("Why was", "For what reason", "What is the reason that", "What caused"),
    )
    MANNER = ("How", "How did", "How does", "How is", "How was", "How can", "In what way", "By what means")
    PLACE = (
        *("Where", "Where did", "Where is", "Where was"),
        *("In what country", "In which city", "What place", "Where are"),
    )
    NAME = (
        *("Who", "Who was", "Who did", "Which", "What is the name of"),
        *("Whose", "Which person", "What", "Who is", "What group"),
    )
    THING = (
        *("What", "What", "Which", "What did", "What does"),
        *("What is", "What was", "What are", "What type of", "What kind of"),
    )


_OTHER_BEGINNINGS = (
    *(
        "What is",
        "What is the",
        "What are",
        "Tell me about",
        "How do I",
        "How can I",
        "Explain",
        "Describe",
        "Is there a",
    ),
    *("Can I", "Does", "What do you know about", "Which", "What happens", "Who", "Where is", "How does"),
)
_YEAR = re.compile(r"^(?:1[0-9]|20)\d\d$")
_NUMBER_WORDS = frozenset(
    (
        *("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
        *("twenty", "thirty", "fifty", "hundred"),
    )
)
_PLACE_BEFORE = frozenset(("in", "at", "from", "near", "to"))
_REASON_BEFORE = frozenset(("because", "since", "so"))
_JOINING = ("the", "of", "in", "a", "to", "for", "and", "is", "with", "by", "on", "from", "that")
_WHAT_OF = ("What {}", "Which {}", "What {} is", "What {} did", "What type of {}", "What was the {}", "What is the {}")
_LONGEST = 16


@dataclass(frozen=True, slots=True)
class Gap:
    """What a question asks for: words ``start`` to ``end`` of its sentence."""

    start: int
    end: int
    asked: Asked


@dataclass(frozen=True, slots=True)
class Question:
    """A question.

    Attributes:
        words: As it is asked.
        meant: Stems of the sentence that its words stand for, whether they show or not.
    """

    words: Words
    meant: frozenset[str]


class QuestionWriter:
    """Makes questions.

    Args:
        lexicon: Tells telling words from common ones.
        wordnet: Other words for them.
    """

    def __init__(self, lexicon: Lexicon, wordnet: WordNet) -> None:
        self._lexicon = lexicon
        self._wordnet = wordnet

    def gap(self, sentence: Words, random: Random) -> Gap | None:
        """Chooses what to ask for: numbers and names rather than other things; None where nothing offers itself."""
        special = [gap for i in range(len(sentence)) if (gap := _special_gap(sentence, i)) is not None]
        things = [i for i, word in enumerate(sentence) if is_content(word)]
        if special and random.random() < 0.65:
            return random.choice(special)
        if not things:
            return None
        at = random.choice(things)
        length = random.choice((1, 1, 2, 2, 3, 4, 6))
        start = max(0, at - random.randint(0, length - 1))
        end = min(len(sentence), start + length)
        if end - start > len(sentence) // 2:
            start, end = at, at + 1
        return Gap(start, end, Asked.THING)

    def ask(self, sentence: Words, gap: Gap, strangers: Sequence[str], plain: bool, random: Random) -> Question | None:
        """Asks for a gap.

        Args:
            sentence: What answers it.
            gap: What is asked for.
            strangers: Words of other text, some of which may slip in.
            plain: Whether to keep to the sentence's own words.
            random: Decides.

        Returns:
            None where the sentence leaves too little to ask with.
        """
        style = random.random()
        around = [i for i in range(len(sentence)) if not gap.start <= i < gap.end and core(sentence[i])]
        if style < 0.2:
            kept = self._keywords(sentence, list(range(len(sentence))), random)
            opening: Words = ()
        elif style < 0.3:
            kept = self._keywords(sentence, list(range(len(sentence))), random)
            opening = tuple(random.choice(_OTHER_BEGINNINGS).split())
        else:
            kept = self._near(sentence, gap, around, random)
            opening = self._opening(sentence, gap, random)
        if sum(is_content(sentence[i]) for i in kept) < 2:
            kept = around[:_LONGEST]
        meant = self._lexicon.stems(sentence[i] for i in kept)
        if len(meant) < 2:
            return None
        other = 0.0 if plain else random.choice((0.0, 0.1, 0.25, 0.45))
        words = [self._reworded(core(sentence[i]), other, plain, random) for i in kept]
        if style < 0.3:
            words = _joined(words, random)
        elif not plain and len(words) > 3 and random.random() < 0.35:
            turn = random.randint(1, len(words) - 1)
            words = words[turn:] + words[:turn]
        if not plain and strangers:
            for _ in range(random.choice((0, 0, 0, 0, 1, 1, 2, 3))):
                words.insert(random.randint(0, len(words)), random.choice(strangers))
        asked = [*opening, *words]
        if random.random() < 0.1:
            asked = [word.lower() for word in asked]
        elif random.random() < 0.85:
            asked[0] = asked[0][0].upper() + asked[0][1:]
        if random.random() < (0.93 if opening else 0.4):
            asked[-1] += "?"
        return Question(tuple(asked), frozenset(meant))

    def _keywords(self, sentence: Words, among: list[int], random: Random) -> list[int]:
        """Chooses a few content words, rare ones rather than common."""
        content = [i for i in among if is_content(sentence[i])]
        weights = {i: max(0.1, self._lexicon.rarity(self._lexicon.stem(sentence[i]))) ** 2 for i in content}
        drawn = sorted(content, key=lambda i: -(random.random() ** (1 / weights[i])))[: random.randint(2, 6)]
        return drawn if random.random() < 0.4 else sorted(drawn)

    def _near(self, sentence: Words, gap: Gap, around: list[int], random: Random) -> list[int]:
        """Chooses most of the words near the gap and fewer of those far from it."""
        share = random.uniform(0.45, 0.95)
        kept = []
        for i in around:
            chance = share if is_content(sentence[i]) else 0.8 * share
            if min(abs(i - gap.start), abs(i - gap.end)) > 8:
                chance *= 0.6
            if random.random() < chance:
                kept.append(i)
        begin = random.randint(0, max(0, len(kept) - _LONGEST))
        return kept[begin : begin + _LONGEST]

    def _opening(self, sentence: Words, gap: Gap, random: Random) -> Words:
        if gap.asked in (Asked.THING, Asked.NAME, Asked.PLACE) and random.random() < 0.35:
            for i in range(gap.end - 1, gap.start - 1, -1):
                if kind := self._wordnet.kinds.get(self._wordnet.base_form(core(sentence[i]))):
                    return tuple(random.choice(_WHAT_OF).format(kind).split())
        opening = random.choice(gap.asked.value)
        following = core(sentence[gap.end]) if gap.end < len(sentence) else ""
        if gap.asked is Asked.COUNT and opening == "How many" and following:
            opening = f"{opening} {following}"
        return tuple(opening.split())

    def _reworded(self, word: str, other: float, plain: bool, random: Random) -> str:
        """Returns a word as a question might have it: base form, another word, another ending, another case."""
        if not is_content(word):
            return word
        chance = random.random()
        if chance < other:
            base = self._wordnet.base_form(word)
            if others := self._wordnet.synonyms.get(base):
                return random.choice(others)
            if kind := self._wordnet.kinds.get(base):
                return kind.split()[-1]
        if plain:
            return word
        if random.random() < 0.3 and word[0].islower():
            return self._wordnet.base_form(word)
        if random.random() < 0.08:
            return _inflected(word, random)
        return word.lower() if random.random() < 0.08 else word


def _special_gap(sentence: Words, i: int) -> Gap | None:
    """Returns the year, number, name, place, reason or manner that begins at a word, if one does."""
    word = core(sentence[i])
    before = core(sentence[i - 1]).lower() if i else ""
    if not word or i == 0:
        return None
    if _YEAR.match(word):
        return Gap(i, i + 1, Asked.YEAR)
    if word[0].isdigit() or word.lower() in _NUMBER_WORDS:
        share = "%" in sentence[i] or (i + 1 < len(sentence) and core(sentence[i + 1]) in ("percent", "per"))
        return Gap(i, i + 1, Asked.SHARE if share else Asked.COUNT)
    if word[0].isupper() and word not in ("I",) and not core(sentence[i - 1])[:1].isupper():
        end = i + 1
        while end < min(len(sentence), i + 4) and core(sentence[end])[:1].isupper() and sentence[end - 1][-1].isalnum():
            end += 1
        return Gap(i, end, Asked.PLACE if before in _PLACE_BEFORE else Asked.NAME)
    if before in _REASON_BEFORE and len(sentence) - i >= 3 and i >= 5:
        return Gap(i, min(len(sentence), i + 8), Asked.REASON)
    if before == "by" and word.endswith("ing"):
        return Gap(i, min(len(sentence), i + 4), Asked.MANNER)
    return None


def _joined(words: list[str], random: Random) -> list[str]:
    joined: list[str] = []
    for word in words:
        if joined and random.random() < 0.3:
            joined.append(random.choice(_JOINING))
        joined.append(word)
    return joined


def _inflected(word: str, random: Random) -> str:
    kind = random.randrange(3)
    if kind == 0:
        return word.removesuffix("s") if word.endswith("s") else word + "s"
    if kind == 1:
        return word.removesuffix("ed") if word.endswith("ed") else word.removesuffix("e") + "ed"
    return word.removesuffix("ing") if word.endswith("ing") else word.removesuffix("e") + "ing"
