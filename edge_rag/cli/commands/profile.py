"""``edge-rag profile``: Lists, shows and tests device profiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.help import Group
from edge_rag.cli.output.terminal import emit, note, printable

if TYPE_CHECKING:
    from edge_rag.bootstrap.provider_trial import ProviderTrial
    from edge_rag.device.profile import DeviceProfile


@click.group(
    cls=Group,
    epilog="""\b
Examples:
  edge-rag profile list
  edge-rag profile show jetson-orin-nano-8g
  edge-rag profile test
""",
)
def profile() -> None:
    """Lists, shows and tests device profiles. A profile sets providers, precision, threads, memory and batch sizes."""


@profile.command(
    name="list",
    epilog="""\b
Examples:
  edge-rag profile list
  edge-rag profile list --json | jq -r '.profiles[] | select(.chosen) | .name'
""",
)
@options.config_options
@options.as_json
def list_profiles(config: Path | None, data_dir: Path | None, as_json: bool) -> ExitCode:
    """Lists the profiles and marks the one of this machine."""
    from edge_rag.bootstrap.device import inspect_device
    from edge_rag.device.profile import builtin_profiles

    choice = inspect_device(options.read_settings(config, data_dir)).choice
    chosen: str | None = None
    if isinstance(choice, Exception):
        note(str(choice), "yellow")
    else:
        chosen = choice.profile.name
    profiles = builtin_profiles()
    if as_json:
        found = [{"name": each.name, "title": each.title, "chosen": each.name == chosen} for each in profiles]
        emit({"profiles": found})
        return ExitCode.OK
    width = max(len(each.name) for each in profiles)
    for each in profiles:
        click.echo(f"{'*' if each.name == chosen else ' '} {each.name:<{width}}  {each.title}")
    return ExitCode.OK


@profile.command(
    epilog="""\b
Examples:
  edge-rag profile show raspberry-pi-5
  edge-rag profile show                        # this machine's, with the keys of profile_file
  edge-rag profile show --json | jq .stages
"""
)
@click.argument("name", required=False)
@options.config_options
@options.as_json
def show(name: str | None, config: Path | None, data_dir: Path | None, as_json: bool) -> ExitCode:
    """Shows all settings of a profile."""
    from edge_rag.bootstrap.device import choose_profile
    from edge_rag.device.probe import probe
    from edge_rag.runtime.session.sessions import provider_devices

    settings = options.read_settings(config, data_dir)
    if name is not None:
        settings = settings.model_copy(update={"profile": name})
    found = choose_profile(settings, probe(provider_devices())).profile
    shown = profile_json(found)
    if as_json:
        emit(shown)
        return ExitCode.OK
    for line in profile_lines(shown):
        click.echo(printable(line))
    return ExitCode.OK


@profile.command(
    epilog="""\b
Examples:
  edge-rag profile test
  edge-rag profile test --config /etc/edge-rag/edge-rag.toml --json | jq '.stages[].providers'
"""
)
@options.config_options
@options.as_json
def test(config: Path | None, data_dir: Path | None, as_json: bool) -> ExitCode:
    """Opens each stage on each of its providers, runs it once and reports the result.

    Each trial runs in a separate process, which isolates driver crashes. Fails if a stage would not start.
    """
    from edge_rag.bootstrap.device import choose_profile
    from edge_rag.bootstrap.provider_trial import try_stage
    from edge_rag.core.placement import OnUnavailable
    from edge_rag.device.probe import probe
    from edge_rag.runtime.session.sessions import provider_devices

    found = choose_profile(options.read_settings(config, data_dir), probe(provider_devices())).profile
    failed = False
    stages: list[dict[str, Any]] = []
    if not as_json:
        click.echo(f"profile {found.name}")
    for stage, wanted in found.stages.items():
        trials: list[dict[str, Any]] = []
        for number, choice in enumerate(wanted.providers):
            trial = try_stage(stage, number, config, data_dir)
            trials.append({"provider": choice.provider.value, "precision": choice.precision.value} | _trial_json(trial))
            if not as_json:
                click.echo(printable(f"{stage.value:<10} {choice.provider.value:<9} {_trial_text(trial)}"))
        usable = [trial["ran"] for trial in trials]
        starts = usable[0] if wanted.on_unavailable is OnUnavailable.STOP else any(usable)
        failed |= not starts
        stages.append({"stage": stage.value, "starts": starts, "providers": trials})
    if as_json:
        emit({"profile": found.name, "ok": not failed, "stages": stages})
    return ExitCode.FAILURE if failed else ExitCode.OK


def profile_json(found: DeviceProfile) -> dict[str, Any]:
    """A profile in the structure of its file."""
    thermal = found.thermal
    return {
        "name": found.name,
        "title": found.title,
        "recognize": [
            {
                "rank": rule.rank,
                "machines": list(rule.machines),
                "compatible": list(rule.compatible),
                "accelerators": [each.name for each in rule.accelerators],
                "providers": [each.value for each in rule.providers],
                "min_memory_gib": rule.min_memory_gib,
                "max_memory_gib": rule.max_memory_gib,
            }
            for rule in found.recognize
        ],
        "threads": {"cores": found.computing_cores.value, "share": found.threads_share},
        "memory": {"kv_share": found.kv_memory_share, "reserve_mib": found.reserve_bytes >> 20},
        "batch": {
            "max_slots": found.max_slots,
            "max_step_tokens": found.max_step_tokens,
            "prefill_share": found.prefill_share,
        },
        "thermal": {
            "throttle_celsius": thermal.throttle_celsius,
            "resume_celsius": thermal.resume_celsius,
            "min_slots": thermal.min_slots,
            "power_budget_watts": thermal.power_budget_watts,
        },
        "stages": {
            stage.value: {
                "on_unavailable": wanted.on_unavailable.value,
                "providers": [
                    {
                        "provider": choice.provider.value,
                        "precision": choice.precision.value,
                        "options": dict(choice.options),
                    }
                    for choice in wanted.providers
                ],
            }
            for stage, wanted in found.stages.items()
        },
    }


def profile_lines(shown: dict[str, Any]) -> list[str]:
    """Formats a profile."""
    lines = [f"{shown['name']}: {shown['title']}"]
    for rule in shown["recognize"]:
        conditions = ", ".join(f"{key} {_format(value)}" for key, value in rule.items() if value not in (None, []))
        lines.append(f"recognized  {conditions}")
    for table in ("threads", "memory", "batch", "thermal"):
        values = ", ".join(f"{key} {_format(value)}" for key, value in shown[table].items() if value is not None)
        lines.append(f"{table:<11} {values}")
    for stage, wanted in shown["stages"].items():
        lines.append(f"{stage:<11} if unavailable: {wanted['on_unavailable']}")
        for choice in wanted["providers"]:
            options_text = ", ".join(f"{key}={value}" for key, value in choice["options"].items())
            lines.append(f"            {choice['provider']} in {choice['precision']}  {options_text}".rstrip())
    return lines


def _format(value: object) -> str:
    return " or ".join(map(str, value)) if isinstance(value, list) else str(value)


def _trial_json(trial: ProviderTrial) -> dict[str, Any]:
    return {"ran": trial.ran, "reason": trial.reason, "open_seconds": trial.open_s, "run_seconds": trial.run_s}


def _trial_text(trial: ProviderTrial) -> str:
    if trial.ran:
        return f"ran; opened in {trial.open_s:.2f} s, first run {trial.run_s * 1000:.0f} ms"
    return f"did not run: {trial.reason}"
