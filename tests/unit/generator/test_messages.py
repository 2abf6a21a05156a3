"""What the box says itself is said in the language of the question."""

from pathlib import Path
from string import Formatter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.analysis.languages import language_of
from edge_rag.config.stages import MESSAGE_LANGUAGES
from edge_rag.errors import (
    CallTimeout,
    CollectionNotFound,
    DeadlineExceeded,
    EdgeRagError,
    InferenceFailed,
    InvalidRequest,
    MemoryPressure,
    NotReady,
    Overloaded,
    QuotaExceeded,
    RequestTooLarge,
)
from edge_rag.generator.messages import (
    AUTO,
    ERRORS,
    MESSAGES,
    Message,
    error_message,
    message,
)
from edge_rag.generator.prompt.template import PromptSettings

REPOSITORY = Path(__file__).resolve().parents[3]

QUESTIONS = {
    "ar": "كم مرة يجب تغيير الفلتر؟",
    "de": "Wie oft muss der Filter gewechselt werden?",
    "el": "Κάθε πότε αλλάζει το φίλτρο;",
    "en": "How often must the filter be changed?",
    "es": "¿Cada cuánto hay que cambiar el filtro?",
    "fa": "هر چند وقت یک بار فیلتر را عوض کنیم؟",
    "fr": "À quelle fréquence faut-il changer le filtre ?",
    "hi": "फ़िल्टर कितनी बार बदलना चाहिए?",
    "it": "Ogni quanto va cambiato il filtro?",
    "ja": "MA-7のフィルターはどのくらいの頻度で交換しますか？",
    "ko": "필터는 얼마나 자주 교체합니까?",
    "nl": "Hoe vaak moet het filter worden vervangen?",
    "pl": "Jak często należy wymieniać filtr?",
    "pt": "Com que frequência se deve trocar o filtro?",
    "ro": "Cât de des trebuie schimbat filtrul?",
    "ru": "Как часто нужно менять фильтр MANN W 712?",
    "th": "ต้องเปลี่ยนไส้กรองบ่อยแค่ไหน",
    "tr": "Filtre ne kadar sık değiştirilmelidir?",
    "uk": "Як часто потрібно міняти фільтр і чому?",
    "vi": "Bao lâu thì phải thay bộ lọc?",
    "zh": "iPhone 15 的滤芯多久换一次？",
}


def test_every_language_has_every_message() -> None:
    assert {which.value for which in Message} == {key for texts in MESSAGES.values() for key in texts}
    for texts in MESSAGES.values():
        assert set(texts) == {which.value for which in Message}
        assert all(text.strip() == text and text for text in texts.values())
    for which in Message:
        assert len({texts[which.value] for texts in MESSAGES.values()}) == len(MESSAGES)


def test_the_setting_names_the_languages_that_there_are() -> None:
    assert MESSAGE_LANGUAGES.split("|") == sorted(MESSAGES)
    assert set(QUESTIONS) == set(MESSAGES)


@pytest.mark.parametrize("language", sorted(QUESTIONS))
def test_a_question_is_answered_in_its_language(language: str) -> None:
    settings = PromptSettings(language=AUTO)
    assert settings.not_found_answer(QUESTIONS[language], 3) == MESSAGES[language]["not_found"]
    assert settings.not_found_answer(QUESTIONS[language], 0) == MESSAGES[language]["no_passages"]


def test_a_setting_decides_for_all_questions() -> None:
    assert PromptSettings(language="pl").not_found_answer(QUESTIONS["zh"], 1) == MESSAGES["pl"]["not_found"]
    assert PromptSettings(not_found="No.").not_found_answer(QUESTIONS["zh"], 0) == "No."


@given(st.text())
def test_any_text_has_a_language_with_messages(text: str) -> None:
    assert message(Message.NOT_FOUND, language_of(text))


ERRORS_OF_QUESTIONS: list[EdgeRagError] = [
    Overloaded("retriever", 2.2),
    MemoryPressure(5),
    QuotaExceeded("60 requests a minute", 12),
    DeadlineExceeded("generator"),
    CallTimeout("the call lasted longer than 120 s"),
    NotReady("the daemon is shutting down"),
    CollectionNotFound("tests", ("default",)),
    CollectionNotFound("default"),
    InferenceFailed("generator: out of memory"),
]


def test_every_language_but_english_has_the_same_errors_with_the_same_fields() -> None:
    assert ERRORS.keys() == MESSAGES.keys()
    assert ERRORS["en"] == {}
    assert len({frozenset(texts) for language, texts in ERRORS.items() if language != "en"}) == 1
    for language, texts in ERRORS.items():
        for name, text in texts.items():
            fields = {part for _, part, _, _ in Formatter().parse(text) if part is not None}
            wanted = {"Overloaded": {"seconds"}, "QuotaExceeded": {"seconds"}, "CollectionNotFound": {"collection"}}
            assert fields == wanted.get(name, set()), language


@pytest.mark.parametrize("error", ERRORS_OF_QUESTIONS, ids=lambda error: type(error).__name__)
def test_what_can_happen_to_any_question_is_told_in_its_language(error: EdgeRagError) -> None:
    told = {error_message(error, question) for question in QUESTIONS.values()}
    assert len(told) == len(QUESTIONS)
    assert error_message(error, QUESTIONS["en"]) == error_message(error, "") == str(error)
    assert error_message(error, "", "de") == error_message(error, QUESTIONS["de"]) != str(error)


def test_numbers_and_names_are_those_of_the_error() -> None:
    assert "in 3 s" in error_message(Overloaded("retriever", 2.2), QUESTIONS["de"])
    assert "in 1 s" in error_message(Overloaded("retriever", 0.0), QUESTIONS["de"])
    missing = error_message(CollectionNotFound("tests", ("default", "logs")), QUESTIONS["de"])
    assert "„tests“" in missing
    assert missing.endswith("(default, logs)")
    assert "„{a}“" in error_message(CollectionNotFound("{a}", None), QUESTIONS["de"])
    assert error_message(CollectionNotFound("default"), QUESTIONS["de"]) == MESSAGES["de"]["no_passages"]


@pytest.mark.parametrize("error", [InvalidRequest("passages", "must be 1 to 32"), RequestTooLarge("tokens", 9, 8)])
def test_what_a_program_or_operator_did_wrong_is_told_as_it_is(error: EdgeRagError) -> None:
    assert error_message(error, QUESTIONS["de"]) == str(error)
