"""WordNet's files: synonyms and kinds of words for paraphrased questions, definitions as text to ask about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

_KINDS = ("noun", "verb", "adj", "adv")
_SUFFIXES = (("ies", "y"), ("ied", "y"), ("ves", "f"), ("sses", "ss"), ("ches", "ch"), ("shes", "sh"), ("xes", "x"))
_ENDINGS = (*_SUFFIXES, ("ing", ""), ("ing", "e"), ("ed", ""), ("ed", "e"), ("es", "e"), ("s", ""))
_DEFINED_TOGETHER = 5


@dataclass(frozen=True, slots=True)
class WordNet:
    """Words and how they relate, in lower case.

    Attributes:
        synonyms: Other words for a word in its commonest sense.
        kinds: What a noun is one of, in its commonest sense.
        base_forms: The base form of irregular inflections.
    """

    synonyms: Mapping[str, tuple[str, ...]]
    kinds: Mapping[str, str]
    base_forms: Mapping[str, str]

    def base_form(self, word: str) -> str:
        """Returns a word's base form: ``began`` gives ``begin``; the word itself where none is known."""
        word = word.lower()
        if irregular := self.base_forms.get(word):
            return irregular
        if word in self.synonyms:
            return word
        for suffix, instead in _ENDINGS:
            if word.endswith(suffix) and len(word) > len(suffix) + 2:
                stem = word.removesuffix(suffix)
                doubled = len(stem) > 2 and stem[-1] == stem[-2]
                for base in (stem + instead, stem[:-1] if doubled else stem + instead):
                    if base in self.synonyms:
                        return base
        return word


@dataclass(frozen=True, slots=True)
class _Sense:
    words: tuple[str, ...]
    kind: str | None
    gloss: str


def read_wordnet(files: Mapping[str, bytes]) -> tuple[WordNet, list[str]]:
    """Reads the data, index and exception files of WordNet 3.

    Args:
        files: Contents by path; others are ignored.

    Returns:
        The words, and paragraphs made of a few neighbouring nouns' definitions.

    Raises:
        KeyError: One of the files is missing.
    """
    named = {PurePosixPath(path).name: data.decode() for path, data in files.items() if "/share/wordnet/" in path}
    synonyms: dict[str, tuple[str, ...]] = {}
    kinds: dict[str, str] = {}
    base_forms: dict[str, str] = {}
    definitions: list[str] = []
    for kind in _KINDS:
        senses = dict(_senses(named[f"data.{kind}"]))
        for word, offset in _first_senses(named[f"index.{kind}"]):
            sense = senses[offset]
            others = tuple(w.lower() for w in sense.words if w.lower() != word and "_" not in w)
            synonyms[word] = synonyms.get(word, ()) + tuple(w for w in others if w not in synonyms.get(word, ()))
            if kind == "noun" and sense.kind is not None and (above := senses.get(sense.kind)) is not None:
                kinds.setdefault(word, above.words[0].replace("_", " ").lower())
        for line in named[f"{kind}.exc"].splitlines():
            inflected, base, *_ = line.split()
            base_forms.setdefault(inflected, base)
        if kind == "noun":
            definitions = [_definition(sense) for sense in senses.values()]
    groups = range(0, len(definitions), _DEFINED_TOGETHER)
    return WordNet(synonyms, kinds, base_forms), [" ".join(definitions[i : i + _DEFINED_TOGETHER]) for i in groups]


def _senses(data: str) -> Iterator[tuple[str, _Sense]]:
    """Yields (offset, sense) of lines ``offset file type count word id ... pointers symbol offset ... | gloss``."""
    for line in data.splitlines():
        if line.startswith(" "):
            continue
        fields, _, gloss = line.partition(" | ")
        parts = fields.split()
        count = int(parts[3], 16)
        words = tuple(word.split("(")[0] for word in parts[4 : 4 + 2 * count : 2])
        pointers = parts[5 + 2 * count :]
        above = next((pointers[i + 1] for i in range(0, len(pointers) - 3, 4) if pointers[i] in ("@", "@i")), None)
        yield parts[0], _Sense(words, above, gloss.strip())


def _first_senses(index: str) -> Iterator[tuple[str, str]]:
    """Yields (word, offset of its commonest sense) of single words."""
    for line in index.splitlines():
        if not line.startswith(" ") and "_" not in (parts := line.split())[0]:
            yield parts[0], parts[6 + int(parts[3])]


def _definition(sense: _Sense) -> str:
    name = sense.words[0].replace("_", " ")
    gloss = sense.gloss.split('; "')[0].strip().rstrip(";").replace("`", "'")
    verb = "was" if "-" in gloss and gloss.rstrip(")")[-4:].isdigit() else "is"
    article = "" if gloss.startswith(("a ", "an ", "the ", "any ", "one ")) or name[0].isupper() else "the "
    if name[0].isupper() and not gloss.startswith(("a ", "an ", "the ")):
        article = "an " if gloss[:1].lower() in "aeiou" else "a "
    return f"{name[0].upper()}{name[1:]} {verb} {article}{gloss}."
