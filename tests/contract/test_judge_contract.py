"""What every ``Judge`` promises: the rules alone, and an entailment model, whatever that says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.core.answer import UnsupportedReason
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Passage, RankedPassage, Sentence
from edge_rag.core.text import sentence_spans
from edge_rag.generator.citations.attribution import Attributor, Finding
from edge_rag.generator.citations.claims import claims_of
from edge_rag.generator.citations.judge import BoundedJudge, EntailmentJudge, Judge, RulesAlone
from edge_rag.reranker.scoring import Stemmer
from edge_rag.runtime.encoder.entailment import EntailmentModel
from tests.fixtures.makers.entailment_models import CONTRADICTS, ENTAILS, NEUTRAL, Always, Whimsical, tiny_entailment

TEXTS = (
    "The pump bearings must be greased every 2,000 operating hours. Use 64 g of lithium grease for pump P1.",
    "Never open the check valve while the pump runs. Shut the suction valve first. Hale made the motor in 1998.",
)
TRUE = "The pump bearings must be greased every 2,000 operating hours."
REWORDED = "The pump bearings need fresh lubricant every 2,000 operating hours."
FALSE = (
    "The pump bearings must be greased every 4,000 operating hours.",
    "The pump bearings must not be greased every 2,000 operating hours.",
    "The pump bearings of Siemens must be greased every 2,000 operating hours.",
    "The pump bearings need fresh lubricant every 2,000 days.",
    "Use 64 g of lithium grease for pump P2.",
    "Open the check valve while the pump runs.",
    "Shut the suction valve last.",
)


def ranked(number: int, text: str) -> RankedPassage:
    passage = Passage(ChunkId(number), DocumentId(f"d{number}"), f"{number}.md", None, 0, len(text), text)
    return RankedPassage(passage, 1.0, tuple(Sentence(start, end) for start, end in sentence_spans(text)))


PASSAGES = [ranked(number, text) for number, text in enumerate(TEXTS)]
ATTRIBUTOR = Attributor(PASSAGES, Stemmer())

JUDGES: dict[str, Callable[[Path], Judge]] = {
    "rules alone": lambda _: RulesAlone(),
    "a model": lambda folder: EntailmentJudge(EntailmentModel.open(tiny_entailment(folder)), 0.4, 0.4),
    "a model that entails everything": lambda _: EntailmentJudge(Always(ENTAILS)),
    "a model that contradicts everything": lambda _: EntailmentJudge(Always(CONTRADICTS)),
    "a model that has no opinion": lambda _: EntailmentJudge(Always(NEUTRAL)),
    "a model of whims": lambda _: EntailmentJudge(Whimsical()),
    "a model without time": lambda _: BoundedJudge(EntailmentJudge(Always(ENTAILS)), None, seconds=0),
}


@pytest.fixture(params=JUDGES)
def judge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Judge:
    return JUDGES[request.param](tmp_path_factory.mktemp("judge") / "model")


def test_nothing_is_decided_of_nothing(judge: Judge) -> None:
    assert judge.decide([]) == []


def test_each_sentence_gets_the_same_verdict_alone_and_among_others(judge: Judge) -> None:
    findings = [ATTRIBUTOR.find(text) for text in (TRUE, REWORDED, *FALSE, "", "Cheese.")]
    assert judge.decide(findings) == [judge.decide([finding])[0] for finding in findings]


@pytest.mark.parametrize("sentence", FALSE)
def test_altered_numbers_units_names_and_negations_are_never_cited(judge: Judge, sentence: str) -> None:
    (verdict,) = judge.decide([ATTRIBUTOR.find(sentence)])
    assert verdict.support == ()
    assert verdict.reason is not None


def test_a_finding_without_support_and_candidates_is_not_cited(judge: Judge) -> None:
    assert judge.decide([Finding("Anything.")])[0].support == ()


WORDS = st.sampled_from(sorted({*" ".join((*TEXTS, *FALSE)).split(), "lubricant", "seven", "-", "64"}))


@settings(max_examples=60)
@given(st.lists(WORDS, max_size=14).map(" ".join))
def test_what_is_cited_makes_the_claims_of_the_sentence(sentence: str) -> None:
    finding = ATTRIBUTOR.find(sentence)
    for make in (RulesAlone, lambda: EntailmentJudge(Always(ENTAILS)), lambda: EntailmentJudge(Whimsical())):
        (verdict,) = make().decide([finding])
        assert (verdict.reason is None) is bool(verdict.support)
        assert verdict.support in ((), finding.support, *(candidate.places for candidate in finding.candidates))
        if verdict.support:
            texts = (TEXTS[place.passage][place.start : place.end] for place in verdict.support)
            assert claims_of(sentence).supported_by(claims_of(" ".join(texts)))


def test_the_rules_cite_what_they_support_and_nothing_else() -> None:
    true, reworded = RulesAlone().decide([ATTRIBUTOR.find(TRUE), ATTRIBUTOR.find(REWORDED)])
    assert true.support == ATTRIBUTOR.support(TRUE)
    assert (reworded.support, reworded.reason) == ((), UnsupportedReason.NO_SOURCE)


def test_a_model_accepts_what_lacks_only_words_and_rejects_what_it_contradicts() -> None:
    (accepted,) = EntailmentJudge(Always(ENTAILS)).decide([ATTRIBUTOR.find(REWORDED)])
    assert accepted.support == ATTRIBUTOR.support(TRUE)
    (rejected,) = EntailmentJudge(Always(CONTRADICTS)).decide([ATTRIBUTOR.find(TRUE)])
    assert (rejected.support, rejected.reason) == ((), UnsupportedReason.CONTRADICTED)


def test_a_model_is_asked_once_for_all_sentences_and_never_about_altered_numbers() -> None:
    model = Always(NEUTRAL)
    EntailmentJudge(model).decide([ATTRIBUTOR.find(text) for text in (TRUE, REWORDED, *FALSE)])
    (pairs,) = model.asked
    assert {claim for _, claim in pairs} == {TRUE, REWORDED}


def test_a_model_whose_time_is_used_up_is_not_asked() -> None:
    model, times = Always(CONTRADICTS), iter([0.0, 3.0, 3.0])
    judge = BoundedJudge(EntailmentJudge(model), None, seconds=2.0, clock=lambda: next(times))
    first, second = (judge.decide([ATTRIBUTOR.find(TRUE)])[0] for _ in range(2))
    assert (first.support, second.support) == ((), ATTRIBUTOR.support(TRUE))
    assert len(model.asked) == 1


def test_a_model_is_not_asked_after_the_deadline() -> None:
    model = Always(CONTRADICTS)
    judge = BoundedJudge(EntailmentJudge(model), 5.0, clock=lambda: 5.0)
    assert judge.decide([ATTRIBUTOR.find(TRUE)])[0].support == ATTRIBUTOR.support(TRUE)
    assert model.asked == []
