"""Words nobody has seen: what makes a model read the passage instead of remembering the text."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from scripts.training.quoter.text.words import core

Words = tuple[str, ...]

_ONSETS = (*"bcdfghjklmnprstvwz", *("br", "ch", "cl", "dr", "fl", "gr", "kr", "pl", "pr", "sh", "st", "th", "tr"))
_RHYMES = (*"aeiou", *("ai", "ea", "ou", "an", "en", "in", "on", "ar", "er", "or", "al", "el", "um", "is"))
_LETTERS = "éèüößáñçøåśłžčğíóúêâîôëïæœðþāīūşťřěńαβγδλμπσωдежиклнрсяשبم"
_AROUND = ('"%s"', "(%s)", "“%s”", "'%s'", "%s;", "%s:", "%s,", "–%s", "%s's")


class Noise:
    """Makes up words, numbers and names, and puts them into sentences.

    Args:
        vocabulary: Words to begin from.
        pieces: Entries of the model's vocabulary.
    """

    def __init__(self, vocabulary: Sequence[str], pieces: Sequence[str]) -> None:
        self._vocabulary = vocabulary
        self._pieces = [piece for piece in pieces if piece.isalpha()]

    def word(self, random: Random) -> str:
        """Returns a made-up word, or a number."""
        kind = random.random()
        if kind < 0.25:
            made = "".join(random.choice(_ONSETS) + random.choice(_RHYMES) for _ in range(random.randint(1, 3)))
            return made.capitalize() if random.random() < 0.6 else made
        if kind < 0.45:
            return self.number(random)
        if kind < 0.6:
            return random.choice(self._vocabulary).capitalize()
        if kind < 0.85:
            return "".join(random.choice(self._pieces) for _ in range(random.randint(1, 3)))
        letters = list(random.choice(self._vocabulary))
        letters[random.randrange(len(letters))] = random.choice(_LETTERS)
        return "".join(letters)

    def number(self, random: Random) -> str:
        """Returns a year, a count, an amount, a measure or a range."""
        kind = random.randrange(8)
        if kind < 3:
            return str(random.randint(1000, 2030))
        if kind == 3:
            return str(random.randint(2, 99_999))
        if kind == 4:
            return f"{random.randint(1, 999)},{random.randint(0, 999):03d}"
        if kind == 5:
            return f"{random.randint(0, 99)}.{random.randint(0, 99)}"
        if kind == 6:
            return f"{random.randint(1, 99)}–{random.randint(1, 99)}"
        unit = random.choice(("%", "th", "km", "m", "°C", "kg", ""))
        return random.choice(("$", "£", "€", "", "")) + str(random.randint(1, 999)) + unit

    def names(self, random: Random) -> list[Words]:
        """Returns a few names of one to three words that one text can keep coming back to."""
        made = []
        for _ in range(random.randint(2, 6)):
            words = [self._name_part(random) for _ in range(random.choice((1, 1, 2, 2, 3)))]
            if len(words) > 1 and random.random() < 0.2:
                words.insert(1, random.choice(("of", "de", "the", "and", "van")))
            made.append(tuple(words))
        return made

    def _name_part(self, random: Random) -> str:
        kind = random.random()
        made = self.word(random) if kind < 0.4 else random.choice(self._vocabulary if kind < 0.9 else self._pieces)
        return made[0].upper() + made[1:]

    def disturb(self, sentence: Words, names: Sequence[Words], random: Random) -> Words:
        """Replaces some words of a sentence by made-up ones and by names; punctuation stays."""
        rate = random.choice((0.05, 0.12, 0.25)) if random.random() < 0.85 else 0.75
        name_rate = random.choice((0.0, 0.06, 0.12))
        said: list[str] = []
        for word in sentence:
            bare = core(word)
            if bare and said and names and random.random() < name_rate:
                name = random.choice(names)
                said += [*name[:-1], word.replace(bare, name[-1], 1)]
            elif bare and random.random() < rate:
                instead = self.word(random) if random.random() < 0.7 else random.choice(self._vocabulary)
                if not said:
                    instead = instead[0].upper() + instead[1:]
                elif random.random() < 0.1:
                    instead = random.choice(_AROUND) % instead
                said.append(word.replace(bare, instead, 1))
            else:
                said.append(word)
        return tuple(said)
