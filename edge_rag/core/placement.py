"""Where a stage runs: execution providers, precision, and what happens where the wanted provider cannot be had.

Whether what a collection holds may be computed on elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from edge_rag.core.ids import Unrecognized


class Provider(Enum):
    """An execution provider of ONNX Runtime."""

    CPU = "cpu"
    CUDA = "cuda"
    TENSORRT = "tensorrt"
    QNN = "qnn"
    OPENVINO = "openvino"


class ModelStage(Enum):
    """A stage that runs a model."""

    EMBEDDER = "embedder"
    RERANKER = "reranker"
    GENERATOR = "generator"


class Precision(Enum):
    """What a stage computes in.

    MODEL: as the model's folder has its weights; encoders on a GPU, which cannot, in FP32. A16W8: activations of 16
    bits and weights of 8, both integers.
    """

    MODEL = "model"
    FP32 = "fp32"
    FP16 = "fp16"
    INT8 = "int8"
    A16W8 = "a16w8"


class OnUnavailable(Enum):
    """What to do where a stage cannot run on the provider that its profile puts first.

    STOP: do not start, and say why. FALLBACK: take the next provider and say so aloud.
    """

    STOP = "stop"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a stage runs.

    Attributes:
        stage: Which one.
        wanted: Provider that the profile puts first.
        used: Provider that it runs on.
        reason: Reason for that, for people: the rule where it is the wanted one, else what was in the way.
        precision: What it computes in.
    """

    stage: ModelStage | Unrecognized
    wanted: Provider | Unrecognized
    used: Provider | Unrecognized
    reason: str
    precision: Precision | Unrecognized

    @property
    def is_fallback(self) -> bool:
        """Whether it runs on another provider than the profile puts first."""
        return self.used != self.wanted


@dataclass(frozen=True, slots=True)
class ProviderDevice:
    """Something ONNX Runtime can run a graph on.

    Attributes:
        provider: Through which execution provider.
        kind: ``cpu``, ``gpu`` or ``npu``.
        vendor: Who made it; empty where ONNX Runtime does not say.
    """

    provider: Provider
    kind: str
    vendor: str = ""


class OffloadRule(Enum):
    """What of a collection may leave the box.

    NEVER: nothing, in any mode. REDACTED: questions and passages in which the configured patterns were replaced by
    placeholders. ALLOWED: questions and passages as they are.
    """

    NEVER = "never"
    REDACTED = "redacted"
    ALLOWED = "allowed"


class OffloadMode(Enum):
    """When other machines compute.

    NEVER: at no time. OVERFLOW: when this box would miss a request's deadline, or is held back; documents are embedded
    on both sides. PREFER_REMOTE: whenever one is there. RACE: interactive requests are begun on both sides, and the
    first to speak goes on; the others as OVERFLOW.
    """

    NEVER = "never"
    OVERFLOW = "overflow"
    PREFER_REMOTE = "prefer-remote"
    RACE = "race"


class OffloadUse(Enum):
    """What another machine is used for.

    GENERATE: writing answers. EMBED: turning questions and passages into vectors. RERANK: ordering passages.
    """

    GENERATE = "generate"
    EMBED = "embed"
    RERANK = "rerank"
