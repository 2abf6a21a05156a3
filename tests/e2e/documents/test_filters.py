"""Filters over real gRPC: k results are k results, in searches and in answers."""

import io
import json
from collections.abc import Iterator
from functools import partial

import pytest
from click.testing import CliRunner

from edge_rag.cli.main import main
from edge_rag.client import AskOptions, Client, PassagesReceived, parse_filter
from edge_rag.core.answer import Citation, TextDelta
from tests.e2e.support.running_daemon import RunningDaemon

_COUNT = 60


@pytest.fixture(scope="module")
def machines(daemon: RunningDaemon) -> Iterator[Client]:
    """Sixty documents of which only the metadata tells which to look into; four of them are of 2001."""
    with Client(daemon.address) as client:
        for number in range(_COUNT):
            text = f"Machine {number} is greased every {100 + number} hours with grease of kind {number}."
            metadata = {"year": 2000 + number % 15, "site": ["north", "south"][number % 2], "number": number}
            client.ingest(
                f"{'pumps' if number < 20 else 'fans'}/{number}.txt",
                partial(io.BytesIO, text.encode()),
                collection="machines",
                metadata=metadata,
            )
        yield client
        for info in list(client.documents(collection="machines")):
            client.delete(info.document_id, collection="machines")


@pytest.mark.smoke
def test_an_answer_is_drawn_from_what_the_filter_allows(machines: Client) -> None:
    options = AskOptions(collection="machines", filter=parse_filter("number = 33"))

    events = list(machines.ask("How often is machine 33 greased?", options))

    (found,) = (event for event in events if isinstance(event, PassagesReceived))
    assert [passage.document for passage in found.passages] == ["fans/33.txt"]
    assert "133 hours" in "".join(event.text for event in events if isinstance(event, TextDelta))
    assert {event.document for event in events if isinstance(event, Citation)} == {"fans/33.txt"}


@pytest.mark.smoke
def test_the_command_line_filters_and_points_at_mistakes(machines: Client, daemon: RunningDaemon) -> None:
    there = ["--collection", "machines", "--server", daemon.address]
    runner = CliRunner()

    found = runner.invoke(main, ["search", "grease", "--json", "--filter", 'number = 4 and site = "north"', *there])
    assert [hit["metadata"]["number"] for hit in json.loads(found.stdout)["hits"]] == [4]
    answered = runner.invoke(
        main, ["ask", "How often is machine 4 greased?", "--json", "--filter", "number = 4", *there]
    )
    assert [each["document"] for each in json.loads(answered.stdout)["citations"]] == ["pumps/4.txt"]
    refused = runner.invoke(main, ["search", "grease", "--filter", "number = four", *there])
    assert (refused.exit_code, "character 10" in refused.output) == (2, True)
