from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.answer import Citation, TextDelta
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Passage
from edge_rag.generator.citations.markers import CitationMapper

PASSAGES = [
    Passage(ChunkId(n), DocumentId(f"d{n}"), f"{n}.md", n, 100 * n, 100 * n + 7, f"text {n}!") for n in range(1, 4)
]


def read(pieces: list[str]) -> tuple[str, list[Citation]]:
    mapper = CitationMapper(PASSAGES, range(len(PASSAGES)))
    events = [event for piece in pieces for event in mapper.feed(piece)] + mapper.flush()
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    return text, [event for event in events if isinstance(event, Citation)]


def test_a_marker_becomes_a_citation_of_its_passage() -> None:
    text, (citation,) = read([" Grease it", " weekly [2]."])
    assert text == "Grease it weekly."
    assert citation == Citation(1, "2.md", 2, 200, 207, "text 2!", 0, len("Grease it weekly"))


def test_a_marker_cites_for_the_text_since_the_previous_marker() -> None:
    text, citations = read(["One. [1] Two. [3]"])
    assert text == "One. Two."
    assert [text[c.answer_start : c.answer_end] for c in citations] == ["One.", "Two."]


def test_adjacent_markers_cite_for_the_same_text() -> None:
    text, citations = read(["One [1][2] [3]"])
    assert text == "One"
    assert [(c.passage, c.answer_start, c.answer_end) for c in citations] == [(0, 0, 3), (1, 0, 3), (2, 0, 3)]


def test_a_number_without_a_passage_is_text() -> None:
    assert read(["see [0], [4] and [99]"]) == ("see [0], [4] and [99]", [])


def test_markers_use_prompt_numbers_and_citations_use_ranks() -> None:
    mapper = CitationMapper(PASSAGES, (2, 0))
    events = [*mapper.feed("One [1]. Two [2]. Three [3]."), *mapper.flush()]
    assert [(event.passage, event.document) for event in events if isinstance(event, Citation)] == [
        (2, "3.md"),
        (0, "1.md"),
    ]


def test_other_brackets_are_text() -> None:
    assert read(["a[i] = [12345] [", "x] [1"]) == ("a[i] = [12345] [x] [1", [])


def test_text_that_cannot_become_a_marker_is_not_held_back() -> None:
    mapper = CitationMapper(PASSAGES, range(len(PASSAGES)))
    assert mapper.feed("Grease") == [TextDelta("Grease")]
    assert mapper.feed(" it [") == [TextDelta(" it")]
    assert mapper.feed("ok") == [TextDelta(" [ok")]


@given(st.lists(st.sampled_from(["a", " ", "[", "]", "1", "2", "9", "[1]", " [3]", "\n", "."]), max_size=25), st.data())
def test_the_result_does_not_depend_on_chunking(parts: list[str], data: st.DataObject) -> None:
    whole = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert read(pieces) == read([whole])
