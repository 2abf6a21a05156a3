"""Measures what answers lose where passages are copied from where they were computed alone (kv_reuse = passage).

    python -m scripts.bench.quality.passage_reuse [--questions 300] [--recompute 0 8 16 32] [--data FILE] [--json]

Each paragraph of a SQuAD-format file becomes a document, each question is retrieved and reranked as the daemon does it.
Printed for each number of recomputed first tokens: the perplexity of the answering sentences, in mode ``free``, divided
by that with all passages computed in the prompt, and how many tokens of a prompt were copied.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from edge_rag.core.generation import GenerationRequest
from edge_rag.core.ids import RequestId
from edge_rag.core.query import AnswerMode, KvReuse, PassageOrder, Priority, Sampling
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.ports import Outcome
from edge_rag.engine.request import TokenRequest
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.errors import EdgeRagError
from edge_rag.generator.prompt.passage_order import PassageArranger, PassagePopularity
from edge_rag.generator.prompt.template import PassageReuse, Prompt, PromptEncoder, PromptSettings
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.harness.daemon import SMALL_GENERATOR
from scripts.bench.quality.dictated import DictatedText, ScoringDecoder
from scripts.bench.quality.perplexity import Losses, perplexity, ratio
from scripts.bench.quality.questions import Case, find_cases, squad

REPOSITORY = Path(__file__).resolve().parents[3]
PAGES = 2048
LIMITS = SchedulerLimits(4, 512, 256)
ANSWER_TOKENS = 200


@dataclass(frozen=True, slots=True)
class Row:
    """One number of recomputed tokens; None stands for all."""

    recompute: int | None
    perplexity_ratio: float
    perplexity_error: float
    copied: float


class _Done:
    """A sink that only waits."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.copied = 0
        self.failure: EdgeRagError | None = None

    def extend(self, tokens: tuple[int, ...]) -> bool:
        return False

    def finish(self, outcome: Outcome) -> None:
        self.copied = outcome.usage.copied_prompt_tokens
        self.ended.set()

    def fail(self, error: EdgeRagError) -> None:
        self.failure = error
        self.ended.set()


class Measurement:
    """One model over one set of questions.

    Args:
        folder: The model's.
        cases: The questions.
        console: Shows progress.
    """

    def __init__(self, folder: Path, cases: Sequence[Case], console: Console) -> None:
        self._decoder = PagedDecoder.open(folder, PAGES)
        self._tokenizer = ChatTokenizer.open(folder)
        self._cases = cases
        self._console = console

    def losses(self, recompute: int | None) -> tuple[list[Losses], float]:
        """Returns what the tokens of each answering sentence cost, nats, and the copied tokens of a prompt, mean."""
        scoring = ScoringDecoder(self._decoder)
        prompts, found, copied = self._prompts(recompute), [], []
        with _running(Engine(scoring, EngineSettings(SchedulerLimits(1, 512, 256), max_waiting=8))) as engine:
            for number, case in enumerate(track(self._cases, f"perplexity, {_said(recompute)}", console=self._console)):
                if case.said is None:
                    continue
                prompt = prompts.encode(self._request(number, case, recompute), engine.capacity)
                self._compute_alone(engine, prompt, number)
                said = (*self._tokenizer.encode(f" {case.said}"), min(self._decoder.end_tokens))
                scoring.dictated, scoring.losses = list(said), []
                copied.append(_ask(engine, _token_request(number, prompt, said, spans=True)))
                found.append(np.array(scoring.losses))
        return found, float(np.mean(copied))

    def _compute_alone(self, engine: Engine, prompt: Prompt, number: int) -> None:
        """Has the passages in the cache, so that dictation begins with the first logits of the prompt's own run."""
        for span in prompt.spans:
            alone = Prompt(span.alone, "", "", (), ())
            _ask(engine, _token_request(number, alone, (min(self._decoder.end_tokens),), spans=False))

    def _prompts(self, recompute: int | None) -> PromptEncoder:
        reuse = None if recompute is None else PassageReuse(self._decoder.page_tokens, recompute)
        arranger = PassageArranger(PassageOrder.RANK, PassagePopularity())
        return PromptEncoder(self._tokenizer, PromptSettings(), arranger, reuse)

    def _request(self, number: int, case: Case, recompute: int | None) -> GenerationRequest:
        return GenerationRequest(
            request_id=RequestId(str(number)),
            question=case.question,
            passages=case.passages,
            evidence=1.0,
            mode=AnswerMode.FREE,
            max_sentences=1,
            sampling=Sampling(max_tokens=ANSWER_TOKENS),
            priority=Priority.NORMAL,
            client="measurement",
            trust_domain="measured",
            deadline=None,
            kv_reuse=KvReuse.EXACT if recompute is None else KvReuse.PASSAGE,
        )


