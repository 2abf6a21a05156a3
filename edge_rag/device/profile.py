"""Device profiles: what a kind of board gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import ceil

from edge_rag.core.placement import ModelStage, OnUnavailable, Precision, Provider
from edge_rag.device.facts import DeviceFacts
from edge_rag.runtime.session.providers.spec import Accelerator


class ComputingCores(Enum):
    """Which cores compute: all of them, or, where there are several kinds, only those of the faster ones."""

    ALL = "all"
    BIG = "big"


@dataclass(frozen=True, slots=True)
class ProviderChoice:
    """A provider that a stage may run on.

    Attributes:
        provider: Which one.
        precision: What it computes in there.
        options: Options of the provider, as ONNX Runtime names them.
    """

    provider: Provider
    precision: Precision
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StageProfile:
    """Where a stage runs.

    Attributes:
        providers: At least one, the wanted one first, no provider twice.
        on_unavailable: What to do where the first cannot be had.
    """

    providers: tuple[ProviderChoice, ...]
    on_unavailable: OnUnavailable


@dataclass(frozen=True, slots=True)
class ThermalPolicy:
    """How a box slows down when it is hot or takes too much power.

    Attributes:
        throttle_celsius: Above this temperature of the hottest zone it does less.
        resume_celsius: Below this one it does more again; lower than ``throttle_celsius``.
        min_slots: Sequences that still run at once when it does least, at least 1.
        power_budget_watts: Most power to take where the board measures it; None for no budget.
    """

    throttle_celsius: float
    resume_celsius: float
    min_slots: int
    power_budget_watts: float | None


@dataclass(frozen=True, slots=True)
class Recognition:
    """A rule that recognizes a kind of board: holds where everything it asks for does.

    Attributes:
        rank: Of the rules that hold, the highest rank wins: a board has one above its chip, a chip one above its
            accelerator, and an instruction set the lowest.
        machines: Instruction sets, one of which it has; empty for any.
        compatible: Patterns with ``*``, one of which a name in its device tree matches; empty for any.
        accelerators: What it has with a driver in place, all of them.
        providers: Execution providers that are installed, all of them.
        min_memory_gib: Least memory it has, GiB.
        max_memory_gib: It has less memory than this, GiB.
    """

    rank: int
    machines: tuple[str, ...] = ()
    compatible: tuple[str, ...] = ()
    accelerators: tuple[Accelerator, ...] = ()
    providers: tuple[Provider, ...] = ()
    min_memory_gib: float | None = None
    max_memory_gib: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """What a kind of board gets.

    Attributes:
        name: Name of the profile.
        title: What it is for, for people.
        recognize: Rules, any of which recognizes the board.
        computing_cores: Which cores compute.
        threads_share: Computing threads as a share of these cores, (0, 1].
        kv_memory_share: Share of the available memory that KV pages may take, (0, 1].
        reserve_bytes: Memory that is left alone, for what is not planned and for others, bytes.
        max_slots: Sequences that run at once.
        max_step_tokens: Tokens computed in one step.
        prefill_share: Share of a step that prompts keep however many sequences decode, (0, 1).
        stages: Where each stage runs.
        thermal: What happens when the box is hot.
    """

    name: str
    title: str
    recognize: tuple[Recognition, ...]
    computing_cores: ComputingCores
    threads_share: float
    kv_memory_share: float
    reserve_bytes: int
    max_slots: int
    max_step_tokens: int
    prefill_share: float
    stages: Mapping[ModelStage, StageProfile]
    thermal: ThermalPolicy

    def threads(self, facts: DeviceFacts) -> int:
        """Returns the number of computing threads, at least 1: no more than cgroups give time for.

        Threads share each product equally, so one on a core that is much slower would hold up the others: on boards
        with cores of several kinds only the big ones count. The kernel's scheduler keeps busy threads on them.
        """
        processor = facts.processor
        cores = len(processor.big if self.computing_cores is ComputingCores.BIG else processor.usable)
        threads = int(cores * self.threads_share)
        if processor.cpu_quota is not None:
            threads = min(threads, ceil(processor.cpu_quota))
        return max(1, threads)
