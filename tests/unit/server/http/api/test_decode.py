"""Requests from JSON and from texts of paths and query strings: typed, bounded, and refused by field."""

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.documents.collection import CollectionInfo, CollectionSettings, RecencyBoost, ValueBoost
from edge_rag.core.documents.filters import BuiltinField, Comparator, Comparison, MetadataField
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import AnswerMode, Priority
from edge_rag.core.shapes.encoder import encode
from edge_rag.errors import InvalidRequest
from edge_rag.server.http.api.decode import decode_fields
from edge_rag.server.http.api.library import CreateCollectionRequest, ListDocumentsRequest, UpdateCollectionRequest
from edge_rag.server.http.api.openapi import ENDPOINTS
from edge_rag.server.http.api.operation import WatchStatusRequest
from edge_rag.server.http.api.questions import AskRequest

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def ask(**given: Any) -> AskRequest:
    return AskRequest(**decode_fields(AskRequest, {"question": "?", **given}, ""))


def refused(kind: type, value: dict[str, Any], text: bool = False) -> str:
    with pytest.raises(InvalidRequest) as error:
        decode_fields(kind, value, "", text)
    return error.value.field


def test_a_question_alone_has_the_defaults_of_every_field() -> None:
    assert ask() == AskRequest("?")


def test_values_have_the_types_of_their_fields() -> None:
    asked = ask(mode="cite", priority="batch", temperature=1, stop=["a", "b"], json_schema={"type": "object"})
    assert (asked.mode, asked.priority, asked.stop) == (AnswerMode.CITE, Priority.BATCH, ("a", "b"))
    assert type(asked.temperature) is float
    assert ask(mode=None, passages=None, filter=None) == ask()


def test_a_filter_is_read_as_on_the_command_line() -> None:
    decoded: Any = ask(filter="year >= 2020").filter
    assert decoded == Comparison(MetadataField("year"), Comparator.GREATER_OR_EQUAL, 2020.0)
    decoded = ask(filter='name = "a.md"').filter
    assert decoded == Comparison(BuiltinField.NAME, Comparator.EQUAL, "a.md")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("question", None),
        ("question", ""),
        ("question", 5),
        ("collection", "A b"),
        ("mode", "loud"),
        ("mode", 1),
        ("max_sentences", 1.0),
        ("max_sentences", True),
        ("temperature", "0"),
        ("temperature", 10**400),
        ("stop", "a"),
        ("stop[1]", ["a", 5]),
        ("priority", "INTERACTIVE"),
        ("filter", "page = "),
        ("filter", 'page = "one"'),
        ("filter", "not " * 17 + "a = 1"),
        ("filter", "a < true"),
        ("stream", "true"),
        ("nothing", 1),
    ],
)
def test_an_unusable_value_is_refused_by_its_field(field: str, value: Any) -> None:
    given = {"question": "?", field.partition("[")[0]: value}
    assert refused(AskRequest, given).startswith(field)


def test_a_missing_field_is_named() -> None:
    assert refused(AskRequest, {}) == "question"
    assert refused(CreateCollectionRequest, {"name": "a", "settings": {"recency": {"key": None}}}) == (
        "settings.recency.half_life_days"
    )
    boosts = [{"key": "a", "value": 1, "factor": 1}, {"key": "a", "value": [], "factor": 1}]
    assert refused(CreateCollectionRequest, {"name": "a", "settings": {"boosts": boosts}}) == "settings.boosts[1].value"


def test_numbers_of_a_query_string_are_read_from_their_text() -> None:
    page = decode_fields(ListDocumentsRequest, {"collection": "a", "limit": "7"}, "", text=True)
    assert page["limit"] == 7
    assert decode_fields(WatchStatusRequest, {"interval_s": "0.5"}, "", text=True) == {"interval_s": 0.5}
    assert decode_fields(WatchStatusRequest, {"interval_s": "2"}, "", text=True) == {"interval_s": 2.0}
    for text in ("", "x", "1e3", "²", "7 ", "0x1", "1" * 30):
        assert refused(ListDocumentsRequest, {"collection": "a", "limit": text}, text=True) == "limit"
    for text in ("", ".", "nan", "inf", "--1"):
        assert refused(WatchStatusRequest, {"interval_s": text}, text=True) == "interval_s"


def test_changes_of_settings_are_the_fields_that_are_given() -> None:
    given = {"collection": "a", "settings": {"offload": "redacted", "recency": None}}
    decoded = decode_fields(UpdateCollectionRequest, given, "")
    assert decoded["settings"] == {"offload": OffloadRule.REDACTED, "recency": None}


def test_the_settings_of_a_response_can_be_sent_back() -> None:
    settings = CollectionSettings(
        "Boiler house",
        recency=RecencyBoost("created", 30.0),
        boosts=(ValueBoost("due", NOON, 2.0), ValueBoost("year", 2020.0, 0.5), ValueBoost("draft", True, 0.1)),
        labels={"owner": "ward 3"},
        synonyms="UPS = uninterruptible power supply # both\n",
    )
    shown = encode(CollectionInfo("c", settings, 0, 0, True, None))["settings"]
    assert decode_fields(CreateCollectionRequest, {"name": "c", "settings": shown}, "")["settings"] == settings


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
def test_any_json_is_decoded_or_refused(data: st.DataObject) -> None:
    kinds = [kind for endpoint in ENDPOINTS if (kind := endpoint.hints.get("request")) is not None]
    kind = data.draw(st.sampled_from(kinds))
    names = [each.name for each in fields(kind)]
    value = data.draw(st.dictionaries(st.sampled_from([*names, "other"]), JSON))
    try:
        kind(**decode_fields(kind, value, ""))
    except InvalidRequest as error:
        assert error.field.partition(".")[0].partition("[")[0] in {*names, "other"}
