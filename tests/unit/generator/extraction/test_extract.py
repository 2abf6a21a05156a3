"""Extracted answers: every value is a span of the passages, and JSON validates under its schema."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.analysis.numbers import normal_numbers
from edge_rag.analysis.values import value_words
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Passage, RankedPassage, Sentence
from edge_rag.core.text import sentence_spans
from edge_rag.errors import InvalidRequest, ValueMissing
from edge_rag.generator.constraints.json_values import SchemaAllowance, ValueCheck
from edge_rag.generator.extraction.answer import Extracted, extract
from tests.support.examples import examples

GREASE = (
    "The pump bearings must be greased every 2,000 operating hours or every three months. Each pump bearing takes 35 "
    "grams of lithium complex grease at the drive end. Never mix it with polyurea grease."
)
REPORT = (
    "The acceptance certificate was signed on 18 May 2020 by the works manager. Pump P2 delivered 181 litres per "
    "second at a head of 32.1 metres. Call extension 214."
)
PARTS = (
    "Part number | Part | In store | Shelf\nHL-1001 | Mechanical seal, 75 mm | 2 | B3\n"
    "HL-1002 | Impeller, 410 mm | 1 | A1\nHL-1003 | Wear ring | 4 | B2"
)


def ranked(text: str, *evidence: float) -> RankedPassage:
    passage = Passage(ChunkId(1), DocumentId("d"), "d.md", None, 10, 10 + len(text), text)
    spans = sentence_spans(text)
    found = zip(spans, [*evidence, *[0.0] * len(spans)], strict=False)
    return RankedPassage(passage, 1.0, tuple(Sentence(*span, each) for span, each in found))


def object_of(**properties: dict[str, Any]) -> str:
    return json.dumps({"type": "object", "properties": properties, "required": [*properties]})


def extracted(question: str, passage: RankedPassage, schema: str | None = None) -> Extracted:
    answer = extract(question, [passage], schema)
    assert answer is not None
    return answer


def filled(question: str, passage: RankedPassage, schema: str) -> Any:
    return json.loads(extracted(question, passage, schema).text)


def test_without_a_schema_the_answer_is_the_value() -> None:
    answer = extracted("How often must the pump bearings be greased?", ranked(GREASE, 3.0))
    assert answer.text == "every 2,000 operating hours"
    (value,) = answer.values
    assert (value.pointer, value.start, value.end, value.sentence) == (None, 0, len(answer.text), 0)


@pytest.mark.parametrize(
    ("question", "text", "value"),
    [
        ("How many seconds were left?", "It ended with 17 seconds left on the clock.", "17"),
        ("How many were left?", "It ended with 17 seconds left on the clock.", "17 seconds"),
        ("How long was it open?", "It was open for 17 seconds.", "17 seconds"),
        ("How many hours does it run?", "It has 4 doors and runs 20 hours at 50 bar.", "20"),
        ("How much money did it get?", "For five years it got $5 million in cash.", "$5 million"),
        ("When did it begin?", "It began in earnest after 1850 in the west.", "after 1850"),
        ("In what year did it begin?", "It began in earnest after 1850 in the west.", "1850"),
        ("¿Cuándo empezó?", "La obra empezó después de 1850 en el oeste.", "después de 1850"),
    ],
)
def test_a_value_says_no_more_than_the_question_needs_and_no_less(question: str, text: str, value: str) -> None:
    assert extracted(question, ranked(text, 3.0)).text == value


def test_a_german_noun_is_hardly_a_name() -> None:
    text = "Der Dienst nutzte im Jahr danach auch Astra Nord."
    assert extracted("Welchen Satelliten nutzte der Dienst?", ranked(text, 3.0)).text == "Astra Nord"


def test_what_asks_for_no_value_is_answered_by_a_sentence() -> None:
    answer = extracted("Why may the greases not be mixed?", ranked(GREASE, 0.0, 0.0, 3.0))
    assert answer.text == "Never mix it with polyurea grease."


def test_fields_are_filled_in_the_order_of_the_schema_each_with_its_source() -> None:
    schema = object_of(
        interval={"type": "string"},
        hours={"type": "integer", "description": "operating hours"},
        grams={"type": "number"},
        grease={"type": "string", "enum": ["polyurea", "lithium complex"]},
    )
    passage = ranked(GREASE, 3.0, 1.0)
    answer = extracted(
        "How often must the pump bearings be greased, and with how much at the drive end?", passage, schema
    )
    assert answer.text == (
        '{"interval": "every 2,000 operating hours", "hours": 2000, "grams": 35, "grease": "lithium complex"}'
    )
    assert [(each.pointer, answer.text[each.start : each.end]) for each in answer.values] == [
        ("/interval", '"every 2,000 operating hours"'),
        ("/hours", "2000"),
        ("/grams", "35"),
        ("/grease", '"lithium complex"'),
    ]
    spans = [GREASE[each.source_start : each.source_end] for each in answer.values]
    assert spans == ["every 2,000 operating hours", "2,000 operating hours", "35 grams", "lithium complex"]


def test_dates_patterns_and_nested_fields() -> None:
    schema = object_of(
        signed={"type": "string", "format": "date"},
        pump=json.loads(
            object_of(flow={"type": "string", "description": "litres per second"}, head={"type": "string"})
        ),
        phone={"type": "string", "pattern": "^extension [0-9]+$"},
    )
    assert filled("When was the acceptance certificate signed?", ranked(REPORT, 3.0), schema) == {
        "signed": "2020-05-18",
        "pump": {"flow": "181 litres per second", "head": "32.1 metres"},
        "phone": "extension 214",
    }


def test_a_row_fills_the_fields_that_its_header_names() -> None:
    schema = object_of(
        part_number={"type": "string", "pattern": "^HL-[0-9]{4}$"},
        shelf={"type": "string"},
        in_store={"type": "integer"},
    )
    row = filled("Which part is the impeller?", ranked(PARTS, 0.0, 0.0, 3.0, 0.0), schema)
    assert row == {"part_number": "HL-1002", "shelf": "A1", "in_store": 1}


def test_a_list_has_the_like_values_of_a_passage_in_their_order() -> None:
    schema = json.dumps({"type": "array", "items": {"type": "string", "pattern": "^HL-"}})
    numbers = filled("Which part numbers are there?", ranked(PARTS, 0.0, 1.0, 1.0, 1.0), schema)
    assert numbers == ["HL-1001", "HL-1002", "HL-1003"]


@pytest.mark.parametrize(
    ("optional", "found"),
    [
        ({"colour": {"type": ["string", "null"]}}, {"colour": None}),
        ({"colour": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, {"colour": None}),
        ({"colour": {"type": ["string", "null"], "enum": ["red", None]}}, {"colour": None}),
    ],
)
def test_a_field_without_a_value_is_null_where_it_may_be(optional: dict[str, Any], found: dict[str, Any]) -> None:
    schema = object_of(head={"type": "string"}, **optional)
    assert filled("How high is the head of pump P2?", ranked(REPORT, 0.0, 3.0), schema) == {
        "head": "32.1 metres",
        **found,
    }


def test_a_field_without_a_value_is_left_out_where_it_may_be() -> None:
    schema = {"type": "object", "properties": {"head": {"type": "string"}, "colour": {"type": "string"}}}
    answer = filled("How high is the head of pump P2?", ranked(REPORT, 0.0, 3.0), json.dumps(schema))
    assert answer == {"head": "32.1 metres"}


def test_a_required_field_without_a_value_is_an_error_that_names_it() -> None:
    schema = object_of(head={"type": "string"}, colour={"type": "string"})
    with pytest.raises(ValueMissing, match=r"no value for /colour, .*allow null"):
        extract("How high is the head of pump P2?", [ranked(REPORT, 0.0, 3.0)], schema)


def test_without_any_value_there_is_no_answer() -> None:
    assert extract("How high is it?", [ranked(REPORT)], object_of(hours={"type": "number", "minimum": 5000})) is None


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (object_of(ok={"type": "boolean"}), "/ok is true or false"),
        ('{"type": "object"}', "the schema is an object without `properties`"),
        (object_of(a={"type": "array"}), "/a is a list without `items`"),
        (object_of(a={"type": "array", "items": {"type": "object", "properties": {}}}), "/a is of type object"),
        (object_of(a={"type": ["string", "number"]}), "/a has several types"),
        (object_of(a={"anyOf": [{"type": "string"}, {"type": "number"}]}), "/a has several forms"),
        (object_of(a={"$ref": "https://other/schema"}), "/a refers to"),
        (object_of(a={"$ref": "#/$defs/missing"}), "which the schema does not have"),
        ('{"$ref": "#"}', "refers to '#'"),
        ("[]", "must be an object"),
        ("{", "is not JSON"),
        (object_of(**{f"f{number}": {"type": "string"} for number in range(65)}), "more than 64 fields"),
    ],
)
def test_what_no_span_can_fill_is_refused_by_its_place(schema: str, problem: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        extract("Anything?", [ranked(REPORT)], schema)
    assert refused.value.field == "json_schema"
    assert problem in str(refused.value)


def test_a_reference_stands_for_its_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"head": {"$ref": "#/$defs/length"}},
        "$defs": {"length": {"type": "string"}},
    }
    found = filled("How high is the head of pump P2?", ranked(REPORT, 0.0, 3.0), json.dumps(schema))
    assert found == {"head": "32.1 metres"}


def test_the_time_for_checks_is_bounded() -> None:
    clock = iter(range(100))
    check = ValueCheck({"type": "integer"}, SchemaAllowance(2.0, lambda: float(next(clock))))
    assert [check.accepts("3"), check.accepts('"3"')] == [True, False]
    with pytest.raises(InvalidRequest, match="too much time"):
        check.accepts("3")


PARTS_OF_TEXT = (
    "The pump takes 35 grams. ",
    "Signed on 18 May 2020.",
    "alle 2.000 Betriebsstunden ",
    "A | B | C\n",
    "HL-1 | 3,5 | x\n",
    "Owner: Ann Lee\n",
    "between 1.5 and 2.0 bar, ",
    'He said "no".',
    "水箱每年 12 次。",
    "red ",
)
FIELDS = (
    {"type": "string"},
    {"type": ["string", "null"], "maxLength": 8},
    {"type": "number"},
    {"type": ["integer", "null"], "minimum": 3},
    {"type": "string", "format": "date"},
    {"type": "string", "enum": ["red", "B", "12"]},
    {"type": "string", "pattern": "^[A-Z]+-[0-9]$"},
    {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    {"type": "array", "items": {"type": "number"}},
)


@st.composite
def passages(draw: st.DrawFn) -> list[RankedPassage]:
    found = []
    for _ in range(draw(st.integers(1, 3))):
        text = "".join(draw(st.lists(st.sampled_from(PARTS_OF_TEXT) | st.text(max_size=12), min_size=1, max_size=6)))
        found.append(ranked(text, *draw(st.lists(st.floats(-4, 4), max_size=6))))
    return found


@settings(max_examples=examples(120), deadline=None)
@given(
    passages(),
    st.sampled_from(["How much grease?", "When was it signed?", "Wie oft?", "red B", "Owner?", "Why?"])
    | st.text(max_size=20),
    st.none()
    | st.dictionaries(
        st.sampled_from(["grams", "date", "owner", "a/b", "B", "x~y"]), st.sampled_from(FIELDS), min_size=1
    ),
    st.booleans(),
)
def test_every_value_is_a_span_and_validates(
    found: list[RankedPassage], question: str, properties: dict[str, Any] | None, required: bool
) -> None:
    schema = None
    if properties is not None:
        needed = {"required": [*properties]} if required else {}
        schema = {"type": "object", "properties": properties, "additionalProperties": False, **needed}
    try:
        answer = extract(question, found, None if schema is None else json.dumps(schema))
    except ValueMissing as missing:
        assert required
        assert missing.pointers
        return
    if answer is None:
        return
    assert answer.values
    if schema is not None:
        assert ValueCheck(schema, SchemaAllowance()).accepts(answer.text)
    for each in answer.values:
        text = found[each.passage].passage.text
        sentence = found[each.passage].sentences[each.sentence]
        assert sentence.start <= each.source_start < each.source_end <= sentence.end
        written = answer.text[each.start : each.end]
        check_meaning(written if schema is None else json.loads(written), text[each.source_start : each.source_end])
        if schema is not None:
            assert value_at(json.loads(answer.text), each.pointer or "") == json.loads(written)


def check_meaning(value: object, span: str) -> None:
    """Checks that a value is a span, in whatever case, or the number or date that it means."""
    if isinstance(value, str) and value.casefold() == span.casefold():
        return
    if isinstance(value, str):
        assert (value, span) == ("2020-05-18", "18 May 2020")
        return
    readings = {reading for number in normal_numbers(span) for reading in number.readings}
    readings |= {value_words("en").numbers.get(word, "") for word in span.lower().split()}
    assert any(
        float(reading) in (value, -float(str(value))) for reading in readings if reading.replace(".", "", 1).isdigit()
    )


def value_at(answer: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        answer = answer[int(part) if isinstance(answer, list) else part.replace("~1", "/").replace("~0", "~")]
    return answer
