"""What administrators do over HTTP: tokens, and what people think of answers."""

from typing import Any

import pytest

from edge_rag.core.pairing_code import PairingCode
from tests.e2e.http.test_http_access import request
from tests.e2e.support.secured_daemon import Box, edge_rag


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


@pytest.mark.smoke
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
    assert listed["next"] is None
    first = done(request(box, "GET", "/api/v1/tokens?limit=2", admin))
    second = done(request(box, "GET", f"/api/v1/tokens?after={first['next']}", admin))
    assert first["tokens"] + second["tokens"] == listed["tokens"]
    gone = done(request(box, "GET", f"/api/v1/tokens?after={'0' * 16}", admin))
    assert (gone["tokens"], gone["next"]) == ([], None)
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


@pytest.mark.smoke
def test_a_pairing_code_made_over_the_network_signs_in_once(box: Box) -> None:
    admin, console = box.tokens["admin"], f"{box.running.http}/"
    asked = {"name": "ward-8", "settings": {"collections": ["a"]}, "days": 7, "console": console}
    made = done(request(box, "POST", "/api/v1/pairing-codes", admin, asked))
    assert made["url"] == f"{console}#/sign-in/{made['code']}"
    assert len(made["qr"]) == len(made["qr"][0]) >= 21
    assert {symbol for row in made["qr"] for symbol in row} == {"0", "1"}
    code = PairingCode.parse(made["code"])
    redeemed = {"key": code.key, "secret": code.secret}
    secret = done(request(box, "POST", "/api/v1/pair", None, redeemed))["token"]
    assert done(request(box, "GET", "/api/v1/whoami", secret))["collections"] == ["a"]
    assert refused(request(box, "POST", "/api/v1/pair", None, redeemed))[0] == 401
    assert refused(request(box, "POST", "/api/v1/pairing-codes", admin, asked))[:2] == (409, "token_exists")
    assert changes(box)[-1] == "a pairing code for ward-8 was made"
    for wrong, param in (
        ({"console": "http://box/"}, "console"),
        ({"console": "https://box/#/x"}, "console"),
        ({"settings": {"expires": "2200-01-01T00:00:00Z"}}, "settings.expires"),
        ({"minutes": 0}, "minutes"),
    ):
        body = {**asked, "name": "ward-7", **wrong}
        assert refused(request(box, "POST", "/api/v1/pairing-codes", admin, body))[2] == param
    assert code.secret not in box.running.log.read_text()


HOSTILE = "<script>alert(1)</script>\u202e not a note"


@pytest.mark.smoke
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
