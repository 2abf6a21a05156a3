import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import yaml
from click.testing import CliRunner

from edge_rag.cli.main import main
from edge_rag.client import Client
from tests.e2e.support.running_daemon import ROOT, SAMPLES, RunningDaemon, start_daemon
from tests.e2e.support.secured_daemon import edge_rag, token

EXAMPLES = ROOT / "examples"
QUESTION = "How often must the pump bearings be greased?"
ANSWER = "2,000 operating hours"


def posted(url: str, body: str, headers: dict[str, str], context: ssl.SSLContext | None = None) -> tuple[int, Any]:
    request = urllib.request.Request(url, body.encode(), {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_every_example_is_in_the_list() -> None:
    listed = re.findall(r"\]\(([\w-]+)/README\.md\)", (EXAMPLES / "README.md").read_text())
    assert sorted(listed) == sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())


def test_the_kiosk_opens_what_a_daemon_with_its_settings_serves(tmp_path: Path) -> None:
    settings = EXAMPLES / "jetson-kiosk" / "edge-rag.toml"
    checked = CliRunner().invoke(main, ["config", "check", "--config", str(settings)])
    assert checked.exit_code == 0, checked.output
    unit = (EXAMPLES / "jetson-kiosk" / "kiosk.service").read_text()
    (opened,) = set(re.findall(r"http://\S+", unit))
    assert f'address = "{opened.removeprefix("http://").rstrip("/")}"' in settings.read_text()
    config = settings.read_text().replace(":7480", ":0").replace("listen = ", "# listen = ")
    with (
        start_daemon(tmp_path / "data", tmp_path / "log", config) as running,
        urllib.request.urlopen(running.http, timeout=60) as page,
    ):
        assert "<html" in page.read().decode()


def test_home_assistant_asks_and_speaks_the_answer(http_daemon: RunningDaemon) -> None:
    folder = EXAMPLES / "home-assistant"
    settings = yaml.safe_load((folder / "configuration.yaml").read_text())
    sentences = yaml.safe_load((folder / "custom_sentences" / "en" / "edge_rag.yaml").read_text())
    (intent,) = settings["intent_script"]
    assert set(sentences["intents"]) == {intent}
    words = {
        word for each in sentences["intents"][intent]["data"][0]["sentences"] for word in re.findall(r"{(\w+)}", each)
    }
    assert words == set(sentences["lists"]) == {"question"}
    script = settings["intent_script"][intent]
    called = script["action"][0]
    command = settings["rest_command"][called["action"].removeprefix("rest_command.")]

    environment = jinja2.Environment(autoescape=False)
    environment.filters["to_json"] = json.dumps
    heard = 'how often must the pump bearings be "greased"'
    question = environment.from_string(called["data"]["question"]).render(question=heard)
    body = environment.from_string(command["payload"]).render(question=question)
    assert json.loads(body)["question"] == heard
    url = command["url"].replace("http://127.0.0.1:7480", http_daemon.http)
    status, told = posted(url, body, {"content-type": command["content_type"]})
    assert (status, command["method"]) == (200, "post")

    speech = environment.from_string(script["speech"]["text"])
    assert re.search(rf"{ANSWER}.*\(lubrication-schedule\.md\)", speech.render(action_response={"content": told}))
    nothing = posted(url, json.dumps({"question": "Who won the cup?"}), {})[1]
    assert "did not find" in speech.render(action_response={"content": nothing})


def test_the_page_of_the_intranet_asks_one_collection_with_the_token_of_its_server(tmp_path: Path) -> None:
    folder, data, socket = EXAMPLES / "clinic-intranet", tmp_path / "data", f"unix:{tmp_path}/socket"
    edge_rag("tls", "init", "--host", "127.0.0.1", data=data)
    (command,) = re.findall(r"edge-rag token create --name \w+ (.*)", (folder / "README.md").read_text())
    options = [part.strip('"') for part in re.findall(r'"[^"]*"|\S+', command)]
    secret = token("intranet", data, *options)
    proxy = (folder / "edge-rag.conf").read_text()
    page = (folder / "index.html").read_text()
    (path,) = re.findall(r"proxy_pass https://[\d.:]+(\S+);", proxy)
    headers = dict(re.findall(r'proxy_set_header (\w+) "([^"]+)"', proxy))
    assert 'fetch("/ask"' in page
    assert "location = /ask" in proxy
    (collection,) = re.findall(r'collection: "(\w+)"', page)
    config = f'local_listen = "{socket}"\n[http]\nenabled = true\naddress = "127.0.0.1:0"\n[tls]\nalways = true\n'
    with start_daemon(data, tmp_path / "log", config) as running:
        file = SAMPLES / "lubrication-schedule.md"
        with Client(socket, timeout_s=120) as client:
            for name in (collection, "default"):
                client.ingest(file.name, lambda: file.open("rb"), collection=name)
        context = ssl.create_default_context(cafile=str(data / "tls" / "ca.pem"))
        context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        there = {"authorization": headers["Authorization"].replace("TOKEN", secret)}
        body = {"collection": collection, "question": QUESTION}
        status, told = posted(running.http + path, json.dumps(body), there, context)
        assert status == 200
        assert ANSWER in told["answer"]
        assert {"document", "page", "text"} <= set(re.findall(r"cited\.(\w+)", page))
        assert all({"document", "page", "text"} <= cited.keys() for cited in told["citations"])
        refused, error = posted(running.http + path, json.dumps(body | {"collection": "default"}), there, context)
        assert (refused, "message" in error["error"]) == (404, True)
        assert posted(running.http + path, json.dumps(body), {}, context)[0] == 401


def test_the_nightly_ingest_stores_a_folder_and_keeps_backups(
    start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    running, folder, backups = start(), tmp_path / "manuals", tmp_path / "backups"
    folder.mkdir()
    shutil.copy(SAMPLES / "parts-list.md", folder)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "edge-rag").write_text(f'#!/bin/sh\nexec {sys.executable} -m edge_rag.cli.main "$@"\n')
    (programs / "edge-rag").chmod(0o755)
    search = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": search, "EDGE_RAG_SERVER": running.address, "PYTHONPATH": str(ROOT)}

    def night() -> int:
        command: list[str | Path] = [EXAMPLES / "nightly-ingest" / "nightly-ingest", folder, "default", backups]
        return subprocess.run(command, env=environment, timeout=120, check=False).returncode

    assert night() == 0
    shutil.copy(SAMPLES / "maintenance-log.txt", folder)
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 nothing that can be read")
    assert night() == 1, "a rejected file is told"
    with Client(running.address) as client:
        assert {info.name for info in client.documents()} == {"parts-list.md", "maintenance-log.txt"}
    made = sorted(backups.iterdir())
    assert len(made) == 2
    for number in range(7):
        (backups / f"2020-01-0{number + 1}.edge-rag").write_text("an older one")
    (folder / "broken.pdf").unlink()
    assert night() == 0
    kept = sorted(path.name for path in backups.iterdir())
    assert len(kept) == 7
    assert {path.name for path in made} <= set(kept)
