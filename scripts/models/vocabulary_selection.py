"""Which pieces of a Unigram vocabulary stay, so that texts of chosen languages need hardly more tokens.

A text is still written without a piece that is left out, with shorter ones. What that costs is how often a language
uses the piece, times the tokens that it takes more; the pieces stay that cost most, summed over the languages. How
often a language uses a piece is estimated from two sources, neither of them a text that anything is measured on:

- The vocabulary's own scores. exp(score) is a piece's share of the tokens of the model's training text, which has upper
  case, numbers and names, but is of all languages at once. EM divides it among the languages, as a mixture of their
  words (Dempster, Laird and Rubin, 1977).
- Lists of frequent words: a language's own, but lower-case and without rare words.

The geometric mean of both is taken. Languages whose script no other listed language uses, and those whose words are not
written apart, need no list: their shares are those of the script's pieces.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Shares = NDArray[np.float64]
"""Share of each piece of the vocabulary in the tokens of a text; they add up to 1."""

WEIGHTS = {
    **{"en": 2.52, "de": 3.43, "es": 1.85, "fr": 1.44, "pt": 1.44, "it": 1.22, "nl": 1.14, "pl": 1.64, "ro": 0.88},
    **{"tr": 1.94, "vi": 0.45, "ru": 3.05, "el": 1.0, "ar": 1.52, "hi": 1.64, "th": 0.77, "zh": 3.7, "ja": 1.36},
    **{"ko": 1.24, "uk": 0.97, "cs": 0.72, "sk": 0.75, "bg": 0.95, "da": 0.38, "sv": 0.39, "nb": 0.49, "fi": 0.85},
    **{"hu": 1.32, "id": 0.76, "he": 0.76, "fa": 0.71},
}
"""How much a language's cost counts. Chosen so that the translated messages of a Linux distribution's programs become
longer by about as much in each of the first 19 languages, and by twice as much in the others."""
OTHERS = 0.3
"""How much of a piece's share in the training text counts that belongs to other languages."""
SCRIPTS = {
    "zh": {"CJK": 1.0},
    "ja": {"HIRAGANA": 0.43, "KATAKANA": 0.17, "CJK": 0.4},
    "th": {"THAI": 1.0},
    "ko": {"HANGUL": 1.0},
    "el": {"GREEK": 1.0},
    "he": {"HEBREW": 1.0},
    "hi": {"DEVANAGARI": 1.0},
}
"""Languages whose shares are those of scripts, and how much of a text each script is."""
NO_SCRIPT = "none"
SHARED_SCRIPTS = frozenset({"LATIN", "CYRILLIC", "ARABIC"})
"""Scripts that several languages are written in, some of them without a list."""
OTHER_SCRIPTS = frozenset({"BENGALI", "TAMIL", NO_SCRIPT})
"""Scripts whose pieces count by their share in the training text alone."""
SMALLEST_WORD = 3
_EM_STEPS = 30
_UNKNOWN = -20.0
"""Score of a character that is no piece; less than any piece has."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A Unigram vocabulary.

    Attributes:
        pieces: The pieces; ``▁`` stands for a space.
        scores: Logarithm of each piece's share of the training text's tokens.
        special: Pieces that no text contains.
    """

    pieces: tuple[str, ...]
    scores: NDArray[np.float32]
    special: frozenset[str]


def script_of(piece: str) -> str:
    """Returns the first word of the Unicode name of a piece's first letter, or ``NO_SCRIPT``."""
    letter = next((character for character in piece if character != "▁" and character.isalpha()), None)
    if letter is None:
        return NO_SCRIPT
    name = unicodedata.name(letter, "?").replace("KATAKANA-HIRAGANA", "KATAKANA")
    return name.split()[0]


