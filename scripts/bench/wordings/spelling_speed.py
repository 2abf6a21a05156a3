"""Measures what the words of a collection cost: reading them, finding near ones, and keeping them at ingest.

    python -m scripts.bench.wordings.spelling_speed ../shared/data/xquad-a.json --words 200000

Words are made from the pairs of letters of the file's words, so that they are as near to each other as those of a
language. Printed are the time of reading them all at the first misspelled question, their memory, the time of a
misspelled word with one and two edits, and beside that memory and time of a table of deletions (Garbe, SymSpell, 2012:
all words with up to two of their first seven letters deleted), of a part of the words and multiplied. And of the file's
documents, the time of storing their words beside that of their full text. Times are of one processor.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Final, TypeVar

from rapidfuzz.distance import OSA
from rich.console import Console
from rich.table import Table

from edge_rag.analysis.terms import words_of
from edge_rag.retriever.wordings.vocabulary import Vocabularies
from edge_rag.storage.database import Database
from edge_rag.storage.migrations import fulltext_table
from edge_rag.storage.statements import insert_collection
from edge_rag.storage.words.vocabulary import count_words
from scripts.bench.harness.squad import read_squad

ASKED: Final = 200
PREFIX: Final = 7
DELETIONS: Final = 2
PART: Final = 10

T = TypeVar("T")


def invented(words: Iterable[str], count: int, source: random.Random) -> list[str]:
    """Returns so many distinct words of 3 letters and more, whose pairs of letters are those of other words."""
    following: defaultdict[str, list[str]] = defaultdict(list)
    for word in words:
        for first, second in zip(f"^{word}", f"{word}$", strict=True):
            following[first].append(second)
    made: dict[str, None] = {}
    while len(made) < count:
        word = letter = source.choice(following["^"])
        while (letter := source.choice(following[letter])) != "$" and len(word) < 16:
            word += letter
        if len(word) >= 3:
            made[word] = None
    return list(made)


def misspelled(word: str, edits: int, source: random.Random) -> str:
    """Returns a word with so many letters replaced or deleted."""
    for _ in range(edits):
        at = source.randrange(len(word))
        word = word[:at] + source.choice(("", "e", "s", "t")) + word[at + 1 :]
    return word


def deletions(word: str) -> set[str]:
    """Returns the first letters of a word without up to two of them."""
    head = word[:PREFIX]
    return {
        "".join(letter for at, letter in enumerate(head) if at not in left)
        for count in range(min(DELETIONS, len(head)) + 1)
        for left in combinations(range(len(head)), count)
    }


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Returns a result and the seconds of processor time of this thread that it took."""
    started = time.thread_time()
    result = work()
    return result, time.thread_time() - started


def allocated(work: Callable[[], T]) -> tuple[T, int]:
    """Returns a result and the bytes that stay allocated."""
    tracemalloc.start()
    result = work()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return result, size


def filled(path: Path, words: Sequence[str], source: random.Random) -> tuple[Database, int]:
    """Returns a database with a collection that has these words, each in 1 to 999 chunks."""
    database = Database(path)
    with database.writing() as connection:
        collection = insert_collection(connection, "measured", datetime.now(UTC), "{}", kept=True)
        connection.executemany(
            "INSERT INTO words (collection, word, chunks) VALUES (?, ?, ?)",
            [(collection, word, int(1000 ** source.random())) for word in words],
        )
    return database, collection


def ingest_cost(path: Path, documents: Sequence[str]) -> tuple[float, float]:
    """Returns the seconds of storing the full text of documents, and of storing their words."""
    database = Database(path)
    with database.writing() as connection:
        collection = insert_collection(connection, "measured", datetime.now(UTC), "{}", kept=True)
        connection.execute("INSERT INTO embedders (name, dimension) VALUES ('none', 0)")
        for number, text in enumerate(documents, start=1):
            connection.execute(
                "INSERT INTO documents (id, collection, name, title, media_type, sha256, size_bytes, characters, "
                "chunks, ingested_at, text) VALUES (?, ?, ?, '', '', '', 0, 0, 1, '', '')",
                (str(number), collection, f"{number}.txt"),
            )
            connection.execute(
                "INSERT INTO chunks (document, collection, ordinal, first, past, context, text, embedder, embedding) "
                "VALUES (?, ?, 0, 0, 0, '[]', ?, 1, x'')",
                (number, collection, text),
            )
        table = fulltext_table(collection)
        insert = f"INSERT INTO {table} (rowid, text, context) SELECT chunk, text, context FROM chunks"
        _, full_text_s = timed(lambda: connection.execute(insert))
        numbers = range(1, len(documents) + 1)
        _, words_s = timed(lambda: [*map(partial(count_words, connection, collection), numbers)])
    database.close()
    return full_text_s, words_s


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a SQuAD-format file")
    parser.add_argument("--words", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    source = random.Random(arguments.seed)
    documents = list(read_squad(arguments.data)[0].values())
    words = invented((word.term for text in documents for word in words_of(text)), arguments.words, source)
    table = Table("", "value")
    with tempfile.TemporaryDirectory() as scratch:
        database, collection = filled(Path(scratch) / "words.db", words, source)
        vocabularies = Vocabularies(database)
        vocabularies.near(collection, "first", 0)  # RapidFuzz is imported by the first one
        _, reading_s = timed(lambda: Vocabularies(database).near(collection, "first", 0))
        _, size = allocated(lambda: [other := Vocabularies(database), other.near(collection, "first", 0)])
        table.add_row("reading all words, ms", f"{1000 * reading_s:.0f}")
        table.add_row("memory, MB", f"{size / 1e6:.1f}")
        for edits in (1, 2):
            asked = [misspelled(word, edits, source) for word in source.sample(words, ASKED)]
            times = [timed(partial(vocabularies.near, collection, word, edits))[1] for word in asked]
            median, most = statistics.median(times), statistics.quantiles(times, n=20)[-1]
            table.add_row(f"a word, {edits} edits, ms: median, 95%", f"{1000 * median:.1f}, {1000 * most:.1f}")
        database.close()
        part = words[::PART]

        def table_of_deletions() -> dict[str, list[int]]:
            found: defaultdict[str, list[int]] = defaultdict(list)
            for number, word in enumerate(part):
                for head in deletions(word):
                    found[head].append(number)
            return dict(found)

        (heads, size), building_s = timed(lambda: allocated(table_of_deletions))
        asked = [misspelled(word, 2, source) for word in source.sample(words, ASKED)]

        def by_deletions(word: str) -> list[str]:
            near = {number for head in deletions(word) for number in heads.get(head, ())}
            return [part[at] for at in near if OSA.distance(word, part[at], score_cutoff=2) <= 2]

        times = [timed(partial(by_deletions, word))[1] for word in asked]
        table.add_row(f"table of deletions, {PART} times a part: memory, MB", f"{PART * size / 1e6:.0f}")
        table.add_row("of it: building, s", f"{PART * building_s:.0f}")
        table.add_row("of it: a word, 2 edits, ms: median", f"{1000 * PART * statistics.median(times):.1f}")
        full_text_s, words_s = ingest_cost(Path(scratch) / "ingest.db", documents)
        table.add_row("full text of the documents, ms", f"{1000 * full_text_s:.0f}")
        table.add_row("their words, ms", f"{1000 * words_s:.0f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
