"""Evidence: how well each sentence answers the question, and whether the passages answer it at all.

Sentence evidence is a weighted sum of two standardized components: the sentence's IDF overlap with the question, and
the max-sim of its own token vectors, which are computed with the whole passage as context. The weights sum to 2, as if
both counted once. A word of the question that only the previous sentence or a heading above contains counts half, since
the topic is often named there; a heading tells which sentence answers, and not whether one does. On 612 XQuAD questions
with four passages each, the sentence with the most evidence contains the answer for 80.6% of questions (90.7% in the
best two), without the previous sentence for 79.6% (90.4%). Each half of the articles gains, 0.3 and 1.9 points. Overlap
alone reaches 75%, max-sim alone 79%. No other feature that was tried gained a full point on articles it was not fitted
to: score of the passage, words of the next sentence, shared bigrams, expected answer type, max-sim in the other
direction, length, position in the passage.

The term of a definition counts as words of the sentences that define it (``labels.py``). A key, which is such a term or
the first cell of a row of a table, of which the question has every word is what is asked about, so its share of the
term weight is added with the weight ``key``. Neither tells whether there is an answer.

Answerability is a logistic function of the largest coverage of the question's term weight by one sentence, and of the
largest max-sim of a sentence, not standardized. What texts reach that do not answer depends on the encoder, the
languages of question and documents, and the question. The question's own candidates tell it (``EncoderCalibration``):
those of the worse half answer hardly any question, and are texts of this collection. Both maxima are rescaled: 0 for
them, 1 for equal texts. One function serves all languages. That of multilingual-e5-small was fitted to 612 XQuAD
questions in each of twelve languages over 120 paragraphs, and the same questions with their article's paragraphs
removed; that of MiniLM to the English ones. Shares of questions below 0.25, over the languages:

    =========================================  =======================  ======================
    share of questions                         article is removed       answer is there
    =========================================  =======================  ======================
    multilingual-e5-small, mean                91%                      2.0%
    least and most                             87% (vi, zh), 93% (tr)   0.5% (en, th), 4% (el, tr)
    a baseline for each script, mean           88%                      2.2%
    least and most of it, without vi           70% (es), 95% (el)       0.2% (es), 5.7% (el)
    MiniLM, English                            97%                      2.3%
    =========================================  =======================  ======================

A question in another language than the best passage is judged by the max-sim of centred token vectors alone, and its
sentences are weighed by it (``centring.py``). On 17 pairs of XQuAD's languages, with every eighth question, 9% of the
answerable are lost and 82% of the others turned away, and so they are where the function is fitted to one half of the
articles and shown on the other; the best sentence is in the right passage for 90%. Plain vectors separate less (area
under the curve .931 for .948) and find the passage for 85%.

Fitted to one half of the articles and shown on the other the means are the same (90% and 2.3%). Coverage needs no list
of function words: with the weights that words have in the collection it separates English questions as well as with one
(92% and 91% turned away where 1.6% and 1.5% of the others are lost).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import exp
from statistics import fmean
from typing import Final

import numpy as np

from edge_rag.analysis.languages import Script, script_of, sure_language_of
from edge_rag.analysis.terms import terms_of
from edge_rag.core.passage import Sentence
from edge_rag.reranker.candidate import RerankCandidate
from edge_rag.reranker.scoring import TokenVectorizer, coverage, max_sim, standardize

_PAIRS: Final[Mapping[Script, Sequence[tuple[str, str]]]] = {
    Script.LATIN: (
        (
            "How often must the filter be changed?",
            "The filter of the oil separator is replaced after every 500 hours of operation.",
        ),
        (
            "Who wrote the first opera in this language?",
            "The composer finished his only opera in the spring before he moved to the capital.",
        ),
        (
            "What is the population of the island?",
            "About nine thousand people live on the island, most of them along the northern coast.",
        ),
        (
            "When did the two countries sign the treaty?",
            "Both governments signed the peace agreement in the autumn after a year of talks.",
        ),
        (
            "Which medicine is given against a high fever?",
            "Paracetamol lowers the temperature of the patient within an hour.",
        ),
        (
            "Where is the spare key of the storeroom kept?",
            "A second key hangs in the glass box beside the entrance of the workshop.",
        ),
        (
            "Why do leaves turn red before they fall?",
            "As the days become shorter the trees stop making chlorophyll, and other colours show.",
        ),
        (
            "How many votes does a new law need?",
            "A bill is passed when more than half of the members present agree to it.",
        ),
    ),
    Script.CYRILLIC: (
        ("Как часто нужно менять фильтр?", "Фильтр маслоотделителя меняют через каждые 500 часов работы."),
        ("Сколько жителей на острове?", "На острове живёт около девяти тысяч человек, большинство у северного берега."),
        (
            "Когда две страны подписали договор?",
            "Осенью после года переговоров правительства подписали мирное соглашение.",
        ),
        ("Какое лекарство дают при высокой температуре?", "Парацетамол снижает температуру больного за час."),
    ),
    Script.GREEK: (
        (
            "Κάθε πότε πρέπει να αλλάζει το φίλτρο;",
            "Το φίλτρο του διαχωριστή λαδιού αντικαθίσταται κάθε 500 ώρες λειτουργίας.",
        ),
        (
            "Ποιος είναι ο πληθυσμός του νησιού;",
            "Στο νησί ζουν περίπου εννέα χιλιάδες άνθρωποι, οι περισσότεροι στη βόρεια ακτή.",
        ),
        (
            "Πότε υπέγραψαν οι δύο χώρες τη συνθήκη;",
            "Οι κυβερνήσεις υπέγραψαν την ειρήνη το φθινόπωρο μετά από συνομιλίες ενός έτους.",
        ),
        (
            "Ποιο φάρμακο δίνεται για τον υψηλό πυρετό;",
            "Η παρακεταμόλη μειώνει τη θερμοκρασία του ασθενούς μέσα σε μία ώρα.",
        ),
    ),
    Script.ARABIC: (
        ("كم مرة يجب تغيير الفلتر؟", "يُستبدل فلتر فاصل الزيت كل 500 ساعة تشغيل."),
        ("كم عدد سكان الجزيرة؟", "يعيش في الجزيرة نحو تسعة آلاف شخص، معظمهم على الساحل الشمالي."),
        ("متى وقع البلدان المعاهدة؟", "وقعت الحكومتان اتفاق السلام في الخريف بعد عام من المحادثات."),
        ("ما الدواء الذي يعطى لعلاج الحمى الشديدة؟", "يخفض الباراسيتامول حرارة المريض خلال ساعة."),
    ),
    Script.DEVANAGARI: (
        ("फ़िल्टर कितनी बार बदलना चाहिए?", "तेल विभाजक का फ़िल्टर हर 500 घंटे के संचालन के बाद बदला जाता है।"),
        ("द्वीप की जनसंख्या कितनी है?", "द्वीप पर लगभग नौ हज़ार लोग रहते हैं, अधिकतर उत्तरी तट पर।"),
        ("दोनों देशों ने संधि पर कब हस्ताक्षर किए?", "एक साल की बातचीत के बाद सरकारों ने पतझड़ में शांति समझौते पर हस्ताक्षर किए।"),
        ("तेज़ बुखार में कौन सी दवा दी जाती है?", "पैरासिटामोल एक घंटे में रोगी का तापमान कम कर देता है।"),
    ),
    Script.THAI: (
        ("ต้องเปลี่ยนไส้กรองบ่อยแค่ไหน", "ไส้กรองของเครื่องแยกน้ำมันเปลี่ยนทุก 500 ชั่วโมงการทำงาน"),
        ("เกาะนี้มีประชากรเท่าไร", "มีคนอาศัยอยู่บนเกาะประมาณเก้าพันคน ส่วนใหญ่อยู่ตามชายฝั่งทางเหนือ"),
        ("สองประเทศลงนามในสนธิสัญญาเมื่อใด", "รัฐบาลทั้งสองลงนามในข้อตกลงสันติภาพในฤดูใบไม้ร่วงหลังการเจรจาหนึ่งปี"),
        ("ยาอะไรใช้รักษาไข้สูง", "พาราเซตามอลช่วยลดอุณหภูมิของผู้ป่วยภายในหนึ่งชั่วโมง"),
    ),
    Script.HAN: (
        ("滤芯多久要更换一次？", "油分离器的滤芯每运行500小时更换一次。"),
        ("这个岛有多少人口？", "岛上大约住着九千人，大多数住在北海岸。"),
        ("两国何时签署了条约？", "经过一年的谈判，两国政府在秋天签署了和平协议。"),
        ("高烧时用什么药？", "扑热息痛能在一小时内降低病人的体温。"),
    ),
    Script.KANA: (
        ("フィルターはどのくらいの頻度で交換しますか？", "油分離器のフィルターは運転500時間ごとに交換する。"),
        ("島の人口はどれくらいですか？", "島には約九千人が住み、その多くは北の海岸沿いにいる。"),
        ("二つの国はいつ条約に署名しましたか？", "一年にわたる協議の後、両政府は秋に平和協定に署名した。"),
        ("高熱のときに与える薬は何ですか？", "パラセタモールは一時間以内に患者の体温を下げる。"),
    ),
    Script.HANGUL: (
        ("필터는 얼마나 자주 교체해야 합니까?", "유분리기의 필터는 500시간 운전마다 교체한다."),
        ("섬의 인구는 얼마입니까?", "섬에는 약 구천 명이 살고 있으며 대부분 북쪽 해안에 산다."),
        ("두 나라는 언제 조약에 서명했습니까?", "일 년의 회담 끝에 양국 정부는 가을에 평화 협정에 서명했다."),
        ("고열에는 어떤 약을 줍니까?", "파라세타몰은 한 시간 안에 환자의 체온을 낮춘다."),
    ),
}
"""Questions and their sentences; each question is unrelated to the sentences of the others."""


@dataclass(frozen=True, slots=True)
class AnswerabilityWeights:
    """The logistic function."""

    coverage: float = 6.2
    similarity: float = 26.0
    bias: float = -11.2


_CLOSE_WEIGHTS: Final = AnswerabilityWeights(8.1, 29.7, -9.4)
"""For encoders that find unrelated texts similar, fitted to multilingual-e5-small."""
ENOUGH_SENTENCES: Final = 16
"""Sentences of other candidates that tell, without any other measure, what does not answer a question."""

MOST_UNRELATED: Final = 0.99
"""Largest similarity of texts that do not answer; above it all texts are the same to the encoder."""

MOST_CHANCE: Final = 0.5
"""Largest share of a question's term weight that is put down to chance."""

