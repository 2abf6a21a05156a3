"""Checks of the installation and the device; none needs a running daemon."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_rag.cli.files.watch_report import watch_alerts
from edge_rag.client import Client, ClientError
from edge_rag.config.sections import HttpSettings
from edge_rag.config.settings import Settings
from edge_rag.core.monitoring.alerts import LOW_DISK_BYTES
from edge_rag.core.monitoring.status import Alert, AlertKind, AlertSeverity
from edge_rag.core.shapes.encoder import encode
from edge_rag.device.advice import advise
from edge_rag.device.facts import DeviceFacts
from edge_rag.device.memory_plan import MemoryPlan
from edge_rag.device.placing import expected_provider
from edge_rag.device.profile import DeviceProfile, ProfileChoice
from edge_rag.errors import DataDirectoryInUse, DataDirectoryNotPrivate, EdgeRagError

if TYPE_CHECKING:
    from edge_rag.bootstrap.device import DeviceReport
    from edge_rag.config.settings import Settings
    from edge_rag.core.monitoring.status import DaemonStatus


_GIB = 1 << 30
_STATUS_TIMEOUT_S = 3.0


class Verdict(Enum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One entry of the report.

    Attributes:
        advice: What to do; empty if nothing is wrong.
        lines: Further facts, one per line.
    """

    name: str
    verdict: Verdict
    detail: str
    advice: str = ""
    lines: tuple[str, ...] = ()


def installation_checks() -> Iterator[Check]:
    """Checks parts that do not depend on settings: Python, libraries, the compiled ops, the document parser."""
    yield python_check(sys.version_info[:3], platform.machine())
    yield _onnxruntime()
    yield _faiss()
    yield _ops_library()
    yield _document_parser()


def settings_checks(settings: Settings, daemon: DaemonStatus | None = None) -> Iterator[Check]:
    """Checks the parts that the daemon would use: models, data directory, documents, address.

    Args:
        daemon: Status of the daemon that runs in the data directory; None if none runs.
    """
    yield from _models(settings)
    yield data_directory_check(settings.data_directory)
    yield documents_check(settings.data_directory)
    yield ocr_check(settings.ingest.scan_languages)
    if daemon is None:
        yield address_check(settings.listen)
    else:
        detail = f"{daemon.version} serves this data directory at {daemon.address}: {daemon.state.value}"
        yield Check("daemon", Verdict.OK, detail)
    yield http_check(settings.http, settings.http.missing_packages())


def alerts_of(settings: Settings, daemon: DaemonStatus | None) -> tuple[Alert, ...]:
    from edge_rag.bootstrap.alerts import alerts_without_daemon

    return (*(alerts_without_daemon(settings) if daemon is None else daemon.alerts), *watch_alerts())


def alert_checks(alerts: Sequence[Alert]) -> Iterator[Check]:
    """Reports the alerts of the box, except those that other checks report: of the disk and the documents."""
    found = [each for each in alerts if each.kind not in (AlertKind.DISK, AlertKind.LIBRARY)]
    for alert in found:
        verdict = Verdict.FAIL if alert.severity is AlertSeverity.CRITICAL else Verdict.WARN
        yield Check(alert.kind.value, verdict, alert.problem, alert.action)
    if not found:
        yield Check("alerts", Verdict.OK, "certificates, scheduled backups, watched folders and the clock are well")


def python_check(version: tuple[int, int, int], machine: str) -> Check:
    detail = f"{'.'.join(map(str, version))} on {machine}"
    if version < (3, 11, 0):
        return Check("python", Verdict.FAIL, detail, "install Python 3.11 or newer")
    return Check("python", Verdict.OK, detail)


