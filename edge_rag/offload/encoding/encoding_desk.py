"""A machine that encodes, as seen from here: which models it has, and how fast it is."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final, Protocol

from edge_rag.offload.encoding.messages import SentCandidates, SentTexts
from edge_rag.offload.encoding.replies import Embedded, Ranks
from edge_rag.offload.encoding.routing import EncoderFacts, Work
from edge_rag.offload.generation.spread import Candidate
from edge_rag.offload.remotes.pace import Pace
from edge_rag.offload.remotes.remote_state import RemoteDesk

RECHECK_S: Final = 60.0
"""Time after which a machine that had other models is asked again which it has, seconds."""


@dataclass(frozen=True, slots=True)
class Encoders:
    """The models that encode, by what names their results.

    Attributes:
        embedder: Names the vectors.
        dimension: Length of a vector.
        reranker: Names the scores.
    """

    embedder: str
    dimension: int
    reranker: str

    def differs(self, other: Encoders, work: Work) -> str:
        """Returns how another machine's differ where that matters for work; empty where they do not."""
        if work is Work.RANKS:
            same, there, here = self.reranker == other.reranker, other.reranker, self.reranker
        else:
            same = (self.embedder, self.dimension) == (other.embedder, other.dimension)
            there, here = f"{other.embedder} ({other.dimension})", f"{self.embedder} ({self.dimension})"
        role = "reranker" if work is Work.RANKS else "embedder"
        return "" if same else f"its {role} is {there[:200]}, the one here is {here}"


class EncodingRemote(Protocol):
    """Another machine that encodes. Used from one event loop; calls raise RemoteFailed and nothing else."""

    def seal_texts(self, sent: SentTexts) -> bytes:
        """Returns exactly the bytes that will be sent."""
        ...

    def seal_candidates(self, sent: SentCandidates) -> bytes:
        """Returns exactly the bytes that will be sent."""
        ...

    def describe(self, within_s: float) -> Awaitable[Encoders]:
        """Asks which models it has."""
        ...

    def embed(self, sealed: bytes, within_s: float) -> Awaitable[Embedded]:
        """Has texts embedded."""
        ...

    def rerank(self, sealed: bytes, within_s: float) -> Awaitable[Ranks]:
        """Has passages ranked."""
        ...


class EncodingDesk:
    """Keeps what is known of it. The event loop writes, any thread reads.

    Args:
        desk: What else it is asked, its circuit breaker and counts.
        remote: How it is asked to encode.
    """

    def __init__(self, desk: RemoteDesk, remote: EncodingRemote) -> None:
        self.desk = desk
        self.remote = remote
        self.paces = {work: Pace() for work in Work}
        self.known: Encoders | None = None
        self._unfit: dict[Work, float] = {}

    @property
    def name(self) -> str:
        """What it is called."""
        return self.desk.remote.name

    def able(self, work: Work, now: float) -> bool:
        """Whether it is used for such work, and not known to have another model."""
        return work.use in self.desk.remote.uses and now >= self._unfit.get(work, now)

    def unfit(self, work: Work, now: float) -> None:
        """Notes that it has another model; it is asked again after a while."""
        self.known = None
        self._unfit[work] = now + RECHECK_S

    def fit(self, work: Work) -> None:
        """Notes that it has the same model."""
        self._unfit.pop(work, None)

    def facts(self, work: Work, now: float) -> EncoderFacts:
        """Returns what a decision is made on."""
        pace = self.paces[work]
        candidate = Candidate(self.name, pace.texts_per_s, self.desk.under_way)
        return EncoderFacts(candidate, pace, self.desk.breaker.lets_through(now), self.able(work, now))
