"""Names are checked at the door of the room."""

import pytest

from edge_rag.errors import InvalidRequest
from edge_rag.storage.names import require_collection_name, require_document_name


@pytest.mark.parametrize("name", ["a", "pump-station_2", "0", "x" * 64])
def test_a_legal_collection_name_is_taken(name: str) -> None:
    require_collection_name(name)


@pytest.mark.parametrize("name", ["", "A", "a b", "a/b", "ä", "x" * 65, "a\n", "../a"])
def test_any_other_collection_name_is_refused_naming_the_field(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        require_collection_name(name)
    assert refused.value.field == "collection"


@pytest.mark.parametrize(
    "name", ["a.md", "manuals/Größe 2.pdf", "a..b/...md", "مضخة\u200f.pdf", "x" * 1024, "'; DROP TABLE documents; --"]
)
def test_a_legal_document_name_is_taken(name: str) -> None:
    require_document_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "x" * 1025, "a\x00b", "a\nb", "a\x7f", "a\u2028b", "a\ud800", "a\u202efdp.exe", "../a", "a/..", "a\\..\\b"],
)
def test_any_other_document_name_is_refused_naming_the_field(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        require_document_name(name)
    assert refused.value.field == "name"
