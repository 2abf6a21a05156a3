"""Measures how much of choosing sentences can be left to a language model, on a SQuAD-format file.

    python -m scripts.bench.quality.quoting [--model FOLDER ...] [--weights 100 30 10 4 0] [--data FILE] [--json]

Each paragraph becomes a document of a temporary data directory, each question is retrieved and reranked as the daemon
does it, and each model quotes one sentence and up to two, at each weight of the retrieval side's evidence against its
own logits. Printed: the share of all questions for which the quoted text holds an accepted answer and for which it is
of the right paragraph, and how many sentences were quoted; the same without a model, by evidence alone. Nothing is
turned away as not found, so all rows answer the same questions.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from edge_rag.core.answer import Citation
from edge_rag.core.generation import Generated, GenerationEvent, GenerationFailed, GenerationRequest
from edge_rag.core.ids import RequestId
from edge_rag.core.passage import RankedPassage, RerankRequest, Retrieved
from edge_rag.core.query import AnswerMode, PassageOrder, Priority, Sampling
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.errors import EdgeRagError
from edge_rag.generator.constraints.grammar import GrammarCompiler
from edge_rag.generator.generator import AnswerGenerator, CiteSettings, QuoteSettings
from edge_rag.generator.prompt.passage_order import PassageArranger, PassagePopularity
from edge_rag.generator.prompt.template import PromptEncoder, PromptSettings
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.reranker.scoring import Stemmer
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.model_folder.folder import ModelRole, verify_model_folder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.harness.squad import Question, read_squad
from scripts.bench.retrieval.collection import COLLECTION
from scripts.bench.retrieval.passages import retrieve_all
from scripts.bench.retrieval.rerankers import RememberedVectors

REPOSITORY = Path(__file__).resolve().parents[3]
SENTENCES = (1, 2)
CANDIDATES = 20
SLOTS = 8
STEP_TOKENS = 512
PAGES = 1024
ANSWER_TOKENS = 400


@dataclass(frozen=True, slots=True)
class Way:
    """One way to choose sentences; ``weight`` is None without a model."""

    model: str
    weight: float | None
    sentences: int


@dataclass(frozen=True, slots=True)
class Quality:
    """Over all questions.

    Attributes:
        contains: Share whose quoted text holds an accepted answer.
        cites: Share with a quotation of the paragraph that answers.
        quoted: Sentences quoted, mean.
    """

    contains: float
    cites: float
    quoted: float


@dataclass(frozen=True, slots=True)
class Quoted:
    """What was quoted for one question: (document, text) of each sentence."""

    sentences: tuple[tuple[str, str], ...]


class Listener:
    """Keeps an answer's citations until its end."""

    def __init__(self) -> None:
        self._citations: list[Citation] = []
        self._failed: EdgeRagError | None = None
        self._ended = threading.Event()

    def __call__(self, event: GenerationEvent) -> None:
        if isinstance(event, Citation):
            self._citations.append(event)
        elif isinstance(event, GenerationFailed):
            self._failed = event.error
        if isinstance(event, Generated | GenerationFailed):
            self._ended.set()

    def quoted(self) -> Quoted:
        """Waits for the end.

        Raises:
            EdgeRagError: The answer failed.
        """
        self._ended.wait()
        if self._failed is not None:
            raise self._failed
        return Quoted(tuple((citation.document, citation.text) for citation in self._citations))


def rerank_all(
    encoder: TextEncoder, documents: dict[str, str], questions: Sequence[Question], passages: int, console: Console
) -> list[tuple[RankedPassage, ...]]:
    """Returns the passages that each question is answered from."""
    found = retrieve_all(encoder, documents, questions, console)
    reranker = MaxSimReranker(RememberedVectors(encoder))
    ranked = []
    for question, retrieved in zip(track(questions, "reranking", console=console), found, strict=True):
        shortlist = Retrieved(retrieved.hits[:CANDIDATES], retrieved.term_weights)
        ranked += [each.passages for each in reranker.rerank([RerankRequest(question.text, shortlist, passages)])]
    return ranked


def by_evidence(passages: Sequence[RankedPassage], sentences: int, margin: float) -> Quoted:
    """Quotes without a model: the most evidence, then what has little less."""
    weighed = [
        (sentence.evidence, ranked.passage.document, ranked.passage.text[sentence.start : sentence.end])
        for ranked in passages
        for sentence in ranked.sentences
    ]
    weighed.sort(key=lambda each: -each[0])
    kept = [each for each in weighed[:sentences] if each[0] >= weighed[0][0] - margin]
    return Quoted(tuple((document, text) for _, document, text in kept))


