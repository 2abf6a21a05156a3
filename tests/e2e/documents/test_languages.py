"""Answers name languages, through the command line and a daemon."""

import json

import pytest
from click.testing import CliRunner

from edge_rag.cli.main import main
from tests.e2e.support.running_daemon import RunningDaemon, ingest


@pytest.mark.smoke
def test_a_quote_names_its_language_and_the_question_has_one(daemon: RunningDaemon) -> None:
    text = "Das Überdruckventil öffnet bei 1.234,5 bar."
    ingest(daemon.address, {"de.txt": text.encode(), "ar.txt": "يجب تشحيم محامل المضخة كل شهر.".encode()}, "languages")
    question = "At what bar is it that the Überdruckventil öffnet?"
    result = CliRunner().invoke(
        main, ["ask", question, "--collection", "languages", "--server", daemon.address, "--json"]
    )

    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["answer"] == text
    assert (answer["question_language"], answer["citations"][0]["language"]) == ("en", "de")
