"""The arithmetic of benchmarks that decide: percentiles, rankings, shares of answers, the not-found curve."""

import random
from math import log2
from pathlib import Path

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from edge_rag.core.answer import Citation, FinishReason
from scripts.bench.harness.checkouts import medians
from scripts.bench.harness.figures import percentile
from scripts.bench.harness.squad import Question
from scripts.bench.quality.extraction import kind_of, same_value
from scripts.bench.quality.judging import (
    Given,
    Point,
    Shares,
    Verdict,
    contains,
    curve,
    f1,
    is_verbatim,
    judge,
    separation,
    summarize,
)
from scripts.bench.retrieval.judged_sets import JudgedQuestion, read_judged_set
from scripts.bench.retrieval.known_items import join_descriptions
from scripts.bench.retrieval.ranking_quality import document_rank, graded_ndcg, paired_difference, ranking_quality

STORED = {"a.txt": "The pump runs. It is greased weekly.", "b.txt": "Nothing of the kind."}
ASKED = Question("How often is it greased?", 0, "a.txt", ("weekly", "each week"))


def test_a_percentile_is_one_of_the_values() -> None:
    assert [percentile([3, 1, 2], share) for share in (0, 0.5, 0.99)] == [1, 2, 3]


def test_a_ratio_is_the_median_of_the_pairs_not_of_the_medians() -> None:
    found = medians([{"x": 1.0}, {"x": 10.0}, {"x": 2.0}], [{"x": 2.0}, {"x": 10.0}, {"x": 6.0}])
    assert found == {"x": {"this_ms": 2.0, "other_ms": 6.0, "ratio": 2.0}}


def test_a_document_is_ranked_by_its_best_chunk_and_counted_once() -> None:
    assert document_rank(["a", "a", "b", "a", "c"], "b") == 2
    assert document_rank(["a", "b"], "c") is None


@drawn(st.lists(st.none() | st.integers(1, 200), min_size=1))
def test_measures_of_a_ranking_lie_between_recall_at_1_and_1(ranks: list[int | None]) -> None:
    quality = ranking_quality(ranks)
    assert 0 <= quality.recall_at_1 <= quality.recall_at_5 <= quality.recall_at_10 <= 1
    assert quality.recall_at_1 <= quality.ndcg_at_10 <= quality.recall_at_10 + 1e-9


def test_graded_ndcg_is_one_for_the_best_order_and_counts_a_document_once() -> None:
    gains = {"a": 3.0, "b": 1.0}
    assert graded_ndcg(["a", "a", "b"], gains) == pytest.approx(1.0)
    assert graded_ndcg(["b", "x", "a"], gains) == pytest.approx((1 + 3 / log2(4)) / (3 + 1 / log2(3)))
    assert graded_ndcg([*map(str, range(10)), "a"], gains) == 0.0


def test_a_paired_difference_has_the_error_of_the_differences_not_of_the_measures() -> None:
    found = paired_difference([0.0, 0.5, 1.0], [0.1, 0.6, 1.1])
    assert found.difference == pytest.approx(0.1)
    assert found.standard_error == pytest.approx(0.0, abs=1e-12)
    assert paired_difference([0.0, 0.0], [0.0, 1.0]).standard_error == pytest.approx(0.5)


def test_cranfields_codes_are_gains_and_its_judgements_count_questions(tmp_path: Path) -> None:
    (tmp_path / "cran.all.1400").write_text(
        "".join(f".I {number}\n.T\ntitle {number}\n.W\ntitle {number} text\n" for number in range(1, 5))
    )
    (tmp_path / "cran.qry").write_text(".I 004\n.W\nwhich wing\n")
    (tmp_path / "cranqrel").write_text("1 1 1\n1 2 4\n1 3 5\n1 4 -1\n")
    judged = read_judged_set(tmp_path)
    assert judged.documents["document-000000.txt"] == "title 1\n\ntext"
    gains = {"document-000000.txt": 4.0, "document-000001.txt": 1.0, "document-000003.txt": 4.0}
    assert judged.questions == (JudgedQuestion("which wing", gains),)


def test_a_set_in_beirs_form_is_read_and_another_folder_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"is no test collection: it needs corpus\.jsonl"):
        read_judged_set(tmp_path)
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text('{"_id": "a", "title": "Pumps", "text": "One\u2028text."}\n', "utf-8")
    (tmp_path / "queries.jsonl").write_text('{"_id": "1", "text": "which pump"}\n')
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t2\n1\tunknown\t1\n")
    judged = read_judged_set(tmp_path)
    assert judged.documents == {"document-000000.txt": "Pumps\n\nOne\u2028text."}
    assert judged.questions == (JudgedQuestion("which pump", {"document-000000.txt": 2.0}),)


