"""Makes the offloading generator and encoders from the settings."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import psutil

from edge_rag.config.offload import OffloadSettings, RemoteKind, RemoteSettings
from edge_rag.core.monitoring.resources import Throttling
from edge_rag.core.placement import OffloadMode, OffloadUse
from edge_rag.core.ports import AuditSink
from edge_rag.generator.model_swap import ModelSwapper
from edge_rag.offload.encoding.client import EncoderOffload, EncoderState
from edge_rag.offload.encoding.messages import EncoderModels
from edge_rag.offload.events import EncoderEventRecorder
from edge_rag.offload.generation.generator import OffloadingGenerator, OffloadLimits
from edge_rag.offload.generation.redaction import Redactor
from edge_rag.offload.generation.timeouts import Timeouts
from edge_rag.offload.ports import Remote, UsageSink
from edge_rag.offload.remotes.circuit_breaker import CircuitBreaker
from edge_rag.offload.remotes.tls_trust import Trust

_BATTERY_INTERVAL_S: Final = 5.0


def make_offloading(
    settings: OffloadSettings,
    local: ModelSwapper,
    usage: UsageSink,
    throttling: Callable[[], Throttling],
    slow_client_s: float,
) -> OffloadingGenerator | None:
    """Returns a generator over the local one and the configured remotes; None if offload is off.

    Args:
        slow_client_s: Longest time that an answer stays paused for its client, seconds.
    """
    redactor = Redactor(settings.redact)
    if settings.mode is OffloadMode.NEVER:
        return None
    limits = OffloadLimits(
        mode=settings.mode,
        timeouts=Timeouts(settings.first_token_timeout_seconds, settings.stall_seconds, slow_client_s),
        breaker=CircuitBreaker(settings.breaker_failures, settings.breaker_open_seconds),
    )
    remotes = [_remote(each) for each in settings.remotes]
    return OffloadingGenerator(local, remotes, limits, redactor, usage, _Constrained(settings, throttling))


def make_encoder_offload(
    settings: OffloadSettings,
    offloading: OffloadingGenerator | None,
    models: EncoderModels,
    audit: AuditSink,
    throttling: Callable[[], Throttling],
) -> EncoderOffload | None:
    """Checks the remotes' models; returns None if no remote is used for embedding."""
    if offloading is None:
        return None
    from edge_rag.offload.remotes.edge_rag import EdgeRagEncoders, EdgeRagRemote

    context = offloading.context
    states = {
        name: EncoderState(state, EdgeRagEncoders(state.remote.connection))
        for name, state in context.remotes.states.items()
        if isinstance(state.remote, EdgeRagRemote) and OffloadUse.EMBED in state.remote.uses
    }
    if not states:
        return None
    offload = EncoderOffload(
        context.loop,
        context.remotes,
        models,
        EncoderEventRecorder(audit),
        states,
        settings.mode,
        settings.first_token_timeout_seconds,
        _Constrained(settings, throttling),
    )
    offload.check_models()
    return offload


def _remote(settings: RemoteSettings) -> Remote:
    # Imported by what is configured: an HTTP client and multicast DNS are 0.1 s of processor time at start.
    trust = Trust(settings.authority, settings.fingerprint, settings.credential)
    match settings.kind:
        case RemoteKind.EDGE_RAG:
            from edge_rag.offload.remotes.edge_rag import EdgeRagRemote

            return EdgeRagRemote(settings.name, settings.address, trust, frozenset(settings.uses))
        case RemoteKind.OPENAI:
            from edge_rag.offload.remotes.openai import OpenAiRemote

            return OpenAiRemote(settings.name, settings.address, settings.model or "", trust)


class _Constrained:
    """Whether the device is throttled or on battery; the battery is read every few seconds at most."""

    def __init__(
        self,
        settings: OffloadSettings,
        throttling: Callable[[], Throttling],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._throttling = throttling
        self._when_throttled = settings.when_throttled
        self._when_on_battery = settings.on_battery
        self._clock = clock
        self._on_battery = False
        self._read_battery_at = clock()

    def __call__(self) -> bool:
        if self._when_throttled and self._throttling().causes:
            return True
        now = self._clock()
        if self._when_on_battery and now >= self._read_battery_at:
            self._read_battery_at = now + _BATTERY_INTERVAL_S
            battery = psutil.sensors_battery()
            self._on_battery = battery is not None and battery.power_plugged is False
        return self._on_battery
