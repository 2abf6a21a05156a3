"""Test collections are read from both forms, with the gains of their judgements."""

from __future__ import annotations

import json
from math import log2
from pathlib import Path

import pytest

from scripts.bench.retrieval.judged_sets import JudgedQuestion, read_judged_set
from scripts.bench.retrieval.ranking_quality import graded_ndcg, paired_difference


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return folder


def test_a_set_in_beirs_form_is_read(tmp_path: Path) -> None:
    corpus = [{"_id": "a", "title": "Pumps", "text": "One\u2028text."}, {"_id": "b", "title": "", "text": "Valves."}]
    folder = write(
        tmp_path,
        {
            "corpus.jsonl": "\n".join(json.dumps(each, ensure_ascii=False) for each in corpus) + "\n",
            "queries.jsonl": '{"_id": "1", "text": "which pump"}\n{"_id": "2", "text": "nothing"}\n',
            "qrels/test.tsv": "query-id\tcorpus-id\tscore\n1\ta\t2\n1\tb\t0\n1\tunknown\t1\n",
        },
    )
    judged = read_judged_set(folder)
    assert judged.documents == {"document-000000.txt": "Pumps\n\nOne\u2028text.", "document-000001.txt": "Valves."}
    assert judged.questions == (JudgedQuestion("which pump", {"document-000000.txt": 2.0}),)


def test_a_set_in_smarts_form_is_read(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {
            "CISI.ALL": ".I 1\n.T\nTitles\n.A\nSomebody\n.W\nAbout titles\nof articles.\n.X\n1 5 1\n.I 2\n.W\nOther\n",
            "CISI.QRY": ".I 1\n.W\nWhat is\na title?\n.I 2\n.W\nNothing\n",
            "CISI.REL": "     1      2 0 0.0\n",
        },
    )
    judged = read_judged_set(folder)
    assert judged.documents == {
        "document-000000.txt": "Titles\n\nAbout titles of articles.",
        "document-000001.txt": "Other",
    }
    assert judged.questions == (JudgedQuestion("What is a title?", {"document-000001.txt": 1.0}),)


def test_cranfields_codes_are_gains_and_its_judgements_count_questions(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {
            "cran.all.1400": "".join(
                f".I {number}\n.T\ntitle {number}\n.W\ntitle {number} text\n" for number in range(1, 5)
            ),
            "cran.qry": ".I 004\n.W\nwhich wing\n",
            "cranqrel": "1 1 1\n1 2 4\n1 3 5\n1 4 -1\n",
        },
    )
    judged = read_judged_set(folder)
    assert judged.documents["document-000000.txt"] == "title 1\n\ntext"
    gains = {"document-000000.txt": 4.0, "document-000001.txt": 1.0, "document-000003.txt": 4.0}
    assert judged.questions == (JudgedQuestion("which wing", gains),)


def test_a_folder_in_neither_form_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"is no test collection: it needs corpus\.jsonl"):
        read_judged_set(tmp_path)


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
