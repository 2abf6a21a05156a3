"""Chunks of documents and test questions of collections over HTTP, as the console uses them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.e2e.http.test_json_api import call, connect, stream
from tests.e2e.support.running_daemon import RunningDaemon, ingest, sample_documents

BEARINGS = {"question": "How often must the pump bearings be greased?", "document": "lubrication-schedule.md"}
ELSEWHERE = {"question": "Where is the ferry to the moon?", "document": "ferry.md"}
PATH = "collections/plant/test-questions"


@pytest.fixture(scope="module")
def plant(http_daemon: RunningDaemon) -> Iterator[RunningDaemon]:
    """The daemon; its collection ``plant`` has the sample documents."""
    ingest(http_daemon.address, sample_documents(), "plant")
    yield http_daemon
    call(http_daemon, "DELETE", "collections/plant")


def put_file(daemon: RunningDaemon, content: bytes, media_type: str) -> tuple[int, Any]:
    with closing(connect(daemon)) as connection:
        connection.request("PUT", f"/api/v1/{PATH}", content, {"content-type": media_type})
        response = connection.getresponse()
        return response.status, json.loads(response.read())


@pytest.mark.smoke
def test_questions_are_asked_compared_and_kept(plant: RunningDaemon) -> None:
    status, found = call(plant, "POST", f"{PATH}/run")
    assert (status, found["error"]["param"]) == (400, "collection")
    status, added = call(plant, "POST", PATH, BEARINGS)
    assert (status, added["question"]["result"], added["question"]["text"]) == (200, None, "")
    status, replaced = put_file(
        plant,
        b"question;document;text\nHow often must the pump bearings be greased?;lubrication-schedule.md;\n"
        b"Where is the ferry to the moon?;ferry.md;\n",
        "text/csv",
    )
    assert (status, replaced) == (200, {"total": 2})

    received = stream(plant, "POST", f"{PATH}/run")
    assert [event.name for event in received] == ["result", "result", "finished"]
    assert [(event.data["done"], event.data["total"]) for event in received[:2]] == [(1, 2), (2, 2)]
    first, second = (event.data["question"] for event in received[:2])
    assert first["id"] == added["question"]["id"]
    assert (first["result"]["rank"], second["result"]["rank"]) == (1, None)
    assert first["result"]["change"] == second["result"]["change"] == "new"
    finished = received[-1].data
    assert finished["kept"] is True
    assert finished["previous"] is None
    assert finished["run"]["summary"]["recall_at_1"] == 0.5

    ingest(plant.address, {"ferry.md": b"# Ferry\n\nThe ferry to the moon is at pier 4."}, "plant")
    received = stream(plant, "POST", f"{PATH}/run")
    assert received[-1].data["previous"] == finished["run"]
    _, listed = call(plant, "GET", f"{PATH}?limit=1")
    assert (listed["total"], listed["run"], listed["previous"]) == (2, received[-1].data["run"], finished["run"])
    assert listed["questions"] == [received[0].data["question"]]
    assert listed["questions"][0]["result"]["change"] == "same"
    _, rest = call(plant, "GET", f"{PATH}?after={listed['next']}")
    (improved,) = rest["questions"]
    assert (improved["exists"], improved["result"]["rank"], improved["result"]["change"]) == (True, 1, "improved")

    status, deleted = call(plant, "DELETE", f"{PATH}/{improved['id']}")
    assert (status, deleted["deleted"]["question"]) == (200, ELSEWHERE["question"])
    status, found = call(plant, "DELETE", f"{PATH}/{improved['id']}")
    assert (status, found["error"]["code"]) == (404, "question_not_found")
