"""What administrators do over HTTP: tokens, and what people think of answers."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.http.test_http_access import request
from tests.e2e.http.test_json_api import call, connect, events
from tests.e2e.support.running_daemon import RunningDaemon
from tests.e2e.support.secured_daemon import Box, edge_rag
from tests.synthetic.tiny_gguf import tiny_model


def done(found: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    status, answer = found
    assert status == 200, answer
    return answer


def refused(found: tuple[int, dict[str, Any]]) -> tuple[int, str, str | None]:
    status, answer = found
    return status, answer["error"]["code"], answer["error"]["param"]


def changes(box: Box) -> list[str]:
    events = done(request(box, "GET", "/api/v1/audit?limit=1000", box.tokens["admin"]))["events"]
    return [event["reason"] for event in events if event["kind"] == "changed"]


def test_a_token_made_over_the_network_works_at_once_and_ends_at_once(box: Box) -> None:
    admin = box.tokens["admin"]
    settings = {"roles": ["reader"], "collections": ["a"], "requests_per_minute": 100, "priority_max": "normal"}
    made = done(request(box, "POST", "/api/v1/tokens", admin, {"name": "ward-9", "settings": settings}))
    key, secret = made["token"]["key"], made["secret"]
    assert done(request(box, "GET", "/api/v1/whoami", secret)) == made["token"]["identity"]
    assert made["token"]["identity"]["collections"] == ["a"]
    assert request(box, "GET", "/api/v1/collections/b", secret)[0] == 404

    changed = {"settings": {"collections": None, "expires": "2200-01-01T00:00:00+02:00"}}
    after = done(request(box, "PATCH", f"/api/v1/tokens/{key}", admin, changed))["token"]
    assert (after["identity"]["collections"], after["expires"]) == (None, "2199-12-31T22:00:00+00:00")
    assert after["identity"]["requests_per_minute"] == 100
    assert request(box, "GET", "/api/v1/collections/b", secret)[0] == 200

    listed = done(request(box, "GET", "/api/v1/tokens", admin))
    assert after in listed["tokens"]
    assert [each["identity"]["name"] for each in listed["tokens"] if each["is_own"]] == ["admin"]
    assert listed["advice"] == ""
    assert "ward-9" in edge_rag("token", "list", "--json", data=box.data)

    done(request(box, "DELETE", f"/api/v1/tokens/{key}", admin))
    assert refused(request(box, "GET", "/api/v1/whoami", secret))[0] == 401
    reasons = changes(box)
    assert reasons == [
        "token ward-9 was made with the roles reader",
        "token ward-9 was changed to the roles reader",
        "token ward-9 was revoked",
    ]
    assert secret.split("_", 2)[2] not in box.running.log.read_text()


def test_tokens_that_cannot_be_are_refused_with_the_field(box: Box) -> None:
    admin = box.tokens["admin"]

    def making(name: str, **settings: Any) -> tuple[int, str, str | None]:
        return refused(request(box, "POST", "/api/v1/tokens", admin, {"name": name, "settings": settings}))

    assert making("two words") == (400, "invalid_request", "name")
    assert making("x", roles=[]) == (400, "invalid_request", "roles")
    assert making("x", roles=["king"]) == (400, "invalid_request", "settings.roles[0]")
    assert making("x", requests_per_minute=0) == (400, "invalid_request", "quota")
    assert making("x", expires="2001-01-01T00:00:00Z") == (400, "invalid_request", "expires")
    assert making("x", expires="tomorrow") == (400, "invalid_request", "settings.expires")
    assert making("x", expires="2200-01-01") == (400, "invalid_request", "settings.expires")
    assert making("reader")[:2] == (409, "token_exists")


def test_an_administrator_keeps_its_own_way_in_unless_it_insists(box: Box) -> None:
    admin = box.tokens["admin"]
    made = done(request(box, "POST", "/api/v1/tokens", admin, {"name": "boss", "settings": {"roles": ["admin"]}}))
    key, secret = made["token"]["key"], made["secret"]
    assert refused(request(box, "DELETE", f"/api/v1/tokens/{key}", secret))[1] == "confirmation_needed"
    demoted = {"settings": {"roles": ["reader"]}}
    assert refused(request(box, "PATCH", f"/api/v1/tokens/{key}", secret, demoted))[1] == "confirmation_needed"
    done(request(box, "DELETE", f"/api/v1/tokens/{key}?force=true", secret))
    assert request(box, "GET", "/api/v1/whoami", secret)[0] == 401


HOSTILE = "<script>alert(1)</script>\u202e not a note"


def test_readers_say_what_they_think_and_administrators_read_it(box: Box) -> None:
    admin, reader = box.tokens["admin"], box.tokens["reader-a"]
    said = {"request_id": "asked-1", "rating": "down", "note": f"  {HOSTILE} ", "question": "When?", "collection": "a"}
    first = done(request(box, "POST", "/api/v1/feedback", reader, said))["feedback"]
    assert (first["note"], first["client"], first["answer"]) == (HOSTILE, "reader-a", "")
    second = done(request(box, "POST", "/api/v1/feedback", reader, {"request_id": "asked-2", "rating": "up"}))[
        "feedback"
    ]

    page = done(request(box, "GET", "/api/v1/feedback?limit=1", admin))
    assert (page["feedback"], page["next"], page["counts"]) == ([second], second["id"], {"up": 1, "down": 1})
    page = done(request(box, "GET", f"/api/v1/feedback?after={second['id']}", admin))
    assert (page["feedback"], page["next"]) == ([first], None)
    assert done(request(box, "GET", "/api/v1/feedback?rating=up", admin))["feedback"] == [second]

    done(request(box, "POST", "/api/v1/feedback", reader, {**said, "rating": "up", "note": ""}))
    assert done(request(box, "GET", "/api/v1/feedback", admin))["counts"] == {"up": 2, "down": 0}
    for each in done(request(box, "GET", "/api/v1/feedback", admin))["feedback"]:
        done(request(box, "DELETE", f"/api/v1/feedback/{each['id']}", admin))
    assert refused(request(box, "DELETE", f"/api/v1/feedback/{second['id']}", admin))[1] == "feedback_not_found"
    assert done(request(box, "GET", "/api/v1/feedback", admin))["feedback"] == []


@pytest.mark.parametrize(
    ("given", "status", "param"),
    [
        ({"request_id": "x y"}, 400, "request_id"),
        ({"rating": "great"}, 400, "rating"),
        ({"note": "n" * 2001}, 400, "note"),
        ({"note": "a\x00b"}, 400, "note"),
        ({"answer": "a" * 32_769}, 400, "answer"),
        ({"question": "q" * 100_000}, 400, "question"),
        ({"collection": "b"}, 404, None),
        ({"collection": "nothing"}, 404, None),
        ({"email": "x"}, 400, "email"),
    ],
)
def test_feedback_beyond_the_bounds_is_refused(box: Box, given: dict[str, str], status: int, param: str | None) -> None:
    said = {"request_id": "asked", "rating": "up", **given}
    found = refused(request(box, "POST", "/api/v1/feedback", box.tokens["reader-a"], said))
    assert (found[0], found[2]) == (status, param)


def followed(daemon: RunningDaemon, job: dict[str, Any], after: int = 0) -> list[tuple[int, dict[str, Any]]]:
    """Returns the events of a job with their ids, from one that was seen last to its end."""
    with closing(connect(daemon)) as connection:
        path = f"/api/v1/models/jobs/{job['number']}/events"
        connection.request("GET", path, headers={"last-event-id": str(after)})
        found = list(events(connection.getresponse()))
    assert {each.name for each in found} == {"progress"}
    return [(int(each.id), each.data) for each in found]


def installed(daemon: RunningDaemon) -> dict[str, Any]:
    return {each["name"]: each for each in done(call(daemon, "GET", "models/installed"))["installed"]}


def test_a_model_is_sent_added_verified_and_removed(http_daemon: RunningDaemon, client: Any, tmp_path: Path) -> None:
    gguf = tiny_model("llama").write(tmp_path / "Tiny-Llama.gguf")
    sent = client.files.create(file=gguf, purpose="assistants").id
    adding = {"file": sent, "accept_loss": True}
    job = done(call(http_daemon, "POST", "models/installed", adding))["job"]
    assert (job["kind"], job["model"], job["source"], job["state"]) == ("add", "tiny-llama", gguf.name, "running")
    assert refused(call(http_daemon, "POST", "models/installed", {"source": "smollm2-135m"}))[:2] == (503, "not_ready")

    seen = followed(http_daemon, job)
    assert seen[-1][1]["state"] == "done", seen[-1]
    assert [number for number, _ in seen] == [state["change"] for _, state in seen]
    assert followed(http_daemon, job, seen[-1][0] - 1) == seen[-1:], "a client comes back"

    assert done(call(http_daemon, "GET", "models/installed"))["job"] == seen[-1][1]
    models = installed(http_daemon)
    tiny = models["tiny-llama"]
    assert (tiny["role"], tiny["form"], tiny["is_in_use"], tiny["problem"]) == ("generator", "paged", False, "")
    assert tiny["verified_at"] == seen[-1][1]["finished_at"]
    assert (models["minilm-l6"]["role"], models["minilm-l6"]["is_builtin"]) == ("embedder", True)
    assert "English" in models["minilm-l6"]["languages"]

    verifying = done(call(http_daemon, "POST", "models/installed/tiny-llama/verify"))["job"]
    assert followed(http_daemon, verifying)[-1][1]["state"] == "done"

    in_use = next(name for name, each in models.items() if each["is_in_use"])
    assert refused(call(http_daemon, "DELETE", f"models/installed/{in_use}"))[1] == "model_needed"
    assert done(call(http_daemon, "DELETE", "models/installed/tiny-llama")) == {"removed": "tiny-llama"}
    audit = done(call(http_daemon, "GET", "audit?limit=1000"))["events"]
    changed = [event["reason"] for event in audit if event["kind"] == "changed"]
    assert f"model tiny-llama was added from {gguf.name}" in changed
    assert "model tiny-llama was removed" in changed


def test_what_is_on_the_box_is_added_on_the_box_only(http_daemon: RunningDaemon, client: Any, tmp_path: Path) -> None:
    gguf = tiny_model("llama").write(tmp_path / "tiny.gguf")
    text = client.files.create(file=("note.txt", b"a note"), purpose="assistants").id
    for body, param in (
        ({"source": str(gguf)}, "source"),
        ({"source": str(tmp_path)}, "source"),
        ({"source": "../models"}, "source"),
        ({"source": "minilm-l6"}, "source"),
        ({"source": "hf:a/b", "file": text}, "source"),
        ({}, "source"),
        ({"file": text}, "file"),
        ({"source": "hf:a/b", "name": "quoter"}, "name"),
        ({"source": "hf:a/b", "name": "../x"}, "name"),
    ):
        assert refused(call(http_daemon, "POST", "models/installed", body)) == (400, "invalid_request", param)
    assert refused(call(http_daemon, "POST", "models/installed", {"file": "file-unknown"}))[0] == 404


def test_a_job_on_models_is_cancelled(http_daemon: RunningDaemon, client: Any, tmp_path: Path) -> None:
    gguf = tiny_model("llama").write(tmp_path / "Cancelled.gguf")
    sent = client.files.create(file=gguf, purpose="assistants").id
    job = done(call(http_daemon, "POST", "models/installed", {"file": sent}))["job"]
    ended = done(call(http_daemon, "POST", f"models/jobs/{job['number']}/cancel"))["job"]
    assert (ended["state"], ended["problem"]) == ("cancelled", "")
    assert followed(http_daemon, job)[-1][1] == ended
    assert "cancelled" not in installed(http_daemon)


def test_the_catalogue_says_what_fits_and_what_is_there(http_daemon: RunningDaemon) -> None:
    models = done(call(http_daemon, "GET", "models/catalog"))["models"]
    assert {each["role"] for each in models} == {"generator", "embedder", "reranker"}
    assert all(each["licence"] and each["memory_bytes"] > each["disk_bytes"] > 0 for each in models)
    assert [each["name"] for each in models if each["is_installed"]] == ["minilm-l6"]
    assert next(each for each in models if each["is_installed"])["is_builtin"]


def test_a_model_is_chosen_for_its_role(http_daemon: RunningDaemon) -> None:
    chosen = done(call(http_daemon, "POST", "models/installed/minilm-l6/choose"))
    assert chosen == {
        "role": "embedder",
        "name": "minilm-l6",
        "is_in_use": True,
        "overridden_by": None,
        "problem": "",
    }
    assert installed(http_daemon)["minilm-l6"]["is_chosen"]
    assert not installed(http_daemon)["quoter"]["is_chosen"]
