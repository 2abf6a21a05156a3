"""The language of a text, if script, function words or letters identify it; pure.

A sentence has a verb and a question an interrogative, so a few dozen words of each language suffice. Libraries for
language detection take megabytes for languages that nothing here depends on.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

DEFAULT_LANGUAGE: Final = "en"
"""Language that a text without a sign of another one counts as."""


class Script(Enum):
    """Scripts that many languages are written in, each with its letters."""

    LATIN = "A-Za-z\u00c0-\u024f\u1e00-\u1eff"
    GREEK = "\u0370-\u03ff\u1f00-\u1fff"
    CYRILLIC = "\u0400-\u052f"
    ARABIC = "\u0600-\u077f"
    DEVANAGARI = "\u0900-\u097f"
    THAI = "\u0e00-\u0e7f"
    KANA = "\u3041-\u30ff"
    HAN = "\u3400-\u4dbf\u4e00-\u9fff"
    HANGUL = "\uac00-\ud7a3"


_SCRIPT_LETTERS: Final = {script: re.compile(f"[{script.value}]") for script in Script}


def script_of(text: str) -> Script:
    counts = {script: len(letters.findall(text)) for script, letters in _SCRIPT_LETTERS.items()}
    if counts[Script.KANA]:
        counts[Script.KANA] += counts[Script.HAN]
    return max(counts, key=counts.__getitem__)


_SCRIPTS: Final = (
    ("ja", re.compile("[\u3040-\u30ff]")),
    ("ko", re.compile("[\uac00-\ud7a3]")),
    ("zh", re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")),
    ("th", re.compile("[\u0e01-\u0e4e]")),
    ("hi", re.compile("[\u0904-\u0939]")),
    ("el", re.compile("[\u0370-\u03ff\u1f00-\u1fff]")),
    ("ru", re.compile("[\u0400-\u04ff]")),
    ("ar", re.compile("[\u0620-\u06d3]")),
)
"""A language of each script that is not Latin."""

_LATIN: Final = re.compile(r"[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")

_OTHER_LETTERS: Final = (
    ("ru", "uk", re.compile("[іїєґІЇЄҐ]")),
    ("ru", "", re.compile("[ўЎђћљњџјЂЋЉЊЏЈ]")),
    ("ar", "", re.compile("[ٹڈڑںےٿڻ]")),
    ("ar", "fa", re.compile("[پچژگکی]")),
)
"""Letters that a language of a script does not have, and the language that does; empty if there are no texts in it."""

_FEW_KANA: Final = 8
"""Ideographs to one kana from which a text is Chinese that names something Japanese."""

_LETTERS: Final = {
    "de": "ßäöü",
    "es": "ñ¿¡",
    "fr": "çœêëîïûàèù",
    "pt": "ãõçâêà",
    "it": "àèìòù",
    "pl": "ąćęłńśźż",
    "ro": "ăâîșț",
    "tr": "ğışöüç",
    "vi": "ăđơư",
}
"""Letters that other languages do not have, or few of them."""

_TONES: Final = re.compile("[\u0309\u0323\u031b]")
"""Marks of Vietnamese: hook above, dot below, horn."""

_WORDS: Final = {
    "en": """
        a about above after again all also am an and any are as at be because been before being below between
        both but by can could d did do does doing down during each few for from further had has have having he
        her here hers herself him himself his how i if in into is it its itself just ll m me more most my myself
        no nor not now of off on once only or other our ours ourselves out over own please re s same she should
        so some such t tell than that the their theirs them themselves then there these they this those through
        to too under until up ve very was we were what when where which while who whom whose why will with would
        you your yours yourself yourselves
    """,
    "de": """
        der die das den dem des ein eine einen einem einer eines und oder ist sind war waren wird werden wurde
        wurden hat haben wie was wer wo wann warum welche welcher welches welchen welchem sein seine er sie in an
        nachdem wieviel viele von zu zum zur für mit auf im aus bei nach nicht kann muss soll man ich sich es oft
        über unter durch gibt
    """,
    "es": """
        el la los las un una unos unas y o es son era fue fueron ha han qué cuál cuáles quién quiénes dónde
        cuándo cómo cuánto cuánta cuántos cuántas por para con de del en al se su sus que no está están hay lo
        cómo tipo más puede debe
    """,
    "fr": """
        le la les un une des du de et ou est sont était ont été a au aux que qui quoi quel quelle quels quelles
        où quand comment pourquoi combien pour par avec dans sur se ce cette ces il elle on ne pas d l qu n s
        faut peut est-ce
    """,
    "pt": """
        o a os as um uma uns e ou é são era foi foram tem têm que qual quais quem onde quando como quanto quantos
        quantas por para com de do da dos das em no na nos nas ao se não está há seu sua pelo pela deve pode
        porquê
    """,
    "it": """
        il lo la i gli le un uno una e o è sono era fu ha hanno che chi cosa quale quali quando dove come perché
        quanto quanti quante per con di del della dei delle degli in nel nella al alla da dal si non c'è suo sua
        deve può cos qual
    """,
    "nl": """
        de het een en of is zijn was waren wordt worden werd heeft hebben wat wie waar wanneer waarom welke welk
        hoe hoeveel van voor met op in uit bij naar niet kan moet men ik zich er vaak over onder door te aan dat
        die
    """,
    "pl": """
        jest są był była było były i lub albo co kto gdzie kiedy dlaczego jak jaki jaka jakie jakich który która
        które których ile czy w we z ze na do od po za przez dla o nie się ma mają należy można trzeba tego tym
        jego
    """,
    "ro": """
        este sunt era erau a au fost și sau ce cine unde când cum de cât câți câte care cărui pe la în din cu
        pentru prin un o nu se al ai ale lui trebuie poate fie să dintre despre
    """,
    "tr": """
        ne nedir kim nerede nereye zaman nasıl neden niçin hangi kaç kaçtır ve veya ile için bir bu şu o mi mı mu
        mü midir mıdır olan olarak olduğu değil da de en çok kadar sonra önce gibi var yok kimdir neydi kimdi
        nelerdir hangisi tarafından
    """,
    "vi": """
        là gì ai đâu khi nào tại sao bao nhiêu như thế của và hoặc có không được trong cho với từ đến các những
        một này đó ở về đã bị người theo phải cần lâu
    """,
}
FUNCTION_WORDS: Final[Mapping[str, frozenset[str]]] = {
    language: frozenset(words.split()) for language, words in _WORDS.items()
}
"""Frequent words in lower case, contractions by their parts, of languages that their script does not identify."""

ENGLISH_FUNCTION_WORDS: Final = FUNCTION_WORDS[DEFAULT_LANGUAGE]

_WORD: Final = re.compile(r"[^\W\d_]+")
_DIGIT: Final = re.compile(r"\d")


_OWN: Final = {
    "ru": (
        re.compile(r"[ыэЫЭ]|\b(?:кто|что|чего|чём|где|когда|како[йе]|какая|сколько|почему|если|также)\b", re.I),
        re.compile("[әөүұқғңһҗҙӘӨҮҰҚҒҢҺҖҘҳӣӯҷѓќѕ]"),
    ),
    "uk": (re.compile("[іїєґІЇЄҐ]"), re.compile("[ыэўәЫЭЎӘ]")),
    "ar": (re.compile(r"[ةىإأ]|\bال"), re.compile("[ەۆێېۇڭ]")),
    "fa": (re.compile(r"[پچژگ]|\b(?:است|این|که|را|در|از)\b"), re.compile("[ٹڈڑںےەۆێېۇڭټډړ]")),
    "hi": (re.compile(r"(?<![\u0900-\u097f])(?:है|हैं|में|था|थे|थी|और|को|से)(?![\u0900-\u097f])"), re.compile("[ळ]")),
}
"""Of languages whose script others share: what nearly every sentence has, and letters that only others have."""

_READ_CHARACTERS: Final = 1_000
"""Most characters of a text that are examined."""

_SURE_LEAD: Final = 2
"""Words and letters of a language of the Latin script by which it is ahead of any other, at least, to be sure."""

_SURE_RATIO: Final = 1.4
"""Times as many as of any other language, at least. The Romance languages share many of their words."""

_SURE_SHARE: Final = 0.2
"""Share of all words, at least: languages that there are no texts in have some of the same words."""


def language_of(question: str) -> str:
    """Returns the ISO 639-1 code of a question's likeliest language; ``DEFAULT_LANGUAGE`` if nothing identifies one."""
    return _guess(question)[0]


