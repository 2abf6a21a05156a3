"""The plain JSON API as curl, a browser's EventSource and the console use it."""

import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from edge_rag.cli.main import main
from edge_rag.core.pairing_code import PairingCode
from edge_rag.storage.backup import unpack
from tests.e2e.support.jobs import start_job
from tests.e2e.support.running_daemon import RunningDaemon, sample_documents
from tests.e2e.support.secured_daemon import Box, edge_rag

QUESTIONS = (
    "How often must the pump bearings be greased?",
    "Who is the duty electrician?",
    "What colour is the moon of the sixth planet?",
)


class Event(NamedTuple):
    """An event of a stream: its id, name and data."""

    id: str
    name: str
    data: Any


def connect(daemon: RunningDaemon) -> http.client.HTTPConnection:
    host, _, port = daemon.http.removeprefix("http://").rpartition(":")
    return http.client.HTTPConnection(host, int(port), timeout=120)


def call(daemon: RunningDaemon, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    with closing(connect(daemon)) as connection:
        sent = {"content-type": "application/json"} if body is not None else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, f"/api/v1/{path}", None if body is None else json.dumps(body), sent)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def events(response: http.client.HTTPResponse) -> Iterator[Event]:
    """Yields the events of a stream as a browser reads them."""
    assert response.status == 200
    assert response.headers.get_content_type() == "text/event-stream"
    fields: dict[str, str] = {}
    for line in response:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
            continue
        yield Event(fields.get("id", ""), fields["event"], json.loads(fields["data"]))
        fields = {}


def stream(daemon: RunningDaemon, method: str, path: str, body: Any = None, **headers: str) -> list[Event]:
    with closing(connect(daemon)) as connection:
        sent = {"content-type": "application/json", **{name.replace("_", "-"): text for name, text in headers.items()}}
        connection.request(method, f"/api/v1/{path}", None if body is None else json.dumps(body), sent)
        return list(events(connection.getresponse()))


def test_a_cut_answer_in_a_format_is_an_error_unless_it_is_allowed(http_daemon: RunningDaemon) -> None:
    asked = {"question": QUESTIONS[0], "regex": "[a-z ]{400}", "max_tokens": 8}
    status, told = call(http_daemon, "POST", "ask", asked)
    assert (status, told["error"]["code"]) == (422, "answer_truncated")
    *_, last = stream(http_daemon, "POST", "ask", {**asked, "stream": True})
    assert (last.name, last.data["error"]["code"]) == ("error", "answer_truncated")
    status, told = call(http_daemon, "POST", "ask", {**asked, "allow_truncated": True})
    assert (status, told["finish_reason"], told["mode"]) == (200, "length", "free")


@pytest.mark.smoke
def test_the_ways_to_ask_are_told_and_work(http_daemon: RunningDaemon) -> None:
    status, options = call(http_daemon, "GET", "ask")
    assert status == 200
    assert options["language_model"] == "quoter"
    assert options["modes"] == ["quote", "cite", "free", "extract"]
    assert options["default_mode"] in options["modes"]
    for mode in options["modes"]:
        assert call(http_daemon, "POST", "ask", {"question": QUESTIONS[0], "mode": mode, "max_tokens": 4})[0] == 200
    evidence = {question: call(http_daemon, "POST", "ask", {"question": question})[1] for question in QUESTIONS}
    for answer in evidence.values():
        assert (answer["evidence"] < options["not_found_below"]) == (answer["finish_reason"] == "not_found")
    long = "?" * (options["question_characters"] + 1)
    assert call(http_daemon, "POST", "ask", {"question": long})[1]["error"]["param"] == "question"
    many = {"question": QUESTIONS[0], "max_sentences": options["max_sentences"] + 1}
    assert call(http_daemon, "POST", "ask", many)[1]["error"]["param"] == "max_sentences"


