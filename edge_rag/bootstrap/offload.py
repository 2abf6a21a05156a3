"""Makes what borrows other machines, out of the settings."""

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
from edge_rag.offload.encoding.client import EncoderCaller, EncoderOffload, Encoders, EncoderState
from edge_rag.offload.events import EncodingAnnouncer
from edge_rag.offload.generation.generator import OffloadingGenerator, OffloadLimits
from edge_rag.offload.generation.redaction import Redactor
from edge_rag.offload.generation.timeouts import Bounds
from edge_rag.offload.ports import Remote, UsageSink
from edge_rag.offload.remotes.circuit_breaker import Breaker
from edge_rag.offload.remotes.edge_rag import EdgeRagEncoders, EdgeRagRemote
from edge_rag.offload.remotes.openai import OpenAiRemote
from edge_rag.offload.remotes.tls_trust import Trust

_LOOK_EVERY_S: Final = 5.0


def make_offloading(
    settings: OffloadSettings,
    local: ModelSwapper,
    books: UsageSink,
    throttling: Callable[[], Throttling],
    unread_s: float,
) -> OffloadingGenerator | None:
    """Returns a generator over this box's and the configured machines; None where offload is off.

    Args:
        settings: What the operator chose.
        local: This box's generator.
        books: Keep the trail, and what clients used.
        throttling: Returns what holds this box back.
        unread_s: Longest time that an answer waits for its reader, seconds.

    Raises:
        ConfigurationError: A pattern to redact by is unusable.
    """
    redactor = Redactor(settings.redact)
    if settings.mode is OffloadMode.NEVER:
        return None
    limits = OffloadLimits(
        mode=settings.mode,
        bounds=Bounds(settings.first_token_timeout_seconds, settings.stall_seconds, unread_s),
        breaker=Breaker(settings.breaker_failures, settings.breaker_open_seconds),
    )
    remotes = [_remote(each) for each in settings.remotes]
    return OffloadingGenerator(local, remotes, limits, redactor, books, _Strain(settings, throttling))


def make_loan(
    settings: OffloadSettings,
    offloading: OffloadingGenerator | None,
    models: Encoders,
    decisions: AuditSink,
    throttling: Callable[[], Throttling],
) -> EncoderOffload | None:
    """Returns what borrows other machines' encoders; None where none is used for that. Asks them which they have.

    Args:
        settings: What the operator chose.
        offloading: What talks to the machines.
        models: This box's encoders.
        decisions: Keeps the trail.
        throttling: Returns what holds this box back.
    """
    if offloading is None:
        return None
    dispatch = offloading.dispatch
    desks = {
        name: EncoderState(desk, EdgeRagEncoders(desk.remote.connection))
        for name, desk in dispatch.desks.items()
        if isinstance(desk.remote, EdgeRagRemote) and desk.remote.uses != {OffloadUse.GENERATE}
    }
    if not desks:
        return None
    courier = EncoderCaller(dispatch, models, EncodingAnnouncer(decisions))
    strained = _Strain(settings, throttling)
    loan = EncoderOffload(courier, desks, settings.mode, settings.first_token_timeout_seconds, strained)
    loan.introduce()
    return loan


def _remote(settings: RemoteSettings) -> Remote:
    trust = Trust(settings.authority, settings.fingerprint, settings.credential)
    match settings.kind:
        case RemoteKind.EDGE_RAG:
            return EdgeRagRemote(settings.name, settings.address, trust, frozenset(settings.uses))
        case RemoteKind.OPENAI:
            return OpenAiRemote(settings.name, settings.address, settings.model or "", trust)


class _Strain:
    """Whether this box is held back or on battery; the battery is looked at every few seconds at most."""

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
        self._look_at = clock()

    def __call__(self) -> bool:
        if self._when_throttled and self._throttling().causes:
            return True
        now = self._clock()
        if self._when_on_battery and now >= self._look_at:
            self._look_at = now + _LOOK_EVERY_S
            battery = psutil.sensors_battery()
            self._on_battery = battery is not None and battery.power_plugged is False
        return self._on_battery
