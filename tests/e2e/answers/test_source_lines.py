"""A citation tells the line of the file that it is from, and the stored text at its range is what it quotes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from edge_rag.cli.main import main
from edge_rag.client import AskOptions, Citation, Client
from edge_rag.core.query import AnswerMode
from tests.e2e.support.running_daemon import RunningDaemon

PUMP, VALVE, BELT, HOIST = (
    "The bearings of the pump are greased every 2,000 operating hours.",
    "The relief valve of the boiler opens at a pressure of 6 bar.",
    "The belt of the conveyor is tightened by a quarter turn each month.",
    "The rope of the hoist is replaced after 3,000 lifts.",
)
FILLER = "Entry {number}: the attendant noted nothing unusual in room {number}."
LOG = [FILLER.format(number=number) for number in range(1, 2_001)]
WRAPPED = PUMP.replace("greased every", "greased\nevery")
FILES: dict[str, bytes] = {
    "crlf.txt": f"Pump manual\n===========\n\nIt has two stages. {WRAPPED}\n".replace("\n", "\r\n").encode("utf-8-sig"),
    "matter.md": f"---\ntitle: Boiler\ntags:\n  - steam\n---\n\n# Boiler\n\nIt is old\nand *tall*. {VALVE}\n".encode(),
    "long.log": "\n".join([*LOG[:1_500], BELT, *LOG[1_500:]]).encode(),
    "hoist.html": f"<html><body>\n<h1>Hoist</h1>\n<p>{HOIST}</p></body></html>".encode(),
}
QUESTIONS = {
    "crlf.txt": "How often are the bearings of the pump greased?",
    "matter.md": "At what pressure does the relief valve of the boiler open?",
    "long.log": "How is the belt of the conveyor tightened?",
    "hoist.html": "After how many lifts is the rope of the hoist replaced?",
}
LINES = {"crlf.txt": 4, "matter.md": 10, "long.log": 1_501, "hoist.html": None}


@pytest.fixture(scope="module")
def address(daemon: RunningDaemon, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("lines")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    result = CliRunner().invoke(main, ["ingest", str(folder), "--collection", "lines", "--server", daemon.address])
    assert result.exit_code == 0, result.output
    return daemon.address


@pytest.mark.smoke
@pytest.mark.parametrize("name", FILES)
def test_a_citation_names_the_line_of_the_file_on_which_it_starts(address: str, name: str) -> None:
    with Client(address) as client:
        events = list(
            client.ask(QUESTIONS[name], AskOptions(collection="lines", mode=AnswerMode.QUOTE, max_sentences=1))
        )
        cited = [event for event in events if isinstance(event, Citation) and not event.context]
        stored = client.document(cited[0].document, collection="lines", start=cited[0].start, end=cited[0].end)

    assert [(Path(each.document).name, each.line) for each in cited] == [(name, LINES[name])]
    assert stored.text == cited[0].text


def test_the_command_line_shows_the_line_and_the_text_at_the_range(address: str) -> None:
    ask = ["ask", QUESTIONS["long.log"], "--collection", "lines", "--sentences", "1", "--server", address]
    printed = CliRunner().invoke(main, ask)
    assert "long.log, line 1,501" in printed.output
    (cited,) = json.loads(CliRunner().invoke(main, [*ask, "--json"]).stdout)["citations"]
    assert cited["line"] == 1_501
    where = ["--start", str(cited["start"]), "--end", str(cited["end"]), "--collection", "lines", "--server", address]
    shown = CliRunner().invoke(main, ["docs", "show", cited["document"], "--text", *where])
    assert shown.stdout.strip() == cited["text"] == BELT
