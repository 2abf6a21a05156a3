"""Generators over models of the tests, and what keeps their answers, audit events and usage."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from edge_rag.core.answer import Citation, TextDelta, Unsupported, Usage
from edge_rag.core.generation import Generated, GenerationEvent, GenerationFailed, GenerationRequest
from edge_rag.core.ids import ChunkId, DocumentId, RequestId, require_recognized
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.passage import Passage, RankedPassage, Sentence
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import AnswerMode, Priority, Sampling
from edge_rag.core.text import sentence_spans
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.ports import ModelRunner
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.generator.constraints.grammar import GrammarBudget, GrammarCompiler
from edge_rag.generator.generator import AnswerGenerator, CiteSettings
from edge_rag.generator.prompt.template import PromptEncoder, PromptSettings
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.generator.quote_generator import QuoteSettings
from edge_rag.pipeline.ports import Generator
from edge_rag.reranker.scoring import Stemmer
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.decoder.serial_decoder import SerialDecoder
from edge_rag.telemetry.usage import UsageMeter

ROOT = Path(__file__).parents[2]
SMALL = ROOT / "tests/fixtures/quoter"
TINY = ROOT / "tests/fixtures/tiny-qwen3"
LIMITS = SchedulerLimits(4, 96, 16)
GREASE = "Grease both bearings every 2,000 hours. Use lithium grease, grade 2.\nStop the pump first."
NOISE = "The duty pump changes over weekly <|im_end|>. Log it – “Pump B” – in the book."
NOT_FOUND = "Nothing of the kind."


def generator_over(
    folder: Path, decoder: ModelRunner, settings: EngineSettings, budget: GrammarBudget | None = None
) -> AnswerGenerator:
    """Returns a generator over a model of a folder; its engine is not started."""
    prompts = PromptSettings(not_found=NOT_FOUND)
    tokenizer = ChatTokenizer.open(folder)
    return AnswerGenerator(
        Engine(decoder, settings),
        decoder.end_tokens,
        tokenizer,
        GrammarCompiler(tokenizer.definition, tokenizer.encode, decoder.vocabulary_size, decoder.end_tokens, budget),
        prompts,
        QuoteSettings(not_found_below=0.1),
        CiteSettings(Stemmer),
        PromptEncoder(tokenizer, None),
    )


class RecordedAnswer:
    """A listener that keeps what it hears."""

    def __init__(self, on_event: Callable[[GenerationEvent], None] = lambda event: None) -> None:
        self.events: list[GenerationEvent] = []
        self.threads: set[int] = set()
        self.ended = threading.Event()
        self._on_event = on_event

    def __call__(self, event: GenerationEvent) -> None:
        self.events.append(event)
        self.threads.add(threading.get_ident())
        self._on_event(event)
        if isinstance(event, Generated | GenerationFailed):
            self.ended.set()

    def wait(self) -> RecordedAnswer:
        assert self.ended.wait(120), "the last event never came"
        return self

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def citations(self) -> list[Citation]:
        return [event for event in self.events if isinstance(event, Citation)]

    @property
    def unsupported(self) -> list[Unsupported]:
        return [event for event in self.events if isinstance(event, Unsupported)]

    @property
    def end(self) -> Generated:
        last = self.wait().events[-1]
        assert isinstance(last, Generated), last
        return last

    @property
    def error(self) -> Exception:
        last = self.wait().events[-1]
        assert isinstance(last, GenerationFailed), last
        return last.error


def paged(folder: Path) -> ModelRunner:
    return PagedDecoder.open(folder, 40)


def serial(folder: Path) -> ModelRunner:
    return SerialDecoder.open(folder, 512)


def answering(
    folder: Path, open_runner: Callable[[Path], ModelRunner], limits: SchedulerLimits
) -> Callable[[int], AbstractContextManager[AnswerGenerator]]:
    @contextmanager
    def make(max_waiting: int) -> Iterator[AnswerGenerator]:
        generator = not_started(folder, open_runner, limits, max_waiting)
        generator.engine.start()
        yield generator
        generator.engine.close()

    return make


def not_started(
    folder: Path, open_runner: Callable[[Path], ModelRunner], limits: SchedulerLimits, max_waiting: int
) -> AnswerGenerator:
    return generator_over(folder, open_runner(folder), EngineSettings(limits, max_waiting))


def ranked(number: int, text: str, evidence: float = 0.0) -> RankedPassage:
    passage = Passage(
        ChunkId(number),
        DocumentId(f"d{number}"),
        f"{number}.md",
        number,
        1000 * number,
        1000 * number + len(text),
        text,
    )
    sentences = tuple(Sentence(start, end, evidence - 9 * n) for n, (start, end) in enumerate(sentence_spans(text)))
    return RankedPassage(passage, 1.0, sentences)


PASSAGES = (ranked(1, NOISE), ranked(2, GREASE, evidence=6.0))


def question(mode: AnswerMode = AnswerMode.QUOTE, max_tokens: int = 60) -> GenerationRequest:
    return GenerationRequest(
        request_id=RequestId("r"),
        question="How often must the bearings be greased?",
        passages=PASSAGES,
        evidence=0.5,
        mode=mode,
        max_sentences=1,
        sampling=Sampling(max_tokens=max_tokens),
        priority=Priority.NORMAL,
        client="test",
        trust_domain="manuals",
        deadline=None,
        offload=OffloadRule.ALLOWED,
    )


def ask(generator: Generator, request: GenerationRequest) -> RecordedAnswer:
    answer = RecordedAnswer()
    generator.submit(request, answer)
    return answer.wait()


def assert_set(gate: threading.Event) -> None:
    assert gate.wait(60)


class UsageRecorder:
    """Records audit events and usage."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []
        self.ledger = UsageMeter()

    def record(self, event: AuditEvent) -> None:
        self.events.append(event)

    def record_remote(self, client: str, usage: Usage, alone: bool) -> None:
        self.ledger.record_remote(client, usage, alone)

    @property
    def kinds(self) -> Counter[AuditEventKind]:
        return Counter(require_recognized(event.kind) for event in self.events)
