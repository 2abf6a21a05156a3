"""The daemon's status as text, one fact per line."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from edge_rag.cli.output.answers import format_duration
from edge_rag.core.monitoring.resources import MemoryPlanReport, MemoryPressureState, Throttling
from edge_rag.core.monitoring.status import (
    Alert,
    CertificateInUse,
    CompletedBackup,
    DaemonStatus,
    EngineStats,
    IndexInUse,
    LibraryDamage,
    RemoteInUse,
)
from edge_rag.core.placement import ModelStage, Placement, Precision


def status_lines(report: DaemonStatus, now: datetime) -> list[str]:
    """Formats a whole status, one fact per line."""
    engine = report.engine
    up = str(now - report.started_at).split(".")[0]
    writes = any(model.role == ModelStage.GENERATOR.value for model in report.models)
    documents = ", ".join(f"{name} ({count})" for name, count in sorted(report.collections.items())) or "none"
    return [
        f"edge-rag {report.version} at {report.address}: {report.state.value}, up {up},"
        f" {report.resident_bytes / 2**20:.0f} MiB, profile {report.profile}",
        *([f"http         {report.http_address}"] if report.http_address else ()),
        *([f"console      open {report.console_address} in a browser"] if report.console_address else ()),
        f"data         {report.data_directory}",
        *alert_lines(report.alerts),
        *damage_lines(report.damage),
        *(f"{m.role:<12} {m.name}, {m.detail}; {placement_line(m.placement)}" for m in report.models),
        *([] if writes else ["generator    none: answers are quoted, modes cite and free are refused"]),
        *(
            f"{s.name:<12} {s.running} running, {s.waiting} of {s.capacity} waiting,"
            f" {s.completed} done, {s.refused} refused, busy {s.busy:.0%}"
            for s in report.stages
        ),
        *(f"{d.name:<12} busy {d.busy:.0%} of the last 5 s with {', '.join(d.stages)}" for d in report.devices),
        *(f"temperature  {t.zone} {t.celsius:.0f} °C" for t in report.temperatures),
        *(f"{'board':<12} {line}" for line in throttling_lines(report.throttling)),
        *(f"{'memory':<12} {line}" for line in pressure_lines(report.pressure)),
        *(engine_lines(engine) if writes else ()),
        *(
            f"{latency.measure.value:<12} p50 {format_duration(latency.p50_s)}, p95 {format_duration(latency.p95_s)},"
            f" p99 {format_duration(latency.p99_s)} of the latest {latency.samples}"
            for latency in report.latencies
        ),
        *(f"remote       {remote_line(remote)}" for remote in report.remotes),
        *memory_lines(report.memory),
        f"collections  {documents}",
        *(f"index        {index_line(index)}" for index in report.indexes),
        f"backup       {backup_line(report.last_backup, now)}",
        *([f"backup       the next is due {report.next_backup:%Y-%m-%d %H:%M} UTC"] if report.next_backup else ()),
        *(f"certificate  {certificate_line(certificate, now)}" for certificate in report.certificates),
    ]


def engine_lines(engine: EngineStats) -> list[str]:
    """Formats batch, tokens and KV cache."""
    return [
        f"batch        {engine.slots_busy} of {engine.slots} slots, {engine.steps} steps,"
        f" {engine.generated_tokens} tokens generated, {engine.prefill_tokens} prefilled,"
        f" {engine.preemptions} preemptions",
        f"tokens       {engine.generated_per_s:.1f}/s generated,"
        f" {engine.computed_per_s:.1f}/s computed in the last 5 s",
        f"kv cache     {engine.pages_used} of {engine.pages} pages of {engine.page_tokens} tokens held,"
        f" {engine.pages_cached} cached, {engine.kv_bytes / 2**20:.1f} MiB",
    ]


def alert_lines(alerts: Sequence[Alert]) -> list[str]:
    return [
        line
        for alert in alerts
        for line in (f"{alert.severity.value:<12} {alert.problem}", f"{'':<12} -> {alert.action}")
    ]


def damage_lines(damage: LibraryDamage | None) -> list[str]:
    """Formats the damage to the library; empty if undamaged."""
    if damage is None:
        return []
    counts = f"{damage.kept} documents are whole, {damage.rebuilt} rebuilt, {damage.lost} lost; changes are refused"
    more = damage.lost - len(damage.lost_documents)
    names = [*damage.lost_documents, *([f"{more} more"] if more else [])]
    return [
        f"recovery     {damage.problem}",
        f"recovery     {counts}",
        *([f"lost         {', '.join(names)}"] if names else []),
    ]


def memory_lines(memory: MemoryPlanReport) -> list[str]:
    if not memory.items:
        return []
    short = f", reduced {memory.shrink_steps} times to fit" if memory.shrink_steps else ""
    uses = ", ".join(f"{item.name} {-(-item.bytes // 2**20)}" for item in memory.items)
    return [f"memory       {memory.planned_bytes >> 20} of {memory.budget_bytes >> 20} MiB planned{short}: {uses}"]


def placement_line(placement: Placement) -> str:
    on = f"on {placement.used.value}"
    if placement.precision is not Precision.MODEL:
        on += f" in {placement.precision.value}"
    return f"{on} instead of {placement.wanted.value}: {placement.reason}" if placement.is_fallback else on


def remote_line(remote: RemoteInUse) -> str:
    """Formats the state of a remote machine."""
    state = {"closed": "in use", "open": "paused after failures", "half_open": "on trial"}
    speed = "" if remote.answer_s is None else f", {format_duration(remote.answer_s)} per answer"
    encoded = f"{remote.embedded_texts} texts embedded, " if "embed" in remote.uses else ""
    line = (
        f"{remote.name}, {remote.kind} at {remote.address}: {state.get(remote.breaker, remote.breaker)},"
        f" {remote.in_flight} in flight, {remote.answers} done, {remote.failures} failed{speed},"
        f" {encoded}{remote.sent_bytes / 2**20:.1f} MiB sent"
    )
    return f"{line}; last error: {remote.last_problem}" if remote.last_problem else line


def index_line(index: IndexInUse) -> str:
    """Formats the index of a collection."""
    line = f"{index.collection}: {index.kind.value}, {'?' if index.vectors is None else index.vectors} vectors"
    if index.recall is not None and index.built_at is not None and index.build_s is not None:
        line += (
            f", {index.unindexed} unindexed, {index.size_bytes / 2**20:.1f} MiB, recall@10 {index.recall:.3f},"
            f" built {index.built_at:%Y-%m-%d %H:%M} in {format_duration(index.build_s)}"
        )
    return f"{line}, rebuilding" if index.pending else line


def backup_line(backup: CompletedBackup | None, now: datetime) -> str:
    if backup is None:
        return "none yet; make one with `edge-rag backup`"
    where = {"stored": "on the box", "sent": "sent to a client"}.get(backup.way.value, backup.way.value)
    age = (now - backup.at).days
    return f"{backup.at:%Y-%m-%d %H:%M}, {age} days ago, {backup.size_bytes / 2**20:.1f} MiB, {where}"


def certificate_line(certificate: CertificateInUse, now: datetime) -> str:
    if certificate.expires_at is None:
        return f"{certificate.file} cannot be read"
    days = (certificate.expires_at - now).days
    left = f"{days} days left" if days >= 0 else "expired"
    return f"{certificate.subject} until {certificate.expires_at:%Y-%m-%d}, {left} ({certificate.file})"


def status_line(report: DaemonStatus, now: datetime) -> str:
    """Formats the values that change under load, on one line."""
    engine = report.engine
    queues = ", ".join(f"{s.name} {s.running}+{s.waiting}" for s in report.stages)
    devices = "".join(f", {device.name} {device.busy:.0%}" for device in report.devices)
    heat = "".join(f", {reading.zone} {reading.celsius:.0f} °C" for reading in report.temperatures)
    shed = "".join(f", {target.value} shed" for target in report.pressure.shed)
    held = "".join(f", {line}" for line in throttling_lines(report.throttling)) + shed
    return (
        f"{now:%H:%M:%S} {report.state.value}: {queues}; slots {engine.slots_busy}/{engine.slots},"
        f" pages {engine.pages_used}/{engine.pages} ({engine.pages_cached} cached),"
        f" {engine.generated_per_s:.1f} tokens/s generated, {engine.computed_per_s:.1f} computed{devices}{heat}{held}"
    )


def throttling_lines(throttling: Throttling) -> list[str]:
    """Formats throttling and power; empty if the board is not throttled and measures no power."""
    lines = []
    if throttling.causes:
        causes = " and ".join(cause.value for cause in throttling.causes)
        lines.append(f"throttled to {throttling.share:.0%} of slots and tokens by {causes}")
    lines += throttling.slowdowns
    if throttling.watts is not None:
        energy = throttling.joules_per_token
        lines.append(f"{throttling.watts:.1f} W" + ("" if energy is None else f", {energy:.2f} J per token"))
    return lines


def pressure_lines(memory: MemoryPressureState) -> list[str]:
    """Formats memory pressure; empty if it is not monitored."""
    if memory.headroom_bytes is None:
        return []
    waiting = "" if memory.waiting is None else f", {memory.waiting:.0%} of the time stalled on memory"
    shed = "".join(f", {target.value} shed" for target in memory.shed)
    return [f"{memory.headroom_bytes / 2**20:,.0f} MiB available{waiting}{shed}"]
