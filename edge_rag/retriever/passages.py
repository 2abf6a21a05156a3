"""From fused chunks to passages: boosts of the collection, near-duplicates, merging of adjacent chunks.

Two texts are near-duplicates if nine in ten of all three-word shingles that either has are in both (Jaccard index;
Broder, On the Resemblance and Containment of Documents, 1997), ignoring case and punctuation, and if they have the same
numbers and negations in the same order. Two revisions of a data sheet that differ in a pressure are therefore never
duplicates, nor are an instruction and its negation, however long the rest is. Short texts, in which one word changes
more than a tenth of the shingles, are duplicates only if all their words are equal.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from itertools import pairwise
from math import exp2
from typing import Final, Generic, Protocol, TypeVar

from edge_rag.core.documents.collection import CollectionSettings, RecencyBoost
from edge_rag.core.documents.filters import FilterValue
from edge_rag.core.documents.metadata import Metadata, MetadataValue
from edge_rag.core.ids import ChunkId
from edge_rag.core.passage import Duplicate, Hit, HitPart, Passage
from edge_rag.core.ports import Embedder
from edge_rag.ingest.chunking import SPECIAL_TOKENS, index_text
from edge_rag.retriever.fusion import FusedHit
from edge_rag.storage.documents import DocumentStore
from edge_rag.storage.statements import StoredPassage

Item = TypeVar("Item")

NEAR_DUPLICATE: Final = 0.9
"""Least Jaccard index of near-duplicates."""

_SHINGLE_WORDS: Final = 3
_WORD: Final = re.compile(r"\w+(?:['’]\w+)?")
_FIXED: Final = re.compile(r"\d|n['’]t$|^(?:no|not|never|none|neither|nor|without|cannot)$").search


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Numbers and negations of a text, in order, and its three-word sequences (the whole text if it is shorter)."""

    fixed: tuple[str, ...]
    shingles: frozenset[tuple[str, ...]]

    @classmethod
    def of(cls, text: str) -> Fingerprint:
        words = [word.casefold() for word in _WORD.findall(text)]
        fixed = tuple(word for word in words if _FIXED(word))
        shingles = (
            tuple(words[first : first + _SHINGLE_WORDS]) for first in range(max(1, len(words) - _SHINGLE_WORDS + 1))
        )
        return cls(fixed, frozenset(shingles))

    def is_near_duplicate(self, other: Fingerprint) -> bool:
        """Whether the texts are near-duplicates."""
        if self.fixed != other.fixed:
            return False
        smaller, larger = sorted((len(self.shingles), len(other.shingles)))
        if smaller < NEAR_DUPLICATE * larger:
            return False
        shared = len(self.shingles & other.shingles)
        return shared >= NEAR_DUPLICATE * (smaller + larger - shared)


def without_duplicates(
    items: Sequence[Item], fingerprint_of: Callable[[Item], Fingerprint], source_of: Callable[[Item], str]
) -> list[tuple[Item, tuple[Item, ...]]]:
    """Removes near-duplicates of a better item from another source.

    Returns the remaining items, best first, each with the items removed for it.
    """
    kept: list[tuple[Item, list[Item]]] = []
    alike: defaultdict[tuple[str, ...], list[tuple[Item, Fingerprint, list[Item]]]] = defaultdict(list)
    for item in items:
        fingerprint = fingerprint_of(item)
        for better, other, duplicates_of_better in alike[fingerprint.fixed]:
            if fingerprint.is_near_duplicate(other) and source_of(better) != source_of(item):
                duplicates_of_better.append(item)
                break
        else:
            duplicates: list[Item] = []
            kept.append((item, duplicates))
            alike[fingerprint.fixed].append((item, fingerprint, duplicates))
    return [(item, tuple(duplicates_of_better)) for item, duplicates_of_better in kept]


class Positioned(Protocol):
    """An item with a position in a document."""

    @property
    def section(self) -> object:
        """Document and headings; only items of one section are merged."""
        ...

    @property
    def ordinal(self) -> int:
        """Position in the document."""
        ...


PositionedT = TypeVar("PositionedT", bound=Positioned)


