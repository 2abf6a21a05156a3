"""A lexicon over a few chunks."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from rapidfuzz.distance import OSA

from edge_rag.analysis.terms import plain_letters, terms_of, words_of
from edge_rag.retriever.wordings.spelling import Near
from edge_rag.retriever.wordings.vocabulary import stem_letters


class Chunks:
    """A lexicon of a few chunks."""

    def __init__(self, texts: Sequence[str], familiar: Collection[str] = ()) -> None:
        self._texts = [[word.term for word in words_of(text)] for text in texts]
        self._terms = [{term for *_, term in terms_of(text)} for text in texts]
        self._counts = Counter(word for text in self._texts for word in set(text))
        self._familiar = familiar

    @property
    def chunks(self) -> int:
        return len(self._texts)

    def counts(self, words: Collection[str]) -> Mapping[str, int]:
        return {word: self._counts[word] for word in words if word in self._counts}

    def term_counts(self, words: Collection[str]) -> Mapping[str, int]:
        return {word: sum({term for *_, term in terms_of(word)} <= each for each in self._terms) for word in words}

    def near(self, word: str, edits: int) -> Sequence[Near]:
        distances = {each: OSA.distance(plain_letters(word), plain_letters(each)) for each in self._counts}
        return [Near(each, distance, self._counts[each]) for each, distance in distances.items() if distance <= edits]

    def near_forms(self, word: str) -> Sequence[Near]:
        letters = plain_letters(word)
        if len(letters) <= 5:
            return []
        found = []
        for each, chunks in self._counts.items():
            stem = plain_letters(each)[: stem_letters(len(each))]
            ends = range(max(4, stem_letters(len(letters)) - 2), len(letters) + 1)
            edits = min(OSA.distance(letters[:end], stem) for end in ends)
            if len(stem) < len(each) and edits <= (2 if len(stem) >= 7 else 1):
                found.append(Near(each, edits + 1, chunks))
        return found

    def together(self, words: Sequence[str]) -> Iterable[Collection[int]]:
        return [{place for place, word in enumerate(words) if word in text} for text in self._texts]

    def has_phrase(self, words: Sequence[str]) -> bool:
        return any(" ".join(words) in " ".join(text) for text in self._texts)

    def pieces(self, word: str) -> int:
        return 1 if word in self._familiar else 3
