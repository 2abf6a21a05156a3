"""Index terms of a text by script, so that no language has to be known; pure.

- Latin words count by the first letters of their English Snowball stem, without accents, unless marks distinguish words
  (Vietnamese). The stem joins the forms of English words, the cut those of languages that append to a word.
- Greek, Cyrillic, Arabic and Devanagari words count by the Snowball stem of the largest language of the script.
- Han, kana and Hangul, which write words together or append to them, count by every two characters in succession; Thai,
  Lao, Khmer and Burmese, whose characters carry less, by every three that do not begin with a mark (McNamee and
  Mayfield, Character N-Gram Tokenization, Information Retrieval 7, 2004).
- Words with a digit count as they are: they are names of things. Numbers count in one form (``numbers``).
- Words of other scripts count as they are.

Combining marks belong to words; joiners and soft hyphens inside words do not count. A text has the same terms in every
canonical normalization form.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.metadata import version
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple

import snowballstemmer

from edge_rag.analysis.numbers import NUMBER_PATTERN, UNIT_PATTERN, UNITS, number_forms

ANALYSIS: Final = f"1/{version('snowballstemmer')}/{unicodedata.unidata_version}"
"""What terms depend on: the rules of this file, the stemmers and Unicode. An index of another analysis is stale."""

_JOINERS: Final = "\u00ad\u0640\u200c\u200d\u2060"
"""Soft hyphen, tatweel, zero width joiners: inside words, without a meaning for search."""

_MARKS_END: Final = 0x20000
_SELECTORS: Final = "\U000e0100-\U000e01ef"
"""Variation selectors: the only marks beyond the first two planes."""


def _marks() -> str:
    """Returns the combining marks and joiners as the inside of a character class."""
    categories = "".join(map(unicodedata.category, map(chr, range(_MARKS_END))))
    ranges = (match.span() for match in re.finditer("(?:M[a-z])+", categories))
    return _JOINERS + _SELECTORS + "".join(f"{chr(first // 2)}-{chr(end // 2 - 1)}" for first, end in ranges)


_PAIRED: Final = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3131-\u318e\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Han, kana, Hangul."""

_TRIPLED: Final = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u1780-\u17d3\u17d7\u17dc-\u17dd"
)
"""Thai, Lao, Burmese, Khmer."""

_MARKS: Final = _marks()
_LETTER: Final = rf"[^\W_{_PAIRED}{_TRIPLED}]"
_TOKEN: Final = re.compile(
    rf"(?<!\d[.,])({NUMBER_PATTERN})(?!(?!(?:{UNIT_PATTERN})(?!{_LETTER}))(?:{_LETTER}|[{_MARKS}]))|([{_PAIRED}][{_PAIRED}{_MARKS}]*|[{_TRIPLED}][{_TRIPLED}{_MARKS}]*)"
    rf"|{_LETTER}+(?:[{_MARKS}]+{_LETTER}*)*"
)
_CLUSTER: Final = re.compile(rf"[\u1100-\u115f][\u1160-\u11a7][\u11a8-\u11ff]?|.[{_MARKS}\uff9e\uff9f]*", re.DOTALL)
_WITHOUT_JOINERS: Final = dict.fromkeys(map(ord, _JOINERS))
_NUMBER, _UNSPACED = 1, 2

_FIRST_LETTERS: Final = 6
"""Letters of its stem by which a Latin word counts; docs/internals/retrieval.md has the measurements."""

_KEPT_WORDS: Final = 65_536
"""Words whose terms are kept in memory; a word and its term take about 200 bytes."""

_TONES: Final = frozenset("\u0309\u0323\u031b")
"""Hook above, dot below and horn, which distinguish Vietnamese words."""

_PLAIN_LETTERS: Final = str.maketrans(
    {"ı": "i", "ø": "o", "ł": "l", "đ": "d", "ħ": "h", "æ": "ae", "œ": "oe", "ß": "ss"}
)
"""Latin letters that have no decomposition."""

_FIRST_ACCENT: Final = 200
"""Least canonical combining class of marks that are attached to a letter, above or below it; vowel signs and the
vowel killers of Indic scripts, and the vowel points of Arabic and Hebrew, have smaller ones."""

_SHORT_I: Final = "\ue000"
"""Stands for a letter that is not taken apart, a character of private use."""

_ENGLISH: Final = snowballstemmer.stemmer("english")
_STEMMERS: Final = (
    (0x0370, 0x0400, snowballstemmer.stemmer("greek")),
    (0x1F00, 0x2000, snowballstemmer.stemmer("greek")),
    (0x0400, 0x0530, snowballstemmer.stemmer("russian")),
    (0x0600, 0x0780, snowballstemmer.stemmer("arabic")),
    (0x0900, 0x0980, snowballstemmer.stemmer("hindi")),
)
"""Scripts as (first code point, code point after the last, stemmer)."""

_LATIN: Final = ((0x0041, 0x0250), (0x1E00, 0x1F00), (0x2C60, 0x2C80), (0xA720, 0xA800), (0xAB30, 0xAB70))
_stemming = threading.Lock()


