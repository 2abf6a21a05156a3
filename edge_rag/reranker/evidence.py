"""Evidence: how well each sentence answers the question, and whether the passages answer it at all.

The evidence of a sentence is a weighted sum of two standardized components: its IDF overlap with the question, and the
max-sim of its token vectors. Words that only the previous sentence or a heading contains count half. The term of a
definition counts as words of its sentences, and a key all of whose words are in the question adds its share of the term
weight (``candidate.py``).

Answerability is a logistic function of the largest overlap and the largest max-sim of one sentence, both rescaled: 0 is
the level of texts that do not answer, taken from the question's own candidates. docs/internals/grounding.md has the
measurements that weights and constants were fitted to.
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
"""Pairs of question and answer; a question is unrelated to the answers of the other pairs."""


@dataclass(frozen=True, slots=True)
class AnswerabilityWeights:
    """The logistic function."""

    coverage: float = 6.2
    similarity: float = 26.0
    bias: float = -11.2


_CLOSE_WEIGHTS: Final = AnswerabilityWeights(8.1, 29.7, -9.4)
"""For encoders that find unrelated texts similar, fitted to multilingual-e5-small."""

ENOUGH_SENTENCES: Final = 16
"""Sentences of other candidates that suffice as the baseline of a question."""

MOST_UNRELATED: Final = 0.99
"""Upper bound of the baseline similarity."""

MOST_CHANCE: Final = 0.5
"""Upper bound of the share of a question's term weight that is attributed to chance."""

_CHANCE: Final = 1.5
"""Ratio of the overlap that the best sentence has by chance to the mean overlap of the baseline."""

_CHANCE_OF_SYLLABLES: Final = 2.1
"""The same for Vietnamese, which separates syllables by spaces."""

_CENTRED_WEIGHTS: Final = AnswerabilityWeights(0.0, 43.0, -8.6)
_CENTRED_UNRELATED: Final = 0.18
"""Mean max-sim of centred vectors of non-answering candidates, over 17 pairs of languages."""

_OWN_SHARE: Final = 0.75
"""Weight of a question's own candidates; the rest is that of the value for all languages."""

_NEARER: Final = 0.15
"""Distance of non-answering candidates from unrelated texts, as a share of the distance to equal texts: 0.13 measured
with multilingual-e5-small, 0.11 with MiniLM."""

_CLOSE: Final = 0.5
"""Least max-sim of unrelated Latin texts with such an encoder; 0.67 with multilingual-e5-small, 0.12 with MiniLM."""


@dataclass(frozen=True, slots=True)
class Answerability:
    """Rates whether passages answer a question, by the max-sim and the overlap of texts that do not."""

    unrelated: float
    chance: float = 0.0
    weights: AnswerabilityWeights = AnswerabilityWeights()

    def evidence(self, coverage: float, similarity: float) -> float:
        """Returns the evidence, 0 to 1, for the largest overlap (0 to 1) and max-sim (-1 to 1) of one sentence."""
        above = (similarity - self.unrelated) / (1.0 - self.unrelated)
        beyond = (coverage - self.chance) / (1.0 - self.chance)
        odds = self.weights.coverage * beyond + self.weights.similarity * above + self.weights.bias
        return 1.0 / (1.0 + exp(-max(-60.0, min(60.0, odds))))


class EncoderCalibration:
    """Similarity of texts that do not answer a question, by encoder. For one thread at a time.

    The lower-ranked candidates of a question are such texts, in its languages. Their mean is combined with one value
    for all languages (``_OWN_SHARE``). If they have too few sentences, unrelated texts of the question's script replace
    them; their similarity is measured once.
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
        """Returns the answerability of a question in another language than the passages, for centred vectors."""
        trust, similar = _likeness(others)
        own = trust * _OWN_SHARE
        return Answerability(own * similar + (1 - own) * _CENTRED_UNRELATED, 0.0, _CENTRED_WEIGHTS)

    def _similarity(self, script: Script) -> float:
        if script not in self._unrelated:
            self._unrelated[script] = unrelated_similarity(self._vectorizer, script)
        return self._unrelated[script]


def _likeness(others: Sequence[RerankCandidate]) -> tuple[float, float]:
    """Returns how reliable the candidates are as a baseline, 0 to 1, and their mean max-sim."""
    found = [max_sim(each.cosines_of(start, end)) for each in others for start, end, _ in each.encoded.sentences]
    return min(1.0, len(found) / ENOUGH_SENTENCES), fmean(found) if found else 0.0


def _near(unrelated: float) -> float:
    """Returns the max-sim expected of the best non-answering candidate, extrapolated from unrelated texts."""
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
        carried: Weight of a word that only the previous sentence or a heading above contains, 0 to 1.
        key: Weight of the share of the question's term weight that a key holds.
    """

    overlap: float = 2 / 3
    max_sim: float = 4 / 3
    carried: float = 0.5
    key: float = 6.0


@dataclass(frozen=True, slots=True)
class WeightedSentences:
    """The sentences of each passage with their evidence, and the evidence of an answer, 0 to 1."""

    sentences: tuple[tuple[Sentence, ...], ...]
    evidence: float


def weigh_sentences(
    term_weights: Mapping[str, float],
    candidates: Sequence[RerankCandidate],
    weights: EvidenceWeights,
    answerability: Answerability,
) -> WeightedSentences:
    """Rates each sentence relative to all sentences of the passages."""
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
