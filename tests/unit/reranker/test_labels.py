"""What sentences of definitions and tables are looked up by."""

from edge_rag.core.text import sentence_spans
from edge_rag.reranker.candidate import heading_key, keys_of, labels_of

DEFINITIONS = (
    "The fields of the report:\nTVOL\nThe volume of the tank. It is in litres.\nTEMP in degrees\nThe heat of the water."
)


def labels(text: str) -> dict[str, str | None]:
    spans = sentence_spans(text)
    return {
        text[slice(*span)]: None if label is None else text[slice(*label)]
        for span, label in zip(spans, labels_of(text, spans), strict=True)
    }


def keys(text: str) -> dict[str, list[str]]:
    spans = sentence_spans(text)
    return {
        text[slice(*span)]: [key for key in keys_of(text, span, label) if key]
        for span, label in zip(spans, labels_of(text, spans), strict=True)
    }


def test_every_sentence_of_a_definition_has_its_term() -> None:
    assert labels(DEFINITIONS) == {
        "The fields of the report:": None,
        "TVOL": None,
        "The volume of the tank.": "TVOL",
        "It is in litres.": "TVOL",
        "TEMP in degrees": None,
        "The heat of the water.": "TEMP in degrees",
    }


def test_a_blank_line_ends_what_a_term_defines() -> None:
    assert labels("Pumps\n\nThey are greased.")["They are greased."] is None


def test_rows_define_nothing() -> None:
    assert set(labels("Valve | Place\nA1 | In the cellar.\nB2 | On the roof.").values()) == {None}


def test_text_of_paragraphs_has_neither_labels_nor_keys() -> None:
    text = "The pump is in the cellar. It is greased monthly.\n\nThe valve is on the roof."
    assert set(labels(text).values()) == {None}
    assert not any(keys(text).values())


def test_a_row_is_looked_up_by_its_first_cell_with_and_without_the_name_of_its_column() -> None:
    (found,) = keys("Part: Seal | Number: P-101").values()
    assert found == ["Part: Seal", "Seal"]


def test_a_row_is_looked_up_with_the_name_of_its_first_column() -> None:
    assert keys("Bits:\n\nBit | Meaning\n7 | Replace it")["7 | Replace it"] == ["7", "Bit 7"]


def test_a_section_is_looked_up_by_its_heading_without_its_number() -> None:
    assert heading_key(("7. Settings", "7.2.1. confdir")) == "confdir"
    assert heading_key(("3 Pumps",)) == "Pumps"
    assert heading_key(("A.3. Valves",)) == "Valves"
    assert heading_key(("802.11 radios",)) == "802.11 radios"
    assert heading_key(()) == ""
