"""What questions ask for, by the words of their language."""

import pytest

from edge_rag.analysis.questions import QuestionKind, asked_value, asks_number, kind_of
from edge_rag.analysis.values import ValueKind


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("How do I start the pump?", QuestionKind.PROCEDURE),
        ("After an alarm, how do I start it?", QuestionKind.PROCEDURE),
        ("Wie starte ich die Pumpe?", QuestionKind.PROCEDURE),
        ("¿Cómo se arranca la bomba?", QuestionKind.PROCEDURE),
        ("Comment démarrer la pompe ?", QuestionKind.PROCEDURE),
        ("How often is it greased?", QuestionKind.VALUE),
        ("Wie oft wird sie geschmiert?", QuestionKind.VALUE),
        ("¿Cuántas veces al año?", QuestionKind.VALUE),
        ("Combien de litres ?", QuestionKind.VALUE),
        ("What are the parts of the pump?", QuestionKind.SEVERAL),
        ("Quels sont les outils ?", QuestionKind.SEVERAL),
        ("Which port does it use?", QuestionKind.VALUE),
        ("How did it stop?", QuestionKind.OTHER),
        ("What is a seal?", QuestionKind.OTHER),
        ("如何启动泵？", QuestionKind.OTHER),
        ("", QuestionKind.OTHER),
    ],
)
def test_what_a_question_asks_for(question: str, kind: QuestionKind) -> None:
    assert kind_of(question) is kind


@pytest.mark.parametrize(
    ("question", "language", "kind"),
    [
        ("How often must it be greased?", "en", ValueKind.RHYTHM),
        ("How old was he when he died?", "en", ValueKind.AMOUNT),
        ("When was the highest pressure measured?", "en", ValueKind.DATE),
        ("In what year was it built?", "en", ValueKind.YEAR),
        ("How many tonnes were lost in the year 2000?", "en", ValueKind.COUNT),
        ("Why is it open?", "en", ValueKind.SENTENCE),
        ("Since when is it open?", "en", ValueKind.DATE),
        ("After the alarm, when is it open?", "en", ValueKind.DATE),
        ("It was signed when?", "en", ValueKind.DATE),
        ("When it was launched, how many channels had it?", "en", ValueKind.COUNT),
        ("The rate of clearing was how many square miles?", "en", ValueKind.COUNT),
        ("By population alone, what is its ranking?", "en", ValueKind.ORDINAL),
        ("Wie viele Liter fasst er?", "de", ValueKind.COUNT),
        ("Mit wie vielen Litern?", "de", ValueKind.COUNT),
        ("¿Cuándo se firmó?", "es", ValueKind.DATE),
        ("Combien de litres faut-il ?", "fr", ValueKind.COUNT),
    ],
)
def test_a_question_tells_the_kind_of_value_it_asks_for(question: str, language: str, kind: ValueKind) -> None:
    asked = asked_value(question, language)
    assert asked is not None
    assert asked.kind is kind


def test_a_question_may_tell_nothing_of_the_kind() -> None:
    assert asked_value("Pump bearings, grease?", "en") is None
    assert asked_value("What satellite was used when it was launched?", "en") is None
    assert asked_value("When it was launched, what satellite was used?", "en") is None
    assert asked_value("Как часто?", "ru") is None


@pytest.mark.parametrize(
    ("question", "number"),
    [
        ("How many bolts has it?", True),
        ("Which port does it use?", True),
        ("Wie lange dauert es?", True),
        ("Who sets it?", False),
        ("Why is it open?", False),
        ("Which colour is it?", False),
    ],
)
def test_a_number_is_asked_for_or_a_name_or_a_reason(question: str, number: bool) -> None:
    assert asks_number(question) is number
