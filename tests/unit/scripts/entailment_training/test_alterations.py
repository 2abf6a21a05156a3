"""What the entailment model learns from: sentences with the same meaning, and with another."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.training.entailment import alterations
from scripts.training.entailment.made_pairs import split_pairs, text_pairs
from scripts.training.entailment.pairs import LABELS, Verdict
from scripts.training.entailment.sources import adds_nothing, joined

SENTENCES = [
    "The pump must be greased every 2,000 hours, which is about 64 days.",
    "Warsaw was taken by Hamburg in 1843 after two weeks.",
    "In 1990, the valve was never opened by Siemens because it is dangerous.",
    "All filters are washed every month, although some are only replaced after 5 years.",
]


@given(st.integers(0, 10**7), st.booleans(), st.randoms(use_true_random=False))
def test_another_number_has_another_value(number: int, commas: bool, chance: random.Random) -> None:
    written = f"{number:,}" if commas else str(number)
    assert int(float(alterations.other_number(written, chance).replace(",", ""))) != number


@given(st.decimals(0, 10_000, places=2), st.randoms(use_true_random=False))
def test_another_fraction_has_another_value(number: object, chance: random.Random) -> None:
    assert float(alterations.other_number(str(number), chance)) != float(str(number))


@pytest.mark.parametrize("seed", range(20))
def test_a_number_in_another_form_keeps_its_value(seed: int) -> None:
    chance = random.Random(seed)
    said = alterations.numbers_respelt("Wait 12 hours, then 2,000 more, or sixteen days.", chance)
    assert said in {
        "Wait twelve hours, then 2,000 more, or sixteen days.",
        "Wait 12 hours, then 2000 more, or sixteen days.",
        "Wait 12 hours, then 2,000 more, or 16 days.",
    }


@pytest.mark.parametrize(
    ("alteration", "sentence", "results"),
    [
        (alterations.numbers_exchanged, "From 5 to 9.", {"From 9 to 5."}),
        (alterations.names_exchanged, "Warsaw was taken by Hamburg.", {"Hamburg was taken by Warsaw."}),
        (alterations.names_exchanged, "Warsaw and Hamburg.", {None}),
        (alterations.unit_changed, "A box is blue or A.", None),
        (alterations.unit_changed, "A fuse of 3 A.", {"A fuse of 3 mA.", "A fuse of 3 amperes."}),
        (alterations.negated, "It is not safe.", {"It is safe."}),
        (alterations.negated, "Pumps can run.", {"Pumps can not run.", "Pumps can never run."}),
        (alterations.opposed, "Stay above it.", {"Stay below it."}),
        (alterations.weakened, "Pumps run.", {None}),
        (alterations.weakened, "It stops if all pumps run.", {None}),
        (alterations.weakened, "It runs always.", {"It runs often."}),
        (alterations.shortened, "In May, it ran.", {"It ran."}),
        (alterations.shortened, "It (a pump) ran.", {"It ran."}),
        (alterations.strengthened, "Some run.", {None}),
        (alterations.strengthened, "Pumps often run.", {"Pumps always run.", "Pumps never run."}),
        (alterations.respelt, "It talks about pumps.", {None}),
    ],
)  # fmt: skip
def test_an_alteration_makes_one_of_these(
    alteration: alterations.Alteration, sentence: str, results: set[str | None] | None
) -> None:
    made = {alteration(sentence, random.Random(seed)) for seed in range(30)}
    if results is None:
        assert sentence not in made
        assert all(text is None or text.startswith("A box") for text in made)
    else:
        assert made <= results
        assert made


def test_made_pairs_have_all_verdicts_and_are_the_same_again() -> None:
    pairs = list(text_pairs(SENTENCES * 10, 1))
    assert pairs == list(text_pairs(SENTENCES * 10, 1))
    assert {pair.verdict for pair in pairs} == set(Verdict)
    assert Verdict.NOT_ENTAILED not in LABELS
    made = [pair for pair in pairs if "64" in pair.hypothesis and "46" not in pair.hypothesis]
    assert {pair.verdict for pair in made} > {Verdict.ENTAILMENT}
    assert not any("46 days" in pair.hypothesis for pair in pairs if pair.verdict is Verdict.ENTAILMENT)


def test_a_part_that_adds_something_is_not_learned_as_entailed() -> None:
    whole = "The station was built in 1968 and replaced by the works manager."
    assert adds_nothing(whole, "The station was built in 1968.")
    assert not adds_nothing(whole, "The station was built in 1969.")
    assert not adds_nothing(whole, "The station was not replaced.")
    assert not adds_nothing(whole, "The Warsaw station was built in 1968.")
    pairs = list(split_pairs([(whole, "The station was built in 1968.", "It was replaced in 1999 by Siemens.")] * 9, 1))
    assert not any("1999" in pair.hypothesis for pair in pairs if pair.verdict is Verdict.ENTAILMENT)


def test_spaces_of_a_tokenizer_are_taken_out() -> None:
    assert joined("It 's , he said ( 5 % ) , n't it ?") == "It's, he said (5%),n't it?"
