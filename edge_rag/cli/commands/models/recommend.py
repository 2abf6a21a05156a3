"""``edge-rag models recommend``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import aligned, emit, note, print_block

if TYPE_CHECKING:
    from edge_rag.model_store.catalog import CatalogEntry, EncoderEntry, ExpectedSpeed, Needs

_READING_TOKENS_PER_S = 5.0
"""238 words of English a minute, at 1.3 tokens a word (Brysbaert 2019, https://doi.org/10.1016/j.jml.2019.104047)."""

_ROLES = ("embedder", "reranker", "generator")


@click.command(
    epilog="""\b
Examples:
  edge-rag models recommend
  edge-rag models recommend --role embedder
  edge-rag models recommend --memory-gib 4 --json
"""
)
@click.option("--role", type=click.Choice(_ROLES), help="Only models of this role. [default: all]")
@click.option("--memory-gib", type=click.FloatRange(min=0.1), help="Assume this much memory instead of this machine's.")
@click.option(
    "--probe/--no-probe",
    default=None,
    help="Measure this machine again, for about a second, or do without expected speeds. [default: measure once]",
)
@options.config_options
@options.as_json
def recommend(
    role: str | None,
    memory_gib: float | None,
    probe: bool | None,
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,
) -> ExitCode:
    """Lists the models of the catalog that fit this machine, best first, and how to add them.

    The order follows published results, not measurements of this project, unless an entry says so; language models
    that write more slowly here than people read, less than 5 tokens a second, come last. The expected speed
    of a language model is decoded tokens a second with 1 and with 8 answers at a time at 1,024 tokens of context: the
    weights and the keys and values that a step reads, divided by what a product with packed weights was measured to
    read, which is remembered until processor, threads or version change. It is an upper bound; sampling, norms and
    scheduling come on top. The cost of embedders and rerankers is that of a token, compared with the default
    embedder's.
    """
    from edge_rag.device.probe import probe as probe_device
    from edge_rag.model_store.catalog import (
        CATALOG_FILE,
        encoder_needs,
        expected_speed,
        needs,
        read_catalog,
        relative_cost,
    )
    from edge_rag.model_store.catalog import recommend as fitting_models
    from edge_rag.runtime.decoder.product_speed import remembered_product_speed
    from edge_rag.runtime.model_folder.manifest import ModelRole

    settings = options.read_settings(config, data_dir)
    facts = probe_device()
    available = facts.available_bytes if memory_gib is None else int(memory_gib * (1 << 30))
    catalog = read_catalog(settings.models.directory / CATALOG_FILE)
    found = fitting_models(catalog, available, None if role is None else ModelRole(role))
    measured = None
    if probe is not False and found.generators:
        processor = f"{facts.processor.model} {' '.join(sorted(facts.processor.features))}"
        measured = remembered_product_speed(processor, again=probe is True)
    ranked = [(entry, None if measured is None else expected_speed(entry, measured)) for entry in found.generators]
    ranked.sort(key=lambda each: is_slow(each[1]))
    if as_json:
        threads = None if measured is None else measured.threads
        generators = [_generator_json(entry, speed) for entry, speed in ranked]
        encoders = [_encoder_json(entry) for entry in found.encoders]
        emit({"available_bytes": available, "threads": threads, "models": generators, "encoders": encoders})
        return ExitCode.OK
    note(f"{available / (1 << 30):.1f} GiB available; each role in order of published results, best first", "dim")
    if ranked:
        _table("generator", ("TOKENS/S", "8 AT ONCE"), [
            (entry, needs(entry), ("-", "-") if speed is None else (_rounded(speed.one), _rounded(speed.eight)))
            for entry, speed in ranked
        ])  # fmt: skip
        slow = sum(is_slow(speed) for _, speed in ranked)
        if slow:
            note(f"the last {slow} write more slowly here than people read", "yellow")
    for kind in dict.fromkeys(encoder.role for encoder in found.encoders):
        _table(kind, ("COST",), [
            (encoder, encoder_needs(encoder), (f"{relative_cost(encoder):.1f}",))
            for encoder in found.encoders
            if encoder.role == kind
        ])  # fmt: skip
    return ExitCode.OK


def is_slow(speed: ExpectedSpeed | None) -> bool:
    return speed is not None and speed.one < _READING_TOKENS_PER_S


def _rounded(tokens_per_s: float) -> str:
    return f"{tokens_per_s:.1f}" if tokens_per_s < 10 else f"{tokens_per_s:.0f}"


def _generator_json(entry: CatalogEntry, speed: ExpectedSpeed | None) -> dict[str, Any]:
    from edge_rag.model_store.catalog import needs

    return entry.model_dump(exclude={"shape"}) | {
        "needs": asdict(needs(entry)),
        "expected_tokens_per_s": None if speed is None else asdict(speed),
        "command": _command(entry),
    }


def _encoder_json(entry: EncoderEntry) -> dict[str, Any]:
    from edge_rag.model_store.catalog import encoder_needs, relative_cost

    return entry.model_dump(exclude={"shape"}) | {
        "dimension": entry.shape.hidden if entry.role == "embedder" else None,
        "needs": asdict(encoder_needs(entry)),
        "relative_cost": relative_cost(entry),
        "command": _command(entry),
    }


def _table(
    role: str,
    columns: Sequence[str],
    entries: Sequence[tuple[CatalogEntry | EncoderEntry, Needs, Sequence[str]]],
) -> None:
    """Prints the models of a role: for each a line of figures, its uses, and the command that adds it."""
    rows = [(role.upper(), "BITS", "MEMORY MIB", "DISK MIB", *columns, "LICENCE")]
    for entry, size, figures in entries:
        sizes = (str(size.memory_bytes >> 20), str(size.disk_bytes >> 20))
        rows.append((entry.name, str(entry.bits), *sizes, *figures, entry.licence))
    head, *lines = aligned(rows)
    click.echo(head)
    for line, (entry, *_) in zip(lines, entries, strict=True):
        click.echo(line)
        known = [] if entry.role == "generator" else [f"{entry.languages}; {entry.figure}"]
        for fact in (*known, entry.good_for, entry.checked):
            print_block(fact, "    ")
        click.echo(f"    {_command(entry)}")


def _command(entry: CatalogEntry | EncoderEntry) -> str:
    if entry.role != "generator" and entry.comes_along:
        return f"edge-rag models use {entry.role} {entry.name}"
    name = "" if entry.source == entry.name else f" --name {entry.name}"
    return f"edge-rag models add {entry.source}{name}"
