"""Execution providers, precision and placement of model stages, and what may be computed on other machines."""

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
    """Number format that a stage computes in.

    MODEL: that of the weights in the model folder; encoders on a GPU, which cannot use it, compute in FP32. A16W8:
        integer activations of 16 bits and weights of 8 bits.
    """

    MODEL = "model"
    FP32 = "fp32"
    FP16 = "fp16"
    INT8 = "int8"
    A16W8 = "a16w8"


class OnUnavailable(Enum):
    """What to do if a stage cannot run on the first provider of its profile.

    STOP: refuse to start, with the reason. FALLBACK: use the next provider and log a warning.
    """

    STOP = "stop"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a stage runs.

    Attributes:
        reason: Why it runs there, for people: the rule if it is the wanted provider, else the obstacle.
    """

    stage: ModelStage | Unrecognized
    wanted: Provider | Unrecognized
    used: Provider | Unrecognized
    reason: str
    precision: Precision | Unrecognized

    @property
    def is_fallback(self) -> bool:
        """Whether it runs on another provider than the profile's first."""
        return self.used != self.wanted


@dataclass(frozen=True, slots=True)
class ProviderDevice:
    """A device that ONNX Runtime can run a graph on.

    Attributes:
        kind: ``cpu``, ``gpu`` or ``npu``.
        vendor: Its vendor; empty if ONNX Runtime does not report one.
    """

    provider: Provider
    kind: str
    vendor: str = ""


class OffloadRule(Enum):
    """Which text of a collection may leave the box.

    NEVER: none. REDACTED: questions and passages with matches of the configured patterns replaced by placeholders.
        ALLOWED: questions and passages unchanged.
    """

    NEVER = "never"
    REDACTED = "redacted"
    ALLOWED = "allowed"


class OffloadMode(Enum):
    """When other machines compute.

    NEVER: never. OVERFLOW: when this box would miss a request's deadline or is throttled; documents are embedded on
        both sides. PREFER_REMOTE: whenever a machine is available.
    """

    NEVER = "never"
    OVERFLOW = "overflow"
    PREFER_REMOTE = "prefer-remote"


class OffloadUse(Enum):
    """What another machine is used for.

    GENERATE: generating answers. EMBED: embedding the passages of documents.
    """

    GENERATE = "generate"
    EMBED = "embed"