def sure_language_of(text: str) -> str | None:
    """Returns the language of a text as a BCP 47 tag, None unless its signs are clear."""
    language, sure = _guess(text)
    return language if sure else None


def in_different_languages(first: str, second: str) -> bool:
    languages = {sure_language_of(text) for text in (first, second)} - {None}
    return script_of(first) is not script_of(second) or len(languages) > 1


def _guess(text: str) -> tuple[str, bool]:
    """Returns the likeliest language of a text, and whether it surely is in that language."""
    text = unicodedata.normalize("NFC", text[:_READ_CHARACTERS])
    counts = {language: len(letters.findall(text)) for language, letters in _SCRIPTS}
    if counts["ja"] * _FEW_KANA >= counts["zh"]:
        counts["ja"] += counts.pop("zh")
    # An ideograph says as much as a few letters, and a question in any script may name things in Latin letters.
    language = max(counts, key=counts.__getitem__)
    if counts[language] * (4 if language in ("zh", "ja", "ko") else 1) * 2 <= len(_LATIN.findall(text)):
        return _latin_language(text.lower().replace("i\u0307", "i"))
    if not counts[language]:
        return DEFAULT_LANGUAGE, False
    for usual, other, letters in _OTHER_LETTERS:
        if usual == language and letters.search(text):
            language = other or DEFAULT_LANGUAGE
            break
    if language not in _OWN:
        return language, language != DEFAULT_LANGUAGE
    signs, foreign = _OWN[language]
    return language, bool(signs.search(text)) and not foreign.search(text)


