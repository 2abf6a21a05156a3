"""Settings of the pipeline stages and of ingest."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from edge_rag.config.sections import DirectoryPath, Section
from edge_rag.core.answer import UnsupportedText
from edge_rag.core.query import (
    AnswerMode,
    SchedulingPreset,
)

MESSAGE_LANGUAGES: Final = "ar|de|el|en|es|fa|fr|hi|it|ja|ko|nl|pl|pt|ro|ru|th|tr|uk|vi|zh"
"""Languages that there are messages in."""


class MilvusSettings(Section):
    """A Milvus server that collections can be moved to. Needs the extra `milvus`."""

    uri: str | None = Field(
        default=None,
        pattern=r"^(https?://.+|.+\.db)$",
        description="`http(s)://HOST:PORT` of a server, or the path of a milvus-lite file that ends in .db. "
        "Unset: no Milvus.",
    )
    token_file: DirectoryPath | None = Field(
        default=None, description="File that holds `user:password` or an API key. Unset: none."
    )


class RetrieverSettings(Section):
    """The retriever stage."""

    token_vectors_mib: int | None = Field(
        default=None,
        ge=0,
        le=1_048_576,
        description="Disk space for token vectors of passages, which the reranker compares, in the data directory, "
        "MiB: about 18 KB a passage. Unset: a sixteenth of the free space, at most 1,024; 0 turns it off.",
    )
    milvus: MilvusSettings = Field(default_factory=MilvusSettings)


class RerankerSettings(Section):
    """The reranker stage."""

    passages: int = Field(
        default=4, ge=1, le=32, description="Passages in the prompt, unless the client sets a number."
    )


class GeneratorSettings(Section):
    """The generator stage."""

    mode: AnswerMode = Field(default=AnswerMode.QUOTE, description="Answer mode, unless the client sets one.")
    preset: SchedulingPreset = Field(
        default=SchedulingPreset.BALANCED,
        description="`latency` runs fewer requests at once, each faster; `throughput` runs more at once, each slower.",
    )
    max_slots: int | None = Field(
        default=None,
        ge=1,
        le=256,
        description="Sequences that run at once. Unset: the device profile and the preset decide.",
    )
    kv_memory_mib: int | None = Field(
        default=None,
        ge=1,
        description="Memory for KV pages, MiB. Unset: the device profile's share of free memory.",
    )
    not_found_below: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Evidence for an answer, 0 to 1, below which the answer is `not_found_text`; not in mode free.",
    )
    unsupported: UnsupportedText = Field(
        default=UnsupportedText.MARK,
        description="Sentences that no document supports in mode cite: `mark` labels them, `omit` leaves them out.",
    )
    message_language: str = Field(
        default="auto",
        pattern=f"^(auto|{MESSAGE_LANGUAGES})$",
        description="Language of what the daemon says itself in answers, and in errors that any question can meet: "
        "`auto` for that of the question, or one of " + ", ".join(MESSAGE_LANGUAGES.split("|")) + ".",
    )
    not_found_text: str | None = Field(
        default=None,
        min_length=1,
        description="Answer when the documents hold no evidence, in place of that in `message_language`.",
    )


class IngestSettings(Section):
    """Ingest of documents."""

    document_mib: int = Field(default=64, ge=1, le=1024, description="Largest document, MiB.")
    spool_mib: int = Field(
        default=1024,
        ge=1,
        description="Disk space of documents that arrive or wait to be stored, shared by uploaders, MiB.",
    )
    files_mib: int = Field(
        default=4096,
        ge=1,
        description="Disk space of files that were sent to become documents, shared by those who send them, MiB.",
    )
    keep_originals: bool = Field(
        default=True,
        description="Keep the bytes of each stored document in the data directory, for pages and downloads over HTTP. "
        "What was kept before a change stays until its document is replaced or deleted.",
    )
    parse_seconds: int = Field(
        default=60,
        ge=1,
        description="Longest time to parse one document, seconds. A document of less than 5 MiB gets less processor "
        "time: 10 s and 10 s per MiB.",
    )
    scan_languages: str = Field(
        default="auto",
        pattern=r"^[A-Za-z][A-Za-z0-9_]*(\+[A-Za-z][A-Za-z0-9_]*)*$",
        description="Languages of scanned pages, Tesseract's names joined by +, or `auto` for the installed ones, "
        "and English of more than 6. Needs an installed Tesseract; `edge-rag doctor` lists its languages.",
    )
