"""Device profiles: settings of a kind of board, read from TOML, and the rules that choose one for a machine."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator

from edge_rag.core.placement import ModelStage, OnUnavailable, Precision, Provider
from edge_rag.device.facts import DeviceFacts
from edge_rag.errors import ConfigurationError
from edge_rag.runtime.session.providers import ACCELERATORS
from edge_rag.runtime.session.providers.spec import Accelerator

AUTO: Final = "auto"
"""Setting that chooses the profile by the rules, instead of a name."""

_GIB: Final = 1 << 30


class ComputingCores(Enum):
    """Which cores compute: all, or only the faster ones where there are several kinds."""

    ALL = "all"
    BIG = "big"


@dataclass(frozen=True, slots=True)
class ProviderChoice:
    """A provider that a stage may run on."""

    provider: Provider
    precision: Precision
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StageProfile:
    """Providers of a stage.

    Attributes:
        providers: At least one, the preferred one first, none twice.
        on_unavailable: What to do where the first is unavailable.
    """

    providers: tuple[ProviderChoice, ...]
    on_unavailable: OnUnavailable


@dataclass(frozen=True, slots=True)
class ThermalPolicy:
    """Throttling by temperature and power.

    Attributes:
        min_slots: Slots at the strongest throttling, at least 1.
        power_budget_watts: Power limit where the board measures power; None for no limit.
    """

    throttle_celsius: float
    resume_celsius: float
    min_slots: int
    power_budget_watts: float | None


@dataclass(frozen=True, slots=True)
class ProfileRule:
    """A rule that recognizes a kind of board: all its conditions must hold.

    Attributes:
        machines: The machine has one of these instruction sets; empty for any.
        compatible: One of these patterns with ``*`` matches a name in the device tree; empty for any.
        max_memory_gib: Upper bound of the memory, GiB, exclusive.
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
    """Settings of a kind of board.

    Attributes:
        threads_share: Computing threads as a share of these cores, (0, 1].
        kv_memory_share: Share of the available memory that KV pages may take, (0, 1].
        reserve_bytes: Memory that stays free for other processes and unplanned use, bytes.
        prefill_share: Share of a step that is reserved for prompts, (0, 1).
    """

    name: str
    title: str
    recognize: tuple[ProfileRule, ...]
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
        """Returns the number of computing threads, at least 1 and at most what cgroups allow.

        Every thread gets an equal share of each product, so a thread on a much slower core would delay the others: on
        boards with several kinds of cores only the fast ones count. The kernel's scheduler keeps busy threads on them.
        """
        processor = facts.processor
        cores = len(processor.big if self.computing_cores is ComputingCores.BIG else processor.usable)
        threads = int(cores * self.threads_share)
        if processor.cpu_quota is not None:
            threads = min(threads, ceil(processor.cpu_quota))
        return max(1, threads)


def _known_accelerator(name: str) -> str:
    if name not in ACCELERATORS:
        raise ValueError(f"must be one of {', '.join(ACCELERATORS)}")
    return name


