"""Values of a sentence, by kind and language."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.analysis.values import ValueKind, value_words
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Passage, RankedPassage, Sentence
from edge_rag.core.text import sentence_spans
from edge_rag.generator.extraction.candidates import Candidate, candidates_of, choices_of, runs_of


def ranked(text: str) -> RankedPassage:
    passage = Passage(ChunkId(1), DocumentId("d"), "d.md", None, 10, 10 + len(text), text)
    return RankedPassage(passage, 1.0, tuple(Sentence(*span, 1.0) for span in sentence_spans(text)))


def found(text: str, language: str = "en", sentence: int = 0) -> list[Candidate]:
    return list(candidates_of(ranked(text), 0, sentence, value_words(language)))


def texts(text: str, kind: ValueKind, language: str = "en", sentence: int = 0) -> list[str]:
    return [text[each.start : each.end] for each in found(text, language, sentence) if each.kind is kind]


@pytest.mark.parametrize(
    ("text", "language", "kind", "value"),
    [
        ("Greased every 2,000 operating hours.", "en", ValueKind.SPAN, "2,000 operating hours"),
        ("Greased every 2,000 operating hours.", "en", ValueKind.RHYTHM, "every 2,000 operating hours"),
        ("It may start six times an hour.", "en", ValueKind.RHYTHM, "six times an hour"),
        ("The chain is oiled weekly.", "en", ValueKind.RHYTHM, "weekly"),
        ("Use 35 grams of it.", "en", ValueKind.AMOUNT, "35 grams"),
        ("It delivers 181 litres per second.", "en", ValueKind.AMOUNT, "181 litres per second"),
        ("It was 92 degrees Celsius hot.", "en", ValueKind.AMOUNT, "92 degrees Celsius"),
        ("Limit: 4.5 mm/s at most.", "en", ValueKind.AMOUNT, "4.5 mm/s"),
        ("It is the 12th largest city.", "en", ValueKind.ORDINAL, "12th"),
        ("It took 3 min 8 s to fill.", "en", ValueKind.SPAN, "3 min 8 s"),
        ("The six-time winner is here.", "en", ValueKind.COUNT, "six"),
        ("It covers 8,646 sq mi of land.", "en", ValueKind.AMOUNT, "8,646 sq mi"),
        ("It was built in the 14th century there.", "en", ValueKind.DECADE, "14th century"),
        ("The best is 25 Deg C there.", "en", ValueKind.AMOUNT, "25 Deg C"),
        ("It listens on port 3493/tcp of the host.", "en", ValueKind.COUNT, "3493"),
        ("It listens on 127.0.0.1 by default.", "en", ValueKind.CODE, "127.0.0.1"),
        ("It was greased 22 times that year.", "en", ValueKind.RHYTHM, "22 times"),
        ("It used the Astra 2A satellite.", "en", ValueKind.NAME, "Astra 2A"),
        ("It costs $5 million in cash.", "en", ValueKind.AMOUNT, "$5 million"),
        ("About 79 percent of them.", "en", ValueKind.SHARE, "79 percent"),
        ("Keep it between 1.5 and 2.0 bar.", "en", ValueKind.AMOUNT, "1.5 and 2.0 bar"),
        ("It was signed on 18 May 2020 there.", "en", ValueKind.DATE, "18 May 2020"),
        ("It was signed on May 18, 2020 there.", "en", ValueKind.DATE, "May 18, 2020"),
        ("Next due 2026-02-18 at the latest.", "en", ValueKind.DATE, "2026-02-18"),
        ("The station of 1968 is gone.", "en", ValueKind.YEAR, "1968"),
        ("Colour came in the 1970s there.", "en", ValueKind.DECADE, "1970s"),
        ("Changed in September every time.", "en", ValueKind.MONTH, "September"),
        ("Taken every Tuesday there.", "en", ValueKind.WEEKDAY, "Tuesday"),
        ("Opened at 10:40 by hand.", "en", ValueKind.TIME, "10:40"),
        ("Order part HL-1002 there.", "en", ValueKind.CODE, "HL-1002"),
        ("The line is 555-0190 at night.", "en", ValueKind.CODE, "555-0190"),
        ("It was found by Joseph Priestley in time.", "en", ValueKind.NAME, "Joseph Priestley"),
        ("The sign says “Keep out” in red.", "en", ValueKind.QUOTED, "Keep out"),
        ("Owner: station mechanic.", "en", ValueKind.KEYED, "station mechanic"),
        ("Die Lager sind alle 2.000 Betriebsstunden zu fetten.", "de", ValueKind.RHYTHM, "alle 2.000 Betriebsstunden"),
        ("Am 18. Mai 2020 war Abnahme.", "de", ValueKind.DATE, "18. Mai 2020"),
        ("Es sind 55,1 Prozent.", "de", ValueKind.SHARE, "55,1 Prozent"),
        ("Se engrasa cada 2.000 horas.", "es", ValueKind.RHYTHM, "cada 2.000 horas"),
        ("Se firmó el 18 de mayo de 2020.", "es", ValueKind.DATE, "18 de mayo de 2020"),
        ("Murieron 40 000 personas.", "es", ValueKind.COUNT, "40 000"),
        ("Costó 5 millones de dólares en total.", "es", ValueKind.AMOUNT, "5 millones de dólares"),
        ("Ganaron por 20 a 18 puntos.", "es", ValueKind.COUNT, "20 a 18"),
        ("So war es in den 1950er-Jahren.", "de", ValueKind.DECADE, "1950er-Jahren"),
        ("Es kostet 30 Mio. Euro im Jahr.", "de", ValueKind.AMOUNT, "30 Mio. Euro"),
        ("Die Pest kam 22-mal wieder.", "de", ValueKind.RHYTHM, "22-mal"),
        ("Signé le 18 mai 2020 à Lyon.", "fr", ValueKind.DATE, "18 mai 2020"),
        ("Il faut 35 grammes par palier.", "fr", ValueKind.AMOUNT, "35 grammes"),
        ("水箱每年清洗，容量 300 升。", "zh", ValueKind.COUNT, "300"),
        ("Насос весит 35 кг.", "ru", ValueKind.AMOUNT, "35 кг"),
    ],
)
def test_a_value_is_told_by_its_form(text: str, language: str, kind: ValueKind, value: str) -> None:
    assert value in texts(text, kind, language)


@pytest.mark.parametrize(
    ("text", "language", "readings"),
    [
        ("It holds 1,320 litres.", "en", "1320"),
        ("Es sind 1.234,5 Liter.", "de", "1234.5"),
        ("It costs $5 million in all.", "en", "5000000"),
        ("At least two of them.", "en", "2"),
        ("It was -3.50 volts.", "en", "-3.5"),
        ("Twenty-one? Only twenty-one of them.", "en", "21"),
        ("It was signed on 18 May 2020.", "en", "2020-05-18"),
        ("Se firmó el 18 de mayo de 2020.", "es", "2020-05-18"),
    ],
)
def test_a_value_is_read_as_its_language_writes_it(text: str, language: str, readings: str) -> None:
    last = len(ranked(text).sentences) - 1
    assert any(each.readings[:1] == (readings,) for each in found(text, language, last))


@pytest.mark.parametrize("text", ["4.3. What is the limit of it?", "3. Vent the casing of the pump."])
def test_the_number_of_a_heading_or_a_step_is_no_value(text: str) -> None:
    assert texts(text, ValueKind.COUNT) == []


def test_a_word_for_times_alone_tells_no_rhythm() -> None:
    assert texts("This time it ran, and many times before.", ValueKind.RHYTHM) == []


def test_an_ordinal_is_no_count() -> None:
    assert texts("It took 3rd place.", ValueKind.COUNT) == []


@pytest.mark.parametrize("text", ["You may open it.", "They march there.", "A 50-year plan.", "It took 3rd place."])
def test_other_words_are_no_dates_or_codes(text: str) -> None:
    assert not any(each.kind in (ValueKind.DATE, ValueKind.MONTH, ValueKind.CODE) for each in found(text))


TABLE = (
    "Part number | Part | In store\nHL-1001 | Mechanical seal, 75 mm | 2\nHL-1002 | Impeller | 1\n\nAlone | in | a row"
)


def test_a_cell_is_named_by_its_column() -> None:
    cells = {(TABLE[each.start : each.end], each.key) for each in found(TABLE, sentence=2)}
    assert {("HL-1002", "Part number"), ("Impeller", "Part"), ("1", "In store")} <= cells


def test_headers_and_rows_without_one_hold_no_values() -> None:
    assert found(TABLE) == []
    assert found(TABLE, sentence=3) == []


def test_what_is_before_a_colon_names_the_value() -> None:
    (value,) = (each for each in found("Delivery time: 14 weeks.") if each.kind is ValueKind.KEYED)
    assert value.key == "Delivery time"
    assert found("Between 4:51 and 5:10 it ran.")[0].key == ""


def test_the_ends_of_a_range_are_marked() -> None:
    text = "It takes 30 to 50 minutes."
    parts = {text[each.start : each.end]: each.part for each in found(text) if each.kind is not ValueKind.RHYTHM}
    assert parts == {"30 to 50 minutes": False, "30": True, "50 minutes": True}
    text = "It rose from 30 to 50 hertz."
    assert not any(each.part for each in found(text))


def test_the_first_of_a_range_of_years_is_a_part() -> None:
    (year,) = (each for each in found("It had the 1998–2002 jingle.") if each.kind is ValueKind.YEAR)
    assert year.part


def test_a_choice_is_spelled_as_whole_words_in_whatever_case() -> None:
    text = "Use Lithium grease, not lithiumlike grease."
    (spelled,) = choices_of(ranked(text), 0, 0, ["lithium", "polyurea"])
    assert (text[spelled.start : spelled.end], spelled.choice) == ("Lithium", "lithium")


def test_runs_are_without_the_marks_around_them() -> None:
    text = "(on extension 214, please)"
    runs = [text[each.start : each.end] for each in runs_of(ranked(text), 0, 0, 2)]
    assert runs == ["on extension", "extension 214", "214, please", "on", "extension", "214", "please"]


@given(
    st.lists(
        st.sampled_from(
            ["12", "1,5", "–", "May ", "2020", "HL-1", " | ", "\n", ": ", "%", "Abc ", "x ", "“", "”", "h", "３"]
        )
        | st.text(max_size=8),
        max_size=30,
    ).map("".join),
    st.sampled_from(["en", "de", "es", "fr", "th", ""]),
)
def test_values_are_inside_their_sentence(text: str, language: str) -> None:
    passage = ranked(text)
    for number, sentence in enumerate(passage.sentences):
        for each in candidates_of(passage, 0, number, value_words(language)):
            assert sentence.start <= each.start < each.bare <= each.end <= sentence.end
            assert text[each.start : each.end].strip()