@pytest.mark.smoke
@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_is_that_of_the_command_line(http_daemon: RunningDaemon, question: str) -> None:
    status, found = call(http_daemon, "POST", "ask", {"question": question})
    assert status == 200
    printed = CliRunner().invoke(main, ["ask", question, "--json", "--server", http_daemon.address])
    expected = json.loads(printed.stdout)
    for shown in (found, expected):
        for measured in ("request_id", "timings", "usage"):
            assert shown.pop(measured)
    assert {name: found.pop(name) for name in ("passages", "evidence")}
    assert found == expected
    assert bool(found["citations"]) is (found["finish_reason"] != "not_found")
    assert bool(found["nearest"]) is (found["finish_reason"] == "not_found")
    assert all(each["lacks"] and each["similarity"] for each in found["nearest"])


@pytest.mark.smoke
@pytest.mark.parametrize("asked", [{"stream": True}, {}])
def test_a_streamed_answer_has_named_events_in_order(http_daemon: RunningDaemon, asked: dict[str, Any]) -> None:
    body = {"question": QUESTIONS[0], "max_sentences": 2}
    accepted = {} if asked else {"accept": "text/event-stream"}
    _, whole = call(http_daemon, "POST", "ask", body)
    received = stream(http_daemon, "POST", "ask", {**body, **asked}, **accepted)
    names = [event.name for event in received]
    assert (names[0], names[-1]) == ("passages", "finished")
    assert set(names[1:-1]) == {"text", "citation"}
    text = "".join(event.data["text"] for event in received if event.name == "text")
    assert text == whole["answer"]
    citations = [event.data for event in received if event.name == "citation"]
    assert citations == whole["citations"]
    for each in citations:
        passage = received[0].data["passages"][each["passage"]]
        assert passage["document"] == each["document"]
        start, end = each["start"], each["end"]
        place = f"collections/default/documents/{passage['document_id']}?start={start}&end={end}"
        assert call(http_daemon, "GET", place)[1]["text"] == each["text"]
    assert received[-1].data["finish_reason"] == whole["finish_reason"]


@pytest.mark.smoke
def test_a_search_is_that_of_the_command_line(http_daemon: RunningDaemon) -> None:
    condition = 'name ~ "parts*"'
    body = {"question": "seal", "limit": 3, "filter": condition, "explain": True}
    status, found = call(http_daemon, "POST", "search", body)
    arguments = ["search", "seal", "--limit", "3", "--filter", condition, "--explain", "--json"]
    expected = json.loads(CliRunner().invoke(main, [*arguments, "--server", http_daemon.address]).stdout)
    assert (status, found.pop("timings") and found) == (200, expected.pop("timings") and expected)
    assert {hit["document"] for hit in found["hits"]} == {"parts-list.md"}


def put(daemon: RunningDaemon, name: str, content: bytes, path: str = "documents", **headers: str) -> tuple[int, Any]:
    with closing(connect(daemon)) as connection:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("PUT", f"/api/v1/collections/put/{path}/{quote(name)}", content, sent)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


@pytest.mark.smoke
def test_a_document_is_put_replaced_and_found(http_daemon: RunningDaemon) -> None:
    text = b"# Boiler\n\nThe boiler is blown down every 8 hours.\n" + b"More.\n" * 40_000
    status, outcome = put(http_daemon, "boiler house/log.md", text)
    assert (status, outcome["status"], outcome["document"]["media_type"]) == (200, "added", "text/markdown")
    assert put(http_daemon, "boiler house/log.md", text)[1]["status"] == "unchanged"
    assert put(http_daemon, "boiler house/log.md", b"The boiler is cold.")[1]["status"] == "replaced"
    body = {"question": "boiler", "collection": "put"}
    hits = call(http_daemon, "POST", "search", body)[1]["hits"]
    assert [hit["text"] for hit in hits] == ["The boiler is cold."]
    status, outcome = put(http_daemon, "no.pdf", b"This is not a PDF.", content_type="application/pdf")
    assert (status, outcome["status"], outcome["document"]) == (200, "rejected", None)
    assert outcome["reason"]
    call(http_daemon, "DELETE", "collections/put")


