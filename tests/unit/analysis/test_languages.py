"""The language of a text is told where its signs are clear."""

import pytest

from edge_rag.analysis.languages import Script, in_different_languages, language_of, script_of, sure_language_of

SENTENCES = {
    "ar": "يجب تغيير الفلتر كل ألفي ساعة.",
    "de": "Der Filter wird alle 2.000 Stunden gewechselt.",
    "el": "Το φίλτρο αλλάζει κάθε 2.000 ώρες.",
    "en": "The filter is changed every 2,000 hours, or sooner if the air is dusty.",
    "es": "El filtro debe cambiarse cada 2.000 horas o antes si hay polvo.",
    "fa": "فیلتر را باید هر ۲۰۰۰ ساعت عوض کرد.",
    "fr": "Le filtre doit être changé toutes les 2 000 heures.",
    "hi": "फ़िल्टर को हर 2,000 घंटे में बदलना चाहिए।",
    "it": "Il filtro deve essere cambiato ogni 2.000 ore, o prima se c'è polvere nell'aria.",
    "ja": "フィルターは2,000時間ごとに交換する。",
    "ko": "필터는 2,000시간마다 교체합니다.",
    "nl": "Het filter moet elke 2.000 uur worden vervangen.",
    "pl": "Filtr należy wymieniać co 2000 godzin lub częściej, jeśli jest brudny.",
    "pt": "O filtro deve ser trocado a cada 2.000 horas, ou antes se não estiver limpo.",
    "ro": "Filtrul trebuie schimbat la fiecare 2.000 de ore, dar nu se spală cu apă.",
    "ru": "Фильтр меняют каждые 2000 часов.",
    "th": "เปลี่ยนไส้กรองทุก 2,000 ชั่วโมง",
    "tr": "Filtre her 2.000 saatte bir değiştirilir.",
    "uk": "Фільтр міняють кожні 2000 годин, його не миють.",
    "vi": "Bộ lọc được thay sau mỗi 2.000 giờ.",
    "zh": "滤芯每2000小时更换一次。",
}

UNSURE = [
    "", "2,000", "P-101", "Filter", "The Titanic", "Pompe Filtre 3", "2,000 h.",
    # Languages that are not told.
    "Филтърът трябва да се сменя на всеки 2000 часа или по-често, ако въздухът е прашен.",
    "Филтерот треба да се менува на секои 2000 часа.",
    "Сүзгіні әр 2000 сағат сайын ауыстыру керек.",
    "फिल्टर दर २००० तासांनी बदलणे आवश्यक आहे.",
    "فلٹر کو ہر 2000 گھنٹے بعد تبدیل کرنا ضروری ہے۔",
    "Filteret skal skiftes hver 2000. time, og det er vigtigt at det er tørt.",
    "Filtret måste bytas var 2000:e timme och det är viktigt att det inte är vått.",
    "Filter harus diganti setiap 2000 jam dan tidak boleh dicuci dengan air.",
    "A szűrőt 2000 óránként kell cserélni, és nem szabad vízzel mosni.",
    "Suodatin on vaihdettava 2000 tunnin välein eikä sitä saa pestä.",
    "Filtr se musí měnit každých 2000 hodin a nesmí se mýt vodou.",
    "יש להחליף את המסנן כל 2000 שעות.",
]  # fmt: skip


@pytest.mark.parametrize("language", sorted(SENTENCES))
def test_the_language_of_a_sentence_is_sure(language: str) -> None:
    assert sure_language_of(SENTENCES[language]) == language


@pytest.mark.parametrize("text", UNSURE)
def test_the_language_is_not_sure_of_names_and_of_languages_that_are_not_told(text: str) -> None:
    assert sure_language_of(text) is None


@pytest.mark.parametrize(
    "question", ["", "42?", "MA-7", "oil filter", "🙂", "Тој је ту, ђаче?", "ٹھیک ہے، کیا؟", "აბა?"]
)
def test_what_has_no_sign_of_a_language_counts_as_english(question: str) -> None:
    assert language_of(question) == "en"


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("", Script.LATIN),
        ("გამარჯობა", Script.LATIN),
        ("Wie oft?", Script.LATIN),
        ("Что такое MA-7?", Script.CYRILLIC),
        ("東京の人口は？", Script.KANA),
        ("东京的人口？", Script.HAN),
        ("서울의 인구는?", Script.HANGUL),
        ("ما هو الماء؟", Script.ARABIC),
        ("पानी क्या है?", Script.DEVANAGARI),
        ("น้ำคืออะไร", Script.THAI),
        ("Τι είναι;", Script.GREEK),
    ],
)
def test_the_script_of_a_question_is_that_of_most_letters(text: str, script: Script) -> None:
    assert script_of(text) is script


@pytest.mark.parametrize(
    ("first", "second", "differ"),
    [
        (SENTENCES["de"], SENTENCES["en"], True),
        ("МА-7?", SENTENCES["en"], True),
        (SENTENCES["de"], SENTENCES["de"], False),
        ("MA-7?", SENTENCES["de"], False),
    ],
)
def test_languages_differ_where_scripts_do_or_both_have_clear_signs(first: str, second: str, differ: bool) -> None:
    assert in_different_languages(first, second) is differ
    assert in_different_languages(second, first) is differ
