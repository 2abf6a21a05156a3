"""The training script's command line."""

from __future__ import annotations

import shlex
import signal
import sys
from enum import Enum
from pathlib import Path
from threading import Event
from types import FrameType

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from scripts.training.quoter.checkpoint import STATE_FILE, DifferentRun
from scripts.training.quoter.decoder import ModelSize
from scripts.training.quoter.run import Report, Run, RunSettings
from scripts.training.quoter.text.corpus import Corpus, read_corpus
from scripts.training.quoter.text.packages import PACKAGES, MissingText, archives, fetch
from scripts.training.quoter.text.vocabulary import train_vocabulary

_INTERRUPTED = 130
_EXAMPLES = """\b
Examples:
  python -m scripts.training.quoter --text ~/text --fetch --out ~/quoter
  python -m scripts.training.quoter --text ~/text --out ~/quoter --resume
  python -m scripts.training.quoter --text ~/text --out ~/quoter --tokens 2000000 --threads 8
  python -m scripts.training.quoter --text ~/text --out ~/large --device cuda --size large --tokens 400000000
  python -m scripts.models.make_quoter --checkpoint ~/quoter/model
"""


class Size(Enum):
    """Shapes to choose from: what trains in about an hour on two cores, and what a GPU is for."""

    SMALL = ModelSize()
    LARGE = ModelSize(vocabulary=16384, hidden=384, layers=8, heads=6, intermediate=768, looking_layer=4)


@click.command(epilog=_EXAMPLES)
@click.option(
    "--text",
    "text_folder",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help=f"Folder with the {len(PACKAGES)} Debian packages to train on.",
)
@click.option("--fetch", "fetching", is_flag=True, help="Download what is missing there with apt-get first.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder of the run.")
@click.option("--resume", is_flag=True, help="Go on with an interrupted run.")
@click.option("--tokens", type=click.IntRange(1), default=20_000_000, show_default=True, help="To train on.")
@click.option("--step-tokens", type=click.IntRange(1), default=2304, show_default=True, help="In one step.")
@click.option("--size", type=click.Choice([size.name.lower() for size in Size]), default="small", show_default=True)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True, help="Of the CPU.")
@click.option("--compile/--no-compile", "compiled", default=True, show_default=True, help="Needs a C++ compiler.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--matrix-rate", type=float, default=0.02, show_default=True, help="Muon's learning rate.")
@click.option("--other-rate", type=float, default=0.002, show_default=True, help="AdamW's learning rate.")
@click.option("--save-every", type=click.FloatRange(1), default=300.0, show_default=True, help="Seconds.")
@click.option("--questions", type=click.IntRange(1), default=1000, show_default=True, help="Held out, to judge by.")
def train_quoter(
    text_folder: Path,
    fetching: bool,
    out: Path,
    resume: bool,
    tokens: int,
    step_tokens: int,
    size: str,
    device: str,
    threads: int,
    compiled: bool,
    seed: int,
    matrix_rate: float,
    other_rate: float,
    save_every: float,
    questions: int,
) -> None:
    """Trains the quoting model from scratch on documentation text of Debian.

    The text, the options and the seed decide the result: on one machine, with the same number of threads, a CPU run
    gives the same weights each time. Ctrl-C saves the run and writes the model as it is.
    """
    console = Console()
    begun = (out / STATE_FILE).exists()
    if begun and not resume:
        raise click.ClickException(f"{out} holds a run; --resume goes on with it, another --out begins a new one")
    if resume and not begun:
        raise click.ClickException(f"{out} holds no run to go on with; leave --resume out to begin one")
    settings = RunSettings(
        seed=seed,
        tokens=tokens,
        step_tokens=step_tokens,
        size=Size[size.upper()].value,
        matrix_rate=matrix_rate,
        other_rate=other_rate,
        device=device,
        threads=threads,
        compiled=compiled,
        questions=questions,
    )
    try:
        if fetching:
            fetch(text_folder)
        corpus = _read(text_folder, console)
        tokenizer = train_vocabulary((s for p in corpus.learned for s in p), settings.size.vocabulary)
        if tokenizer.get_vocab_size() != settings.size.vocabulary:
            raise MissingText(f"the text gives a vocabulary of {tokenizer.get_vocab_size()} only")
        run = Run(settings, corpus, tokenizer, out, shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]))
        if resume:
            run.resume()
    except (MissingText, DifferentRun) as error:
        raise click.ClickException(str(error)) from error
    if not _train(run, settings, save_every, console):
        console.print(f"interrupted after {run.progress.steps} steps; the model as it is: {run.export(None)}")
        console.print("--resume goes on from there")
        raise SystemExit(_INTERRUPTED)
    measured = run.evaluate()
    console.print(
        f"held out: the right sentence for {measured.right:.1%} of {measured.questions} questions, "
        f"{measured.sentences:.1%} of the choices, with no evidence from retrieval"
    )
    console.print(f"the model: {run.export(measured)}")


def _read(folder: Path, console: Console) -> Corpus:
    found = archives(folder)
    with Progress(console=console, transient=True) as bars:
        task = bars.add_task("reading the text", total=len(found))
        corpus = read_corpus(found, lambda _: bars.advance(task))
    console.print(
        f"{corpus.words() / 1e6:.1f}M words in {len(corpus.learned)} paragraphs, {len(corpus.held_out)} held out; "
        f"SHA-256 {corpus.sha256}"
    )
    return corpus


def _train(run: Run, settings: RunSettings, save_every: float, console: Console) -> bool:
    """Trains until the end or Ctrl-C, which stops after the step at hand; a second one stops at once."""
    stopping = Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()
        signal.signal(number, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, stop)
    done = TextColumn("{task.description} {task.percentage:.0f}%")
    try:
        with Progress(done, BarColumn(), TimeRemainingColumn(), console=console) as bars:
            task = bars.add_task("training", total=settings.tokens, completed=run.progress.tokens)

            def show(told: Report) -> None:
                bars.update(task, completed=told.tokens)
                console.print(
                    f"step {told.step}, {told.tokens / 1e6:.2f}M tokens, {told.tokens_per_second:.0f} a second: "
                    f"loss {told.loss:.3f}, choice {told.choice:.3f}, chosen {told.chosen:.1%}, "
                    f"looked {told.looked:.1%}"
                )

            return run.train(show, save_every, stopping.is_set)
    finally:
        signal.signal(signal.SIGINT, before)