def data_directory_check(directory: Path) -> Check:
    """Checks that a data directory is writable and has free space."""
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Check(
            "data",
            Verdict.FAIL,
            f"{directory} cannot be written to",
            "set data_directory or its owner (serve --data-dir)",
        )
    if directory.exists() and directory.stat().st_uid != os.geteuid():
        owner = directory.stat().st_uid
        return Check(
            "data",
            Verdict.WARN,
            f"{directory} belongs to another user, and only that user's daemon starts in it",
            f"run this command and the daemon as the owner, for example with `sudo -u '#{owner}'`",
        )
    free = shutil.disk_usage(existing).free
    state = "" if directory.exists() else ", will be created"
    detail = f"{directory}{state}, {free / _GIB:.1f} GiB free"
    if free < LOW_DISK_BYTES:
        return Check("data", Verdict.WARN, detail, "free some space; documents are refused when the disk is full")
    return Check("data", Verdict.OK, detail)


def documents_check(directory: Path) -> Check:
    """Verifies all stored documents, also while a daemon uses them."""
    from edge_rag.storage.backup import DATABASE, check_database
    from edge_rag.storage.data_directory import DataDirectory
    from edge_rag.storage.database import require_whole_database, require_whole_log
    from edge_rag.storage.spool.originals import ORIGINALS, damaged_originals

    database = directory / DATABASE
    try:
        if directory.is_dir():
            with suppress(DataDirectoryInUse, DataDirectoryNotPrivate), DataDirectory(directory):
                require_whole_log(database)
                require_whole_database(database)
        if not database.exists() or not database.stat().st_size:
            return Check("documents", Verdict.OK, "none yet")
        found = check_database(database)
        damaged = damaged_originals(directory / ORIGINALS, found.originals)
    except EdgeRagError as error:
        advice = "run `edge-rag doctor --repair`, or restore a backup with `edge-rag restore --replace`"
        return Check("documents", Verdict.FAIL, str(error), advice)
    detail = f"{found.documents} documents, every page and index of {database.stat().st_size / 2**20:.1f} MiB is intact"
    kept = sum(size for _, size in found.originals) / 2**20
    detail += f"; {len(found.queued)} waiting to be stored; {len(found.originals)} originals of {kept:.1f} MiB"
    if damaged:
        advice = "text and answers are whole; delete documents without an original and ingest them again"
        return Check("documents", Verdict.WARN, f"{detail}, {len(damaged)} of them missing or damaged", advice)
    return Check("documents", Verdict.OK, detail)


def ocr_check(scan_languages: str) -> Check:
    """Checks that scanned pages can be read, and in which languages."""
    from edge_rag.ingest.parsing.pdf.ocr import AUTO, TesseractOcr

    ocr = TesseractOcr(scan_languages)
    problem = ocr.problem()
    installed = ", ".join(ocr.installed()) or "no language"
    if not problem:
        reads = f"scanned pages are read in {'+'.join(ocr.languages())}; Tesseract has {installed}"
        advice = ""
        if scan_languages == AUTO and len(ocr.languages()) < len(ocr.installed()):
            advice = "name the languages of your documents in ingest.scan_languages, for example deu+eng"
        return Check("ocr", Verdict.WARN if advice else Verdict.OK, reads, advice)
    # Tesseract is optional; a setting that names a language that it lacks is a mistake.
    verdict = Verdict.OK if scan_languages == AUTO else Verdict.WARN
    return Check("ocr", verdict, "scanned pages are not read", problem)


def address_check(address: str) -> Check:
    """Checks that a daemon answers at an address, or that the address is free."""
    try:
        with Client(address, timeout_s=_STATUS_TIMEOUT_S) as client:
            report = client.status()
        return Check("daemon", Verdict.OK, f"{report.version} answers at {address}: {report.state.value}")
    except ClientError as error:
        if error.connected:
            return Check("daemon", Verdict.WARN, f"{address}: {error}", "see the daemon's log")
    if address.startswith("unix:"):
        return Check("daemon", Verdict.OK, f"none is running at {address}")
    host, _, port = address.rpartition(":")
    try:
        socket.create_server((host.strip("[]"), int(port)), family=_family(host)).close()
    except OSError as error:
        return Check(
            "daemon",
            Verdict.FAIL,
            f"{address} cannot be listened on: {error.strerror}",
            "stop the program that uses the port, or choose another with --listen",
        )
    return Check("daemon", Verdict.OK, f"none is running; {address} is free (start one with `edge-rag serve`)")


