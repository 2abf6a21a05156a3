"""Drafting by prompt lookup against not drafting, in turn, on texts that quote their passages and on new texts.

    .venv/bin/python -m scripts.bench.engine.prompt_lookup --model build/bench/qwen2.5-0.5b/int4

Each request has four passages of 256 tokens and says 96 tokens: sentences of 12 to 30 tokens out of the passages one
after the other, or new tokens only. What is said is prescribed, by adding to the model's logits, because a model with
random weights quotes nothing; what it costs to compute it is real. Prints for each number of sequences the tokens
that a sequence says in a step, and the tokens per second with drafts by those without: the median over the rounds.
Make the model with scripts/models/make_random_model.py.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.engine.passing_decoder import PassingDecoder
from scripts.bench.engine.schedulers import StepLog, run_continuous
from scripts.bench.harness.workload import Job

PASSAGES, PASSAGE_TOKENS = 4, 256
DRAFT_TOKENS = 8


class PrescribingDecoder(PassingDecoder):
    """A decoder that says what was prescribed: after each token a certain other one.

    Args:
        decoder: Computes.
        successors: What follows a token.
    """

    def __init__(self, decoder: PagedDecoder, successors: Mapping[int, int]) -> None:
        super().__init__(decoder)
        self._successors = np.zeros(decoder.vocabulary_size, np.int64)
        self._successors[list(successors)] = list(successors.values())

    def run(self, step: PackedStep) -> NDArray[np.float32]:
        """Computes a step; see ``ModelRunner``."""
        logits = super().run(step)
        last = step.input_ids[step.logits_indices]
        logits[np.arange(len(logits)), self._successors[last]] += np.float32(1e6)
        return logits


@dataclass(frozen=True, slots=True)
class Comparison:
    """Drafting against not drafting; medians over the rounds."""

    text: str
    sequences: int
    tokens_a_step: float
    speed_ratio: float


def prescription(sequences: int, vocabulary: int, output_tokens: int, quotes: bool) -> tuple[list[Job], dict[int, int]]:
    """Makes prompts of tokens that all differ, and what follows each."""
    rng = np.random.default_rng(sequences)
    fresh = iter(rng.permutation(np.arange(3, vocabulary)).tolist())
    jobs, successors = [], {}
    for _ in range(sequences):
        prompt = [next(fresh) for _ in range(PASSAGES * PASSAGE_TOKENS)]
        said = [next(fresh) for _ in range(output_tokens)]
        if quotes:
            said = []
            starts = iter(rng.permutation(np.arange(0, len(prompt) - 40, 40)).tolist())
            while len(said) < output_tokens:
                start = next(starts)
                said += prompt[start : start + int(rng.integers(12, 31))]
        question = next(fresh)
        for token, following in zip([question, *said], said, strict=False):
            successors[token] = following
        jobs.append(Job((*prompt, question), output_tokens))
    return jobs, successors


def compare(decoder: PagedDecoder, text: str, sequences: int, output_tokens: int, rounds: int) -> Comparison:
    """Runs both in turn."""
    jobs, successors = prescription(sequences, decoder.vocabulary_size, output_tokens, text == "quoted")
    prescribing = PrescribingDecoder(decoder, successors)
    limits = SchedulerLimits(sequences, 512, 512 - sequences)
    ratios, said = [], []
    for _ in range(rounds):
        seconds, outputs = [], []
        for draft_tokens in (0, DRAFT_TOKENS):
            log = StepLog()
            run = run_continuous(prescribing, jobs, limits, log, draft_tokens)
            decodes = [step for step in log.reports if step.tokens == step.decodes + step.drafted]
            seconds.append(sum(step.schedule_s + step.run_s + step.sample_s for step in decodes))
            outputs.append(run.outputs)
            if draft_tokens:
                entries = sum(step.decodes for step in decodes)
                said.append((entries + sum(step.accepted for step in decodes)) / entries)
        if outputs[0] != outputs[1]:
            raise SystemExit("with drafts something else was said")
        ratios.append(seconds[0] / seconds[1])
    return Comparison(text, sequences, statistics.median(said), statistics.median(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="lowered folder")
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--output-tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    configure_thread_pool(arguments.threads)
    context = PASSAGES * PASSAGE_TOKENS + arguments.output_tokens + 1
    decoder = PagedDecoder.open(arguments.model, max(arguments.sequences) * (-(-context // 32) + 1))
    table = Table(title=str(arguments.model))
    for column in ("text", "sequences", "tokens a step", "speed with drafts / without"):
        table.add_column(column, justify="right")
    console = Console(stderr=True)
    results = []
    for text in ("quoted", "new"):
        for sequences in arguments.sequences:
            result = compare(decoder, text, sequences, arguments.output_tokens, arguments.rounds)
            results.append(result)
            table.add_row(text, str(sequences), f"{result.tokens_a_step:.2f}", f"{result.speed_ratio:.2f}")
            console.print(f"{text} {sequences}: {result.tokens_a_step:.2f} {result.speed_ratio:.2f}")
    console.print(table)
    if arguments.json:
        json.dump([asdict(result) for result in results], sys.stdout)
        sys.stdout.write("\n")


if __name__ == "__main__":
    main()
