"""What a collection's settings do to the ranking, and what a search says about it, over real gRPC."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import log

import pytest
from click.testing import CliRunner

from edge_rag.cli.main import main
from edge_rag.client import Client, FoundPassage, SearchOptions
from edge_rag.core.documents.collection import CollectionSettings, FusionWeights, RecencyBoost, ValueBoost
from tests.e2e.support.running_daemon import RunningDaemon

_DRAIN = (
    "Before the pump is opened the main switch is locked and a warning is hung beside it. The pressure is let out of "
    "the casing through the drain, whose valve stays open until the cover is back in place."
)
_SECTION = "\n\n".join(
    (
        "# Sluice gate",
        "The sluice gate is moved by a spindle of bronze, and the spindle is greased with lithium soap every month.",
        "The spindle nut of the sluice gate is replaced when its thread is worn by more than a quarter of its depth.",
        "A new spindle nut is run in by hand over the full height of the sluice gate before the drive is coupled.",
    )
)


@pytest.fixture
def client(daemon: RunningDaemon) -> Iterator[Client]:
    with Client(daemon.address) as client:
        client.create_collection("ranked")
        yield client
        client.delete_collection("ranked")


def put(client: Client, name: str, text: str, **metadata: object) -> None:
    client.ingest(name, lambda: io.BytesIO(text.encode()), collection="ranked", metadata=metadata)


def search(client: Client, query: str, *, rerank: bool = True, limit: int = 10) -> tuple[FoundPassage, ...]:
    return client.search(query, SearchOptions(collection="ranked", rerank=rerank, limit=limit)).hits


def test_of_equal_passages_the_best_stands_for_all_and_names_them(client: Client) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        put(client, name, _DRAIN)
    put(client, "other.txt", "The pump is opened by the fitter after its pressure has been let out.")
    put(client, "number.txt", f"{_DRAIN} The pressure is 7 bar.")

    hits = search(client, "How is the pressure let out before the pump is opened?")
    (best,) = (hit for hit in hits if hit.text == _DRAIN)
    assert len(hits) == 3
    assert {best.document, *(other.document for other in best.duplicates)} == {"a.txt", "b.txt", "c.txt"}
    assert {(other.start, other.end) for other in best.duplicates} == {(0, len(_DRAIN))}

    client.update_collection("ranked", CollectionSettings(drop_duplicates=False), {"drop_duplicates"})
    hits = search(client, "How is the pressure let out before the pump is opened?")
    assert len(hits) == 5
    assert not any(hit.duplicates for hit in hits)


def test_duplicates_make_room_so_that_k_results_are_k_results(client: Client) -> None:
    for number in range(120):
        put(client, f"copy-{number}.txt", "The seal of the pump is checked.")
    put(client, "own.txt", "The seal of the sluice gate is made of felt and is soaked in tallow.")

    hits = search(client, "The seal of the pump is checked.", rerank=False, limit=2)

    assert [len(hit.duplicates) > 0 for hit in hits] == [True, False]
    assert hits[1].document == "own.txt"


@pytest.mark.smoke
def test_neighbours_become_one_passage_that_is_an_exact_range_of_the_text(client: Client) -> None:
    wanted = CollectionSettings(chunk_tokens=32, merge_neighbours=True)
    client.update_collection("ranked", wanted, {"chunk_tokens", "merge_neighbours"})
    put(client, "gate.md", _SECTION)
    stored = client.document("gate.md", collection="ranked")
    assert stored.info.chunks == 3

    options = SearchOptions(collection="ranked", explain=True)
    reply = client.search("spindle nut of the sluice gate", options)
    (hit,), (explained,) = reply.hits, reply.explanations
    assert hit.text == stored.text[hit.start : hit.end]
    assert hit.text.count("\n\n") == 2
    assert [stored.text[part.start : part.end] for part in explained.merged_from] == hit.text.split("\n\n")

    client.update_collection("ranked", CollectionSettings(merge_neighbours=False), {"merge_neighbours"})
    apart = client.search("spindle nut of the sluice gate", options)
    assert len(apart.hits) == 3
    assert not any(each.merged_from for each in apart.explanations)


def test_passages_that_models_could_not_read_whole_are_not_merged(client: Client) -> None:
    client.update_collection("ranked", CollectionSettings(merge_neighbours=True), {"merge_neighbours"})
    sentences = " ".join(
        f"The spindle of gate {number} is greased and turned by the crew of day." for number in range(90)
    )
    put(client, "long.md", f"# Gates\n\n{sentences}")
    whole = client.document("long.md", collection="ranked").text

    hits = search(client, "Which spindle is greased?", limit=20)

    assert len(hits) > 3
    for hit in hits:
        assert hit.text == whole[hit.start : hit.end]
        assert len(hit.text.split()) < 220
    spans = sorted((hit.start, hit.end) for hit in hits)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


@pytest.mark.parametrize("rerank", [False, True])
def test_what_a_collection_prefers_comes_first_with_and_without_the_reranker(client: Client, rerank: bool) -> None:
    put(client, "draft.txt", "Pump P-7 is greased every 200 hours with lithium soap.", source="draft")
    put(client, "final.txt", "Pump P-7 is greased every 300 hours with lithium soap.", source="final")
    for source in ("draft", "final"):
        boosts = (ValueBoost("source", source, 50.0),)
        client.update_collection("ranked", CollectionSettings(boosts=boosts), {"boosts"})
        hits = search(client, "How often is pump P-7 greased?", rerank=rerank)
        assert hits[0].metadata["source"] == source
        assert len(hits) == 2


def test_what_is_recent_comes_first_where_that_is_wanted(client: Client) -> None:
    now = datetime.now(UTC)
    put(client, "old.txt", "Pump P-7 is greased every 200 hours with lithium soap.", created=now - timedelta(days=900))
    put(client, "new.txt", "Pump P-7 is greased every 300 hours with lithium soap.", created=now - timedelta(days=1))
    put(client, "undated.txt", "Pump P-7 is greased every 400 hours with lithium soap.")
    recency = RecencyBoost("created", 30.0, 50.0)
    client.update_collection("ranked", CollectionSettings(recency=recency), {"recency"})

    options = SearchOptions(collection="ranked", explain=True)
    reply = client.search("How often is pump P-7 greased?", options)

    assert reply.hits[0].document == "new.txt"
    boosts = {hit.document: each.boost for hit, each in zip(reply.hits, reply.explanations, strict=True)}
    assert boosts["new.txt"] == pytest.approx(1 + 50 * 2 ** (-1 / 30), rel=1e-3)
    assert boosts["old.txt"] == pytest.approx(1.0, abs=1e-6)
    assert boosts["undated.txt"] == 1.0


def test_an_explanation_adds_up(client: Client) -> None:
    for number in range(12):
        put(client, f"{number}.txt", f"Pump {number} is greased every {100 + number} hours.", number=number)
    put(client, "far.txt", "Goggles hang beside the door of the laboratory.")
    fusion = FusionWeights(2.0, 0.5, 10.0)
    boosts = (ValueBoost("number", 3.0, 1.5),)
    client.update_collection("ranked", CollectionSettings(fusion=fusion, boosts=boosts), {"fusion", "boosts"})

    for rerank in (False, True):
        options = SearchOptions(collection="ranked", limit=13, rerank=rerank, explain=True)
        reply = client.search("How often is pump 3 greased?", options)
        assert len(reply.explanations) == len(reply.hits) == 13
        assert sorted(each.retriever_rank for each in reply.explanations) == list(range(1, 14))
        for hit, each in zip(reply.hits, reply.explanations, strict=True):
            dense = 0.0 if each.dense_rank is None else 2.0 / (10 + each.dense_rank)
            lexical = 0.0 if each.lexical_rank is None else 0.5 / (10 + each.lexical_rank)
            assert each.fused_score == pytest.approx(dense + lexical)
            assert each.boost == (1.5 if hit.document == "3.txt" else 1.0)
            assert (each.dense_rank is None) == (each.dense_score is None)
            assert (each.lexical_rank is None) == (each.lexical_score is None)
            assert each.dense_score is None or -1 <= each.dense_score <= 1.0001
            assert hit.score == pytest.approx(each.fused_score * each.boost if not rerank else each.rerank_score)
        by_dense = sorted((e.dense_rank, -(e.dense_score or 0)) for e in reply.explanations if e.dense_rank)
        assert [score for _, score in by_dense] == pytest.approx(sorted(score for _, score in by_dense))
        far = next(e for hit, e in zip(reply.hits, reply.explanations, strict=True) if hit.document == "far.txt")
        assert far.lexical_rank is None


def test_a_boost_shifts_the_rerankers_score_by_its_logarithm(client: Client) -> None:
    """The retriever puts 2.txt first with the boost and without, so that no rank changes."""
    for number in range(3):
        put(client, f"{number}.txt", f"Pump {number} is greased every {100 + number} hours.", number=number)

    def scores() -> dict[str, float]:
        return {hit.document: hit.score for hit in search(client, "How often is pump 2 greased?")}

    before = scores()
    boosts = (ValueBoost("number", 2.0, 4.0),)
    client.update_collection("ranked", CollectionSettings(boosts=boosts), {"boosts"})
    after = scores()

    assert after["2.txt"] - before["2.txt"] == pytest.approx(log(4.0), abs=1e-5)
    assert after["0.txt"] == pytest.approx(before["0.txt"], abs=1e-5)


@pytest.mark.smoke
def test_the_command_line_explains(client: Client, daemon: RunningDaemon) -> None:
    put(client, "seal.txt", "The seal is checked each week.")
    arguments = ["search", "seal", "--explain", "--collection", "ranked", "--server", daemon.address]

    shown = CliRunner().invoke(main, arguments).stdout.splitlines()
    heading = next(line for line in shown if "cosine" in line)
    assert heading.split() == [
        "hit",
        "dense",
        "cosine",
        "BM25",
        "score",
        "fused",
        "boost",
        "retriever",
        "reranker",
        "merged",
        "from",
    ]
    assert shown[shown.index(heading) + 1].split()[:2] == ["1", "1"]
    (hit,) = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)["hits"]
    explained = hit["explanation"]
    assert (explained["dense_rank"], explained["lexical_rank"], explained["boost"]) == (1, 1, 1.0)
    assert explained["merged_from"] == []