def choose_pieces(vocabulary: Vocabulary, used: Mapping[str, Shares], count: int) -> NDArray[np.intp]:
    """Returns the ids of the pieces that stay, ascending.

    Every single character stays, so no text becomes unknown. Longer pieces of scripts that no listed language is
    written in go first.
    """
    pieces = np.array(vocabulary.pieces)
    scripts = np.array([script_of(piece) for piece in vocabulary.pieces])
    special = np.isin(pieces, list(vocabulary.special))
    trained = np.where(special, 0, np.exp(vocabulary.scores.astype(np.float64)))
    trained /= trained.sum()
    stay = special | np.array([len(piece.strip("▁")) <= 1 for piece in vocabulary.pieces])
    readable = {script for parts in SCRIPTS.values() for script in parts} | SHARED_SCRIPTS | OTHER_SCRIPTS
    costs = _cost(vocabulary, trained, scripts, used) * _extra_tokens(vocabulary, stay)
    costs[stay | ~np.isin(scripts, list(readable))] = -1
    stay[np.argsort(-costs, kind="stable")[: max(0, count - int(stay.sum()))]] = True
    return np.flatnonzero(stay)


def _cost(vocabulary: Vocabulary, trained: Shares, scripts: NDArray[np.str_], used: Mapping[str, Shares]) -> Shares:
    """Returns how often the languages use each piece, weighted."""
    listed = sorted(used)
    lists = np.stack([used[language] for language in listed])
    owners = _owners(lists, trained)
    total = np.zeros(len(trained))
    for language, weight in WEIGHTS.items():
        if language in SCRIPTS:
            shares = sum(part * _of_script(trained, scripts, script) for script, part in SCRIPTS[language].items())
        else:
            at = listed.index(language)
            divided = owners[at] * trained
            shares = np.sqrt(lists[at] * divided / divided.sum())
        total += weight / sum(WEIGHTS.values()) * shares / np.sum(shares)
    ours = owners[[at for at, language in enumerate(listed) if language in WEIGHTS]].sum(axis=0)
    # A whole word that no list has is of a language without one; parts of words and capitals are everyone's.
    words = np.array([_is_word(piece) for piece in vocabulary.pieces])
    counted = np.where(lists.any(axis=0), ours + OTHERS * (1 - ours), np.where(words, OTHERS, 1))
    counted[~np.isin(scripts, list(SHARED_SCRIPTS))] = 1
    result: Shares = total + trained * counted
    return result


def _of_script(trained: Shares, scripts: NDArray[np.str_], script: str) -> Shares:
    shares = np.where(scripts == script, trained, 0)
    result: Shares = shares / shares.sum()
    return result


def _owners(lists: Shares, trained: Shares) -> Shares:
    """Returns the probability that a use of a piece in the training text is one language's, [languages, pieces]."""
    mixture = np.full(len(lists), 1 / len(lists))
    owners = lists
    for _ in range(_EM_STEPS):
        owners = mixture[:, None] * lists
        owners = owners / np.maximum(owners.sum(axis=0), np.finfo(np.float64).tiny)
        mixture = (owners * trained).sum(axis=1)
        mixture /= mixture.sum()
    return owners


def _is_word(piece: str) -> bool:
    letters = piece.strip("▁")
    return len(letters) >= SMALLEST_WORD and letters.isalpha() and letters == letters.lower()


def _extra_tokens(vocabulary: Vocabulary, skip: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Returns how many tokens more each piece takes without itself, by the best path of the others; 0 where skipped."""
    scores = {
        piece: float(score)
        for piece, score in zip(vocabulary.pieces, vocabulary.scores, strict=True)
        if piece not in vocabulary.special
    }
    return np.array(
        [
            0 if left_out else _tokens_without(piece, scores) - 1
            for piece, left_out in zip(vocabulary.pieces, skip, strict=True)
        ]
    )


def _tokens_without(piece: str, scores: Mapping[str, float]) -> int:
    best: list[tuple[float, int]] = [(0.0, 0)]
    for end in range(1, len(piece) + 1):
        paths = []
        for start in range(end):
            score = scores.get(piece[start:end], _UNKNOWN if end - start == 1 else None)
            if score is not None and end - start < len(piece):
                paths.append((best[start][0] + score, best[start][1] + 1))
        best.append(max(paths, key=lambda path: path[0]))
    return best[-1][1]
