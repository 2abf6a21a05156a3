"""What every answer mode promises of its citations, with a model that writes random text over random passages.

Nothing unsupported is ever printed with a citation. A mode without a promise here fails.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.core.answer import Citation, FinishReason, Unsupported, UnsupportedText, Usage
from edge_rag.core.generation import Generated, GenerationRequest
from edge_rag.core.ids import ChunkId, DocumentId, RequestId
from edge_rag.core.passage import Passage, RankedPassage, Sentence
from edge_rag.core.query import AnswerFormat, AnswerMode, JsonSchema, Priority, Regex, Sampling
from edge_rag.core.text import sentence_spans
from edge_rag.engine.engine import Engine
from edge_rag.engine.ports import Outcome, TokenSink
from edge_rag.engine.request import TokenRequest
from edge_rag.generator.citations.attribution import Attributor
from edge_rag.generator.citations.claims import claims_of
from edge_rag.generator.citations.sentence_splitter import AnswerSentence
from edge_rag.generator.constraints.grammar import GrammarCompiler
from edge_rag.generator.constraints.plain import FreeText
from edge_rag.generator.generator import AnswerGenerator, CiteSettings
from edge_rag.generator.prompt.template import PromptEncoder, PromptSettings
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.generator.quote_generator import QuoteSettings
from edge_rag.generator.quoting.answer import CUT
from edge_rag.reranker.scoring import Stemmer
from tests.support.examples import examples
from tests.support.generators import NOT_FOUND, RecordedAnswer
from tests.unit.generator.prompts.test_history import TOKENIZER

QUESTION: Final = "How often must the pump bearings be greased?"
MARKER: Final = re.compile(r"\[\d{1,3}\]")
FACTS: Final = (
    "The pump bearings must be greased every 2,000 operating hours.",
    "Use 64 g of lithium grease for each bearing.",
    "Never open the check valve while the pump runs!",
    "How often is the valve opened?",
    "Bearings:",
    "Die Lager sind alle 2.000 Betriebsstunden zu fetten.",
    "水箱每年清洗两次。",
    "\n\n",
)
WRITTEN: Final = (
    "every 64 days",
    "2,000 hours",
    " [1]",
    "[2, 3]",
    "[99].",
    "The answer is: ",
    "not ",
    "64 g",
    " ",
    "The pump bearings need fresh lubricant every 2,000 operating hours. ",
    "The pump bearings of Siemens must be greased every 2,000 operating hours. ",
    "The pump bearings of Hale must be greased every 2,000 operating hours. ",
    "The pump bearings need fresh lubricant every 64 operating hours. ",
    "The pump bearings must not be greased every 2,000 operating hours. ",
    "Open the check valve while the pump runs! ",
)


@dataclass
class RandomModel:
    """Stands for the engine: what it writes is given, however constrained.

    Attributes:
        tokens: What it writes.
        sizes: Tokens that it hands over at once, in turn.
        reason: Why it ends, unless something else ends the answer.
    """

    tokens: Sequence[int] = ()
    sizes: Sequence[int] = (1,)
    reason: FinishReason = FinishReason.STOP
    capacity: int = 4096
    vocabulary_size: int = 1 << 20

    def submit(self, request: TokenRequest, sink: TokenSink) -> int:
        left, turn = list(self.tokens) if request.prompt else [], 0
        while left:
            size = self.sizes[turn % len(self.sizes)]
            if sink.extend(tuple(left[:size])):
                break
            left, turn = left[size:], turn + 1
        usage = Usage(len(request.prompt), 0, len(self.tokens))
        sink.finish(Outcome(self.reason if request.prompt else FinishReason.STOP, usage, 0.0, 0.0))
        return 0


class AnyText:
    """Stands for the compiler of formats: a model without constraint, which may write anything."""

    def compile(self, form: AnswerFormat, client: str) -> FreeText:
        return FreeText(frozenset())


def generator(model: RandomModel, unsupported: UnsupportedText) -> AnswerGenerator:
    tokenizer: ChatTokenizer = TOKENIZER
    prompts = PromptSettings(not_found=NOT_FOUND)
    return AnswerGenerator(
        cast(Engine, model),
        frozenset(),
        tokenizer,
        cast(GrammarCompiler, AnyText()),
        prompts,
        QuoteSettings(not_found_below=0.1),
        CiteSettings(Stemmer, unsupported),
        PromptEncoder(tokenizer, None),
        clock=lambda: 0.0,
    )


def quoted(heard: RecordedAnswer, request: GenerationRequest) -> None:
    """The answer's text at a citation is the stored text, word for word.

    All of the answer is cited, but for bullets, marks of what was cut, and lines that name a document or its section.
    """
    for each in heard.citations:
        assert heard.text[each.answer_start : each.answer_end] == each.text
    cited = {place for each in heard.citations for place in range(each.answer_start, each.answer_end)}
    if heard.citations:
        rest = "".join(text for place, text in enumerate(heard.text) if place not in cited)
        sources = [request.passages[each.passage].passage for each in heard.citations]
        names = {name for passage in sources for name in (passage.document, *passage.context[-1:])}
        assert {line.removeprefix("-").strip() for line in rest.split("\n")} <= {"", CUT, *names}


def by_part(heard: RecordedAnswer) -> dict[tuple[int, int], list[Citation]]:
    parts: dict[tuple[int, int], list[Citation]] = {}
    for each in heard.citations:
        parts.setdefault((each.answer_start, each.answer_end), []).append(each)
    return parts


def checked(heard: RecordedAnswer, request: GenerationRequest) -> None:
    """What is cited has the support of the passages, in the eyes of who checks; the rest is marked."""
    attributors = [Attributor(request.passages, Stemmer(), request.question, headings) for headings in (False, True)]
    for (start, end), citations in by_part(heard).items():
        claim = AnswerSentence(heard.text[start:end], False, frozenset()).claim
        found = []
        for attributor in attributors:
            support = attributor.support(claim, {each.passage for each in citations})
            stored = [request.passages[place.passage].passage for place in support]
            found.append([(at.start + it.start, at.start + it.end) for at, it in zip(stored, support, strict=True)])
        assert [(each.start, each.end) for each in citations] in found
    marked_or_cited(heard)


def marked_or_cited(heard: RecordedAnswer) -> None:
    """A mark is taken back by a later citation only, and contradicted numbers stand where it is told."""
    claims = by_part(heard)
    for place, event in enumerate(heard.events):
        if isinstance(event, Unsupported) and (event.answer_start, event.answer_end) in claims:
            assert heard.events.index(claims[event.answer_start, event.answer_end][0]) > place
    for each in heard.end.conflicts:
        assert each.claimed in unicodedata.normalize("NFC", heard.text[each.answer_start : each.answer_end])
        assert each.stated in unicodedata.normalize("NFC", each.text)
        assert each.claimed != each.stated


def extracted(heard: RecordedAnswer, request: GenerationRequest) -> None:
    """The answer is one value, which stands in the cited sentence, and all of it is cited."""
    for each in heard.citations:
        assert (each.answer_start, each.answer_end) == (0, len(heard.text))
        assert heard.text in each.text
    assert bool(heard.citations) is (heard.text != NOT_FOUND)


def uncited(heard: RecordedAnswer, request: GenerationRequest) -> None:
    assert heard.citations == []
    assert not MARKER.search(heard.text.replace("[0]", ""))


PROMISES: Final[Mapping[AnswerMode, Callable[[RecordedAnswer, GenerationRequest], None]]] = {
    AnswerMode.QUOTE: quoted,
    AnswerMode.CITE: checked,
    AnswerMode.FREE: uncited,
    AnswerMode.EXTRACT: extracted,
}
FORMATS: Final[Mapping[type[Any], AnswerFormat]] = {
    JsonSchema: JsonSchema('{"type": "array"}'),
    Regex: Regex("[0-9]+ (hours|days)"),
}


STORED: Final = Passage(ChunkId(1), DocumentId("d"), "d.md", None, 40, 40 + len(FACTS[0]), FACTS[0])
REQUEST: Final = GenerationRequest(
    request_id=RequestId("r"),
    question=QUESTION,
    passages=(RankedPassage(STORED, 1.0, (Sentence(0, len(STORED.text), 1.0),)),),
    evidence=1.0,
    mode=AnswerMode.QUOTE,
    max_sentences=1,
    sampling=Sampling(max_tokens=60),
    priority=Priority.NORMAL,
    client="test",
    trust_domain="manuals",
    deadline=None,
)


@st.composite
def passages(draw: st.DrawFn, with_headings: bool) -> tuple[RankedPassage, ...]:
    found = []
    for number in range(draw(st.integers(1, 3))):
        parts = draw(st.lists(st.sampled_from(FACTS) | st.text(max_size=20), min_size=1, max_size=4))
        text, begin = " ".join(parts), draw(st.integers(0, 10_000))
        spans = sentence_spans(text)
        evidence = st.floats(-4, 4)
        headings = draw(st.sampled_from([(), ("Pump P1", "Greasing the bearings of Siemens")])) if with_headings else ()
        place = number or None, begin, begin + len(text)
        stored = Passage(ChunkId(number), DocumentId(f"d{number}"), f"{number}.md", *place, text, context=headings)
        found.append(RankedPassage(stored, 1.0, tuple(Sentence(*span, draw(evidence)) for span in spans)))
    return tuple(found)


def answer_of(data: st.DataObject, mode: AnswerMode) -> tuple[RecordedAnswer, GenerationRequest]:
    found = data.draw(passages(with_headings=mode is AnswerMode.CITE))
    own = [f"{each.passage.text[part.start : part.end]} " for each in found for part in each.sentences]
    parts = st.one_of(st.sampled_from((*own, " ")), st.sampled_from(WRITTEN), st.text(max_size=12))
    pieces = data.draw(st.lists(parts, min_size=1, max_size=14))
    tokens = TOKENIZER.encode("".join(pieces))
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    reason = data.draw(st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]))
    request = replace(
        REQUEST,
        passages=found,
        evidence=data.draw(st.sampled_from([1.0, 0.5, 0.0])),
        mode=mode,
        max_sentences=data.draw(st.integers(1, 8)),
    )
    heard, unsupported = RecordedAnswer(), data.draw(st.sampled_from(UnsupportedText))
    generator(RandomModel(tokens, sizes, reason), unsupported).submit(request, heard)
    assert isinstance(heard.wait().events[-1], Generated)
    return heard, request


def check_citations(heard: RecordedAnswer, request: GenerationRequest) -> None:
    for each in heard.citations:
        stored = request.passages[each.passage].passage
        assert stored.text[each.start - stored.start : each.end - stored.start] == each.text != ""
        assert (each.document, each.page) == (stored.document, stored.page)
        assert 0 <= each.answer_start < each.answer_end <= len(heard.text)


@pytest.mark.parametrize("mode", AnswerMode)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_nothing_unsupported_is_ever_cited(mode: AnswerMode, data: st.DataObject) -> None:
    heard, request = answer_of(data, mode)
    check_citations(heard, request)
    PROMISES[mode](heard, request)


@settings(max_examples=examples(40))
@given(data=st.data())
def test_no_altered_number_name_or_negation_is_cited(data: st.DataObject) -> None:
    heard, request = answer_of(data, AnswerMode.CITE)
    marked_or_cited(heard)
    attributor = Attributor(request.passages, Stemmer(), request.question, headings=True)
    for (start, end), citations in by_part(heard).items():
        claim = AnswerSentence(heard.text[start:end], False, frozenset()).claim
        headings = [" ".join(request.passages[each.passage].passage.context) for each in citations]
        source = claims_of(" ".join(each.text for each in citations))
        assert claims_of(claim).supported_by(source, claims_of(" ".join(headings)).words)
        assert attributor.support(claim)


@pytest.mark.parametrize("form", get_args(AnswerFormat))
def test_a_formatted_answer_is_as_the_model_writes_it_and_cites_nothing(form: type[AnswerFormat]) -> None:
    heard, written = RecordedAnswer(), f"[1] {FACTS[0]} [2]"
    asked = replace(REQUEST, mode=AnswerMode.FREE, format=FORMATS[form])
    generator(RandomModel(TOKENIZER.encode(written)), UnsupportedText.MARK).submit(asked, heard)
    assert (heard.text, heard.citations) == (written, [])


def test_extracted_fields_are_cited_by_their_pointers() -> None:
    heard = RecordedAnswer()
    form = JsonSchema('{"type": "object", "properties": {"hours": {"type": "integer"}}, "required": ["hours"]}')
    model = RandomModel(TOKENIZER.encode("64 days"))
    asked = replace(REQUEST, mode=AnswerMode.EXTRACT, format=form)
    generator(model, UnsupportedText.MARK).submit(asked, heard)
    check_citations(heard, asked)
    assert heard.text == '{"hours": 2000}'
    assert [(each.field, each.text) for each in heard.citations] == [("/hours", FACTS[0])]


@pytest.mark.parametrize("mode", AnswerMode)
def test_what_the_documents_say_is_cited_unless_nothing_checks_it(mode: AnswerMode) -> None:
    heard, text, request = RecordedAnswer(), FACTS[0], replace(REQUEST, mode=mode)
    model = RandomModel(TOKENIZER.encode(f"{text} [1]"))
    generator(model, UnsupportedText.MARK).submit(request, heard)
    check_citations(heard, request)
    PROMISES[mode](heard, request)
    assert heard.text == ("every 2,000 operating hours" if mode is AnswerMode.EXTRACT else text)
    assert [each.text for each in heard.citations] == ([] if mode is AnswerMode.FREE else [text])