_CHANCE: Final = 1.5
"""Share of the term weight that the best sentence holds by chance, as a multiple of the mean of other sentences."""

_CHANCE_OF_SYLLABLES: Final = 2.1
"""The same for Vietnamese, which writes syllables apart: each is in many words."""

_CENTRED_WEIGHTS: Final = AnswerabilityWeights(0.0, 43.0, -8.6)
_CENTRED_UNRELATED: Final = 0.18
"""Mean max-sim of centred vectors of multilingual-e5-small of candidates that do not answer, over 17 pairs of
languages."""

_OWN_SHARE: Final = 0.75
"""Weight of a question's own candidates against the value for all languages."""
_NEARER: Final = 0.15
"""How far candidates are on the way from unrelated texts to equal ones: 0.13 of multilingual-e5-small on the mean of
languages, 0.11 of MiniLM."""

_CLOSE: Final = 0.5
"""Least max-sim of unrelated Latin texts of such an encoder: 0.67, and 0.12 of MiniLM."""


@dataclass(frozen=True, slots=True)
class Answerability:
    """Rates whether passages answer a question.

    Attributes:
        unrelated: Max-sim of texts that do not answer, below 1.
        chance: Share of the question's term weight that such texts hold, below 1.
    """

    unrelated: float
    chance: float = 0.0
    weights: AnswerabilityWeights = AnswerabilityWeights()

    def evidence(self, coverage: float, similarity: float) -> float:
        """Returns the evidence that the passages answer the question, 0 to 1.

        Args:
            coverage: Largest share of the question's term weight that one sentence contains, 0 to 1.
            similarity: Largest max-sim of a sentence, -1 to 1.
        """
        above = (similarity - self.unrelated) / (1.0 - self.unrelated)
        beyond = (coverage - self.chance) / (1.0 - self.chance)
        odds = self.weights.coverage * beyond + self.weights.similarity * above + self.weights.bias
        return 1.0 / (1.0 + exp(-max(-60.0, min(60.0, odds))))


