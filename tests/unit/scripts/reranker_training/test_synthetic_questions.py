import random
from pathlib import Path

import numpy as np
import pytest

from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from scripts.bench.retrieval.descriptions import Description
from scripts.bench.retrieval.known_items import Part, part_of
from scripts.training.reranker.corpus import TrainingText, documentation_texts, package_texts, reflow
from scripts.training.reranker.examples import Example, ExampleMaker
from scripts.training.reranker.negatives import LexicalPool
from scripts.training.reranker.paraphrase import Paraphraser, Rates, inflect, words_alike
from scripts.training.reranker.questions import KindShares, QuestionKind, QuestionMaker, SyntheticQuestion

MINILM = Path(__file__).parents[4] / "models" / "minilm-l6"
UNCHANGED = Paraphraser({}, Rates(drop=0.0, inflect=0.0, replace=0.0))
THINGS = ["pump", "valve", "motor", "filter", "gauge", "boiler", "sensor", "turbine", "compressor", "bearing", "rotor"]
PUMPS = [
    TrainingText(
        f"project {thing}",
        f"The {thing} of the {number}th station needs oil every {number + 2} weeks of work. A worn {thing} makes noise "
        f"and has to be replaced by the crew at once. Spare parts are kept in room {number} of the north building.",
        f"care of the {thing} in station {number}",
    )
    for number, thing in enumerate(THINGS)
]


def maker(pool: LexicalPool, kind: QuestionKind) -> QuestionMaker:
    shares = {each.value: float(each is kind) for each in QuestionKind}
    return QuestionMaker(UNCHANGED, pool.term_weights, KindShares(**shares))


@pytest.fixture(scope="module")
def pool() -> LexicalPool:
    return LexicalPool([each.text for each in PUMPS])


def questions(made: QuestionMaker, count: int = 60) -> list[tuple[TrainingText, SyntheticQuestion]]:
    chance = random.Random(1)
    pairs = [(text, made.make(text, chance)) for text in chance.choices(PUMPS, k=count)]
    return [(text, question) for text, question in pairs if question is not None]


def test_a_synopsis_is_asked_of_its_passage(pool: LexicalPool) -> None:
    made = questions(maker(pool, QuestionKind.SYNOPSIS))
    assert made
    for text, question in made:
        assert question.text == text.synopsis
        assert question.passage == text.text


def test_inverse_cloze_mostly_takes_the_sentence_out_of_the_passage(pool: LexicalPool) -> None:
    made = questions(maker(pool, QuestionKind.CLOZE), 120)
    removed = [question for _, question in made if question.source not in question.passage]
    assert 0.75 * len(made) < len(removed) < len(made)
    for text, question in made:
        assert question.source in text.text
        assert question.text.split() == question.source.rstrip(".").split()


def test_an_asked_question_lacks_what_it_asks_for(pool: LexicalPool) -> None:
    made = questions(maker(pool, QuestionKind.ASKED))
    assert made
    for _, question in made:
        words = question.source.rstrip(".").split()
        asked = question.text.rstrip("?").split()
        assert question.text.endswith("?")
        assert sum(word in asked for word in words) < len(words)
        assert question.source in question.passage


def test_keywords_are_the_rarer_words_of_the_passage(pool: LexicalPool) -> None:
    made = questions(maker(pool, QuestionKind.KEYWORDS), 200)
    everywhere = sum("building" in question.text.split() for _, question in made)
    own = sum(any(thing in question.text.split() for thing in THINGS) for _, question in made)
    assert own > 2 * everywhere


def test_paraphrasing_keeps_at_least_half_of_the_words() -> None:
    paraphraser = Paraphraser({"pump": ("pumps",)}, Rates(drop=0.9, inflect=0.1, replace=0.0))
    words = ["the", "old", "pump", "needs", "new", "oil"]
    for seed in range(50):
        assert 2 * len(paraphraser.change(words, random.Random(seed))) >= len(words)


def test_a_word_is_replaced_only_by_one_that_is_used_alike() -> None:
    paraphraser = Paraphraser({"pump": ("pumps",)}, Rates(drop=0.0, inflect=0.0, replace=1.0))
    assert paraphraser.change(["Pump", "room"], random.Random(0)) == ["pumps", "room"]


@pytest.mark.parametrize(("word", "less"), [("libraries", "library"), ("pumping", "pump"), ("organizing", "organize")])
def test_an_inflected_word_loses_its_ending(word: str, less: str) -> None:
    assert inflect(word, random.Random(0)) == less


def test_words_alike_are_the_nearest_plain_words_and_never_the_word_itself() -> None:
    vocabulary = ["[PAD]", "pump", "pumps", "##pump", "violin"]
    vectors = np.array([[1, 1], [1, 0], [0.9, 0.1], [1, 0], [0, 1]], dtype=np.float32)
    assert words_alike(vocabulary, vectors) == {"pump": ("pumps",), "pumps": ("pump",)}


def test_nothing_is_trained_on_that_known_item_search_asks_about() -> None:
    text = "This tool number {} does what is written here at some length, and nothing else at all."
    descriptions = [Description(f"p{n}", f"s{n}", f"tool {n}", text.format(n)) for n in range(200)]
    allowed = {each.source for each in descriptions if part_of(each) is Part.TRAINING}
    texts = package_texts(descriptions)
    assert {each.origin.removeprefix("package ") for each in texts} == allowed
    assert 0 < len(texts) < len(descriptions)


def test_wrapped_lines_are_joined_and_indented_ones_are_not() -> None:
    assert reflow("one line\nand another\n\nIt has:\n * a\n * b") == "one line and another\nIt has:\n * a\n * b"


def test_pythons_documentation_gives_prose_of_passage_length_each_once() -> None:
    texts = documentation_texts()
    assert len(texts) > 1_000
    assert len({each.text for each in texts}) == len(texts)
    assert all(120 <= len(each.text) <= 1_200 and "\n" not in each.text for each in texts)


def example_maker(texts: list[TrainingText]) -> ExampleMaker:
    pool = LexicalPool([each.text for each in texts])
    made = QuestionMaker(UNCHANGED, pool.term_weights, KindShares())
    return ExampleMaker(texts, pool, made, MaxSimReranker(TextEncoder.open(MINILM)), negatives=3, seed=5)


def some(examples: ExampleMaker) -> list[Example]:
    return [examples.example(number) for number in range(24)]


def test_an_example_is_the_same_in_every_run_and_in_any_order() -> None:
    examples = example_maker(PUMPS)
    assert some(examples) == some(example_maker(PUMPS))
    assert examples.example(17) == some(examples)[17]


def test_an_example_has_one_right_passage_and_others_with_the_default_rerankers_scores() -> None:
    made = some(example_maker(PUMPS))
    for example in made:
        assert len(example.passages) == len(example.max_sim) == len(set(example.passages)) == 4
        assert set(example.passages[1:]) <= {each.text for each in PUMPS}
        assert abs(sum(example.max_sim)) < 1e-5
    assert {example.kind for example in made} == set(QuestionKind)


def test_a_text_of_the_same_origin_is_wrong_only_for_a_synopsis() -> None:
    twins = [TrainingText("same", each.text, each.synopsis) for each in PUMPS[:6]] + PUMPS[6:]
    family = {each.text for each in twins[:6]}
    own = [example for example in some(example_maker(twins)) if example.passages[0] in family]
    others = [example for example in own if example.kind is not QuestionKind.SYNOPSIS]
    assert others
    assert not any(family & set(example.passages[1:]) for example in others)
    assert any(family & set(example.passages[1:]) for example in own if example.kind is QuestionKind.SYNOPSIS)
