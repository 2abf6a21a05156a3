"""The words of a collection follow its documents exactly, and near ones are found among them."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from rapidfuzz.distance import OSA

from edge_rag.analysis.terms import plain_letters, words_of
from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.documents.document import Upload
from edge_rag.core.passage import RetrievalRequest, Retrieved
from edge_rag.retriever.wordings import vocabulary
from edge_rag.retriever.wordings.spelling import Near
from edge_rag.retriever.wordings.vocabulary import Vocabularies
from edge_rag.storage.backup import DATABASE
from edge_rag.storage.database import Database
from tests.unit.retriever.hashed_words import HashedWords

PUMP = "# Pump\n\nThe bearings are greased with lithium grease.\n"
VALVE = "# Valve\n\nThe relief valve opens at 6 bar.\n"


class SpelledOut(HashedWords):
    """Every word is three tokens, so that none is frequent in a language."""

    def count_tokens(self, text: str) -> int:
        return 3 * len(text.split())


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[OpenDirectory]:
    opened = OpenDirectory(tmp_path / "data", SpelledOut())
    yield opened
    opened.close()


def store(directory: OpenDirectory, name: str, text: str, collection: str = "site") -> None:
    directory.library.ingest(Upload.of_bytes(collection, name, "text/markdown", text.encode()))


def suggestion(directory: OpenDirectory, question: str, collection: str = "site") -> str | None:
    (found,) = directory.retriever.retrieve([RetrievalRequest(question, collection, 3)])
    assert isinstance(found, Retrieved)
    return found.wordings.corrected if found.wordings else None


def stored_words(path: Path) -> dict[tuple[int, str], int]:
    database = Database(path / "data" / DATABASE)
    with database.reading() as connection:
        rows = connection.execute("SELECT collection, word, chunks FROM words").fetchall()
    database.close()
    return {(collection, word): chunks for collection, word, chunks in rows}


def test_words_of_a_removed_or_replaced_document_are_not_suggested_any_more(directory: OpenDirectory) -> None:
    store(directory, "pump.md", PUMP)
    store(directory, "valve.md", VALVE)
    assert suggestion(directory, "lithum for the bearngs") == "lithium for the bearings"

    directory.library.delete("site", "pump.md")
    assert suggestion(directory, "lithum for the bearngs") is None
    store(directory, "pump.md", PUMP)
    assert suggestion(directory, "lithum for the bearngs") == "lithium for the bearings"
    store(directory, "pump.md", "The bearings are greased with copper paste.")
    assert suggestion(directory, "lithum for the bearngs") == "lithum for the bearings"


def test_words_of_headings_and_of_names_of_documents_are_known(directory: OpenDirectory) -> None:
    store(directory, "galvanometer.md", VALVE)
    store(directory, "b.md", "# Thermocouple\n\nText.\n")

    assert suggestion(directory, "galvanometr thermocuple") == "galvanometer thermocouple"


def test_words_with_another_ending_are_found_by_their_stem(directory: OpenDirectory, tmp_path: Path) -> None:
    store(directory, "a.md", "Die Objekte werden klassifizierend und mathematisch beschrieben.")
    directory.close()
    database = Database(tmp_path / "data" / DATABASE)
    words = Vocabularies(database)

    assert words.near_forms(1, "mathemtischen") == [Near("mathematisch", 2, 1)]
    assert words.near_forms(1, "oektes") == []  # a stem of five letters may have one edit
    assert words.near_forms(1, "objektes") == [Near("objekte", 1, 1)]
    assert words.near_forms(1, "klass") == []  # too short to have an ending


def test_words_of_another_collection_are_not_suggested(directory: OpenDirectory) -> None:
    store(directory, "pump.md", PUMP, "other")
    store(directory, "valve.md", VALVE)

    assert suggestion(directory, "lithum for the bearngs") is None
    assert suggestion(directory, "lithum for the bearngs", "other") == "lithium for the bearings"


def test_the_table_has_exactly_the_words_of_the_documents(directory: OpenDirectory, tmp_path: Path) -> None:
    source = random.Random(3)
    texts: dict[str, str] = {}
    names = ["alpha.md", "beta.md", "gamma.md"]
    for _ in range(12):
        name = source.choice(names)
        if name in texts and source.random() < 0.4:
            directory.library.delete("site", name)
            del texts[name]
        else:
            texts[name] = " ".join(source.choices(["pump", "seal", "oil", "valve", "water", "motor", "seals"], k=5))
            store(directory, name, texts[name])
    store(directory, "alpha.md", "oil", "other")
    store(directory, "beta.md", "oil pump", "kept")
    directory.library.delete("other", "alpha.md")
    directory.close()

    expected: Counter[str] = Counter()
    for name, text in (*texts.items(), ("beta.md", "oil pump")):
        expected.update({word.term for word in words_of(text)})
        expected.update({word.term for word in words_of(f"{name} {name.removesuffix('.md')}")})
    found: Counter[str] = Counter()
    for (_, word), chunks in stored_words(tmp_path).items():
        found[word] += chunks
    assert found == expected


def test_near_words_are_those_that_a_comparison_with_every_word_finds(directory: OpenDirectory, tmp_path: Path) -> None:
    source = random.Random(1)
    letters = "abcdeéñstz"
    words = ["".join(source.choices(letters, k=source.randrange(2, 9))) for _ in range(900)]
    store(directory, "words.md", " ".join(words))
    directory.close()
    known = set(words) | {"words", "md"}
    database = Database(tmp_path / "data" / DATABASE)
    vocabularies = Vocabularies(database)
    (number,) = {collection for collection, _ in stored_words(tmp_path)}

    for word in ("abcde", "sté", "zzzzzz", *words[:30]):
        found = {(near.word, near.edits) for near in vocabularies.near(number, word, 2)}
        distances = {each: OSA.distance(plain_letters(word), plain_letters(each)) for each in known}
        within = {(each, distance) for each, distance in distances.items() if distance <= 2}
        assert found <= within
        assert len(found) == min(len(within), vocabulary._MOST_NEAR)
    database.close()


def test_the_words_in_memory_are_bounded_and_collections_asked_least_recently_are_given_up(
    directory: OpenDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocabulary, "MAX_WORDS", 4)
    monkeypatch.setattr(vocabulary, "MAX_ALL_WORDS", 6)
    for collection in ("one", "two", "three"):
        store(directory, "a.md", "pump pumps seal\n\n# x\n\npump seal rotor stator impeller casing", collection)
    directory.close()
    database = Database(tmp_path / "data" / DATABASE)
    vocabularies = Vocabularies(database)
    numbers = sorted({collection for collection, _ in stored_words(tmp_path)})

    for number in numbers:
        assert vocabularies.near(number, "pumq", 1) == [Near("pump", 1, 2)]
        assert sum(len(each.words) for each in vocabularies._read.values()) <= 6
    assert list(vocabularies._read) == numbers[-1:]
    database.close()
