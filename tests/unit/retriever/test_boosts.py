from datetime import UTC, datetime, timedelta

import pytest

from edge_rag.core.documents.collection import CollectionSettings, RecencyBoost, ValueBoost
from edge_rag.core.documents.metadata import Metadata
from edge_rag.retriever.passages import boost, has_boosts

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def ago(days: float) -> datetime:
    return _NOW - timedelta(days=days)


@pytest.mark.parametrize(
    ("metadata", "factor"),
    [
        ({"created": ago(0)}, 3.0),
        ({"created": ago(30)}, 2.0),
        ({"created": ago(60)}, 1.5),
        ({"created": ago(-100)}, 3.0),
        ({"created": ago(100_000)}, 1.0),
        ({"created": "yesterday"}, 1.0),
        ({}, 1.0),
    ],
)
def test_half_of_the_boost_is_left_at_the_half_life(metadata: Metadata, factor: float) -> None:
    settings = CollectionSettings(recency=RecencyBoost("created", 30.0, 2.0))
    assert boost(settings, metadata, ago(0), _NOW) == pytest.approx(factor)


def test_without_a_key_the_time_of_ingestion_counts() -> None:
    settings = CollectionSettings(recency=RecencyBoost(None, 30.0))
    assert boost(settings, {}, ago(30), _NOW) == pytest.approx(1.5)


def test_factors_of_values_that_are_equal_in_type_and_value_are_multiplied() -> None:
    settings = CollectionSettings(
        boosts=(ValueBoost("source", "official", 2.0), ValueBoost("tag", "old", 0.5), ValueBoost("flag", True, 10.0))
    )
    assert boost(settings, {"source": "official", "tag": ("new", "old"), "flag": 1.0}, _NOW, _NOW) == 1.0
    assert boost(settings, {"source": "official"}, _NOW, _NOW) == 2.0
    assert boost(settings, {"flag": True}, _NOW, _NOW) == 10.0


def test_a_collection_prefers_nothing_by_itself() -> None:
    assert not has_boosts(CollectionSettings())
    assert boost(CollectionSettings(), {"created": _NOW}, _NOW, _NOW) == 1.0
