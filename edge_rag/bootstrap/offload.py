"""Makes the offloading generator and encoders from the settings."""

from __future__ import annotations

from collections.abc import Callable

from edge_rag.config.offload import OffloadSettings, RemoteKind, RemoteSettings
from edge_rag.core.monitoring.resources import Throttling
from edge_rag.core.placement import OffloadMode, OffloadUse
from edge_rag.core.ports import AuditSink
from edge_rag.generator.model_swap import ModelSwapper
from edge_rag.offload.encoding.client import EncoderOffload, EncoderState
from edge_rag.offload.encoding.events import EncoderEventRecorder
from edge_rag.offload.generation.generator import OffloadingGenerator, OffloadLimits
from edge_rag.offload.generation.redaction import Redactor
from edge_rag.offload.generation.timeouts import FIRST_TOKEN_S, Timeouts
from edge_rag.offload.ports import EncoderModels, Remote, UsageSink
from edge_rag.offload.remotes.tls_trust import Trust


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
    limits = OffloadLimits(settings.mode, Timeouts(slow_client_s=slow_client_s))
    remotes = [_remote(each) for each in settings.remotes]
    return OffloadingGenerator(local, remotes, limits, redactor, usage, lambda: bool(throttling().causes))


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
        FIRST_TOKEN_S,
        lambda: bool(throttling().causes),
    )
    offload.check_models()
    return offload


def _remote(settings: RemoteSettings) -> Remote:
    # Imported only if configured: an HTTP client and multicast DNS are 0.1 s of processor time at start.
    trust = Trust(settings.authority, settings.fingerprint, settings.credential)
    match settings.kind:
        case RemoteKind.EDGE_RAG:
            from edge_rag.offload.remotes.edge_rag import EdgeRagRemote

            return EdgeRagRemote(settings.name, settings.address, trust, frozenset(settings.uses))
        case RemoteKind.OPENAI:
            from edge_rag.offload.remotes.openai import OpenAiRemote

            return OpenAiRemote(settings.name, settings.address, settings.model or "", trust)