def test_package_descriptions_are_joined_by_their_digest_and_lose_their_markup() -> None:
    packages = "Package: zsh\nSource: zsh (5.9-4)\nDescription: a shell\nDescription-md5: aa\n"
    translated = "Package: zsh\nDescription-md5: aa\nDescription-en: a shell\n Zsh is\n usable.\n .\n  * functions\n"
    (zsh,) = join_descriptions(packages, [translated])
    assert (zsh.source, zsh.synopsis, zsh.text) == ("zsh", "a shell", "Zsh is\nusable.\n\n * functions")


def citation(document: str, start: int, end: int, at: int = 0) -> Citation:
    return Citation(0, document, None, start, end, STORED[document][start:end], at, at + end - start)


def answer(text: str, *citations: Citation, reason: FinishReason = FinishReason.STOP) -> Given:
    return Given(text, citations, reason, 0.5)


RIGHT = answer("It is greased weekly.", citation("a.txt", 15, 36))
BOTH = answer("Nothing of the kind. It is greased weekly.", citation("b.txt", 0, 20), citation("a.txt", 15, 36, at=21))
HEADED = answer(
    "b.txt\n- Nothing of the kind.\n\na.txt\n- It is greased weekly.",
    citation("b.txt", 0, 20, at=8),
    citation("a.txt", 15, 36, at=38),
)


def test_an_answer_has_merits_only_if_it_is_one() -> None:
    assert judge(ASKED, BOTH, STORED) == Verdict(found=True, cites=True, verbatim=True, contains=True)
    elsewhere = answer("Nothing of the kind.", citation("b.txt", 0, 20))
    assert judge(ASKED, elsewhere, STORED) == Verdict(found=True, cites=False, verbatim=True, contains=False)
    none = answer(RIGHT.text, *RIGHT.citations, reason=FinishReason.NOT_FOUND)
    assert judge(ASKED, none, STORED) == Verdict(False, False, False, False)


@pytest.mark.parametrize(
    "altered",
    [
        answer("It is greased weekly!", *RIGHT.citations),
        answer("It is greased weekly. Daily, even.", *RIGHT.citations),
        answer(RIGHT.text, citation("a.txt", 14, 35)),
        answer(RIGHT.text),
        answer(""),
        answer(BOTH.text, BOTH.citations[0], citation("a.txt", 15, 36, at=20)),
        answer(HEADED.text, HEADED.citations[0]),
        answer(HEADED.text.replace("b.txt", "a.txt"), *HEADED.citations),
    ],
)
def test_an_answer_is_verbatim_only_if_every_character_is_stored_text_that_is_cited(altered: Given) -> None:
    assert all(is_verbatim(each, STORED) for each in (RIGHT, BOTH, HEADED))
    assert not is_verbatim(altered, STORED)


def test_shares_of_answers_leave_out_not_found_answers_and_shares_of_questions_do_not() -> None:
    good, wrong = Verdict(True, True, True, True), Verdict(True, False, True, False)
    summary = summarize([good, good, wrong, Verdict(False, False, False, False)])
    assert (summary.questions, summary.not_found) == (4, 0.25)
    assert summary.of_answers == Shares(cites=2 / 3, verbatim=1.0, contains=2 / 3)
    assert summary.of_questions == Shares(cites=0.5, verbatim=0.75, contains=0.5)


def test_a_threshold_turns_away_what_is_below_it_and_keeps_what_reaches_it() -> None:
    points = curve([0.5, 0.9, 0.3, 0.4], [0.1, 0.3], [0.3, 0.31, 1.0])
    assert points == (Point(0.3, 0.0, 0.5), Point(0.31, 0.25, 1.0), Point(1.0, 1.0, 1.0))


def test_separation_is_the_share_of_pairs_in_the_right_order() -> None:
    chance = random.Random(5)
    with_answer = [chance.randrange(8) / 8 for _ in range(40)]
    without = [chance.randrange(6) / 8 for _ in range(30)]
    pairs = [(one > other) + (one == other) / 2 for one in with_answer for other in without]
    assert separation(with_answer, without) == pytest.approx(sum(pairs) / len(pairs))


@pytest.mark.parametrize(
    ("text", "share"),
    [("35 grams", 1.0), ("It takes 35 grams.", 2 / 3), ("The 35-grams", 1.0), ("none", 0.0), ("", 0.0)],
)
def test_f1_is_of_words_without_articles_and_punctuation(text: str, share: float) -> None:
    assert f1(text, ("35 grams", "a kilo")) == pytest.approx(share)
    assert not contains("P1 takes 135 grams.", ("35 grams",))


@pytest.mark.parametrize(
    ("value", "accepted", "same"),
    [("2,000 operating hours", "2000 hours", True), ("four", "4 teams", True), ("20 to 30 hertz", "20 hertz", False)],
)
def test_values_are_the_same_by_numbers_and_words(value: str, accepted: str, same: bool) -> None:
    assert same_value(value, accepted) is same
    assert [kind_of([each]) for each in ("8 February 2007", "Joseph Priestley")] == ["date or year", None]