def http_check(http: HttpSettings, missing: Sequence[str]) -> Check:
    if not http.enabled:
        return Check("http", Verdict.OK, "is not served (http.enabled)")
    if missing:
        verdict = Verdict.WARN if http.is_default else Verdict.FAIL
        return Check("http", verdict, f"{' and '.join(missing)} cannot be imported", "pip install 'edge-rag[http]'")
    return Check("http", Verdict.OK, f"{http.address} (http.address)")


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _onnxruntime() -> Check:
    try:
        import edge_rag.runtime.session.sessions  # noqa: F401
    except ImportError as error:
        return Check("onnxruntime", Verdict.FAIL, f"cannot be imported: {error}", "install edge-rag again")
    return Check("onnxruntime", Verdict.OK, f"onnxruntime {importlib.metadata.version('onnxruntime')}")


def _faiss() -> Check:
    try:
        import faiss
    except ImportError as error:
        return Check("faiss", Verdict.FAIL, f"cannot be imported: {error}", "install edge-rag again")
    return Check("faiss", Verdict.OK, f"faiss-cpu {faiss.__version__}")


def _ops_library() -> Check:
    try:
        from edge_rag.runtime.session.sessions import ops_library

        library = ops_library()
        ctypes.CDLL(str(library)).RegisterCustomOps  # noqa: B018
    except (ImportError, EdgeRagError, OSError, AttributeError) as error:
        return Check("ops", Verdict.FAIL, str(error), "install edge-rag again; a C++ compiler is needed")
    return Check("ops", Verdict.OK, str(library))


def _document_parser() -> Check:
    """Starts the parser process and reports how far this host lets it confine itself."""
    from edge_rag.errors import DocumentRejected
    from edge_rag.ingest.parsing.document_format import ParsingLimits
    from edge_rag.ingest.parsing.sandbox.confinement import Protection
    from edge_rag.ingest.parsing.sandbox.process import ParserProcess

    parser = ParserProcess(ParsingLimits())
    try:
        missing = parser.missing
    except DocumentRejected as error:
        return Check("parser", Verdict.FAIL, str(error), "install edge-rag again")
    finally:
        parser.close()
    in_force = ", ".join(each.value for each in Protection if each not in missing)
    if not missing:
        return Check("parser", Verdict.OK, f"confined by {in_force}")
    detail = f"confined by {in_force or 'nothing'}; without {', '.join(each.value for each in missing)}"
    if {Protection.SYSTEM_CALL_FILTER, Protection.LANDLOCK} & set(missing):
        advice = "a document that takes the parser over reaches more; use a kernel with Landlock and seccomp filters"
        return Check("parser", Verdict.WARN, detail, advice)
    return Check("parser", Verdict.OK, detail)


def _models(settings: Settings) -> Iterator[Check]:
    from edge_rag.model_store.store import REMOVED_GENERATORS, ignored_model, model_of, store_of
    from edge_rag.runtime.model_folder.folder import ModelRole, verify_model_folder

    store = store_of(settings)
    for role in ModelRole:
        try:
            if (ignored := ignored_model(settings, store, role)) is not None:
                detail = f"{ignored} no longer comes along and is ignored"
                yield Check(f"{role.value} named", Verdict.WARN, detail, REMOVED_GENERATORS[ignored])
            name = model_of(settings, store, role)
            if name is None:
                if role is ModelRole.GENERATOR:
                    yield Check(role.value, Verdict.OK, "none: answers are quoted, modes cite and free are refused")
                continue
            folder = store.find(name)
            manifest = verify_model_folder(folder, role)
        except EdgeRagError as error:
            yield Check(role.value, Verdict.FAIL, str(error), f"or name another with the key `models.{role.value}`")
        else:
            size = sum(record.bytes for record in manifest.files.values())
            detail = f"{manifest.name}, {size / 2**20:.1f} MiB, all hashes match the manifest ({folder})"
            yield Check(role.value, Verdict.OK, detail)


