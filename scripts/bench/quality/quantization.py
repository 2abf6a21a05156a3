"""Measures what quantization costs the quoting model: INT8 keys and values, and INT8 and INT4 weights.

    .venv/bin/python -m scripts.bench.quality.quantization --checkpoint PATH [--data FILE] [--json]

Each question goes through the product's retrieval and reranking. Printed is the perplexity of the right answer after
the prompt (the sentence that holds it, its marker and the end of the turn, which is what the model was trained on) with
float32 weights and keys and values, in plain ONNX Runtime on the graph before lowering; with INT8 keys and values; with
the shipped weights; and with INT4 weights. Then how many of the answers that the generator room quotes differ from
those it quotes with float32 keys and values: with the usual weight of the retrieval side's evidence, and where the
model alone decides. The questions are those of the samples and of a SQuAD-format file. Needs the ``convert`` extra.
Ends with status 1 if a bound does not hold, or if INT8 keys and values change an answer at the usual weight.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from edge_rag.engine.ports import ModelRunner
from edge_rag.errors import EdgeRagError
from edge_rag.generator.generator import QuoteSettings
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.lowering.folder import lower_folder
from edge_rag.runtime.lowering.geometry import read_geometry
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.quality.copying import SLOTS, quoted_answers
from scripts.bench.quality.float_cache import FloatCacheDecoder
from scripts.bench.quality.perplexity import Losses, Ratio, Text, answer_losses, perplexity, ratio, right_answers
from scripts.bench.quality.questions import Case, find_cases, samples, squad
from scripts.models.genai_builder import build

REPOSITORY = Path(__file__).resolve().parents[3]
FLOAT, INT8_CACHE, SHIPPED, INT4 = "fp32 weights, fp32 KV", "fp32 weights, INT8 KV", "shipped weights", "INT4 weights"
USUAL_WEIGHT = QuoteSettings().prior_weight
WEIGHTS_OF_EVIDENCE = (USUAL_WEIGHT, 0.0)


@dataclass(frozen=True, slots=True)
class Bound:
    """What must hold.

    Attributes:
        name: The model whose perplexity is bounded.
        reference: The model it is compared with.
        most: Largest ratio allowed.
        found: The ratio.
    """

    name: str
    reference: str
    most: float
    found: Ratio

    @property
    def holds(self) -> bool:
        """Whether it is kept."""
        return self.found.value <= self.most


@dataclass(frozen=True, slots=True)
class Copies:
    """How many answers differ from those with float32 keys and values and weights."""

    name: str
    evidence_weight: float
    answers: int
    different: int


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that is printed.

    Attributes:
        texts: Questions whose right answer is in the prompt.
        tokens: Tokens of these answers.
        perplexities: By model.
        bounds: The acceptance bounds.
        copies: Answers compared.
    """

    texts: int
    tokens: int
    perplexities: dict[str, float]
    bounds: list[Bound]
    copies: list[Copies]

    @property
    def holds(self) -> bool:
        """Whether every bound is kept and INT8 keys and values change no answer as the product gives them."""
        as_given = [copy for copy in self.copies if (copy.name, copy.evidence_weight) == (INT8_CACHE, USUAL_WEIGHT)]
        return all(copy.different == 0 for copy in as_given) and all(bound.holds for bound in self.bounds)


def made_from(shipped: Path, checkpoint: Path) -> bool:
    """Whether the shipped model says that it was made from this checkpoint."""
    weights = hashlib.sha256((checkpoint / "model.safetensors").read_bytes()).hexdigest()
    return weights in json.loads((shipped / "manifest.json").read_text(encoding="utf-8"))["source"]