def test_a_queued_document_is_a_job_that_goes_on_by_itself(http_daemon: RunningDaemon) -> None:
    status, queued = put(http_daemon, "boiler house/log.md", b"The boiler is cold.", "queue")
    assert (status, queued["job"]["state"]) == (200, "running")
    with closing(connect(http_daemon)) as connection:
        connection.request("GET", f"/api/v1/jobs/{queued['job']['id']}/events")
        pages = [event.data for event in events(connection.getresponse())]
    assert pages[-1]["job"]["state"] == "finished"
    assert [each["state"] for page in pages for each in page["documents"]][-1] == "added"
    assert put(http_daemon, "boiler house/log.md", b"The boiler is cold.")[1]["status"] == "unchanged"
    call(http_daemon, "DELETE", "collections/put")


@pytest.mark.smoke
def test_a_collection_is_made_changed_and_deleted(http_daemon: RunningDaemon) -> None:
    settings = {"description": "Boiler house", "boosts": [{"key": "year", "value": 2020, "factor": 2}]}
    status, made = call(http_daemon, "POST", "collections", {"name": "boiler", "settings": settings})
    assert (status, made["collection"]["settings"]["description"]) == (200, "Boiler house")
    assert call(http_daemon, "POST", "collections", {"name": "boiler"})[0] == 409
    changes = {"settings": {"fusion": {"dense": 2}, "offload": "redacted"}}
    _, changed = call(http_daemon, "PATCH", "collections/boiler", changes)
    expected = {**made["collection"]["settings"], "fusion": {"dense": 2.0, "lexical": 1.0, "k": 20.0}}
    assert changed["collection"]["settings"] == {**expected, "offload": "redacted"}
    same = {"settings": changed["collection"]["settings"]}
    assert call(http_daemon, "PATCH", "collections/boiler", same)[1] == changed
    status, found = call(http_daemon, "PATCH", "collections/boiler", {"settings": {"fusion": {"dense": -1}}})
    assert (status, found["error"]["param"]) == (400, "settings.fusion.dense")
    assert call(http_daemon, "DELETE", "collections/boiler")[1]["deleted"]["name"] == "boiler"
    assert call(http_daemon, "GET", "collections/boiler")[0] == 404


@pytest.mark.smoke
def test_a_job_is_followed_and_resumed_after_a_disconnect(http_daemon: RunningDaemon) -> None:
    documents = {f"{number}.txt": f"Valve {number} is red.".encode() for number in range(4)}
    documents["empty.txt"] = b""
    job, accepted = start_job(http_daemon.address, documents, "valves")
    states: dict[str, str] = {}
    with closing(connect(http_daemon)) as connection:
        connection.request("GET", f"/api/v1/jobs/{job}/events")
        first = next(events(connection.getresponse()))
    rest = stream(http_daemon, "GET", f"jobs/{job}/events", last_event_id=first.id)
    for event in (first, *rest):
        assert event.name == "progress"
        states |= {document["name"]: document["state"] for document in event.data["documents"]}
    assert {name: states[name] for name in accepted} == {
        name: "rejected" if name == "empty.txt" else "added" for name in accepted
    }
    numbers = [int(event.id) for event in (first, *rest)]
    assert numbers == sorted(numbers)
    assert rest[-1].data["job"]["state"] == "finished"

    last = numbers[-1]
    again = stream(http_daemon, "GET", f"jobs/{job}/events", last_event_id=str(last - 1))
    assert sum(len(event.data["documents"]) for event in again) == 1
    assert call(http_daemon, "GET", f"jobs/{job}")[1]["job"]["documents"]["added"] == 4
    assert job in [each["id"] for each in call(http_daemon, "GET", "jobs?limit=5")[1]["jobs"]]
    call(http_daemon, "DELETE", "collections/valves")


@pytest.mark.smoke
def test_the_audit_log_is_read_by_request_by_page_and_as_it_grows(http_daemon: RunningDaemon) -> None:
    call(http_daemon, "POST", "ask", {"question": QUESTIONS[0]}, x_request_id="asked-by-json")
    _, found = call(http_daemon, "GET", "audit?request_id=asked-by-json")
    kinds = [event["kind"] for event in found["events"]]
    assert {"stage_done", "finished"} <= set(kinds)
    numbers: list[int] = []
    before = ""
    while True:
        _, page = call(http_daemon, "GET", f"audit?request_id=asked-by-json&limit=2{before}")
        numbers = [event["number"] for event in page["events"]] + numbers
        if page["next"] is None:
            break
        before = f"&before={page['next']}"
    assert numbers == [event["number"] for event in found["events"]]
    with closing(connect(http_daemon)) as connection:
        path = "/api/v1/audit/events?request_id=asked-by-json"
        connection.request("GET", path, headers={"last-event-id": str(numbers[-2])})
        followed = next(event for event in events(connection.getresponse()) if event.name == "event")
    assert (followed.id, followed.data["number"]) == (str(numbers[-1]), numbers[-1])


