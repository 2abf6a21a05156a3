"""Settings of the stages."""

from __future__ import annotations

from pydantic import Field

from edge_rag.config.sections import DirectoryPath, Section
from edge_rag.core.answer import UnsupportedText
from edge_rag.core.query import AnswerMode, PassageOrder, SchedulingPreset


class MilvusSettings(Section):
    """A Milvus that collections can be moved to; needs the extra `milvus`."""

    uri: str | None = Field(
        default=None,
        pattern=r"^(https?://.+|.+\.db)$",
        description="`http(s)://HOST:PORT` of a server, or the path of a milvus-lite file ending in .db; else none.",
    )
    token_file: DirectoryPath | None = Field(
        default=None, description="File that holds `user:password` or an API key; left out, none."
    )
    timeout_seconds: float = Field(default=10, gt=0, le=600, description="Longest time for one call to it, seconds.")


class RetrieverSettings(Section):
    """The retriever stage."""

    queue: int = Field(default=256, ge=1, description="Most questions that may wait.")
    batch: int = Field(default=16, ge=1, le=256, description="Most questions embedded at once.")
    candidates: int = Field(default=20, ge=1, le=200, description="Passages handed to the reranker.")
    exact_vectors: int = Field(
        default=50_000,
        ge=1000,
        le=10_000_000,
        description="Most passages of a collection that are searched exactly; above, an index on disk is built.",
    )
    milvus: MilvusSettings = Field(default_factory=MilvusSettings)


class RerankerSettings(Section):
    """The reranker stage."""

    queue: int = Field(default=256, ge=1, description="Most questions that may wait.")
    batch: int = Field(default=4, ge=1, le=64, description="Most questions scored at once.")
    passages: int = Field(
        default=4, ge=1, le=32, description="Passages put into the prompt when the client does not say."
    )


class GeneratorSettings(Section):
    """The generator stage."""

    queue: int = Field(default=256, ge=1, description="Most requests that may wait for a slot.")
    queue_tokens: int = Field(
        default=262_144, ge=1, description="Most tokens these may come to, prompts and longest answers together."
    )
    mode: AnswerMode = Field(default=AnswerMode.QUOTE, description="Answer mode when the client does not say.")
    preset: SchedulingPreset = Field(
        default=SchedulingPreset.BALANCED,
        description="`latency` runs fewer at once and each quicker, `throughput` more at once and each slower.",
    )
    max_slots: int | None = Field(
        default=None,
        ge=1,
        le=256,
        description="Sequences that run at once; left out, the profile and the preset decide.",
    )
    max_step_tokens: int | None = Field(
        default=None,
        ge=16,
        le=8192,
        description="Tokens computed in one step; left out, the profile and the preset decide.",
    )
    passage_order: PassageOrder = Field(
        default=PassageOrder.DOCUMENT,
        description="Passages in the prompt: `document` orders them by their place, so that prompts begin alike; "
        "`hot` puts those often asked for first; `rank` best first.",
    )
    target_tpot_ms: float | None = Field(
        default=None,
        gt=0,
        description="Wanted time between two tokens, ms; slots are taken away and given back to meet it.",
    )
    draft_tokens: int = Field(
        default=8,
        ge=0,
        le=64,
        description="Most tokens copied from passages and answer that a step checks where the model writes; 0: none.",
    )
    passage_recompute_tokens: int = Field(
        default=16,
        ge=0,
        le=1024,
        description="First tokens of each passage that are computed anew where a collection's kv_reuse is `passage`.",
    )
    aging_seconds: float = Field(
        default=30,
        gt=0,
        description="Time without a slot after which a client's next request rises by a priority class, seconds.",
    )
    kv_memory_mib: int | None = Field(
        default=None,
        ge=1,
        description="Memory for KV pages, MiB; left out, the device profile's share of what is free.",
    )
    prefetch: bool = Field(
        default=False,
        description="Whether the likely prompt is computed while the reranker works; gains where they do not share "
        "processor cores.",
    )
    kv_disk_mib: int = Field(
        default=1024,
        ge=0,
        description="Most that KV pages of what is often asked for may take in the data directory, MiB; 0 keeps none.",
    )
    evidence_weight: float | None = Field(
        default=None, ge=0, le=10_000, description="Weight of the retrieval evidence against the model in quote mode."
    )
    not_found_below: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Evidence for an answer, 0 to 1, below which there is none, unless the mode is free.",
    )
    unsupported: UnsupportedText = Field(
        default=UnsupportedText.MARK,
        description="Sentences that no document supports in mode cite: `mark` says so, `omit` leaves them out.",
    )
    not_found_text: str = Field(
        default="I could not find that in the documents.", min_length=1, description="Answer when there is no evidence."
    )


class IngestSettings(Section):
    """Taking documents."""

    queue: int = Field(default=64, ge=1, description="Most documents that may wait.")
    document_mib: int = Field(default=64, ge=1, le=1024, description="Largest document, MiB.")
    spool_mib: int = Field(
        default=1024, ge=1, description="Most that documents accepted for jobs and not stored yet may take, MiB."
    )
    parse_seconds: int = Field(default=60, ge=1, description="Longest time for reading one document, seconds.")
    parse_memory_mib: int = Field(default=1024, ge=128, description="Most memory for reading one document, MiB.")
    scan_languages: str = Field(
        default="eng",
        pattern=r"^[A-Za-z][A-Za-z0-9_]*(\+[A-Za-z][A-Za-z0-9_]*)*$",
        description="Languages of scanned pages, Tesseract's names joined by +; read where Tesseract is installed.",
    )
