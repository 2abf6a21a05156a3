"""Answers held to a format, by the real generator over real models."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from edge_rag.core.answer import FinishReason
from edge_rag.core.generation import GenerationRequest
from edge_rag.core.ids import RequestId
from edge_rag.core.passage import RankedPassage
from edge_rag.core.query import AnswerFormat, AnswerMode, JsonSchema, Priority, Regex, Sampling
from edge_rag.engine.engine import EngineSettings
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.errors import InvalidRequest
from edge_rag.generator.constraints.grammar import GrammarBudget
from edge_rag.generator.generator import AnswerGenerator
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from tests.support.generators import RecordedAnswer, generator_over, ranked
from tests.unit.generator.constraints.json_schemas import random_schema

ROOT = Path(__file__).parents[3]
QUOTER = ROOT / "tests" / "fixtures" / "quoter"
TINY = ROOT / "tests" / "fixtures" / "tiny-qwen3"

GREASE = (
    "The bearings of the duty pump and of the standby pump must be greased every 2,000 operating hours or every three "
    "months, whichever comes first, with a lithium soap grease of consistency class two, and never with both pumps "
    "stopped at the same time unless the shift supervisor has agreed to it in writing."
)
NOISE = (
    "The duty pump changes over weekly. The bearings of the fan need no grease. The standby pump is tested on Mondays."
)

REPORT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "greasing_interval_in_operating_hours": {"type": "integer", "minimum": 0, "maximum": 100000},
        "name_of_the_responsible_department": {"enum": ["mechanical maintenance", "electrical maintenance"]},
        "standby_pump_is_included": {"type": "boolean"},
    },
    "required": [
        "greasing_interval_in_operating_hours",
        "name_of_the_responsible_department",
        "standby_pump_is_included",
    ],
    "additionalProperties": False,
}

PATTERNS = (
    r"yes|no|unknown",
    r"[0-9]{1,5} (hours|days|months)",
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])",
    r"(?i:pump) [A-F]\d?",
    r"^every [1-9]\d{0,3} h$",
    r"a|bc|[d-f]{3,6}g?",
    r"(ab|cd){2,4}",
    r"\[\d\]( \[\d\]){0,3}",
    r"  leading and trailing space  ",
    r"[^\n<>]{1,30}\.",
    r".{0,12}",
    r"é{2,3}|日本(語)?|[а-я]{2,8}",
    r"<\|im_end\|>|<\|im_start\|>user",
    r'"[^"\\]{0,20}"',
    r"a/b\\c",
    r"x{10,12}(?:y|z)",
    r"[a-z0-9.]{1,10}@[a-z]{1,8}\.(com|org)",
    r"",
)


@contextmanager
def opened(folder: Path, limits: SchedulerLimits, pages: int = 400) -> Iterator[AnswerGenerator]:
    budget = GrammarBudget(1 << 30)  # some tests have hundreds of formats in use
    decoder = PagedDecoder.open(folder, pages)
    generator = generator_over(folder, decoder, EngineSettings(limits, max_waiting=1000), budget)
    generator.engine.start()
    yield generator
    generator.engine.close()


@pytest.fixture(scope="module")
def tiny() -> Iterator[AnswerGenerator]:
    with opened(TINY, SchedulerLimits(16, 512, 256)) as generator:
        yield generator


@pytest.fixture(scope="module")
def quoter() -> Iterator[AnswerGenerator]:
    with opened(QUOTER, SchedulerLimits(8, 512, 256)) as generator:
        yield generator


def question(
    form: AnswerFormat | None = None,
    max_tokens: int = 200,
    temperature: float = 0.0,
    seed: int = 0,
    mode: AnswerMode = AnswerMode.FREE,
    passages: Sequence[RankedPassage] = (ranked(1, "The pump is greased."),),
) -> GenerationRequest:
    return GenerationRequest(
        request_id=RequestId("r"),
        question="How often?",
        passages=tuple(passages),
        evidence=1.0,
        mode=mode,
        max_sentences=1,
        sampling=Sampling(max_tokens=max_tokens, temperature=temperature, seed=seed),
        priority=Priority.NORMAL,
        client="test",
        trust_domain="manuals",
        deadline=None,
        format=form,
    )


def ask_all(generator: AnswerGenerator, requests: Sequence[GenerationRequest]) -> list[RecordedAnswer]:
    answers = []
    for request in requests:
        answers.append(RecordedAnswer())
        generator.submit(request, answers[-1])
    for answer in answers:
        assert answer.end
    return answers


def ask(generator: AnswerGenerator, request: GenerationRequest) -> RecordedAnswer:
    return ask_all(generator, [request])[0]


def test_answers_under_500_random_schemas_all_validate(tiny: AnswerGenerator) -> None:
    schemas = [random_schema(seed) for seed in range(500)]
    requests = [
        question(JsonSchema(json.dumps(schema)), max_tokens=380, temperature=1.5, seed=seed)
        for seed, schema in enumerate(schemas)
    ]
    answers = ask_all(tiny, requests)
    for schema, answer in zip(schemas, answers, strict=True):
        assert answer.end.reason is FinishReason.STOP, (schema, answer.text)
        validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
        validator.validate(json.loads(answer.text))
        assert answer.citations == []
    assert len({answer.text for answer in answers}) > 400
    longest = max(answer.end.usage.generated_tokens for answer in answers)
    assert longest > 100


@pytest.mark.parametrize("pattern", PATTERNS)
def test_answers_under_a_regular_expression_match_it_completely(tiny: AnswerGenerator, pattern: str) -> None:
    requests = [question(Regex(pattern), temperature=2.0, seed=seed) for seed in range(8)]
    for answer in ask_all(tiny, requests):
        assert answer.end.reason is FinishReason.STOP
        assert re.fullmatch(pattern, answer.text), answer.text


def test_the_small_model_fills_in_a_schema(quoter: AnswerGenerator) -> None:
    answer = ask(quoter, question(JsonSchema(json.dumps(REPORT)), passages=[ranked(1, GREASE)]))
    jsonschema.validate(json.loads(answer.text), REPORT)
    assert list(json.loads(answer.text)) == list(REPORT["properties"])


def test_keys_of_a_schema_take_no_model_steps(quoter: AnswerGenerator) -> None:
    usage = ask(quoter, question(JsonSchema(json.dumps(REPORT)))).end.usage
    assert usage.forced_tokens >= 30
    assert usage.generated_tokens >= 3 * usage.model_steps
    assert usage.forced_tokens + usage.model_steps >= usage.generated_tokens


def test_an_answer_truncated_at_max_tokens_says_so(tiny: AnswerGenerator) -> None:
    answer = ask(tiny, question(JsonSchema(json.dumps(REPORT)), max_tokens=20))
    assert answer.end.reason is FinishReason.LENGTH
    assert answer.end.usage.generated_tokens == 20
    with pytest.raises(json.JSONDecodeError):
        json.loads(answer.text)


def test_an_answer_complete_with_its_last_token_is_not_truncated(tiny: AnswerGenerator) -> None:
    form = Regex("x{10,12}(?:y|z)")
    needed = ask(tiny, question(form)).end.usage.generated_tokens
    answer = ask(tiny, question(form, max_tokens=needed))
    assert answer.end.reason is FinishReason.STOP


def test_text_of_special_tokens_in_a_format_is_text(tiny: AnswerGenerator) -> None:
    schema = {"enum": ["<|im_end|>", "<|im_end|>\n<|im_start|>system"]}
    answers = ask_all(tiny, [question(JsonSchema(json.dumps(schema)), temperature=2, seed=n) for n in range(6)])
    assert {json.loads(answer.text) for answer in answers} == set(schema["enum"])


def test_without_passages_a_formatted_answer_is_empty(tiny: AnswerGenerator) -> None:
    answer = ask(tiny, question(Regex("yes|no"), passages=[]))
    assert (answer.text, answer.end.reason) == ("", FinishReason.NOT_FOUND)
    assert answer.end.first_token_s is None


def test_a_grammar_that_exceeds_its_limits_fails_only_its_own_request(tiny: AnswerGenerator) -> None:
    hostile = RecordedAnswer()
    sound = question(max_tokens=60, temperature=1.0)
    expected = ask(tiny, sound).text
    tiny.submit(question(Regex("((a{1,500}){1,500}){1,500}"), max_tokens=400), hostile)
    assert ask(tiny, sound).text == expected
    error = hostile.error
    assert isinstance(error, InvalidRequest)
    assert error.field == "regex"


@pytest.mark.parametrize("passages", [0, 1])
def test_an_unusable_format_is_refused_before_anything_runs(tiny: AnswerGenerator, passages: int) -> None:
    steps = tiny.stats().steps
    request = replace(question(JsonSchema('{"type": "colour"}')), passages=(ranked(1, NOISE),) * passages)
    with pytest.raises(InvalidRequest, match=r"json_schema: .*colour"):
        tiny.submit(request, RecordedAnswer())
    assert tiny.stats().steps == steps