def open_models(checkpoint: Path, shipped: Path, scratch: Path, console: Console) -> dict[str, ModelRunner]:
    """Converts the checkpoint and opens the four models that are compared."""
    for precision in track(("fp32", "int4"), "converting", console=console):
        build(checkpoint, scratch / precision, precision)
        lower_folder(scratch / precision)
    geometry = read_geometry(scratch / "fp32")
    pages = SLOTS * -(-geometry.max_context // geometry.page_tokens)
    return {
        FLOAT: FloatCacheDecoder(scratch / "fp32", pages),
        INT8_CACHE: PagedDecoder.open(scratch / "fp32", pages),
        SHIPPED: PagedDecoder.open(shipped, pages),
        INT4: PagedDecoder.open(scratch / "int4", pages),
    }


def measure(
    models: dict[str, ModelRunner], tokenizer: ChatTokenizer, cases: Sequence[Case], console: Console
) -> Report:
    """Measures the perplexities and compares the answers."""
    texts: list[Text] = right_answers(cases, tokenizer, models[FLOAT])
    losses: dict[str, list[Losses]] = {
        name: [answer_losses(runner, text) for text in track(texts, f"perplexity: {name}", console=console)]
        for name, runner in models.items()
    }
    bounds = [
        Bound(INT8_CACHE, FLOAT, 1.005, ratio(losses[INT8_CACHE], losses[FLOAT])),
        Bound(SHIPPED, INT8_CACHE, 1.01, ratio(losses[SHIPPED], losses[INT8_CACHE])),
    ]
    copies = []
    for weight in WEIGHTS_OF_EVIDENCE:
        expected: list[str] = []
        for name in track((FLOAT, INT8_CACHE, SHIPPED), f"answers, evidence weight {weight:g}", console=console):
            answers = quoted_answers(models[name], tokenizer, cases, weight)
            expected = expected or answers
            different = sum(mine != other for mine, other in zip(answers, expected, strict=True))
            copies.append(Copies(name, weight, len(answers), different))
    return Report(
        texts=len(texts),
        tokens=sum(row.size for row in losses[FLOAT]),
        perplexities={name: perplexity(rows) for name, rows in losses.items()},
        bounds=bounds,
        copies=[copy for copy in copies if copy.name != FLOAT],
    )


def print_report(report: Report, console: Console) -> None:
    """Prints the tables."""
    table = Table(title=f"right answers of {report.texts} questions, {report.tokens} tokens")
    for heading in ("", "perplexity", "over fp32"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, value in report.perplexities.items():
        table.add_row(name, f"{value:.4f}", f"{value / report.perplexities[FLOAT]:.4f}")
    console.print(table)
    limits = Table(title="bounds")
    for heading in ("", "over", "ratio", "at most", ""):
        limits.add_column(heading)
    for bound in report.bounds:
        found = f"{bound.found.value:.4f} ± {bound.found.error:.4f}"
        limits.add_row(bound.name, bound.reference, found, f"{bound.most}", "holds" if bound.holds else "DOES NOT HOLD")
    console.print(limits)
    answers = Table(title=f"answers that differ from those with {FLOAT}")
    for heading in ("", "weight of evidence", "differ", "of"):
        answers.add_column(heading, justify="right" if heading else "left")
    for copy in report.copies:
        answers.add_row(copy.name, f"{copy.evidence_weight:g}", str(copy.different), str(copy.answers))
    console.print(answers)


def main() -> None:
    shared = Path(os.environ.get("EDGE_RAG_SHARED", REPOSITORY.parent / "shared"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True, help="Hugging Face folder of the quoting model")
    parser.add_argument("--shipped", type=Path, default=REPOSITORY / "models" / "quoter", help="model made from it")
    parser.add_argument("--samples", type=Path, default=REPOSITORY / "deploy" / "samples", help="sample documents")
    parser.add_argument("--data", type=Path, default=shared / "data" / "xquad-a.json", help="file in SQuAD format")
    parser.add_argument("--encoder", type=Path, default=REPOSITORY / "models" / "minilm-l6", help="model folder")
    parser.add_argument("--questions", type=int, default=300, help="questions taken from --data")
    parser.add_argument("--passages", type=int, default=4, help="passages offered")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    arguments = parser.parse_args()
    progress = Console(stderr=True)
    if not made_from(arguments.shipped, arguments.checkpoint):
        raise SystemExit(f"{arguments.shipped} was not made from {arguments.checkpoint}; comparing them says nothing")
    try:
        configure_thread_pool(arguments.threads)
        collections = [samples(arguments.samples)]
        if arguments.data.is_file():
            collections.append(squad(arguments.data, arguments.questions))
        else:
            progress.print(f"{arguments.data} is not there: only the questions of the samples are asked")
        encoder = TextEncoder.open(arguments.encoder)
        found = [find_cases(encoder, collection, arguments.passages, progress) for collection in collections]
        with tempfile.TemporaryDirectory() as scratch:
            models = open_models(arguments.checkpoint, arguments.shipped, Path(scratch), progress)
            tokenizer = ChatTokenizer.open(arguments.shipped)
            report = measure(models, tokenizer, [case for cases in found for case in cases], progress)
    except EdgeRagError as error:
        raise SystemExit(str(error)) from error
    if arguments.json:
        print(json.dumps(asdict(report) | {"holds": report.holds}, indent=2))
    else:
        print_report(report, Console())
    sys.exit(0 if report.holds else 1)


if __name__ == "__main__":
    main()