class EncoderCalibration:
    """What an encoder finds texts to be that do not answer a question. For one thread at a time.

    The candidates of a question that are not among the best are such texts, in the languages of question and
    collection, so their mean is the measure where they have enough sentences. It is drawn a quarter of the way to one
    value for all languages: partly it tells of the question, and high values of the best go with high values of the
    others. Where there are few candidates, as in a small collection, unrelated texts of the question's script stand in;
    their similarity is measured when first needed.
    """

    def __init__(self, vectorizer: TokenVectorizer) -> None:
        self._vectorizer = vectorizer
        self._unrelated: dict[Script, float] = {}

    @property
    def multilingual(self) -> bool:
        return self._similarity(Script.LATIN) >= _CLOSE

    def answerability(
        self, question: str, term_weights: Mapping[str, float], others: Sequence[RerankCandidate] = ()
    ) -> Answerability:
        """Returns the judge of a question.

        Args:
            term_weights: Weight of each of its index terms.
        """
        usual = self._similarity(Script.LATIN)
        weights = _CLOSE_WEIGHTS if self.multilingual else AnswerabilityWeights()
        trust, similar = _likeness(others)
        stand_in = self._similarity(script_of(question)) if trust < 1.0 else 0.0
        terms = [set(terms) for each in others for *_, terms in each.encoded.sentences]
        held = fmean(coverage(term_weights.keys() & each, term_weights) for each in terms) if terms else 0.0
        chance = _CHANCE_OF_SYLLABLES if sure_language_of(question) == "vi" else _CHANCE
        unrelated = trust * (_OWN_SHARE * similar + (1 - _OWN_SHARE) * _near(usual)) + (1 - trust) * stand_in
        return Answerability(min(MOST_UNRELATED, unrelated), min(MOST_CHANCE, trust * chance * held), weights)

    def answerability_across(self, others: Sequence[RerankCandidate]) -> Answerability:
        """Returns the judge of a question in another language than the passages, for cosines of centred vectors.

        Words do not count, and centred vectors leave little of a language: one value stands in for few candidates.
        """
        trust, similar = _likeness(others)
        own = trust * _OWN_SHARE
        return Answerability(own * similar + (1 - own) * _CENTRED_UNRELATED, 0.0, _CENTRED_WEIGHTS)

    def _similarity(self, script: Script) -> float:
        if script not in self._unrelated:
            self._unrelated[script] = unrelated_similarity(self._vectorizer, script)
        return self._unrelated[script]


