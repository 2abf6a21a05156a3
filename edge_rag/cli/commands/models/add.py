"""``edge-rag models add``."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import click
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from edge_rag.cli import options
from edge_rag.cli.commands.models.list import form, place, settings_of
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import emit, notes, visible

_LONGEST_DETAIL = 60


@click.command(
    epilog="""\b
Examples:
  edge-rag models add hf:Qwen/Qwen2.5-0.5B-Instruct
  edge-rag models add hf:HuggingFaceTB/SmolLM2-360M-Instruct@main --precision int8
  edge-rag models add /media/stick/Qwen2.5-0.5B-Instruct --name qwen
  edge-rag models add hf:cross-encoder/ms-marco-MiniLM-L6-v2 --role reranker

\b
SOURCE is hf:owner/name[@revision], or a folder: of Hugging Face's, of
onnxruntime-genai's, or a model folder of edge-rag's. Ctrl-C leaves the store
as it was; files that were fetched are kept for the next try.
"""
)
@click.argument("source")
@click.option("--name", help="What to call it. [default: after the source]")
@click.option(
    "--precision",
    type=click.Choice(["int4", "int8", "fp32"]),
    help="What the weights of a Hugging Face folder are converted to. [default: int4; int8 for encoders]",
)
@click.option(
    "--role",
    type=click.Choice(["embedder", "reranker", "generator"]),
    help="Refuse a model that is for something else. [default: what it is for]",
)
@click.option("--licence", metavar="SPDX", help="Its licence. [default: what the model card says]")
@click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PUBLIC.pem",
    help="Refuse a folder whose model.sig is not by this key (OpenSSF model signing); one of several is enough.",
)
@place
@options.as_json
def add(
    source: str,
    name: str | None,
    precision: str | None,
    role: str | None,
    licence: str | None,
    keys: tuple[Path, ...],
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,
) -> ExitCode:
    """Fetches or copies a model, checks and converts it, and compares it with its original before it can be used."""
    from edge_rag.model_store.convert.genai import ModelPrecision
    from edge_rag.model_store.request import AddRequest
    from edge_rag.model_store.roles import store_of
    from edge_rag.model_store.signature import acceptable_keys
    from edge_rag.model_store.source import check_name, default_name, parse_source
    from edge_rag.runtime.model_folder.manifest import ModelRole

    settings = settings_of(config, data_dir)
    store = store_of(settings)
    wanted = parse_source(source)
    wish = AddRequest(
        wanted,
        check_name(name or default_name(wanted)),
        None if precision is None else ModelPrecision(precision),
        licence,
        None if role is None else ModelRole(role),
        acceptable_keys(settings.models.trusted_keys, keys),
    )
    with _Shown() as shown, _ended_in_order():
        manifest = store.add(wish, shown)
    size = sum(record.bytes for record in manifest.files.values())
    if as_json:
        added = {"name": wish.name, "role": manifest.role.value, "licence": manifest.licence, "bytes": size}
        emit({**added, "form": form(manifest), "serial_reason": manifest.serial_reason})
        return ExitCode.OK
    if form(manifest) == "serial":
        said = f"{wish.name} runs serially, one question at a time, through onnxruntime-genai: {manifest.serial_reason}"
        notes().print(visible(said), style="yellow")
    how = f"edge-rag models use {manifest.role.value} {wish.name}"
    notes().print(visible(f"{wish.name} was added, {size / 2**20:.1f} MiB; to use it: {how}"), style="dim")
    return ExitCode.OK


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """Lets SIGTERM do what Ctrl-C does: end what was started and clear away what is half made."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Shown:
    """Steps on standard error: a bar on a terminal, a line a step elsewhere."""

    def __init__(self) -> None:
        self._console = notes()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[detail]}", style="dim"),
                console=self._console,
                transient=True,
            )
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, what: str, total_bytes: int | None = None) -> None:
        """Shows the next step."""
        if self._bar is None:
            self._console.print(visible(what), style="dim")
            return
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(visible(what), total=total_bytes, detail="")

    def advance(self, done_bytes: int) -> None:
        """Moves the bar."""
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, done_bytes)

    def detail(self, line: str) -> None:
        """Shows what a program said last."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, detail=visible(line)[:_LONGEST_DETAIL])
