import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.text import is_open, sentence_spans


def cut(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("The pump runs. The valve is shut.", ["The pump runs.", "The valve is shut."]),
        ("Is it hot? Yes! Stop it.", ["Is it hot?", "Yes!", "Stop it."]),
        ("Dr. Hale signed. See Fig. 3 first.", ["Dr. Hale signed.", "See Fig. 3 first."]),
        ("Use e.g. Grease No. 2 here. Wipe it.", ["Use e.g. Grease No. 2 here.", "Wipe it."]),
        ("In Brown v. Board it was decided. Done.", ["In Brown v. Board it was decided.", "Done."]),
        (
            "Lefevre (c. 1455) and Ba et al. (2019) agree, pp. 3-4. So do we.",
            ["Lefevre (c. 1455) and Ba et al. (2019) agree, pp. 3-4.", "So do we."],
        ),
        ("J. R. Smith came. He left.", ["J. R. Smith came.", "He left."]),
        ("Set 2.5 bar. Then wait.", ["Set 2.5 bar.", "Then wait."]),
        ('He said "Stop." Then he left.', ['He said "Stop."', "Then he left."]),
        ("Ölstand prüfen. Über 80 °C abschalten.", ["Ölstand prüfen.", "Über 80 °C abschalten."]),
        ("Row one\nRow two", ["Row one", "Row two"]),
        ("1. Stop the pump. 2. Wait.", ["1. Stop the pump.", "2. Wait."]),
        (
            "At 5 p.m. The pump stopped. Set it to 5. Then go.",
            ["At 5 p.m.", "The pump stopped.", "Set it to 5.", "Then go."],
        ),
        ("See https://x.org/a.b?c=D. It says so.", ["See https://x.org/a.b?c=D.", "It says so."]),
        ("It is 5 mm. Measure it in mm. Then file it.", ["It is 5 mm.", "Measure it in mm.", "Then file it."]),
        ("Modern art. The min. 5 bar.", ["Modern art.", "The min. 5 bar."]),
        ("World War II. The army left.", ["World War II.", "The army left."]),
        ("Wait... what? yes! Ok… Well.", ["Wait... what? yes!", "Ok…", "Well."]),
        ("It is shut. – Is it? (Yes.) *Good.*", ["It is shut.", "– Is it?", "(Yes.)", "*Good.*"]),
        ("no end mark", ["no end mark"]),
        ("  \n \n", []),
    ],
)
def test_boundaries_are_where_a_reader_sees_them(text: str, sentences: list[str]) -> None:
    assert cut(text) == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        [
            "Das war im 19. Jahrhundert.",
            "Am 3. Oktober kam z. B. Wasser.",
            "Siehe Abb. 3 u. a. Berlin.",
            "Art. 5 gilt.",
        ],
        ["¿Qué es?", "¡Hola!", "Es el Sr. Pérez, pág. 3.", "«Fin.»"],
        ["M. Dupont est là.", "« Non ! »", "C’est fini."],
        ["Το νερό;", "Ναι· βέβαια.", "Πήγε; όχι;", "Α. Παπαδόπουλος ήρθε."],
        ["В 1990 г. Москва росла.", "Н. В. Гоголь писал.", "См. рис. 5 и т. д. у нас.", "Это 5 км.", "Да."],
        ["II. Dünya Savaşı bitti.", "19. yüzyılda oldu."],
        ["TP. Hồ Chí Minh rất lớn.", "Đúng không?"],
        ["他走了。", "“你好。”", "他说。", "价格是3.5元！", "真的吗？", "好"],
        ['他说："好。"', "然后走了。", '"你好"是问候。'],
        ["是什么?", "是水.", "好"],
        ["「何？」と言った。", "次は３．５です．", "はい！"],
        ["서울은 크다.", "그렇다."],
        ["यह पानी है।", "डॉ. शर्मा आए।", "ए. पी. जे. अब्दुल कलाम वैज्ञानिक थे॥"],
        ["ما هو الماء؟", "هو سائل.", "د. أحمد هنا."],
        ["یہ پانی ہے۔", "ہاں۔"],
        ["מה זה?", "זה מים.", "א. ב. יהושע כתב."],
        ["Սա ջուր է։", "Դա հող է։"],
        ["ይህ ውሃ ነው።", "ይህ መሬት ነው፧"],
        ["ეს წყალია.", "ეს მიწაა."],
        ["ဒါရေပါ။", "ဒါမြေပါ။"],
        ["នេះជាទឹក។", "នោះជាដី។"],
        ["འདི་ཆུ་རེད།", "དེ་ས་རེད།"],
    ],
    ids=lambda sentences: unicodedata.name(next(c for c in sentences[0] if c.isalpha())).partition(" ")[0],
)
def test_boundaries_of_every_script(sentences: list[str]) -> None:
    joined = "".join(
        each + ("" if "\u3000" <= each[0] < "\ua000" or "“" in each or '"' in each else " ") for each in sentences
    )
    assert cut(joined) == sentences


