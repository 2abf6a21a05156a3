"""What the generator room answers, greedily, with one model or another in its engine."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from edge_rag.core.answer import TextDelta
from edge_rag.core.generation import Generated, GenerationEvent, GenerationFailed, GenerationRequest
from edge_rag.core.ids import RequestId
from edge_rag.core.query import AnswerMode, PassageOrder, Priority, Sampling
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.ports import ModelRunner
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.generator.constraints.grammar import GrammarCompiler
from edge_rag.generator.generator import AnswerGenerator, CiteSettings, QuoteSettings
from edge_rag.generator.prompt.passage_order import PassageArranger, PassagePopularity
from edge_rag.generator.prompt.template import PromptEncoder, PromptSettings
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.reranker.scoring import Stemmer
from scripts.bench.quality.questions import Case

SLOTS = 4
SENTENCES = 2
LONGEST_ANSWER = 200


class _Answer:
    """Listens to one answer."""

    def __init__(self) -> None:
        self.text = ""
        self.ended = threading.Event()
        self.failure: Exception | None = None

    def __call__(self, event: GenerationEvent) -> None:
        match event:
            case TextDelta():
                self.text += event.text
            case GenerationFailed():
                self.failure = event.error
                self.ended.set()
            case Generated():
                self.ended.set()


def quoted_answers(
    runner: ModelRunner, tokenizer: ChatTokenizer, cases: Sequence[Case], prior_weight: float
) -> list[str]:
    """Answers every question by quotation.

    Args:
        runner: The model.
        tokenizer: Its tokenizer.
        cases: Questions and passages.
        prior_weight: Weight of the retrieval side's evidence; with 0 the model alone decides what is quoted.

    Raises:
        EdgeRagError: A question was not answered.
    """
    engine = Engine(runner, EngineSettings(SchedulerLimits(SLOTS, 256, 128), max_waiting=len(cases)))
    grammars = GrammarCompiler(tokenizer.definition, tokenizer.encode, runner.vocabulary_size, runner.end_tokens)
    settings, cite = QuoteSettings(prior_weight=prior_weight), CiteSettings(Stemmer)
    arranger = PassageArranger(PassageOrder.RANK, PassagePopularity())
    prompts = PromptEncoder(tokenizer, PromptSettings(), arranger, None)
    generator = AnswerGenerator(
        engine, runner.end_tokens, tokenizer, grammars, PromptSettings(), settings, cite, prompts
    )
    generator.engine.start()
    try:
        answers = []
        for number, case in enumerate(cases):
            answers.append(_Answer())
            generator.submit(_request(number, case), answers[-1])
        for answer in answers:
            answer.ended.wait()
            if answer.failure is not None:
                raise answer.failure
    finally:
        generator.engine.close()
    return [answer.text for answer in answers]


def _request(number: int, case: Case) -> GenerationRequest:
    return GenerationRequest(
        request_id=RequestId(f"q{number}"),
        question=case.question,
        passages=case.passages,
        evidence=case.evidence,
        mode=AnswerMode.QUOTE,
        max_sentences=SENTENCES,
        sampling=Sampling(max_tokens=LONGEST_ANSWER),
        priority=Priority.NORMAL,
        client="measure",
        trust_domain="measured",
        deadline=None,
    )
