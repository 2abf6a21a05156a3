"""Metadata over real gRPC: where it comes from, who wins, and where it is seen."""

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from edge_rag.cli.main import main
from edge_rag.client import Client, ClientError, SearchOptions
from edge_rag.core.answer import Finished
from edge_rag.core.documents.document import IngestStatus
from edge_rag.core.ids import require_recognized
from tests.e2e.support.running_daemon import RunningDaemon

_PUMP = b"---\ntitle: Pump P-7\nyear: 2020\ntags: [pump, seal]\n---\nThe seal of pump P-7 is made of silicon carbide.\n"


@pytest.mark.smoke
def test_the_client_wins_over_front_matter_and_metadata_comes_back_everywhere(daemon: RunningDaemon) -> None:
    given = {"year": 2021, "checked": True, "at": datetime(2021, 3, 4, 5, 6, 7, 89, UTC)}
    expected = {**given, "year": 2021.0, "title": "Pump P-7", "tags": ("pump", "seal")}
    with Client(daemon.address) as client:
        taken = client.ingest("p7.md", lambda: io.BytesIO(_PUMP), collection="meta", metadata=given)
        assert taken.document is not None
        assert taken.document.metadata == expected
        assert client.document("p7.md", collection="meta").info.metadata == expected
        assert [info.metadata for info in client.documents(collection="meta")] == [expected]
        (hit,) = client.search("What is the seal made of?", SearchOptions(collection="meta")).hits
        assert hit.metadata == expected
        client.delete("p7.md", collection="meta")


def test_the_same_bytes_with_other_metadata_replace_the_document(daemon: RunningDaemon) -> None:
    with Client(daemon.address) as client:

        def ingest(**metadata: object) -> IngestStatus:
            stored = client.ingest("a.txt", lambda: io.BytesIO(b"text"), collection="meta2", metadata=metadata)
            return require_recognized(stored.status)

        assert [ingest(), ingest(year=1), ingest(year=1.0), ingest(year=2), ingest()] == [
            IngestStatus.ADDED,
            IngestStatus.REPLACED,
            IngestStatus.UNCHANGED,
            IngestStatus.REPLACED,
            IngestStatus.REPLACED,
        ]
        assert client.document("a.txt", collection="meta2").info.metadata == {}
        client.delete("a.txt", collection="meta2")


def test_hostile_front_matter_is_rejected_and_the_daemon_goes_on(daemon: RunningDaemon) -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)
    )
    with Client(daemon.address) as client:
        outcome = client.ingest("b.md", lambda: io.BytesIO(f"---\n{bomb}---\ntext\n".encode()), collection="meta4")
        assert (outcome.status, "alias" in outcome.reason) == (IngestStatus.REJECTED, True)
        with pytest.raises(ClientError, match="does not exist"):
            client.document("b.md", collection="meta4")
        assert isinstance(list(client.ask("How often must the pump bearings be greased?"))[-1], Finished)


def test_the_command_line_gives_and_shows_metadata(daemon: RunningDaemon, tmp_path: Path) -> None:
    (tmp_path / "p7.md").write_bytes(_PUMP)
    there = ["--collection", "meta5", "--server", daemon.address]
    runner = CliRunner()
    given = ["--meta", "year=2022", "--meta", "on=2020-05-01", "--meta", "site=a", "--meta", "site=b"]
    assert runner.invoke(main, ["ingest", str(tmp_path), *given, *there]).exit_code == 0

    shown = json.loads(runner.invoke(main, ["docs", "show", "p7.md", "--json", *there]).stdout)["document"]["metadata"]
    assert shown == {
        "on": "2020-05-01T00:00:00+00:00",
        "site": ["a", "b"],
        "tags": ["pump", "seal"],
        "title": "Pump P-7",
        "year": 2022,
    }
    assert "metadata.site: a, b\n" in runner.invoke(main, ["docs", "show", "p7.md", *there]).stdout
    assert "year=2022" in runner.invoke(main, ["docs", "list", *there]).stdout
    refused = runner.invoke(main, ["ingest", str(tmp_path), "--meta", "Year=1", *there])
    assert (refused.exit_code, "'Year'" in refused.output) == (2, True)
    runner.invoke(main, ["docs", "delete", "p7.md", *there])
