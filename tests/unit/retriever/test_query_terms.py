"""Which words of a question are searched for."""

import apsw
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edge_rag.retriever.bm25 import match_expression, query_terms
from edge_rag.storage.migrations import register_terms


def test_english_function_words_are_left_out_and_each_word_counts_once() -> None:
    assert query_terms("How often must the Pump, the PUMP's bearings be greased?") == (
        "often",
        "must",
        "pump",
        "bearings",
        "greased",
    )


def test_a_question_of_function_words_alone_keeps_them() -> None:
    assert query_terms("Who are you?") == ("who", "are", "you")


def test_words_with_the_same_term_are_one_and_scripts_without_spaces_are_searched_by_pairs() -> None:
    assert query_terms("1,500 bolts, 1500 Bolts? 油圧泵") == ("1,500", "bolts", "油圧", "圧泵")


def test_a_question_without_words_has_no_terms() -> None:
    assert query_terms("?! -- \x00 _") == ()


def test_a_question_of_any_length_has_a_bounded_number_of_terms() -> None:
    assert len(query_terms(" ".join(f"word{number}" for number in range(100_000)))) == 128


@settings(deadline=None)
@given(st.text())
@example('"pump" OR text:* NEAR(a b) -x ^y {z} AND NOT (')
@example("a\x00b")
@example("e\u0301 ª ² ⅷ 漢字 \u0345")
def test_nothing_a_user_writes_can_break_the_full_text_query(question: str) -> None:
    terms = query_terms(question)
    connection = apsw.Connection(":memory:")
    try:
        register_terms(connection)
        connection.execute("CREATE VIRTUAL TABLE f USING fts5(text, tokenize='terms')")
        connection.execute("INSERT INTO f VALUES (?)", (" ".join(terms),))
        if terms:
            connection.execute("SELECT rowid FROM f WHERE f MATCH ?", (match_expression(terms),)).fetchall()
    finally:
        connection.close()