_Share = Annotated[float, Field(gt=0, le=1)]
_AcceleratorName = Annotated[str, AfterValidator(_known_accelerator)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _RuleTable(_Table):
    rank: int = Field(ge=1, le=1000)
    machines: tuple[str, ...] = ()
    compatible: tuple[str, ...] = ()
    accelerators: tuple[_AcceleratorName, ...] = ()
    providers: tuple[Provider, ...] = ()
    min_memory_gib: float | None = Field(default=None, gt=0)
    max_memory_gib: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _asks(self) -> Self:
        if not (self.machines or self.compatible or self.accelerators):
            raise ValueError("a rule must name machines, compatible or accelerators")
        return self

    def value(self) -> ProfileRule:
        accelerators = tuple(ACCELERATORS[name] for name in self.accelerators)
        return ProfileRule(**(self.model_dump() | {"accelerators": accelerators}))


class _ThreadsTable(_Table):
    cores: ComputingCores
    share: _Share


class _MemoryTable(_Table):
    kv_share: _Share
    reserve_mib: int = Field(ge=0, le=1 << 20)


class _BatchTable(_Table):
    max_slots: int = Field(ge=1, le=256)
    max_step_tokens: int = Field(ge=16, le=8192)
    prefill_share: float = Field(gt=0, lt=1)


class _ThermalTable(_Table):
    throttle_celsius: float = Field(gt=0, le=150)
    resume_celsius: float = Field(gt=0, le=150)
    min_slots: int = Field(default=1, ge=1, le=256)
    power_budget_watts: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.resume_celsius >= self.throttle_celsius:
            raise ValueError("resume_celsius must be below throttle_celsius")
        return self


class _ProviderTable(_Table):
    precision: Precision = Precision.MODEL
    options: dict[str, str] = {}


class _StageBase(_Table):
    providers: tuple[Provider, ...] = Field(min_length=1)
    on_unavailable: OnUnavailable | None = None

    @model_validator(mode="after")
    def _once(self) -> Self:
        if len(set(self.providers)) < len(self.providers):
            raise ValueError("providers names one twice")
        return self

    def value(self, on_unavailable: OnUnavailable) -> StageProfile:
        tables: dict[str, _ProviderTable] = dict(self)
        choices = tuple(
            ProviderChoice(each, tables[each.value].precision, tables[each.value].options) for each in self.providers
        )
        return StageProfile(choices, self.on_unavailable or on_unavailable)


if TYPE_CHECKING:
    _StageTable = _StageBase
else:
    # One optional table for each provider.
    _StageTable = create_model(
        "_StageTable",
        __base__=_StageBase,
        **{provider.value: (_ProviderTable, _ProviderTable()) for provider in Provider},
    )


class _StagesTable(_Table):
    embedder: _StageTable
    reranker: _StageTable
    generator: _StageTable


class _ProfileTable(_Table):
    title: str = Field(min_length=1)
    on_unavailable: OnUnavailable
    recognize: tuple[_RuleTable, ...] = ()
    threads: _ThreadsTable
    memory: _MemoryTable
    batch: _BatchTable
    thermal: _ThermalTable
    stages: _StagesTable


def builtin_profiles() -> tuple[DeviceProfile, ...]:
    folder = files("edge_rag.device") / "profiles"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return tuple(
        parse_profile(name.removesuffix(".toml"), name, (folder / name).read_text(encoding="utf-8")) for name in names
    )


def with_overrides(profile: DeviceProfile, file: Path) -> DeviceProfile:
    """Merges an operator's file into a built-in profile: tables are merged, other values are replaced.

    Raises:
        ConfigurationError: The file cannot be read, or a key is unknown or has an invalid value; names file and key.
    """
    try:
        own = _toml(str(file), file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"profile_file: {file} cannot be read: {error}") from error
    if "recognize" in own:
        raise ConfigurationError(f"{file}: recognize: cannot be changed; name a profile with the key `profile`")
    folder = files("edge_rag.device") / "profiles"
    given = _toml(profile.name, (folder / f"{profile.name}.toml").read_text(encoding="utf-8"))
    return _checked(profile.name, str(file), _merged(given, own))


def parse_profile(name: str, source: str, text: str) -> DeviceProfile:
    return _checked(name, source, _toml(source, text))


def _toml(source: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{source}: not a TOML file: {error}") from error


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged


def _checked(name: str, source: str, values: dict[str, Any]) -> DeviceProfile:
    try:
        table = _ProfileTable.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}" for problem in error.errors()
        )
        raise ConfigurationError(f"{source}: {problems}") from error
    stages = {
        ModelStage.EMBEDDER: table.stages.embedder.value(table.on_unavailable),
        ModelStage.RERANKER: table.stages.reranker.value(table.on_unavailable),
        ModelStage.GENERATOR: table.stages.generator.value(table.on_unavailable),
    }
    thermal = table.thermal
    return DeviceProfile(
        name=name,
        title=table.title,
        recognize=tuple(rule.value() for rule in table.recognize),
        computing_cores=table.threads.cores,
        threads_share=table.threads.share,
        kv_memory_share=table.memory.kv_share,
        reserve_bytes=table.memory.reserve_mib << 20,
        max_slots=table.batch.max_slots,
        max_step_tokens=table.batch.max_step_tokens,
        prefill_share=table.batch.prefill_share,
        stages=stages,
        thermal=ThermalPolicy(
            thermal.throttle_celsius, thermal.resume_celsius, thermal.min_slots, thermal.power_budget_watts
        ),
    )


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a rule."""

    holds: bool
    text: str


@dataclass(frozen=True, slots=True)
class RuleResult:
    """Result of a rule."""

    profile: str
    rank: int
    conditions: tuple[Condition, ...]

    @property
    def holds(self) -> bool:
        return all(condition.holds for condition in self.conditions)


@dataclass(frozen=True, slots=True)
class ProfileChoice:
    """The profile for a machine.

    Attributes:
        results: Result of each rule, highest rank first.
    """

    profile: DeviceProfile
    configured: bool
    results: tuple[RuleResult, ...]

    @property
    def reason(self) -> str:
        if self.configured:
            return "named in the settings"
        won = next(result for result in self.results if result.holds)
        return "; ".join(condition.text for condition in won.conditions)


def choose(wanted: str, facts: DeviceFacts, profiles: Sequence[DeviceProfile]) -> ProfileChoice:
    """Chooses a profile."""
    pairs = [(rule, profile) for profile in profiles for rule in profile.recognize]
    pairs.sort(key=lambda pair: -pair[0].rank)
    results = tuple(RuleResult(profile.name, rule.rank, tuple(conditions_of(rule, facts))) for rule, profile in pairs)
    named = next((profile for profile in profiles if profile.name == wanted), None)
    if named is not None:
        return ProfileChoice(named, True, results)
    known = ", ".join(profile.name for profile in profiles)
    if wanted != AUTO:
        raise ConfigurationError(f"profile: there is no {wanted!r}; known profiles: {known}")
    for (_, profile), result in zip(pairs, results, strict=True):
        if result.holds:
            return ProfileChoice(profile, False, results)
    raise ConfigurationError(f"profile: nothing is known of {facts.machine!r}; known profiles: {known}")


def conditions_of(rule: ProfileRule, facts: DeviceFacts) -> Iterator[Condition]:
    """Yields the conditions of a rule on a machine."""
    if rule.compatible:
        names = facts.board.compatible
        match = next((name for name in names if any(fnmatchcase(name, each) for each in rule.compatible)), None)
        found = f"the device tree has {match}" if match else f"no {' or '.join(rule.compatible)} in the device tree"
        yield Condition(match is not None, found)
    if rule.machines:
        holds = facts.machine in rule.machines
        yield Condition(holds, f"the machine is {facts.machine}" + ("" if holds else f", not {_either(rule.machines)}"))
    for accelerator in rule.accelerators:
        holds = accelerator in facts.drivers.accelerators
        yield Condition(holds, f"{'there is' if holds else 'no'} {accelerator.name} with its driver")
    for provider in rule.providers:
        holds = provider in facts.providers
        yield Condition(holds, f"the provider {provider.value} is {'' if holds else 'not '}installed")
    total = facts.memory.total_bytes / _GIB
    if rule.min_memory_gib is not None:
        holds = total >= rule.min_memory_gib
        yield Condition(holds, f"{total:.1f} GiB of memory {'reach' if holds else 'are below'} {rule.min_memory_gib:g}")
    if rule.max_memory_gib is not None:
        holds = total < rule.max_memory_gib
        yield Condition(holds, f"{total:.1f} GiB of memory {'are below' if holds else 'reach'} {rule.max_memory_gib:g}")


def _either(names: Sequence[str]) -> str:
    return " or ".join(names)