@pytest.mark.parametrize("language", ["ไทย", "ລາວ"])
def test_long_runs_without_full_stops_are_cut_at_spaces_to_the_length_of_sentences(language: str) -> None:
    words = [language * 17, language * 4, language * 20, language * 30, language * 5, language * 25]
    pieces = cut(" ".join(words))
    assert " ".join(pieces) == " ".join(words)
    assert [len(piece) for piece in pieces] == [
        len(" ".join(words[:3])),
        len(" ".join(words[3:5])),
        len(words[5]),
    ]
    assert cut(" ".join(words[:2])) == [" ".join(words[:2])]


TEXTS = st.text(alphabet=st.sampled_from("aA. \n!?\"'é1)(।。」」と；;αไ…v-")) | st.text()
PHRASES = st.lists(st.sampled_from(["ไ" * 40, "ไ" * 20, " ", "ไ" * 90, "A.", " b", "。", "\n", "z. B", ". B"])).map(
    "".join
)


@given(TEXTS | PHRASES)
def test_sentences_hold_every_visible_character_once_and_in_order(text: str) -> None:
    spans = sentence_spans(text)
    assert all(start < end for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert all(text[start:end].strip() == text[start:end] for start, end in spans)
    visible = [character for character in text if not character.isspace()]
    kept = [character for start, end in spans for character in text[start:end] if not character.isspace()]
    assert kept == visible


@given(TEXTS | PHRASES, st.integers(0, 400))
def test_all_sentences_but_the_last_stay_whatever_the_text_goes_on_with(text: str, length: int) -> None:
    before = sentence_spans(text[:length])[:-1]
    assert sentence_spans(text)[: len(before)] == before


@given(TEXTS | PHRASES)
def test_a_text_is_cut_alike_from_the_end_of_any_of_its_sentences(text: str) -> None:
    spans = sentence_spans(text)
    for number, (_, end) in enumerate(spans):
        rest = tuple((start + end, stop + end) for start, stop in sentence_spans(text[end:]))
        assert rest == spans[number + 1 :]


@pytest.mark.parametrize("repeated", ["! ", "!", "。」", '。"', ". - ", "ไ ", "1. ", " "])
def test_no_line_takes_more_time_than_its_length_is_worth(repeated: str) -> None:
    text = "A. " + repeated * 100_000  # the square of it would take minutes
    assert sentence_spans(text)[0][0] == 0


def test_a_line_of_nothing_but_abbreviations_is_one_sentence_however_long() -> None:
    text = "Dr. X " * 16_000
    assert sentence_spans(text) == ((0, len(text) - 1),)


@pytest.mark.parametrize(
    "text", ["Spare parts", "--pidfile FILE", "open [valve]", "free address [flag …]", "arp <host>"]
)
def test_a_title_or_a_term_ends_without_a_mark(text: str) -> None:
    assert is_open(text)


@pytest.mark.parametrize("text", ["It runs.", "It runs (always.)", 'It "runs."', "So:", ""])
def test_a_sentence_ends_with_a_mark(text: str) -> None:
    assert not is_open(text)