def by_model(
    folder: Path,
    weights: Sequence[float],
    questions: Sequence[Question],
    ranked: Sequence[tuple[RankedPassage, ...]],
    order: PassageOrder,
    console: Console,
) -> Iterator[tuple[Way, Quoted, Question]]:
    """Yields what a model quotes; the ways take turns on each few questions, so that they share cached prompts.

    Raises:
        EdgeRagError: The model cannot be opened, or an answer failed.
    """
    verify_model_folder(folder, ModelRole.GENERATOR)
    decoder = PagedDecoder.open(folder, PAGES)
    engine = Engine(
        decoder, EngineSettings(SchedulerLimits(SLOTS, STEP_TOKENS, STEP_TOKENS - SLOTS), max_waiting=SLOTS)
    )
    tokenizer = ChatTokenizer.open(folder)
    grammars = GrammarCompiler(tokenizer.definition, tokenizer.encode, decoder.vocabulary_size, decoder.end_tokens)
    generators = {}
    for weight in weights:
        quote = QuoteSettings(prior_weight=weight, not_found_below=0.0)
        generators[weight] = AnswerGenerator(
            engine,
            decoder.end_tokens,
            tokenizer,
            grammars,
            PromptSettings(),
            quote,
            CiteSettings(Stemmer),
            PromptEncoder(tokenizer, PromptSettings(), PassageArranger(order, PassagePopularity()), None),
        )
    engine.start()
    try:
        asked = list(zip(questions, ranked, strict=True))
        for begin in track(range(0, len(asked), SLOTS), f"quoting with {folder.name}", console=console):
            some = asked[begin : begin + SLOTS]
            for weight, generator in generators.items():
                for sentences in SENTENCES:
                    listeners = [Listener() for _ in some]
                    for (question, passages), listener in zip(some, listeners, strict=True):
                        generator.submit(request(question, passages, sentences), listener)
                    for (question, _), listener in zip(some, listeners, strict=True):
                        yield Way(str(folder), weight, sentences), listener.quoted(), question
    finally:
        engine.close()


def request(question: Question, passages: tuple[RankedPassage, ...], sentences: int) -> GenerationRequest:
    return GenerationRequest(
        request_id=RequestId(question.text),
        question=question.text,
        passages=passages,
        evidence=1.0,
        mode=AnswerMode.QUOTE,
        max_sentences=sentences,
        sampling=Sampling(max_tokens=ANSWER_TOKENS),
        priority=Priority.NORMAL,
        client="measurement",
        trust_domain=COLLECTION,
        deadline=None,
    )


def quality(pairs: Sequence[tuple[Quoted, Question]]) -> Quality:
    """Judges what was quoted."""
    contains = sum(any(a in text for a in asked.answers for _, text in said.sentences) for said, asked in pairs)
    cites = sum(any(document == asked.document for document, _ in said.sentences) for said, asked in pairs)
    quoted = sum(len(said.sentences) for said, _ in pairs)
    return Quality(contains / len(pairs), cites / len(pairs), quoted / len(pairs))


def print_table(found: Iterable[tuple[Way, Quality]], questions: int) -> None:
    table = Table(title=f"{questions} questions")
    for heading in ("model", "evidence weight", "sentences", "contains an answer", "cites the paragraph", "quoted"):
        table.add_column(heading, justify="left" if heading == "model" else "right", overflow="fold")
    for way, reached in found:
        weight = "" if way.weight is None else f"{way.weight:g}"
        cells = (f"{reached.contains:.1%}", f"{reached.cites:.1%}", f"{reached.quoted:.2f}")
        table.add_row(way.model, weight, f"up to {way.sentences}", *cells)
    Console().print(table)


def main() -> None:
    shared = Path(os.environ.get("EDGE_RAG_SHARED", REPOSITORY.parent / "shared"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, nargs="+", default=[REPOSITORY / "models" / "quoter"], help="folders")
    parser.add_argument("--weights", type=float, nargs="+", default=[100, 30, 10, 4, 0], help="of the evidence")
    parser.add_argument("--data", type=Path, default=shared / "data" / "xquad-a.json", help="file in SQuAD format")
    parser.add_argument("--encoder", type=Path, default=REPOSITORY / "models" / "minilm-l6", help="model folder")
    parser.add_argument("--passages", type=int, default=4, help="passages whose sentences are offered")
    parser.add_argument(
        "--order", choices=[order.value for order in PassageOrder], default="hot", help="of passages [%(default)s]"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    if not arguments.data.is_file():
        raise SystemExit(f"{arguments.data} is not there: give a file in SQuAD format with --data")
    console = Console(stderr=True)
    answers: dict[Way, list[tuple[Quoted, Question]]] = {}
    try:
        configure_thread_pool(arguments.threads)
        documents, questions = read_squad(arguments.data)
        encoder = TextEncoder.open(arguments.encoder)
        ranked = rerank_all(encoder, documents, questions, arguments.passages, console)
        for sentences in SENTENCES:
            margin = QuoteSettings().margin
            quoted = [by_evidence(passages, sentences, margin) for passages in ranked]
            answers[Way("none", None, sentences)] = list(zip(quoted, questions, strict=True))
        order = PassageOrder(arguments.order)
        for folder in arguments.model:
            for way, said, question in by_model(folder, arguments.weights, questions, ranked, order, console):
                answers.setdefault(way, []).append((said, question))
    except EdgeRagError as error:
        raise SystemExit(str(error)) from error
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise SystemExit(f"{arguments.data} is not in SQuAD format: {error!r}") from error
    found = [(way, quality(pairs)) for way, pairs in answers.items()]
    if arguments.json:
        print(json.dumps([asdict(way) | asdict(reached) for way, reached in found], indent=2))
    else:
        print_table(found, len(questions))


if __name__ == "__main__":
    main()
