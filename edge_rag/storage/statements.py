"""Statements on documents, chunks and collections, and the values that they read and write.

Each function runs inside a transaction of its caller. Settings of a collection are stored as JSON with what differs
from the defaults.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import apsw
import numpy as np
from numpy.typing import NDArray

from edge_rag.core.documents.collection import CollectionSettings, FusionWeights, RecencyBoost, ValueBoost
from edge_rag.core.documents.document import Chunk, Content, DocumentInfo, ParsedDocument
from edge_rag.core.documents.lines import NO_LINES, LineMap
from edge_rag.core.documents.metadata import Metadata, MetadataValue, decode_metadata, encode_metadata
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Passage
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import KvReuse
from edge_rag.errors import CollectionNotFound, DocumentNotFound, InvalidRequest, StorageCorrupt
from edge_rag.storage.migrations import create_fulltext, drop_fulltext, fulltext_table
from edge_rag.storage.words.vocabulary import discount_words


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection as stored.

    Attributes:
        number: Row id, never reused.
        kept: Whether the collection remains without documents.
        epoch: Increases when text of the collection is removed; never shared with another collection.
    """

    number: int
    name: str
    generation: str
    settings: CollectionSettings
    kept: bool
    epoch: int


@dataclass(frozen=True, slots=True)
class StoredPassage:
    """A chunk as stored.

    Attributes:
        ordinal: 0-based position among the document's chunks.
        ingested_at: Time of ingestion, UTC.
    """

    passage: Passage
    ordinal: int
    ingested_at: datetime


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document ready to be stored.

    Attributes:
        collection: Name of the collection; created if it does not exist.
        sha256: SHA-256 of the bytes, lower-case hex.
        size_bytes: Number of bytes.
        vectors: float32 [chunks, dimension].
        content: Its bytes, which are kept as its original if originals are; None if there are none to keep.
    """

    collection: str
    name: str
    media_type: str
    sha256: str
    size_bytes: int
    parsed: ParsedDocument
    chunks: tuple[Chunk, ...]
    embedder: str
    vectors: NDArray[np.float32]
    metadata: Metadata
    given_metadata: Metadata
    chunk_tokens: int
    content: Content | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """Changes of a committed transaction in a collection's vectors.

    Attributes:
        added: Chunks that got vectors, in document order.
        dropped: Whether the collection was removed with its last document.
    """

    collection: Collection
    removed: tuple[ChunkId, ...]
    added: tuple[ChunkId, ...]
    dropped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentChange(Change):
    """Changes in the vectors by a transaction that wrote or deleted a document."""

    info: DocumentInfo


def encode_settings(settings: CollectionSettings) -> str:
    """Encodes the settings that differ from the defaults as JSON."""
    boosts = [
        {"key": boost.key, "value": encode_metadata({"value": boost.value}), "factor": boost.factor}
        for boost in settings.boosts
    ]
    values = {"offload": settings.offload.value, "kv_reuse": settings.kv_reuse.value}
    given = {**asdict(replace(settings, boosts=())), "boosts": boosts, **values}
    unset = CollectionSettings()
    defaults = {**asdict(unset), "offload": unset.offload.value, "kv_reuse": unset.kv_reuse.value}
    return json.dumps({key: value for key, value in given.items() if value != defaults[key] and value != []})


def decode_settings(text: str) -> CollectionSettings:
    """Decodes settings.

    Raises:
        StorageCorrupt: The JSON is damaged.
    """
    try:
        stored: dict[str, Any] = json.loads(text)
        parts: dict[str, Any] = {}
        if "fusion" in stored:
            parts["fusion"] = FusionWeights(**stored["fusion"])
        if "recency" in stored:
            parts["recency"] = RecencyBoost(**stored["recency"])
        if "offload" in stored:
            parts["offload"] = OffloadRule(stored["offload"])
        if "boosts" in stored:
            parts["boosts"] = tuple(
                ValueBoost(each["key"], _single(each["value"]), each["factor"]) for each in stored["boosts"]
            )
        if "kv_reuse" in stored:
            parts["kv_reuse"] = KvReuse(stored["kv_reuse"])
        return CollectionSettings(**{**stored, **parts})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StorageCorrupt(f"the stored settings of a collection are damaged ({error})") from error


def _single(text: str) -> Any:
    return decode_metadata(text)["value"]


_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

INFO = (
    "d.id, c.name, d.name, d.title, d.media_type, d.sha256, d.size_bytes, d.characters, d.chunks, d.pages, "
    "d.ingested_at, d.metadata, d.original"
)
"""Columns of a ``DocumentInfo``, of documents ``d`` joined with collections ``c``."""


MAX_COLLECTIONS: Final = 1000
"""Most collections; each has a full text table and an index, and the status lists them all."""

COLLECTIONS = "SELECT collection, name, generation, settings, kept, epoch FROM collections"
"""Columns that ``collection_of`` reads."""


def info_of(row: Sequence[Any]) -> DocumentInfo:
    *plain, ingested_at, metadata, original = row
    values: tuple[Any, ...] = (*plain, datetime.fromisoformat(ingested_at), stored_metadata(metadata), bool(original))
    return DocumentInfo(*values)


def new_document_id() -> DocumentId:
    """Returns a new id: 48 bits of Unix milliseconds, then 32 random bits, so that ids sort by age."""
    return DocumentId(f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(4)}")


def collection_of(row: Sequence[Any]) -> Collection:
    number, name, generation, settings, kept, epoch = row
    return Collection(number, name, generation, decode_settings(settings), bool(kept), epoch)


def require_collection(connection: apsw.Connection, name: str) -> Collection:
    """Finds a collection by name.

    Raises:
        CollectionNotFound: It does not exist.
    """
    row = connection.execute(f"{COLLECTIONS} WHERE name = ?", (name,)).fetchone()
    if row is None:
        known = connection.execute("SELECT name FROM collections ORDER BY name").fetchall()
        raise CollectionNotFound(name, tuple(other for (other,) in known))
    return collection_of(row)


def require_document(connection: apsw.Connection, collection: Collection, document: str) -> int:
    """Returns the row id of a document, found by id or else by name.

    Raises:
        DocumentNotFound: It does not exist.
    """
    for column in ("id", "name"):
        row = connection.execute(
            f"SELECT document FROM documents WHERE collection = ? AND {column} = ?", (collection.number, document)
        ).fetchone()
        if row is not None:
            return int(row[0])
    raise DocumentNotFound(document)


def ensure_collection(connection: apsw.Connection, name: str) -> int:
    row = connection.execute("SELECT collection FROM collections WHERE name = ?", (name,)).fetchone()
    if row is not None:
        return int(row[0])
    return insert_collection(connection, name, datetime.now(UTC), "{}", kept=False)


def insert_collection(
    connection: apsw.Connection, name: str, created_at: datetime, settings: str, *, kept: bool
) -> int:
    """Creates a collection with its full text table and returns its row id."""
    (count,) = connection.execute("SELECT count(*) FROM collections").fetchone()
    if count >= MAX_COLLECTIONS:
        raise InvalidRequest("collection", f"{name!r} would be one more than the {MAX_COLLECTIONS:,} that can be")
    connection.execute(
        "INSERT INTO collections (name, generation, settings, kept, created_at, epoch) VALUES (?, '', ?, ?, ?, ?)",
        (name, settings, int(kept), created_at.isoformat(), _next_epoch(connection)),
    )
    number = int(connection.last_insert_rowid())
    create_fulltext(connection, number)
    return number


def drop_collection(connection: apsw.Connection, collection: int) -> int:
    drop_fulltext(connection, collection)
    connection.execute("DELETE FROM words WHERE collection = ?", (collection,))
    connection.execute("DELETE FROM collections WHERE collection = ?", (collection,))
    return _next_epoch(connection)


def ensure_embedder(connection: apsw.Connection, name: str, dimension: int) -> int:
    row = connection.execute("SELECT embedder FROM embedders WHERE name = ?", (name,)).fetchone()
    if row is not None:
        return int(row[0])
    connection.execute("INSERT INTO embedders (name, dimension) VALUES (?, ?)", (name, dimension))
    return int(connection.last_insert_rowid())


def renew_generation(connection: apsw.Connection, collection: int) -> str:
    generation = secrets.token_hex(16)
    connection.execute("UPDATE collections SET generation = ? WHERE collection = ?", (generation, collection))
    return generation


def insert_document(
    connection: apsw.Connection,
    collection: int,
    info: DocumentInfo,
    text: str,
    given_metadata: Metadata,
    chunk_tokens: int,
) -> int:
    """Writes the record, metadata and text of a document and returns its row id."""
    connection.execute(
        "INSERT INTO documents (id, collection, name, title, media_type, sha256, size_bytes, characters, chunks, "
        "pages, ingested_at, text, metadata, given_metadata, chunk_tokens, original) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            info.document_id,
            collection,
            info.name,
            info.title,
            info.media_type,
            info.sha256,
            info.size_bytes,
            info.characters,
            info.chunks,
            info.pages,
            info.ingested_at.isoformat(),
            text,
            encode_metadata(info.metadata),
            encode_metadata(given_metadata),
            chunk_tokens,
            int(info.original),
        ),
    )
    document = int(connection.last_insert_rowid())
    insert_metadata(connection, collection, document, info.metadata)
    return document


def insert_metadata(connection: apsw.Connection, collection: int, document: int, metadata: Metadata) -> None:
    """Writes what filters search of a document's metadata: a row per value or tag."""
    connection.executemany(
        "INSERT INTO document_metadata (document, collection, key, ordinal, kind, value) VALUES (?, ?, ?, ?, ?, ?)",
        [
            (document, collection, key, ordinal, *stored_value(each))
            for key, value in metadata.items()
            for ordinal, each in enumerate(value if isinstance(value, tuple) else (value,))
        ],
    )