@pytest.mark.smoke
def test_the_status_is_that_of_the_command_line_once_and_again_and_again(http_daemon: RunningDaemon) -> None:
    _, found = call(http_daemon, "GET", "status")
    expected = json.loads(CliRunner().invoke(main, ["status", "--json", "--server", http_daemon.address]).stdout)
    assert found.keys() == expected.keys()
    assert found["models"] == expected["models"] == call(http_daemon, "GET", "models")[1]["models"]
    with closing(connect(http_daemon)) as connection:
        connection.request("GET", "/api/v1/status/events?interval_s=0.1")
        received = events(connection.getresponse())
        assert [next(received).name for _ in range(2)] == ["status", "status"]


def test_backups_are_made_on_the_box_and_the_last_one_is_told(http_daemon: RunningDaemon, tmp_path: Path) -> None:
    status, made = call(http_daemon, "POST", "backups")
    assert status == 200, made
    name = made["backup"]["name"]
    _, listed = call(http_daemon, "GET", "backups")
    assert listed["backups"][0] == made["backup"]
    assert (listed["last"]["way"], listed["last"]["size_bytes"]) == ("stored", made["backup"]["size_bytes"])
    assert call(http_daemon, "GET", "status")[1]["last_backup"] == listed["last"]
    with closing(connect(http_daemon)) as connection:
        connection.request("GET", f"/api/v1/backups/{name}")
        response = connection.getresponse()
        assert response.headers["content-disposition"] == f'attachment; filename="{name}"'
        file = tmp_path / name
        file.write_bytes(response.read())
        connection.request("GET", "/api/v1/backup")
        sent = len(connection.getresponse().read())
    assert unpack(file, None).documents >= len(sample_documents())
    last = call(http_daemon, "GET", "status")[1]["last_backup"]
    assert (last["way"], last["size_bytes"]) == ("sent", sent)
    assert call(http_daemon, "DELETE", f"backups/{name}") == (200, {"deleted": made["backup"]})
    assert call(http_daemon, "GET", f"backups/{name}")[0] == 404
    assert call(http_daemon, "GET", "backups/last.json")[1]["error"]["param"] == "backup"


def test_the_served_document_is_the_one_in_the_reference(http_daemon: RunningDaemon) -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "openapi.json"
    assert call(http_daemon, "GET", "openapi.json")[1] == json.loads(page.read_text())


def test_a_new_client_pairs_over_tls_and_has_its_rights(box: Box) -> None:
    made = json.loads(edge_rag("pair", "--name", "ward-3", "--collections", "a", "--json", data=box.data))
    code = PairingCode.parse(made["code"])
    host, _, port = box.running.http.removeprefix("https://").rpartition(":")
    trusted = ssl.create_default_context(cafile=str(box.data / "tls" / "ca.pem"))

    def send(method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        with closing(http.client.HTTPSConnection(host, int(port), timeout=60, context=trusted)) as connection:
            sent = {"content-type": "application/json", **headers}
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    wrong = {"key": code.key, "secret": "0" * len(code.secret)}
    assert send("POST", "/api/v1/pair", wrong)[0] == 401
    status, paired = send("POST", "/api/v1/pair", {"key": code.key, "secret": code.secret})
    assert (status, paired["name"]) == (200, "ward-3")
    assert "BEGIN CERTIFICATE" in paired["authority"]
    _, caller = send("GET", "/api/v1/whoami", authorization=f"Bearer {paired['token']}")
    assert (caller["name"], caller["collections"]) == ("ward-3", ["a"])
    assert send("POST", "/api/v1/pair", {"key": code.key, "secret": code.secret})[0] == 401
    assert paired["token"].split("_", 2)[2] not in box.running.log.read_text()