class Term(NamedTuple):
    """An index term, without white space, and its range in the text."""

    start: int
    end: int
    term: str


def terms_of(text: str) -> Iterator[Term]:
    """Yields the index terms of a text in order; those of characters without spaces between words overlap."""
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        yield from _terms(text)
        return
    normal, places = _normalized(text, "NFC")
    for start, end, term in _terms(normal):
        yield Term(places[start][0], places[end - 1][1], term)


def _terms(text: str) -> Iterator[Term]:
    for match in _TOKEN.finditer(text):
        kind = match.lastindex
        start = match.start()
        if kind is None:
            term = word_term(match[0])
            if term:
                yield Term(start, match.end(), term)
        elif kind == _NUMBER:
            for first, last, forms in number_forms(match[0]):
                yield Term(start + first, start + last, forms[0])
        else:
            yield from _grams(match[0], start)


def words_of(text: str) -> Iterator[Term]:
    """Yields the words of a text as they are written, in order: in lower case and Unicode's form NFC.

    Those with a digit, numbers and runs of scripts without spaces are left out.
    """
    normal, places = text, None
    if not (text.isascii() or unicodedata.is_normalized("NFC", text)):
        normal, places = _normalized(text, "NFC")
    for match in _TOKEN.finditer(normal):
        word = match[0].translate(_WITHOUT_JOINERS).lower()
        if match.lastindex is None and word and not any(map(str.isdigit, word)):
            start, end = match.span()
            yield Term(start, end, word) if places is None else Term(places[start][0], places[end - 1][1], word)


def plain_letters(word: str) -> str:
    """Returns a word in lower case without the accents that people leave out when they type.

    Marks above and below letters are taken off, except where they make another letter of an alphabet (the Cyrillic
    short i); vowel signs of Indic scripts stay.
    """
    if word.isascii():
        return word
    apart = unicodedata.normalize("NFD", word.replace("й", _SHORT_I))
    kept = "".join(letter for letter in apart if unicodedata.combining(letter) < _FIRST_ACCENT)
    return unicodedata.normalize("NFC", kept).replace(_SHORT_I, "й").translate(_PLAIN_LETTERS)


def _grams(run: str, at: int) -> Iterator[Term]:
    normal, places = run, None
    if "\u0e00" <= run[0] < "\u1800":
        size = 3
    else:
        size = 2
        if not unicodedata.is_normalized("NFKC", run):  # kana of half width
            normal, places = _normalized(run, "NFKC")
    for first in range(max(1, len(normal) - size + 1)):
        if size == 3 and first and unicodedata.category(normal[first])[0] == "M":
            continue
        last = min(len(normal), first + size)
        start, end = (first, last) if places is None else (places[first][0], places[last - 1][1])
        gram = normal[first:last]
        yield Term(at + start, at + end, UNITS.get(gram, gram))


def _normalized(text: str, form: Literal["NFC", "NFKC"]) -> tuple[str, Sequence[tuple[int, int]]]:
    """Returns a text in a normalization form, and for each of its characters the range in ``text`` it comes from."""
    parts: list[str] = []
    places: list[tuple[int, int]] = []
    for match in _CLUSTER.finditer(text):
        cluster = unicodedata.normalize(form, match[0])
        parts.append(cluster)
        places += [match.span()] * len(cluster)
    return "".join(parts), places


@lru_cache(_KEPT_WORDS)
def word_term(word: str) -> str:
    """Returns the term of one word; empty if nothing of it counts."""
    if not word.isascii():
        word = unicodedata.normalize("NFKC", word).translate(_WITHOUT_JOINERS)
    word = word.lower()
    if word.isdecimal():
        return number_forms(word)[0][2][0]
    if word.isascii():
        return _latin(word)
    if word in UNITS:
        return UNITS[word]
    first = ord(word[0]) if word else 0
    if any(low <= first < high for low, high in _LATIN):
        return _latin(word)
    for low, high, stemmer in _STEMMERS:
        if low <= first < high:
            return _stem(stemmer, word)
    return word


def _latin(word: str) -> str:
    if not word.isascii():
        apart = unicodedata.normalize("NFD", word)
        if "đ" not in word and _TONES.isdisjoint(apart):
            word = "".join(c for c in apart if not unicodedata.combining(c)).translate(_PLAIN_LETTERS)
    return word if any(map(str.isdigit, word)) else _stem(_ENGLISH, word)[:_FIRST_LETTERS]


def _stem(stemmer: Any, word: str) -> str:
    with _stemming:  # a stemmer holds the word that it works on
        stem: str = stemmer.stemWord(word)
    return stem or word


def utf8_offsets(text: str) -> Sequence[int] | range:
    """Returns the byte offset of each character of a text in UTF-8, and its length in bytes."""
    if text.isascii():
        return range(len(text) + 1)
    return list(accumulate((len(character.encode()) for character in text), initial=0))
