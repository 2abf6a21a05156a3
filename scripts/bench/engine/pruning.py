"""Measures prompts from which sentences without evidence are left out (generator.context_pruning) against whole ones.

    python -m scripts.bench.engine.pruning --model FOLDER [--every 3] [--half odd] [--modes free cite] [--json]

Each paragraph of a SQuAD-format file becomes a document, each question is retrieved and reranked as the daemon does it
and then answered twice, with a whole prompt and with a pruned one, by turns first. No KV is reused. Printed for
each mode and kind of prompt: the mean length of a prompt, processor time up to the first token of the answer (its sum,
and as a ratio to whole prompts), the share of prompts that hold an accepted text and of answers that do, and the F1 of
the answers' words with the closest accepted text.

``--model`` is a folder of the model store, such as ``edge-rag models add FILE.gguf --name NAME`` makes below
``models/NAME`` in the data directory.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

from edge_rag.core.answer import FinishReason, TextDelta
from edge_rag.core.generation import Generated, GenerationEvent, GenerationFailed, GenerationRequest
from edge_rag.core.ids import RequestId
from edge_rag.core.query import AnswerMode, PassageOrder, Priority, Sampling
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.errors import EdgeRagError
from edge_rag.generator.constraints.grammar import GrammarBudget, GrammarCompiler
from edge_rag.generator.generator import AnswerGenerator, CiteSettings
from edge_rag.generator.prompt.passage_order import PassageArranger, PassagePopularity
from edge_rag.generator.prompt.template import PromptEncoder, PromptSettings
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.generator.quote_generator import QuoteSettings
from edge_rag.reranker.scoring import Stemmer
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.harness.squad import Question
from scripts.bench.quality.answer_quality import read_articles
from scripts.bench.quality.modes import contains, f1
from scripts.bench.quality.questions import Case, Collection, find_cases

REPOSITORY: Final = Path(__file__).resolve().parents[3]
PAGES: Final = 1024
LIMITS: Final = SchedulerLimits(1, 512, 511)
KINDS: Final = ("whole", "pruned")


@dataclass(frozen=True, slots=True)
class Given:
    """An answer.

    Attributes:
        text: All of it; empty if it is the not-found answer.
        prompt_tokens: Length of its prompt.
        first_cpu_s: Processor time from the request to the first text or the end, seconds.
        prompt_holds: Whether the prompt holds an accepted text.
    """

    text: str
    prompt_tokens: int
    first_cpu_s: float
    prompt_holds: bool


@dataclass(frozen=True, slots=True)
class Row:
    """The answers with one kind of prompt in one mode; shares are 0 to 1."""

    mode: str
    prompts: str
    prompt_tokens: float
    first_cpu_s: float
    first_cpu_ratio: float
    prompt_holds: float
    gold: float
    f1: float


class _Answer:
    """Collects the events of an answer."""

    def __init__(self) -> None:
        self.began = time.process_time()
        self.first_s: float | None = None
        self.text = ""
        self.generated: Generated | None = None
        self.failure: EdgeRagError | None = None
        self.ended = threading.Event()

    def __call__(self, event: GenerationEvent) -> None:
        match event:
            case TextDelta():
                self._mark()
                self.text += event.text
            case Generated():
                self._mark()
                self.generated = event
                self.ended.set()
            case GenerationFailed():
                self.failure = event.error
                self.ended.set()
            case _:
                pass

    def _mark(self) -> None:
        if self.first_s is None:
            self.first_s = time.process_time() - self.began


class Measurement:
    """One model.

    Args:
        folder: The model's.
        max_tokens: Longest answer.
    """

    def __init__(self, folder: Path, max_tokens: int) -> None:
        decoder = PagedDecoder.open(folder, PAGES)
        tokenizer = ChatTokenizer.open(folder)
        self.engine = Engine(decoder, EngineSettings(LIMITS, max_waiting=8))
        grammars = GrammarCompiler(
            tokenizer.definition, tokenizer.encode, decoder.vocabulary_size, decoder.end_tokens, GrammarBudget()
        )
        self._max_tokens = max_tokens
        self._prompts: Mapping[str, PromptEncoder] = {
            kind: PromptEncoder(
                tokenizer,
                PromptSettings(),
                PassageArranger(PassageOrder.DOCUMENT, PassagePopularity()),
                None,
                prunes=kind == "pruned",
            )
            for kind in KINDS
        }
        self._generators = {
            kind: AnswerGenerator(
                self.engine,
                decoder.end_tokens,
                tokenizer,
                grammars,
                PromptSettings(),
                QuoteSettings(),
                CiteSettings(Stemmer),
                prompts,
            )
            for kind, prompts in self._prompts.items()
        }

    def ask(self, number: int, question: Question, case: Case, mode: AnswerMode, kind: str) -> Given:
        """Answers a question with one kind of prompt."""
        request = GenerationRequest(
            request_id=RequestId(f"{number}-{mode.value}-{kind}"),
            question=case.question,
            passages=case.passages,
            evidence=1.0,
            mode=mode,
            max_sentences=None,
            sampling=Sampling(max_tokens=self._max_tokens),
            priority=Priority.NORMAL,
            client="measurement",
            trust_domain=f"{number}-{mode.value}-{kind}",  # nothing is found in the prefix cache
            deadline=None,
        )
        prompt = self._prompts[kind].encode(request, self.engine.capacity)
        answer = _Answer()
        self._generators[kind].submit(request, answer)
        answer.ended.wait()
        if answer.failure is not None:
            raise answer.failure
        assert answer.generated is not None
        assert answer.first_s is not None
        found = answer.generated.reason is not FinishReason.NOT_FOUND
        holds = contains(prompt.user.rpartition("Question:")[0], question.answers)
        return Given(answer.text if found else "", len(prompt.tokens), answer.first_s, holds)


def chosen(path: Path, every: int, half: str | None) -> Collection:
    """Returns all paragraphs of a SQuAD-format file and the questions to ask."""
    articles = read_articles(path)
    documents = {name: text.encode() for article in articles.documents for name, text in article.items()}
    questions = [
        Question(asked.text, asked.document, asked.answers)
        for asked in articles.questions[::every]
        if half is None or asked.article % 2 == (half == "odd")
    ]
    return Collection(path.stem, documents, questions)


def summarize(
    mode: AnswerMode, kind: str, given: Sequence[Given], whole: Sequence[Given], asked: Sequence[Question]
) -> Row:
    """Returns the row of a kind of prompt."""
    seconds = sum(each.first_cpu_s for each in given)
    return Row(
        mode=mode.value,
        prompts=kind,
        prompt_tokens=fmean(each.prompt_tokens for each in given),
        first_cpu_s=seconds,
        first_cpu_ratio=seconds / sum(each.first_cpu_s for each in whole),
        prompt_holds=fmean(each.prompt_holds for each in given),
        gold=fmean(contains(each.text, question.answers) for each, question in zip(given, asked, strict=True)),
        f1=fmean(f1(each.text, question.answers) for each, question in zip(given, asked, strict=True)),
    )


def main() -> None:
    shared = Path(os.environ.get("EDGE_RAG_SHARED", REPOSITORY.parent / "shared"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of a model store")
    parser.add_argument("--encoder", type=Path, default=REPOSITORY / "models" / "minilm-l6", help="model folder")
    parser.add_argument("--data", type=Path, default=shared / "data" / "xquad-a.json", help="file in SQuAD format")
    parser.add_argument("--every", type=int, default=3, help="ask every n-th question of the file [%(default)s]")
    parser.add_argument("--half", choices=["even", "odd"], help="ask about every other article only")
    parser.add_argument("--passages", type=int, default=4)
    parser.add_argument("--modes", nargs="+", default=["free", "cite"], choices=["free", "cite"])
    parser.add_argument("--max-tokens", type=int, default=96, help="longest answer [%(default)s]")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    if not arguments.data.is_file():
        raise SystemExit(f"{arguments.data} is not there: give a file in SQuAD format with --data")
    configure_thread_pool(arguments.threads)
    console = Console(stderr=True)
    collection = chosen(arguments.data, arguments.every, arguments.half)
    cases = find_cases(TextEncoder.open(arguments.encoder), collection, arguments.passages, console)
    measurement = Measurement(arguments.model, arguments.max_tokens)
    measurement.engine.start()
    rows = []
    with closing(measurement.engine):
        for mode in map(AnswerMode, arguments.modes):
            given: dict[str, list[Given]] = {kind: [] for kind in KINDS}
            asked = list(zip(collection.questions, cases, strict=True))
            for number, (question, case) in enumerate(track(asked, mode.value, console=console)):
                for kind in KINDS[:: 1 if number % 2 else -1]:
                    given[kind].append(measurement.ask(number, question, case, mode, kind))
            rows += [summarize(mode, kind, given[kind], given["whole"], collection.questions) for kind in KINDS]
    if arguments.json:
        json.dump([asdict(row) for row in rows], sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    table = Table(title=f"{arguments.model.name}, {len(cases)} questions")
    for heading in (
        "mode",
        "prompt",
        "tokens",
        "processor time to the first token",
        "ratio",
        "prompt holds",
        "gold",
        "F1",
    ):
        table.add_column(heading, justify="left" if heading in ("mode", "prompt") else "right")
    for row in rows:
        table.add_row(
            row.mode, row.prompts, f"{row.prompt_tokens:.0f}", f"{row.first_cpu_s:.1f} s", f"{row.first_cpu_ratio:.2f}",
            f"{row.prompt_holds:.0%}", f"{row.gold:.0%}", f"{row.f1:.3f}",
        )  # fmt: skip
    console.print(table)


if __name__ == "__main__":
    main()
