"""What the box says itself is said in the language of the question."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.config.stages import MESSAGE_LANGUAGES
from edge_rag.generator.messages import AUTO, MESSAGES, Message, language_of, message
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


@pytest.mark.parametrize(
    "question", ["", "42?", "MA-7", "oil filter", "🙂", "Тој је ту, ђаче?", "ٹھیک ہے، کیا؟", "აბა?"]
)
def test_what_has_no_sign_of_a_language_with_messages_is_answered_in_english(question: str) -> None:
    assert language_of(question) == "en"


@given(st.text())
def test_any_text_has_a_language_with_messages(text: str) -> None:
    assert message(Message.NOT_FOUND, language_of(text))