@contextmanager
def _running(engine: Engine) -> Iterator[Engine]:
    engine.start()
    try:
        yield engine
    finally:
        engine.close()


def _ask(engine: Engine, request: TokenRequest) -> int:
    """Runs a request; returns how many tokens of its prompt were copied."""
    sink = _Done()
    engine.submit(request, sink)
    sink.ended.wait()
    if sink.failure is not None:
        raise sink.failure
    return sink.copied


def _token_request(number: int, prompt: Prompt, said: tuple[int, ...], spans: bool) -> TokenRequest:
    return TokenRequest(
        request_id=RequestId(str(number)),
        prompt=prompt.tokens,
        constraint=DictatedText(said),
        sampling=Sampling(max_tokens=len(said)),
        priority=Priority.NORMAL,
        client="measurement",
        trust_domain="measured",
        deadline=None,
        spans=prompt.spans if spans else (),
    )


def measure(measurement: Measurement, settings: Sequence[int | None]) -> list[Row]:
    """Measures each setting against computing everything."""
    reference = measurement.losses(None)
    rows = []
    for recompute in settings:
        losses, copied = reference if recompute is None else measurement.losses(recompute)
        compared = ratio(losses, reference[0])
        rows.append(Row(recompute, compared.value, compared.error, copied))
    sys.stderr.write(f"perplexity with everything computed: {perplexity(reference[0]):.3f}\n")
    return rows


def _said(recompute: int | None) -> str:
    return "everything computed" if recompute is None else f"{recompute} recomputed"


def main() -> None:
    shared = Path(os.environ.get("EDGE_RAG_SHARED", REPOSITORY.parent / "shared"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=SMALL_GENERATOR, help="lowered folder")
    parser.add_argument("--encoder", type=Path, default=REPOSITORY / "models" / "minilm-l6", help="model folder")
    parser.add_argument("--data", type=Path, default=shared / "data" / "xquad-a.json", help="file in SQuAD format")
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--passages", type=int, default=4)
    parser.add_argument("--recompute", type=int, nargs="+", default=[0, 8, 16, 32])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    if not arguments.data.is_file():
        raise SystemExit(f"{arguments.data} is not there: give a file in SQuAD format with --data")
    configure_thread_pool(arguments.threads)
    console = Console(stderr=True)
    encoder = TextEncoder.open(arguments.encoder)
    cases = find_cases(encoder, squad(arguments.data, arguments.questions), arguments.passages, console)
    rows = measure(Measurement(arguments.model, cases, console), [*arguments.recompute, None])
    table = Table(title=f"{arguments.model.name}, {len(cases)} questions")
    for heading in ("recomputed", "perplexity", "copied"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            "all" if row.recompute is None else str(row.recompute),
            f"{row.perplexity_ratio:.4f} ± {row.perplexity_error:.4f}",
            f"{row.copied:.0f} tokens",
        )
    console.print(table)
    if arguments.json:
        json.dump([asdict(row) for row in rows], sys.stdout)
        sys.stdout.write("\n")


if __name__ == "__main__":
    main()
