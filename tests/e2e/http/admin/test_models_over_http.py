"""Models that administrators add, verify, choose and remove over HTTP."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.http.admin.test_administration import done, refused
from tests.e2e.http.test_json_api import call, connect, events
from tests.e2e.support.running_daemon import RunningDaemon
from tests.synthetic.tiny_gguf import tiny_model


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


@pytest.mark.smoke
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


@pytest.mark.smoke
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
