"""Passages to ask about: real sentences, related ones together, disturbed, and rivals that nearly answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from scripts.training.quoter.text.noise import Noise
from scripts.training.quoter.text.question import Asked, Gap, QuestionWriter
from scripts.training.quoter.text.vocabulary import WordEncoder
from scripts.training.quoter.text.words import Lexicon, core

Words = tuple[str, ...]
Paragraph = tuple[Words, ...]

_VAGUE = {
    Asked.YEAR: ("later", "early", "once", "recent years", "time"),
    Asked.SHARE: ("some", "part", "most", "little"),
    Asked.COUNT: ("many", "several", "some", "few", "various"),
    Asked.REASON: ("usual", "before", "then"),
    Asked.MANNER: ("then", "means"),
    Asked.PLACE: ("there", "places", "general"),
    Asked.NAME: ("it", "they", "others", "someone", "people"),
    Asked.THING: ("it", "that", "something", "things", "others"),
}
_TURNS = (
    *("However,", "In general,", "Often", "At first", "Today", "In this case,", "As a rule,", "Meanwhile,", "Still,"),
)
_BETWEEN = (("and",), ("while",), ("which",), ("but",), ("or",), ("as",), ())


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence of a passage.

    Attributes:
        words: It.
        tokens: Its ids, each word after a blank.
        gap: What to ask of it, where a rival was made that says the same without that.
        rival: The rival's words.
    """

    words: Words
    tokens: tuple[int, ...]
    gap: Gap | None = None
    rival: Words | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """What passages may take.

    Attributes:
        tokens: All passages together, their numbers included.
        passages: How many, at most.
        sentence_tokens: The longest sentence.
    """

    tokens: int
    passages: int
    sentence_tokens: int


class PassageWriter:
    """Writes passages from paragraphs.

    Args:
        paragraphs: What they are made of.
        lexicon: Made from the same paragraphs; finds related ones.
        questions: Chooses what a rival leaves out.
        noise: Disturbs.
        encoder: The model's vocabulary.
    """

    def __init__(
        self,
        paragraphs: Sequence[Paragraph],
        lexicon: Lexicon,
        questions: QuestionWriter,
        noise: Noise,
        encoder: WordEncoder,
    ) -> None:
        self._paragraphs = paragraphs
        self._lexicon = lexicon
        self._questions = questions
        self._noise = noise
        self._encoder = encoder

    def any(self, random: Random) -> Paragraph:
        """Returns a paragraph."""
        return random.choice(self._paragraphs)

    def write(self, room: Room, random: Random) -> list[list[Said]]:
        """Writes passages for one prompt; at least one, none empty."""
        noisy, spliced, joined = random.random() < 0.5, random.random() < 0.4, random.random() < 0.35
        rivals = random.random() < 0.5
        names = self._noise.names(random)
        seed = self.any(random)
        passages: list[list[Said]] = []
        earlier: list[Words] = []
        left = room.tokens
        for number in range(room.passages):
            share = room.tokens / room.passages * random.uniform(0.5, 1.35)
            limit = left if number == room.passages - 1 else min(left, share)
            source = seed if number == 0 else self._related(seed, random) if random.random() < 0.5 else self.any(random)
            passage: list[Said] = []
            used = 6
            for _ in range(12):
                for sentence in source:
                    disturbed = noisy and random.random() < 0.8
                    words = self._noise.disturb(sentence, names, random) if disturbed else sentence
                    if joined and random.random() < 0.4:
                        words = self._with_clause(words, random)
                    if spliced and earlier and random.random() < 0.4:
                        words = _spliced(words, random.choice(earlier), random)
                    tokens = tuple(self._encoder.words(words))
                    if len(tokens) > room.sentence_tokens or words in earlier:
                        continue
                    if used + len(tokens) > limit:
                        break
                    passage.append(Said(words, tokens))
                    earlier.append(words)
                    used += len(tokens)
                else:
                    source = self._related(source, random) if random.random() < 0.6 else self.any(random)
                    continue
                break
            if passage:
                passages.append(passage)
                left -= used
            if left < 30:
                break
        if not passages:
            return self.write(room, random)
        random.shuffle(passages)
        if rivals:
            self._add_rivals(passages, left, random)
        return passages

    def _related(self, paragraph: Paragraph, random: Random) -> Paragraph:
        words = random.choice(paragraph)
        for _ in range(4):
            places = self._lexicon.relatives(self._lexicon.stem(random.choice(words)))
            if len(places) > 1:
                return self._paragraphs[random.choice(places)]
        return self.any(random)

    def _with_clause(self, words: Words, random: Random) -> Words:
        """Goes on with a part of another sentence where this one ended."""
        tail = random.choice(self.any(random))
        ending = words[-1].rstrip(".!?") + random.choice((",", ";", ","))
        return (*words[:-1], ending, *random.choice(_BETWEEN), tail[0][0].lower() + tail[0][1:], *tail[1:])

    def _add_rivals(self, passages: list[list[Said]], left: int, random: Random) -> None:
        """Puts sentences beside some that say the same but for what is asked, each in place of another one."""
        for _ in range(random.randint(1, 3)):
            places = [(p, s) for p, passage in enumerate(passages) for s in range(len(passage))]
            if len(places) < 4:
                return
            (p, s), (q, t) = random.sample(places, 2)
            target, replaced = passages[p][s], passages[q][t]
            if target.rival is not None or replaced.rival is not None:
                continue
            gap = self._questions.gap(target.words, random)
            if gap is None or any(said.rival == replaced.words for passage in passages for said in passage):
                continue
            words = self._rival(target.words, gap, random)
            tokens = tuple(self._encoder.words(words))
            if len(tokens) - len(replaced.tokens) > left or words == target.words:
                continue
            left -= len(tokens) - len(replaced.tokens)
            passages[q][t] = Said(words, tokens)
            passages[p][s] = replace(target, gap=gap, rival=words)

    def _rival(self, words: Words, gap: Gap, random: Random) -> Words:
        ending = words[-1][-1] if gap.end == len(words) else ""
        vague = (random.choice(_VAGUE[gap.asked]) + ending).split()
        said = [*words[: gap.start], *vague, *words[gap.end :]]
        if not said[0][0].isupper():
            said[0] = said[0][0].upper() + said[0][1:]
        if random.random() < 0.5:
            said = [*random.choice(_TURNS).split(), said[0][0].lower() + said[0][1:], *said[1:]]
        if random.random() < 0.4:
            said = list(self._with_clause(tuple(said), random))
        if random.random() < 0.4 and len(said) > 8:
            del said[random.randrange(3, len(said) - 1)]
        return tuple(said)


def _spliced(words: Words, earlier: Words, random: Random) -> Words:
    """Puts a phrase of an earlier sentence into this one, so that phrases alone tell nothing."""
    if len(words) < 5 or len(earlier) < 5:
        return words
    length = random.randint(1, min(6, len(earlier) - 1))
    begin = random.randint(0, len(earlier) - 1 - length)
    at = random.randint(1, len(words) - 1)
    phrase = tuple(core(word) or word for word in earlier[begin : begin + length])
    return (*words[:at], *phrase, *words[min(len(words) - 1, at + random.randint(0, 2)) :])