def _latin_language(text: str) -> tuple[str, bool]:
    scores: Counter[str] = Counter({DEFAULT_LANGUAGE: 0})
    words = Counter(_WORD.findall(" ".join(part for part in text.split() if not _DIGIT.search(part))))
    for language, frequent in FUNCTION_WORDS.items():
        scores[language] += sum(count for word, count in words.items() if word in frequent)
    for language, letters in _LETTERS.items():
        scores[language] += len(set(letters) & set(text))
    scores["vi"] += 2 * len(_TONES.findall(unicodedata.normalize("NFD", text)))
    best = max(scores, key=lambda language: (scores[language], language == DEFAULT_LANGUAGE))
    second = max(score for language, score in scores.items() if language != best)
    needed = max(_SURE_LEAD + second, _SURE_RATIO * second, _SURE_SHARE * words.total())
    return best, scores[best] >= needed


LEAST_HELD: Final = 0.3
"""Least share of a question's term weight that a passage holds where BM25 counts, 0 to 1."""


def knows_words(total: float, held: Iterable[float]) -> bool:
    """Whether one passage holds at least 0.3 of a question's term weight.

    A question in another language than the passages shares only names, numbers and chance words with them; a ranking by
    these would take half of the places. Such weights predict the quality of a ranking by words (He and Ounis, Query
    Performance Prediction, Information Systems 31, 2006). The threshold was chosen on XQuAD in twelve languages.
    """
    return max(held, default=0.0) >= LEAST_HELD * total
