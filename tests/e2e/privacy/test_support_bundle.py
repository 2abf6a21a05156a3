import io
import json
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from edge_rag.client import AskOptions, Client, ClientError, SearchOptions
from tests.e2e.support.running_daemon import ROOT, RunningDaemon

TEXT = "The zirconflange of the Hephaistos pump is greased with Lubritanium every forty days."
QUESTION = "How often is the zirconflange greased?"
COLLECTION, DOCUMENT, BOX, MODEL, TOKEN = "wundertuete", "quibblefish.txt", "moonraker-7", "bramblethorn", "ottokar"
REQUEST, HOST = "persephone-request-42", "gurkenglas.example"


def edge_rag(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edge_rag.cli.main", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def read(bundle: Path) -> dict[str, str]:
    with tarfile.open(bundle) as archive:
        members = {member.name.rpartition("/")[2]: archive.extractfile(member) for member in archive}
        return {name: content.read().decode() for name, content in members.items() if content is not None}


def test_a_bundle_has_what_helps_and_no_texts_names_or_tokens(
    start: Callable[..., RunningDaemon], tmp_path: Path, free_port: int
) -> None:
    data, bundle = tmp_path / "data", tmp_path / "box.tar.gz"
    running = start(
        config=f'[discovery]\nname = "{BOX}"\n[http]\nhosts = ["{HOST}"]\n[metrics]\nport = {free_port}\n'
        f'[backup]\nschedule = "02:30"\n[models]\ntrusted_keys = ["/keys/{MODEL}.pem"]\n'
    )
    made = edge_rag("token", "create", "--name", TOKEN, "--data-dir", str(data))
    assert made.returncode == 0, made.stderr
    with Client(running.address) as client:
        client.create_collection(COLLECTION)
        client.ingest(DOCUMENT, lambda: io.BytesIO(TEXT.encode()), collection=COLLECTION)
        list(client.ask(QUESTION, AskOptions(collection=COLLECTION, request_id=REQUEST)))
        with suppress(ClientError):
            client.search(QUESTION, SearchOptions(collection=f"no-{COLLECTION}"))  # the reason of a refusal names it

    config = running.log.with_suffix(".toml")
    command = ("support", str(bundle), "--config", str(config), "--data-dir", str(data))
    done = edge_rag(*command, "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["daemon"]
    assert bundle.stat().st_mode & 0o077 == 0
    parts = read(bundle)
    everything = "\n".join(parts.values()).casefold()
    secrets: tuple[str, ...] = (
        COLLECTION,
        DOCUMENT,
        BOX,
        MODEL,
        TOKEN,
        REQUEST,
        HOST,
        made.stdout.strip(),
        str(tmp_path),
        "zirconflange",
    )
    secrets += ("hephaistos", "lubritanium", "127.0.0.1", socket.gethostname())
    assert [secret for secret in secrets if secret.casefold() in everything] == []
    found: dict[str, Any] = {
        name.removesuffix(".json"): json.loads(part) for name, part in parts.items() if name.endswith(".json")
    }
    assert found["status"]["state"] == "serving"
    assert sum(found["status"]["collections"]) == 1
    assert found["data"]["database"]["rows"]["documents"] == 1
    assert found["settings"]["discovery"] == {"announce": True, "name": "set"}
    assert found["settings"]["generator"]["max_slots"] != "set"
    assert {"request 1", "request 2"} & {event["event"]["request_id"] for event in found["events"]}
    assert any(event["event"]["numbers"] for event in found["events"])
    assert any(sample["name"] == "edge_rag_requests_total" and sample["value"] for sample in found["metrics"])
    assert {check["verdict"] for check in found["checks"]} <= {"ok", "warn", "fail"}

    again = edge_rag(*command)
    assert again.returncode == 1
    assert "exists" in again.stderr


def test_a_bundle_without_a_daemon_has_the_rest(tmp_path: Path) -> None:
    bundle = tmp_path / "box.tar.gz"
    done = edge_rag("support", str(bundle), "--data-dir", str(tmp_path / "data"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["daemon"] is False
    assert {"installation.json", "settings.json", "machine.json", "checks.json", "data.json"} <= set(read(bundle))
