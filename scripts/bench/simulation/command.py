"""The simulator's command line."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from edge_rag.core.query import SchedulingPreset
from edge_rag.engine.scheduling.policy import StepSize, limits_for
from edge_rag.throttle.policy import HeatThresholds, ThrottlePolicy
from scripts.bench.simulation.arrivals import Shape, Trace, arrivals
from scripts.bench.simulation.box import Box, Policy, Record, Simulation
from scripts.bench.simulation.heat import Board
from scripts.bench.simulation.report import groups_table, summary, totals_table
from scripts.bench.simulation.step_time import StepTime, measure

PAGE_TOKENS = 32
_WIDTH = 150
THROTTLE = HeatThresholds(throttle_c=85, margin_c=8)
QUOTER = StepTime(base_s=1.1e-3, decode_s=2.5e-3, prefill_token_s=4.8e-4, context_s=1.3e-6)


def capacity(box: Box, shape: Shape) -> float:
    """Returns about how many requests of a shape a box finishes in a second, all slots busy."""
    prompt, answer, _ = shape.value
    time_of, slots = box.step_time, box.limits.max_slots
    attended = prompt**2 / 2 + answer * (prompt + answer / 2)
    decodes = answer * (time_of.base_s / slots + time_of.decode_s)
    return 1 / (prompt * time_of.prefill_token_s + decodes + attended * time_of.context_s)


@click.command()
@click.option("--trace", type=click.Choice([t.value for t in Trace]), default="flood", show_default=True)
@click.option("--shape", type=click.Choice([s.name.lower() for s in Shape]), default="chat", show_default=True)
@click.option("--requests", type=click.IntRange(1, 10_000_000), default=5000, show_default=True)
@click.option("--load", type=float, default=0.9, show_default=True, help="Offered load as a share of the capacity.")
@click.option("--rate", type=float, help="Requests a second, instead of a load.")
@click.option("--clients", type=click.IntRange(1), default=8, show_default=True)
@click.option("--batch-share", type=click.FloatRange(0, 1), default=0.2, show_default=True)
@click.option("--slots", type=click.IntRange(1), default=8, show_default=True, help="Of the balanced preset.")
@click.option("--step-tokens", type=click.IntRange(2), default=256, show_default=True, help="Likewise.")
@click.option("--pages", type=click.IntRange(1), default=512, show_default=True, help=f"Of {PAGE_TOKENS} tokens.")
@click.option("--queue", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--aging", type=float, default=30.0, show_default=True, help="Seconds.")
@click.option("--target-tpot-ms", type=float, help="Let the controller move the slots.")
@click.option("--compare", type=click.Choice(["policies", "presets", "heat"]), default="policies", show_default=True)
@click.option(
    "--measure",
    "model",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Model folder: measure the time of steps with it first.",
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the totals as JSON.")
def simulate(
    trace: str,
    shape: str,
    requests: int,
    load: float,
    rate: float | None,
    clients: int,
    batch_share: float,
    slots: int,
    step_tokens: int,
    pages: int,
    queue: int,
    aging: float,
    target_tpot_ms: float | None,
    compare: str,
    model: Path | None,
    seed: int,
    as_json: bool,
) -> None:
    """Runs the real scheduler and page pool against a modelled clock.

    Compares first come, first served with classes, fair shares and aging; or the scheduling presets; or a
    board that gets hot for a quarter of an hour, left to slow itself down or throttled as the daemon does it.
    Traffic is Poisson (steady), in bursts, heavy-tailed, or a flood of one client beside small ones.
    """
    console = Console(stderr=as_json)
    if not console.is_terminal:
        console.width = _WIDTH
    step_time = QUOTER
    if model is not None:
        step_time, error = measure(model)
        console.print(f"{step_time}; mean error of a step {error:.0%}")
    size = StepSize(slots, step_tokens, 0.25)
    box = Box(
        limits=limits_for(SchedulingPreset.BALANCED, size),
        pages=pages,
        page_tokens=PAGE_TOKENS,
        max_context=4096,
        step_time=step_time,
        queue=queue,
        aging_s=aging,
        target_tpot_s=None if target_tpot_ms is None else target_tpot_ms / 1000,
    )
    kind, form = Trace(trace), Shape[shape.upper()]
    rate = rate or load * capacity(box, form)
    match compare:
        case "policies":
            runs = {policy.value: (box, policy) for policy in reversed(Policy)}
        case "presets":
            runs = {
                preset.value: (replace(box, limits=limits_for(preset, size)), Policy.FAIR)
                for preset in SchedulingPreset
            }
        case _:
            warm = replace(box, board=Board())
            runs = {
                "cool": (box, Policy.FAIR),
                "hot, left alone": (warm, Policy.FAIR),
                "hot, throttled": (
                    replace(warm, throttle=partial(ThrottlePolicy, 1 / slots, THROTTLE, None)),
                    Policy.FAIR,
                ),
            }
    records: dict[str, Record] = {}
    for name, (setup, policy) in runs.items():
        began = time.perf_counter()
        traffic = arrivals(kind, form, requests, rate, clients, batch_share, seed)
        records[name] = Simulation(setup, policy).run(traffic)
        taken = time.perf_counter() - began
        console.print(f"{name}: {requests:,} requests, {records[name].steps:,} steps simulated in {taken:.1f} s")
    if as_json:
        json.dump({name: summary(record) for name, record in records.items()}, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    console.print(
        f"{rate:.3g} requests a second, {kind.value} traffic, {clients} clients, {form.name.lower()} requests"
    )
    for table in (
        totals_table(records),
        groups_table("Classes", records, "class"),
        groups_table("Clients", records, "client"),
    ):
        console.print(table)
