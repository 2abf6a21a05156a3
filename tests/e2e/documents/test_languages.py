"""Documents in any script are found by their words, through the command line and a daemon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from edge_rag.cli.main import main
from edge_rag.client import Client, SearchOptions
from tests.e2e.support.running_daemon import RunningDaemon

TEXTS = {
    "zh.txt": "油圧泵的轴承每500小时润滑一次。\n",
    "th.txt": "ตลับลูกปืนของปั๊มน้ำต้องหล่อลื่นทุกเดือน\n",
    "hi.txt": "पंप के बेयरिंग को हर महीने चिकनाई दी जाती है।\n",
    "ar.txt": "يجب تشحيم محامل المضخة كل شهر.\n",
    "de.txt": "Das Überdruckventil öffnet bei 1.234,5 bar.\n",
}
WORDS = {"zh.txt": "轴承", "th.txt": "หล่อลื่น", "hi.txt": "चिकनाई", "ar.txt": "مضخة", "de.txt": "1,234.5 bar"}


@pytest.fixture(scope="module")
def address(daemon: RunningDaemon, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("languages")
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    arguments = ["ingest", str(folder), "--collection", "languages", "--server", daemon.address]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return daemon.address


@pytest.mark.parametrize("document", TEXTS)
def test_a_document_is_found_by_a_word_of_it(address: str, document: str) -> None:
    with Client(address) as client:
        found = client.search(WORDS[document], SearchOptions(collection="languages", rerank=False, explain=True))
    by_words = {
        Path(hit.document).name: how.lexical_rank
        for hit, how in zip(found.hits, found.explanations, strict=True)
        if how.lexical_rank is not None
    }

    assert by_words == {document: 1}


@pytest.mark.smoke
def test_a_quote_names_its_language_and_the_question_has_one(address: str) -> None:
    question = "At what bar is it that the Überdruckventil öffnet?"
    result = CliRunner().invoke(main, ["ask", question, "--collection", "languages", "--server", address, "--json"])

    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["answer"] == TEXTS["de.txt"].strip()
    assert (answer["question_language"], answer["citations"][0]["language"]) == ("en", "de")
