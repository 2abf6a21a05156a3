"""Well-formed sentences in their paragraphs, without repetitions, some of them held out."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from edge_rag.core.text import sentence_spans
from scripts.training.quoter.text.packages import WORDNET, Archive
from scripts.training.quoter.text.prose import paragraphs
from scripts.training.quoter.text.wordnet import WordNet, read_wordnet
from scripts.training.quoter.text.words import FUNCTION_WORDS

Words = tuple[str, ...]
Paragraph = tuple[Words, ...]

_MOST_WITH_ONE_BEGINNING = 12
_BEGINNING_WORDS = 5
_HELD_OUT_OF = 32
_BOILERPLATE = re.compile(r"copyright|licen[sc]e|warrant|redistribut|https?:|www\.|\]\(|[{}|\\<>=_]|�", re.IGNORECASE)
_OPENING, _CLOSING = '"“(0123456789', "\"')”’"
_PLAIN = re.compile(r"[A-Za-z,.;:'\"()\- 0-9–—’“”%]")


@dataclass(frozen=True, slots=True)
class Corpus:
    """What a run learns from and is judged by.

    Attributes:
        learned: Paragraphs to train on.
        held_out: Paragraphs that no training question or passage is made of.
        wordnet: Words and how they relate.
        sources: SHA-256 of every package file, by file name.
        sha256: Of all sentences, in order.
    """

    learned: tuple[Paragraph, ...]
    held_out: tuple[Paragraph, ...]
    wordnet: WordNet
    sources: dict[str, str]
    sha256: str

    def words(self) -> int:
        """Returns how many words there are to train on."""
        return sum(len(sentence) for paragraph in self.learned for sentence in paragraph)


def read_corpus(archives: Sequence[Archive], advance: Callable[[str], None] = lambda _: None) -> Corpus:
    """Reads packages.

    Args:
        archives: One of them WordNet's.
        advance: Told each package's name once it has been read.

    Raises:
        MissingText: A file is no package.
        KeyError: WordNet's package lacks a file.
    """
    texts: list[str] = []
    wordnet: WordNet | None = None
    for archive in archives:
        if archive.package == WORDNET:
            wordnet, definitions = read_wordnet(dict(archive.members()))
            texts += definitions
        else:
            for path, data in archive.members():
                texts += paragraphs(path, data)
        advance(archive.package)
    if wordnet is None:
        raise KeyError(WORDNET)
    kept = list(well_formed(texts))
    digest = hashlib.sha256()
    learned: list[Paragraph] = []
    held_out: list[Paragraph] = []
    for paragraph in kept:
        said = "\n".join(" ".join(sentence) for sentence in paragraph).encode()
        digest.update(said + b"\n\n")
        # By its own text, so that a paragraph stays where it is whatever else the corpus holds.
        aside = hashlib.sha256(said).digest()[0] % _HELD_OUT_OF == 0
        (held_out if aside else learned).append(paragraph)
    sources = {archive.path.name: archive.sha256 for archive in archives}
    return Corpus(tuple(learned), tuple(held_out), wordnet, sources, digest.hexdigest())


def well_formed(texts: Iterable[str]) -> Iterator[Paragraph]:
    """Yields the sentences worth learning from of each text, as words; texts without any are left out.

    A sentence is kept once, and of those that begin with the same few words only some are.
    """
    seen: set[str] = set()
    beginnings: Counter[tuple[str, ...]] = Counter()
    for text in texts:
        line = " ".join(text.split())
        kept: list[Words] = []
        for start, end in sentence_spans(line):
            sentence = line[start:end]
            if not is_prose(sentence) or (key := sentence.lower()) in seen:
                continue
            words = tuple(sentence.split())
            beginning = tuple(key.split()[:_BEGINNING_WORDS])
            beginnings[beginning] += 1
            if beginnings[beginning] <= _MOST_WITH_ONE_BEGINNING:
                seen.add(key)
                kept.append(words)
        if kept:
            yield tuple(kept)


def is_prose(sentence: str) -> bool:
    """Whether a sentence reads as running English text of ordinary length."""
    words = sentence.split()
    if not 5 <= len(words) <= 60 or len(sentence) > 400:
        return False
    if sentence.rstrip(_CLOSING)[-1:] not in (".", "!", "?"):
        return False
    if not (sentence[0].isupper() or sentence[0] in _OPENING):
        return False
    if len(_PLAIN.findall(sentence)) < 0.97 * len(sentence) or _BOILERPLATE.search(sentence):
        return False
    return sum(word.lower() in FUNCTION_WORDS for word in words) >= max(1, len(words) // 8)