def encode_lines(lines: LineMap) -> str:
    return json.dumps(lines.steps(), separators=(",", ":")) if len(lines) else ""


def decode_lines(column: str) -> LineMap:
    return LineMap.of_steps(json.loads(column)) if column else NO_LINES


def insert_chunk(
    connection: apsw.Connection,
    collection: int,
    document: int,
    chunk: Chunk,
    embedder: int,
    vector: NDArray[np.float32],
) -> ChunkId:
    """Writes a chunk with its full text and its vector and returns its id."""
    context = json.dumps(chunk.context, ensure_ascii=False)
    connection.execute(
        "INSERT INTO chunks (document, collection, ordinal, first, past, page, context, text, embedder, embedding, "
        "lines) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            document,
            collection,
            chunk.ordinal,
            chunk.start,
            chunk.end,
            chunk.page,
            context,
            chunk.text,
            embedder,
            encode_vector(vector),
            encode_lines(chunk.lines),
        ),
    )
    number = int(connection.last_insert_rowid())
    connection.execute(
        f"INSERT INTO {fulltext_table(collection)} (rowid, text, context) VALUES (?, ?, ?)",
        (number, chunk.text, context),
    )
    return ChunkId(number)


def remove_document(connection: apsw.Connection, collection: int, document: int) -> tuple[ChunkId, ...]:
    """Removes a document with its chunks, full text, words and vectors, which starts a new epoch of the collection."""
    connection.execute("UPDATE collections SET epoch = ? WHERE collection = ?", (_next_epoch(connection), collection))
    chunks = connection.execute("SELECT chunk FROM chunks WHERE document = ?", (document,)).fetchall()
    table = fulltext_table(collection)
    connection.execute(
        f"INSERT INTO {table} ({table}, rowid, text, context) "
        "SELECT 'delete', chunk, text, context FROM chunks WHERE document = ?",
        (document,),
    )
    discount_words(connection, collection, document)
    connection.execute("DELETE FROM documents WHERE document = ?", (document,))
    return tuple(ChunkId(number) for (number,) in chunks)


def _next_epoch(connection: apsw.Connection) -> int:
    (epoch,) = connection.execute("UPDATE directory SET epochs = epochs + 1 RETURNING epochs").fetchone()
    return int(epoch)


def stored_metadata(text: str) -> dict[str, MetadataValue]:
    """Decodes a document's metadata.

    Raises:
        StorageCorrupt: The JSON is damaged.
    """
    try:
        return decode_metadata(text)
    except ValueError as error:
        raise StorageCorrupt(f"the stored metadata of a document is damaged ({error})") from error


def stored_value(value: str | float | bool | datetime) -> tuple[str, str | float | int]:
    """Returns the kind of a metadata value, and the value in a form that SQLite orders correctly within the kind.

    Moments are whole microseconds since 1970: a float could not represent them exactly for every year.
    """
    match value:
        case bool():
            return "flag", int(value)
        case str():
            return "text", value
        case datetime():
            return "date", (value - _UNIX_EPOCH) // _MICROSECOND
        case float():
            return "number", value


def encode_vector(vector: NDArray[np.float32]) -> bytes:
    """Encodes a vector as little-endian float32."""
    return vector.astype("<f4").tobytes()