_MIB = 1 << 20


def device_checks(device: DeviceReport, settings: Settings) -> Iterator[Check]:
    """Checks the device: facts, profile and its rule, providers of the stages, memory plan."""
    first, *others = facts_lines(device.facts)
    yield Check("board", Verdict.OK, first, lines=tuple(others))
    if isinstance(device.choice, EdgeRagError):
        yield Check("profile", Verdict.FAIL, str(device.choice), "name a profile with the key `profile`")
        return
    profile = device.choice.profile
    threads = settings.threads or profile.threads(device.facts)
    over = f", with keys of {settings.profile_file}" if settings.profile_file is not None else ""
    yield Check(
        "profile",
        Verdict.OK,
        f"{profile.name}{over}, {threads} threads: {device.choice.reason}",
        lines=rule_lines(device.choice),
    )
    yield from _stages(profile, device.facts)
    if isinstance(device.plan, EdgeRagError):
        yield Check("memory", Verdict.FAIL, str(device.plan))
    else:
        verdict = Verdict.WARN if device.plan.shrink_steps else Verdict.OK
        first, *others = plan_lines(device.plan)
        yield Check("memory", verdict, first, lines=tuple(others))
    plan = None if isinstance(device.plan, EdgeRagError) else device.plan
    advice = advise(device.facts, profile, plan)
    if advice:
        yield Check("faster", Verdict.OK, "what would make this machine faster:", lines=advice)


def facts_lines(facts: DeviceFacts) -> list[str]:
    """Formats the facts."""
    processor, memory = facts.processor, facts.memory
    kinds = [core.cluster for core in processor.usable]
    clusters = "+".join(str(kinds.count(kind)) for kind in sorted(set(kinds)))
    lines = [facts.board.model or processor.model or facts.machine]
    lines.append(f"{len(processor.usable)} cores" + (f" ({clusters}, fastest first)" if len(set(kinds)) > 1 else ""))
    lines.append(f"{memory.total_bytes / _GIB:.1f} GiB of memory, {memory.usable_bytes / _GIB:.1f} available")
    if memory.tightest is not None:
        lines.append(f"{memory.tightest.file} allows {memory.tightest.limit_bytes >> 20} MiB")
    if facts.drivers.accelerators:
        lines.append(", ".join(sorted(each.name for each in facts.drivers.accelerators)))
    lines.append("providers " + ", ".join(sorted(each.value for each in facts.providers)))
    if facts.drivers.libraries:
        lines.append(", ".join(f"{name} {version}".strip() for name, version in facts.drivers.libraries.items()))
    if facts.thermal:
        hottest = max(facts.thermal, key=lambda zone: zone.celsius)
        lines.append(f"{hottest.celsius:.0f} degrees ({hottest.name})")
    if facts.board.power_mode is not None:
        lines.append(f"power mode {facts.board.power_mode}")
    return lines


def rule_lines(choice: ProfileChoice) -> tuple[str, ...]:
    return tuple(
        f"{'+' if finding.holds else '-'} {finding.profile} ({finding.rank}): "
        + "; ".join(each.text for each in finding.conditions if each.holds or not finding.holds)
        for finding in choice.results
    )


def plan_lines(plan: MemoryPlan) -> list[str]:
    """Formats a memory plan, MiB."""
    sizes = plan.sizes
    return [
        f"{plan.planned_bytes >> 20} of {plan.budget_bytes >> 20} MiB planned",
        *(
            f"{item.name} {-(-item.bytes // _MIB)}" + (f" ({item.detail})" if item.detail else "")
            for item in plan.items
        ),
        f"{plan.spare_bytes >> 20} left",
        f"{sizes.slots} slots, {sizes.step_tokens} tokens a step",
        *([f"reduced {plan.shrink_steps} times to fit"] if plan.shrink_steps else []),
    ]