def _likeness(others: Sequence[RerankCandidate]) -> tuple[float, float]:
    """Returns how far candidates tell what texts reach that do not answer, 0 to 1, and the mean of their sentences."""
    found = [max_sim(each.cosines_of(start, end)) for each in others for start, end, _ in each.encoded.sentences]
    return min(1.0, len(found) / ENOUGH_SENTENCES), fmean(found) if found else 0.0


def _near(unrelated: float) -> float:
    """Returns what candidates reach that do not answer but are the best of many, by what unrelated texts reach."""
    return unrelated + _NEARER * (1.0 - unrelated)


def unrelated_similarity(vectorizer: TokenVectorizer, script: Script = Script.LATIN) -> float:
    """Returns the mean max-sim of unrelated questions and sentences of a script, at most ``MOST_UNRELATED``."""
    pairs = _PAIRS[script]
    vectors = vectorizer.token_vectors([text for pair in pairs for text in pair])
    apart = [
        max_sim(vectors[2 * question].vectors @ vectors[2 * sentence + 1].vectors.T)
        for question, sentence in product(range(len(pairs)), repeat=2)
        if question != sentence
    ]
    return min(MOST_UNRELATED, sum(apart) / len(apart))


@dataclass(frozen=True, slots=True)
class EvidenceWeights:
    """Weights of a sentence's evidence.

    Attributes:
        max_sim: Weight of the late interaction.
        carried: Weight of a word that only the previous sentence or a heading above contains, 0 to 1.
        key: Weight of the share of the question's term weight that a key holds.
    """

    overlap: float = 2 / 3
    max_sim: float = 4 / 3
    carried: float = 0.5
    key: float = 6.0


