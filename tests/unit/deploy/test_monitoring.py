import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from edge_rag.cli.main import COMMANDS
from edge_rag.config.settings import Settings
from edge_rag.core.documents.document import IngestStatus
from edge_rag.core.monitoring.status import AlertKind
from edge_rag.server.grpc.call import STATUS
from scripts.generate_docs.registry import registry

DEPLOY = Path(__file__).parents[3] / "deploy"
MONITORING = DEPLOY / "monitoring"
LANGUAGE = {"sum", "max", "by", "rate", "increase", "histogram_quantile", "topk", "and", "on", "__rate_interval", "le"}
OF_PROMETHEUS = {"up", "job", "instance"}


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return loaded


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> list[str]:
    shown = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    return shown + [rule["expr"] for rule in alerts()]


def known() -> tuple[set[str], set[str]]:
    samples = [sample for family in registry().collect() for sample in family.samples]
    return {sample.name for sample in samples}, {label for sample in samples for label in sample.labels}


def names(expression: str) -> Iterator[str]:
    bare = re.sub(r'"[^"]*"|\[[^\]]*\]', "", expression)
    yield from re.findall(r"(?<![\w.])[A-Za-z_]\w*", bare)


@pytest.mark.parametrize("expression", expressions())
def test_every_name_in_an_expression_is_a_series_a_label_or_the_language(expression: str) -> None:
    series, labels = known()
    unknown = set(names(expression)) - series - labels - LANGUAGE - OF_PROMETHEUS
    assert not unknown
    assert set(names(expression)) & (series | {"up"}), "it asks for nothing"
    for opening, closing in ("()", "{}", "[]"):
        assert expression.count(opening) == expression.count(closing)


def test_values_that_alerts_compare_labels_with_occur() -> None:
    statuses = {status.name for status in STATUS.values()} | {"INTERNAL", "OK", "CANCELLED"}
    outcomes = {status.value for status in IngestStatus}
    for expression in expressions():
        for value in re.findall(r'status=~?"([^"]+)"', expression):
            assert set(value.split("|")) <= statuses
        assert set(re.findall(r'outcome="([^"]+)"', expression)) <= outcomes


def test_every_kind_of_alert_that_a_daemon_finds_has_a_rule() -> None:
    kinds = {kind for rule in alerts() for kind in re.findall(r'edge_rag_alerts\{kind="(\w+)"\}', rule["expr"])}
    if any("edge_rag_recovery_mode" in rule["expr"] for rule in alerts()):
        kinds.add(AlertKind.LIBRARY.value)
    assert kinds == {kind.value for kind in AlertKind if kind is not AlertKind.WATCH}


def test_every_series_but_those_by_client_and_remote_is_on_the_dashboard_or_in_an_alert() -> None:
    series, _ = known()
    shown = {name for expression in expressions() for name in names(expression)}
    families = {re.sub(r"_(bucket|sum|count|created|total)$", "", name) for name in series}
    left_out = families - {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in shown}
    assert {name for name in left_out if not name.startswith(("edge_rag_client_", "edge_rag_remote_"))} == set()


def test_alerts_have_unique_names_and_an_action() -> None:
    rules = alerts()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["action"]
        assert rule["labels"]["severity"] in {"warning", "critical"}
        for command in re.findall(r"`edge-rag ([a-z]+)", rule["annotations"]["action"]):
            assert command in COMMANDS


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "containers" / "compose.yaml").read_text())
    return loaded


def test_what_the_compose_file_mounts_exists_and_every_root_is_read_only() -> None:
    for service in compose()["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / "containers" / source).is_file(), source
            else:
                assert source in compose()["volumes"]


def test_prometheus_scrapes_the_configured_metrics_port() -> None:
    port = compose()["services"]["edge-rag"]["environment"]["EDGE_RAG_METRICS__PORT"]
    scrape = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    assert scrape["scrape_configs"][0]["static_configs"][0]["targets"] == [f"127.0.0.1:{port}"]
    assert scrape["scrape_configs"][0]["job_name"] == "edge-rag"
    source = yaml.safe_load((MONITORING / "grafana-source.yml").read_text())["datasources"][0]
    assert {panel["datasource"]["uid"] for panel in dashboard()["panels"]} == {source["uid"]}


def test_settings_in_container_files_exist_and_the_user_has_no_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    file = (DEPLOY / "containers" / "Containerfile").read_text()
    given = dict(re.findall(r"\b(EDGE_RAG_(?!SERVER)[A-Z_]+)=(\S+)", file))
    given |= compose()["services"]["edge-rag"]["environment"]
    for key, value in given.items():
        monkeypatch.setenv(key, value)
    settings = Settings()
    assert settings.metrics.port == 9421
    assert str(settings.data_directory) == "/var/lib/edge-rag"
    assert settings.local_listen == "unix:/run/edge-rag/edge-rag.sock"
    assert re.findall(r"^USER (.*)$", file, re.MULTILINE) == ["7421:7421"]


def test_the_container_copies_only_what_exists_and_is_not_ignored() -> None:
    root = DEPLOY.parent
    file = (DEPLOY / "containers" / "Containerfile").read_text()
    kept = {line[1:] for line in (root / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", file, re.MULTILINE):
        for source in copied.split():
            assert (root / source).exists()
            assert source in kept
    targets = re.findall(r"^FROM \S+ AS (\S+)$", file, re.MULTILINE)
    assert targets == ["build", "daemon", "jetson"]
