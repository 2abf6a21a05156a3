"""A small corpus of text that every Python has: the language reference behind ``help()``."""

from __future__ import annotations

import re
from functools import cache
from pydoc_data.topics import topics

import tokenizers

from scripts.training.quoter.text.corpus import Corpus, well_formed
from scripts.training.quoter.text.teacher import Teacher
from scripts.training.quoter.text.vocabulary import train_vocabulary
from scripts.training.quoter.text.wordnet import read_wordnet

VOCABULARY = 1024
_NOUNS = """\
  1 The licence stands here.
00000001 03 n 02 statement 0 command 0 001 @ 00000002 n 0000 | something that is carried out; "a long statement"
00000002 03 n 01 thing 0 000 | a separate entity
00000003 18 n 01 Rossum 0 001 @i 00000002 n 0000 | Dutch programmer who wrote an interpreter (born 1956)
"""
_VERBS = "00000004 29 v 02 begin 0 start 0 000 01 + 02 00 | take the first step\n"
FILES = {
    "./usr/share/wordnet/data.noun": _NOUNS,
    "./usr/share/wordnet/index.noun": (
        "statement n 1 1 @ 1 1 00000001\nrossum n 1 1 @i 1 0 00000003\nthing n 1 0 1 1 00000002\n"
    ),
    "./usr/share/wordnet/noun.exc": "data datum\n",
    "./usr/share/wordnet/data.verb": _VERBS,
    "./usr/share/wordnet/index.verb": "begin v 1 0 1 1 00000004\nstart v 1 0 1 1 00000004\n",
    "./usr/share/wordnet/verb.exc": "began begin\n",
    **{f"./usr/share/wordnet/{kind}.{part}": "" for kind in ("data", "index") for part in ("adj", "adv")},
    **{f"./usr/share/wordnet/{kind}.exc": "" for kind in ("adj", "adv")},
}


@cache
def corpus() -> Corpus:
    wordnet, _ = read_wordnet({path: text.encode() for path, text in FILES.items()})
    texts = (part for _, topic in sorted(topics.items()) for part in re.split(r"\n\s*\n", topic))
    paragraphs = tuple(well_formed(texts))
    return Corpus(paragraphs[8:], paragraphs[:40], wordnet, {"python-topics": "0" * 64}, "1" * 64)


@cache
def tokenizer() -> tokenizers.Tokenizer:
    return train_vocabulary((sentence for paragraph in corpus().learned for sentence in paragraph), VOCABULARY)


@cache
def teacher(seed: int = 0) -> Teacher:
    return Teacher(corpus(), tokenizer(), seed)