@dataclass(frozen=True, slots=True)
class WeightedSentences:
    """Sentences with their evidence.

    Attributes:
        sentences: The sentences of each passage, in order.
        evidence: Evidence that the passages answer the question, 0 to 1; 0 without a sentence.
    """

    sentences: tuple[tuple[Sentence, ...], ...]
    evidence: float


def weigh_sentences(
    term_weights: Mapping[str, float],
    candidates: Sequence[RerankCandidate],
    weights: EvidenceWeights,
    answerability: Answerability,
) -> WeightedSentences:
    """Rates each sentence relative to all sentences of the passages.

    Args:
        term_weights: Weight of each index term of the question.
    """
    spans: list[list[tuple[int, int]]] = []
    coverages: list[float] = []
    matches: list[float] = []
    overlaps: list[float] = []
    likenesses: list[float] = []
    named: list[float] = []
    for candidate in candidates:
        spans.append([(start, end) for start, end, _ in candidate.encoded.sentences])
        headings = {term for _, _, term in terms_of("\n".join(candidate.passage.context))}
        previous: set[str] = set()
        for (start, end, terms), look_up in zip(candidate.encoded.sentences, candidate.encoded.look_ups, strict=True):
            asked = term_weights.keys() & terms
            own, with_previous = coverage(asked, term_weights), coverage(previous | asked, term_weights)
            coverages.append(own + weights.carried * (with_previous - own))
            cosines = candidate.cosines_of(start, end)
            matches.append(max_sim(cosines))
            about, likeness = asked, matches[-1]
            if look_up.label is not None:
                about = asked | (term_weights.keys() & look_up.terms)
                likeness = max_sim(np.concatenate((candidate.cosines_of(*look_up.label), cosines), axis=1))
            own, with_all = (coverage(each, term_weights) for each in (about, previous | headings | about))
            overlaps.append(own + weights.carried * (with_all - own))
            likenesses.append(likeness)
            named.append(look_up.named(term_weights))
            previous = asked
    evidence = weights.overlap * standardize(overlaps) + weights.max_sim * standardize(likenesses)
    evidence = evidence + weights.key * np.array(named)
    values = iter(zip(evidence.tolist(), matches, strict=True))
    sentences = tuple(
        tuple(
            Sentence(start, end, value, similarity)
            for (start, end), (value, similarity) in zip(passage_spans, islice(values, len(passage_spans)), strict=True)
        )
        for passage_spans in spans
    )
    return WeightedSentences(sentences, answerability.evidence(max(coverages), max(matches)) if coverages else 0.0)


def calibration_texts(script: Script) -> tuple[tuple[str, ...], tuple[str, ...]]:
    pairs = _PAIRS[script]
    return tuple(question for question, _ in pairs), tuple(sentence for _, sentence in pairs)