def device_json(device: DeviceReport) -> dict[str, Any]:
    """The report of the device."""
    choice, plan = device.choice, device.plan
    return {
        "facts": facts_json(device.facts),
        "choice": None if isinstance(choice, EdgeRagError) else choice_json(choice),
        "stages": {} if isinstance(choice, EdgeRagError) else _stages_json(choice.profile, device.facts),
        "memory": None if isinstance(plan, EdgeRagError) else plan_json(plan),
        "advice": []
        if isinstance(choice, EdgeRagError)
        else list(advise(device.facts, choice.profile, None if isinstance(plan, EdgeRagError) else plan)),
    }


def facts_json(facts: DeviceFacts) -> dict[str, Any]:
    """The facts of the device."""
    processor, memory, drivers = facts.processor, facts.memory, facts.drivers
    return {
        "machine": facts.machine,
        "processor": processor.model,
        "features": sorted(processor.features),
        "cores": encode(processor.cores),
        "allowed_cores": sorted(processor.allowed),
        "cpu_quota": processor.cpu_quota,
        "virtual": processor.virtual,
        "memory_bytes": memory.total_bytes,
        "available_bytes": memory.usable_bytes,
        "swap_bytes": memory.swap_bytes,
        "swap_devices": list(memory.swap_devices),
        "cgroup_limits": [
            {"file": limit.file, "limit_bytes": limit.limit_bytes, "used_bytes": limit.used_bytes}
            for limit in memory.limits
        ],
        "model": facts.board.model,
        "compatible": list(facts.board.compatible),
        "jetson_release": facts.board.jetson_release,
        "power_mode": facts.board.power_mode,
        "accelerators": sorted(each.name for each in drivers.accelerators),
        "without_driver": list(drivers.without_driver),
        "nodes": list(drivers.nodes),
        "libraries": dict(drivers.libraries),
        "packages": dict(drivers.packages),
        "nvidia_driver": drivers.driver,
        "built_for_cuda": drivers.built_for_cuda,
        "providers": sorted(each.value for each in facts.providers),
        "thermal": encode(facts.thermal),
    }


def choice_json(choice: ProfileChoice) -> dict[str, Any]:
    """The chosen profile, rule by rule."""
    return {
        "profile": choice.profile.name,
        "configured": choice.configured,
        "reason": choice.reason,
        "rules": [
            {"profile": each.profile, "rank": each.rank, "holds": each.holds, "conditions": encode(each.conditions)}
            for each in choice.results
        ],
    }


def plan_json(plan: MemoryPlan) -> dict[str, Any]:
    """A memory plan."""
    return {
        "budget_bytes": plan.budget_bytes,
        "planned_bytes": plan.planned_bytes,
        "spare_bytes": plan.spare_bytes,
        "items": encode(plan.items),
        "pages": plan.pages,
        "slots": plan.sizes.slots,
        "step_tokens": plan.sizes.step_tokens,
        "shrink_steps": plan.shrink_steps,
    }


def _stages(profile: DeviceProfile, facts: DeviceFacts) -> Iterator[Check]:
    for stage, wanted in profile.stages.items():
        provider, reason = expected_provider(stage, wanted, facts)
        first = wanted.providers[0].provider
        name = f"{stage.value} on"
        if provider is first:
            yield Check(name, Verdict.OK, f"{first.value}: {reason}")
        elif provider is None or wanted.on_unavailable.value == "stop":
            yield Check(name, Verdict.FAIL, reason, "see `edge-rag profile test`")
        else:
            detail = f"{provider.value} instead of {first.value}: {reason}"
            yield Check(name, Verdict.WARN, detail, "`edge-rag profile test` opens each stage and reports the result")


def _stages_json(profile: DeviceProfile, facts: DeviceFacts) -> dict[str, Any]:
    objects: dict[str, Any] = {}
    for stage, wanted in profile.stages.items():
        provider, reason = expected_provider(stage, wanted, facts)
        objects[stage.value] = {
            "wanted": wanted.providers[0].provider.value,
            "expected": None if provider is None else provider.value,
            "reason": reason,
            "on_unavailable": wanted.on_unavailable.value,
        }
    return objects