@dataclass(frozen=True, slots=True)
class Run(Generic[PositionedT]):
    """Items that follow each other without a gap.

    Attributes:
        rank: 0-based rank of the best of them among the items given.
    """

    items: tuple[PositionedT, ...]
    rank: int

    def touches(self, other: Run[PositionedT]) -> bool:
        own, others = self.items, other.items
        return own[0].section == others[0].section and (
            own[-1].ordinal + 1 == others[0].ordinal or others[-1].ordinal + 1 == own[0].ordinal
        )

    def joined_with(self, other: Run[PositionedT]) -> Run[PositionedT]:
        items = tuple(sorted((*self.items, *other.items), key=lambda item: item.ordinal))
        return Run(items, min(self.rank, other.rank))


def merge_adjacent(
    items: Sequence[PositionedT], fits: Callable[[Sequence[PositionedT]], bool]
) -> list[Run[PositionedT]]:
    """Merges adjacent items, best first, into runs; the run of the best item is first."""
    runs: list[Run[PositionedT]] = []
    for rank, item in enumerate(items):
        merged = Run((item,), rank)
        while (other := next((run for run in runs if _may_join(merged, run, fits)), None)) is not None:
            runs.remove(other)
            merged = merged.joined_with(other)
        runs.append(merged)
    return sorted(runs, key=lambda run: run.rank)


def _may_join(one: Run[PositionedT], other: Run[PositionedT], fits: Callable[[Sequence[PositionedT]], bool]) -> bool:
    return one.touches(other) and fits(one.joined_with(other).items)


_DAY = timedelta(days=1)


def has_boosts(settings: CollectionSettings) -> bool:
    """Whether any passage may get a factor other than 1."""
    return settings.recency is not None or bool(settings.boosts)


def boost(settings: CollectionSettings, metadata: Metadata, ingested_at: datetime, now: datetime) -> float:
    """Returns the factor of a passage's score, above 0; 1 if no boost applies."""
    factor = 1.0
    if settings.recency is not None:
        factor *= _recency(settings.recency, metadata, ingested_at, now)
    for each in settings.boosts:
        if _equals(metadata.get(each.key), each.value):
            factor *= each.factor
    return factor


def _recency(recency: RecencyBoost, metadata: Metadata, ingested_at: datetime, now: datetime) -> float:
    date = ingested_at if recency.key is None else metadata.get(recency.key)
    if not isinstance(date, datetime):
        return 1.0
    age_days = max(timedelta(0), now - date) / _DAY
    return 1.0 + recency.weight * exp2(-age_days / recency.half_life_days)


def _equals(found: MetadataValue | None, wanted: FilterValue) -> bool:
    values = found if isinstance(found, tuple) else (found,)
    return any(type(value) is type(wanted) and value == wanted for value in values)


_MAX_GAP_CHARACTERS: Final = 32
_MIN_EXTRA_CHUNKS: Final = 8
_CACHED_FINGERPRINTS: Final = 512


@dataclass(frozen=True, slots=True, eq=False)
class _RankedChunk:
    """A chunk being ranked."""

    fused: FusedHit
    stored: StoredPassage
    boost: float
    duplicates: tuple[_RankedChunk, ...] = ()

    @property
    def score(self) -> float:
        return self.fused.score * self.boost

    @property
    def ordinal(self) -> int:
        return self.stored.ordinal

    @property
    def section(self) -> object:
        return self.stored.passage.document_id, self.stored.passage.context


