import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from edge_rag.config.settings import Settings

ROOT = Path(__file__).parents[3]
UNITS = ROOT / "systemd"
BOARDS = ("cuda", "jetson", "qualcomm")
ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")


def unit(folder: Path, *drop_ins: str) -> Path:
    overrides = folder / "edge-rag.service.d"
    overrides.mkdir(parents=True)
    for name in drop_ins:
        shutil.copy(UNITS / "drop-ins" / f"{name}.conf", overrides)
    return Path(shutil.copy(UNITS / "edge-rag.service", folder))


def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    assert ANALYZE is not None
    return subprocess.run([ANALYZE, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def exposure(file: Path) -> float:
    result = analyze("security", "--offline=yes", "--no-pager", file)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", result.stdout)
    assert found, result.stderr
    return float(found.group(1))


def values(file: Path, section: str) -> list[tuple[str, str]]:
    lines = [line for line in file.read_text().splitlines() if line and line[0] != "#"]
    start = lines.index(f"[{section}]") + 1
    ends = [index for index, line in enumerate(lines) if index >= start and line[0] == "["]
    return [(key, value) for key, _, value in (line.partition("=") for line in lines[start : min([*ends, len(lines)])])]


@needs_systemd
@pytest.mark.parametrize("board", [None, *BOARDS])
def test_a_unit_with_each_drop_in_verifies_without_output(board: str | None, tmp_path: Path) -> None:
    file = unit(tmp_path, *([board] if board else []))
    program = tmp_path / "edge-rag"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    file.write_text(file.read_text().replace("/opt/edge-rag/current/venv/bin/edge-rag", str(program)))
    result = analyze("verify", "--man=no", "--recursive-errors=no", file)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize("example", ["jetson-kiosk/kiosk.service", "nightly-ingest/nightly-ingest.service"])
def test_a_unit_of_the_examples_verifies_without_output(example: str, tmp_path: Path) -> None:
    # The programs are not those of this machine.
    text = re.sub(r"(?m)^(Exec\w+=)\S+", r"\1/bin/true", (ROOT / "examples" / example).read_text())
    files = [tmp_path / Path(example).name]
    files[0].write_text(re.sub(r"(?m)^Requires=.*\n", "", text))
    timer = (ROOT / "examples" / example).with_suffix(".timer")
    if timer.exists():
        files.append(Path(shutil.copy(timer, tmp_path)))
    result = analyze("verify", *files)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize(("board", "at_most"), [(None, 1.6), *((board, 1.9) for board in BOARDS)])
def test_the_exposure_stays_low(board: str | None, at_most: float, tmp_path: Path) -> None:
    file = unit(tmp_path, *([board] if board else []))
    assert exposure(file) <= at_most
    allowed = analyze("security", "--offline=yes", "--no-pager", f"--threshold={round(at_most * 10)}", file)
    assert allowed.returncode == 0


@needs_systemd
def test_the_system_call_filter_allows_what_confines_the_parser() -> None:
    result = analyze("security", "--offline=yes", "--json=short", "--no-pager", UNITS / "edge-rag.service")
    settings = {row["name"]: row["set"] for row in json.loads(result.stdout)}
    assert not settings["RestrictNamespaces=~user"]
    assert not settings["RestrictNamespaces=~net"]
    assert not settings["RestrictNamespaces=~ipc"]
    assert settings["RestrictNamespaces=~mnt"]
    filters = " ".join(
        value for key, value in values(UNITS / "edge-rag.service", "Service") if key == "SystemCallFilter"
    )
    for call in ("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "capset", "seccomp"):
        assert call in filters.split()


def test_the_service_may_use_multicast_and_no_netlink() -> None:
    service = dict(values(UNITS / "edge-rag.service", "Service"))
    assert set(service["RestrictAddressFamilies"].split()) == {"AF_UNIX", "AF_INET", "AF_INET6"}
    assert "multicast" in service["IPAddressAllow"].split()
    assert service["ProcSubset"] == "all"  # /proc/net/if_inet6, too


def test_the_stop_timeout_is_longer_than_the_drain_time() -> None:
    service = dict(values(UNITS / "edge-rag.service", "Service"))
    assert float(service["TimeoutStopSec"].removesuffix("s")) > 2 * Settings().limits.drain_seconds


def test_the_service_notifies_reloads_on_a_signal_and_has_a_watchdog() -> None:
    service = dict(values(UNITS / "edge-rag.service", "Service"))
    assert service["Type"] == "notify"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert service["Restart"] == "on-failure"
    assert float(service["WatchdogSec"].removesuffix("s")) > 0


def test_the_user_the_folders_and_the_socket_agree_between_the_files() -> None:
    service = dict(values(UNITS / "edge-rag.service", "Service"))
    users = (UNITS / "sysusers.d" / "edge-rag.conf").read_text()
    assert re.search(rf"^u {service['User']} ", users, re.MULTILINE)
    for board in BOARDS:
        drop_in = dict(values(UNITS / "drop-ins" / f"{board}.conf", "Service"))
        for group in drop_in["SupplementaryGroups"].split():
            assert re.search(rf"^g {group} ", users, re.MULTILINE)
    folders = (UNITS / "tmpfiles.d" / "edge-rag.conf").read_text()
    assert f"d /var/lib/{service['StateDirectory']} {service['StateDirectoryMode']} {service['User']}" in folders
