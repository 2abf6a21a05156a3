"""What a collection prefers: factors on the scores of its passages; pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import exp2

from edge_rag.core.documents.collection import CollectionSettings, RecencyBoost
from edge_rag.core.documents.filters import FilterValue
from edge_rag.core.documents.metadata import Metadata, MetadataValue

_DAY = timedelta(days=1)


def has_boosts(settings: CollectionSettings) -> bool:
    """Whether any passage could have another factor than 1."""
    return settings.recency is not None or bool(settings.boosts)


def boost(settings: CollectionSettings, metadata: Metadata, ingested_at: datetime, now: datetime) -> float:
    """Returns what a passage's score is multiplied with, above 0; 1 where nothing applies.

    Args:
        settings: The collection's.
        metadata: The document's.
        ingested_at: When the document was ingested.
        now: The present.
    """
    factor = 1.0
    if settings.recency is not None:
        factor *= _recency(settings.recency, metadata, ingested_at, now)
    for each in settings.boosts:
        if _equals(metadata.get(each.key), each.value):
            factor *= each.factor
    return factor


def _recency(recency: RecencyBoost, metadata: Metadata, ingested_at: datetime, now: datetime) -> float:
    date = ingested_at if recency.key is None else metadata.get(recency.key)
    if not isinstance(date, datetime):
        return 1.0
    age_days = max(timedelta(0), now - date) / _DAY
    return 1.0 + recency.weight * exp2(-age_days / recency.half_life_days)


def _equals(found: MetadataValue | None, wanted: FilterValue) -> bool:
    values = found if isinstance(found, tuple) else (found,)
    return any(type(value) is type(wanted) and value == wanted for value in values)
