from datetime import UTC, datetime

import click
import pytest

from edge_rag.cli.options import parse_metadata


def test_values_are_typed_by_their_looks_and_repeated_keys_are_tags() -> None:
    pairs = ["year=2020", "ratio=-0.5", "ok=true", "on=2020-05-01", "at=2020-05-01T10:00:00Z", "part=007", "v=1.2.3"]
    pairs += ['zip="12345"', "tag=a", "tag=2", "equation=a=b", "name= spaced  out "]

    assert parse_metadata(pairs) == {
        "year": 2020.0,
        "ratio": -0.5,
        "ok": True,
        "on": datetime(2020, 5, 1, tzinfo=UTC),
        "at": datetime(2020, 5, 1, 10, tzinfo=UTC),
        "part": "007",
        "v": "1.2.3",
        "zip": "12345",
        "tag": ("a", "2"),
        "equation": "a=b",
        "name": "spaced out",
    }


@pytest.mark.parametrize(("pair", "named"), [("year", "'year'"), ("Year=1", "'Year'"), ("=1", "''"), ("a=", "'a'")])
def test_an_unusable_pair_is_named(pair: str, named: str) -> None:
    with pytest.raises(click.BadParameter, match=named):
        parse_metadata([pair])
