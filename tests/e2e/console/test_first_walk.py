"""What a new user does after ``scripts/quickstart``, with the models that everybody has then."""

from __future__ import annotations

from pathlib import Path

from scripts.bench.http.first_walk import QUESTION, Walk, ask_and_follow
from tests.e2e.console.conftest import CONSOLE, Pages
from tests.e2e.support.running_daemon import ingest, sample_documents, start_daemon


def test_a_first_question_leads_to_the_marked_line_of_a_pdf(open_page: Pages, tmp_path: Path) -> None:
    with start_daemon(tmp_path / "data", tmp_path / "log", CONSOLE, models={}) as daemon:
        ingest(daemon.address, sample_documents())
        walk = Walk(QUESTION)
        ask_and_follow(open_page(None, daemon=daemon), daemon.http, walk)
    assert walk.document == "operating-manual.pdf"
    assert walk.page == 2
    assert walk.marked == "The highest pressure allowed in the rising main is 8 bar."
    assert list(walk.seconds) == ["console", "answer", "line"]
    assert all(Path(each).stat().st_size > 0 for each in walk.seen)