class PassageRanker:
    """Makes passages of fused chunks. May be used from any thread.

    Args:
        now: Returns the current time, UTC.
    """

    def __init__(
        self, store: DocumentStore, embedder: Embedder, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._now = now
        self._fingerprint = lru_cache(_CACHED_FINGERPRINTS)(_fingerprint)

    def rank(self, fused: Sequence[FusedHit], settings: CollectionSettings, limit: int) -> tuple[Hit, ...]:
        """Returns up to ``limit`` passages, best first; chunks that are no longer stored are skipped.

        Reads only as many chunks as necessary: each duplicate or merged chunk makes room for one more.
        """
        now = self._now()
        loaded: dict[ChunkId, StoredPassage] = {}
        if has_boosts(settings):
            loaded = self._store.passages([hit.chunk_id for hit in fused])
            known = [self._found(hit, loaded, settings, now) for hit in fused if hit.chunk_id in loaded]
            fused = [found.fused for found in sorted(known, key=lambda found: -found.score)]

        def fingerprint(chunk: ChunkId) -> Fingerprint:
            return self._fingerprint(chunk, loaded[chunk].passage.text)

        @cache
        def readable(chunks: tuple[ChunkId, ...]) -> bool:
            return self._readable([loaded[chunk].passage for chunk in chunks])

        count = limit
        while True:
            missing = [hit.chunk_id for hit in fused[:count] if hit.chunk_id not in loaded]
            loaded |= self._store.passages(missing)
            found = [self._found(hit, loaded, settings, now) for hit in fused[:count] if hit.chunk_id in loaded]
            if settings.drop_duplicates:
                remaining = without_duplicates(
                    found,
                    lambda each: fingerprint(each.fused.chunk_id),
                    lambda each: each.stored.passage.document_id,
                )
                found = [replace(each, duplicates=duplicates) for each, duplicates in remaining]
            runs = merge_adjacent(
                found,
                lambda items: settings.merge_neighbours and readable(tuple(each.fused.chunk_id for each in items)),
            )
            if len(runs) >= limit or count >= len(fused):
                return tuple(self._hit(run) for run in runs[:limit])
            count += max(2 * (limit - len(runs)), _MIN_EXTRA_CHUNKS)

    def _found(
        self, hit: FusedHit, loaded: dict[ChunkId, StoredPassage], settings: CollectionSettings, now: datetime
    ) -> _RankedChunk:
        stored = loaded[hit.chunk_id]
        return _RankedChunk(hit, stored, boost(settings, stored.passage.metadata, stored.ingested_at, now))

    def _readable(self, passages: Sequence[Passage]) -> bool:
        """Whether models can read all of the merged passage; only white space or a heading is between its parts."""
        gaps = [after.start - before.end for before, after in pairwise(passages)]
        if any(not 0 <= gap <= _MAX_GAP_CHARACTERS for gap in gaps):
            return False
        text = index_text(passages[0].context, " ".join(passage.text for passage in passages))
        between = sum(gap for gap in gaps if gap > SPECIAL_TOKENS)
        return self._embedder.count_tokens(text) + between <= self._embedder.max_tokens

    def _hit(self, run: Run[_RankedChunk]) -> Hit:
        items = run.items
        best = max(items, key=lambda item: item.score)
        passage = best.stored.passage if len(items) == 1 else self._merged(run, best)
        if passage is None:
            items, passage = (best,), best.stored.passage
        duplicates = tuple(_duplicate(other.stored.passage) for item in items for other in item.duplicates)
        return Hit(
            passage=replace(passage, duplicates=duplicates) if duplicates else passage,
            score=best.score,
            dense_rank=_best_rank(item.fused.dense_rank for item in items),
            lexical_rank=_best_rank(item.fused.lexical_rank for item in items),
            fused_score=best.fused.score,
            boost=best.boost,
            parts=tuple(_part(item) for item in items),
        )

    def _merged(self, run: Run[_RankedChunk], best: _RankedChunk) -> Passage | None:
        """Returns the passage of a run; None if a part of it was removed meanwhile."""
        first, last = run.items[0].stored.passage, run.items[-1].stored.passage
        text = self._store.text_around(best.fused.chunk_id, first.start, last.end)
        if text is None:
            return None
        return replace(best.stored.passage, page=first.page, start=first.start, end=last.end, text=text)


def _fingerprint(chunk: ChunkId, text: str) -> Fingerprint:
    return Fingerprint.of(text)


def _best_rank(ranks: Iterable[int | None]) -> int | None:
    return min((rank for rank in ranks if rank is not None), default=None)


def _part(item: _RankedChunk) -> HitPart:
    passage, fused = item.stored.passage, item.fused
    return HitPart(item.fused.chunk_id, passage.start, passage.end, fused.dense_rank, fused.lexical_rank, fused.score)


def _duplicate(passage: Passage) -> Duplicate:
    return Duplicate(passage.document_id, passage.document, passage.page, passage.start, passage.end)
