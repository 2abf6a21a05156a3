"""What a model is shown: the daemon's own prompts, questions that one sentence answers, the same from the same seed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import fields
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import pytest

from edge_rag.generator.prompt.template import PromptSettings, user_text
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from scripts.training.quoter.batch import Batch, make_batch
from scripts.training.quoter.schedule import Stage, plateau, steps
from scripts.training.quoter.text.episode import Episode, EpisodeShape
from scripts.training.quoter.text.vocabulary import CHAT_TEMPLATE, SPECIAL_TOKENS
from tests.unit.scripts.training.text import teacher, tokenizer

SHAPE = EpisodeShape(prefix_tokens=400, exchange_tokens=400, passages=(2, 3), sentence_tokens=100)
REPOSITORY = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def episodes() -> list[Episode]:
    maker = teacher().makers[False]
    return [maker.make(SHAPE, Random(seed)) for seed in range(30)]


def decoded(tokens: tuple[int, ...]) -> str:
    return str(tokenizer().decode(list(tokens), skip_special_tokens=False))


def test_a_prompt_is_token_for_token_what_the_daemon_would_send(episodes: list[Episode]) -> None:
    chat = ChatTokenizer(tokenizer().to_str(), CHAT_TEMPLATE, {})
    system = PromptSettings().system
    compared = 0
    for episode in episodes:
        for exchange in episode.exchanges:
            text = decoded(episode.prefix + exchange.question)
            if system not in text:
                continue
            user = text.split("<|im_start|>user\n")[1].split("<|im_end|>")[0]
            body, question = user.rsplit("\n\nQuestion: ", 1)
            passages = [part.split("] ", 1)[1] for part in body.split("\n\n")]
            assert user == user_text(passages, question)
            assert tuple(chat.encode_chat(system, user)) == episode.prefix + exchange.question
            compared += 1
    assert compared > 30


def test_an_answer_is_a_sentence_of_the_passages_and_its_number(episodes: list[Episode]) -> None:
    for episode in episodes:
        text = decoded(episode.prefix)
        for exchange in episode.exchanges:
            answer = decoded(exchange.answer)
            assert answer.endswith("<|im_end|>")
            if exchange.span is None:
                assert answer == f" {PromptSettings().not_found}<|im_end|>"
                continue
            sentence, marker = answer.removesuffix("<|im_end|>").rsplit(" [", 1)
            assert sentence in text
            assert 1 <= int(marker.removesuffix("]")) <= text.count("\n\n")
            start, end = exchange.span
            assert decoded(episode.prefix[start:end]) == sentence


def test_branches_are_the_places_where_other_sentences_part_from_the_answer(episodes: list[Episode]) -> None:
    for episode in episodes:
        said = {episode.prefix[start:end] for start, end in episode.spans}
        for exchange in episode.exchanges:
            for branch in exchange.branches:
                assert branch.allowed[0] == exchange.answer[branch.at]
                assert len(set(branch.allowed)) == len(branch.allowed) > 1
                begun = exchange.answer[: branch.at]
                follows = {other[branch.at] for other in said if other[: branch.at] == begun and len(other) > branch.at}
                assert follows <= set(branch.allowed)
    assert any(branch.at > 0 for e in episodes for x in e.exchanges for branch in x.branches)


def test_questions_are_about_what_one_sentence_says(episodes: list[Episode]) -> None:
    asked = [x for e in episodes for x in e.exchanges if x.span is not None]
    assert len(asked) > 60
    shared = 0
    for exchange in asked:
        question = set(decoded(exchange.question).lower().replace("?", "").split())
        shared += len(question & set(decoded(exchange.answer).lower().split())) > 1
    assert shared > 0.6 * len(asked)


def arrays(batch: Batch) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    return {field.name: np.asarray(getattr(batch, field.name)) for field in fields(batch)}


def test_a_batch_depends_on_seed_and_number_alone() -> None:
    first, second = islice(steps(100_000, 1000, seed=0), 2)
    maker = teacher()
    before = arrays(maker.batch(first))
    other = arrays(maker.batch(second))
    again = arrays(maker.batch(first))
    assert all(np.array_equal(before[name], again[name]) for name in before)
    assert not np.array_equal(before["token_ids"], other["token_ids"])
    assert not np.array_equal(before["token_ids"], teacher(1).batch(first).token_ids)


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_batches_do_not_depend_on_the_interpreters_hash_seed(hash_seed: str) -> None:
    program = (
        "from itertools import islice; from scripts.training.quoter.schedule import steps; "
        "from tests.unit.scripts.training.text import teacher; import hashlib; "
        "made = [teacher().batch(step).token_ids.tobytes() for step in islice(steps(100_000, 1000, 0), 8)]; "
        "print(hashlib.sha256(b''.join(made)).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    made = [teacher().batch(step).token_ids.tobytes() for step in islice(steps(100_000, 1000, 0), 8)]
    assert done.stdout.strip() == hashlib.sha256(b"".join(made)).hexdigest()


def test_predictions_stand_before_the_answers_tokens(episodes: list[Episode]) -> None:
    batch = make_batch(episodes[:4], SHAPE, 0.5, Random(0))
    for row, column, token in batch.targets:
        assert batch.token_ids[row, column + 1] == token
        assert batch.segments[row, column - SHAPE.prefix_tokens] >= 0
    assert np.array_equal(batch.allowed[:, 0], batch.targets[batch.choices, 2])


def test_positions_rise_and_an_exchange_goes_on_where_its_prefix_ends(episodes: list[Episode]) -> None:
    batch = make_batch(episodes, SHAPE, 1.0, Random(0))
    stretched = 0
    for row, episode in enumerate(episodes):
        size = len(episode.prefix)
        before = batch.positions[row, :size]
        assert (np.diff(before) > 0).all()
        stretched += before[-1] > size - 1
        for number in range(len(episode.exchanges)):
            own = batch.positions[row, SHAPE.prefix_tokens :][batch.segments[row] == number]
            assert own[0] > before[-1]
            assert (np.diff(own) == 1).all()
    assert stretched


def test_the_shorter_of_two_runs_is_the_longer_one_until_it_cools_down() -> None:
    stages = (
        Stage(4000, (EpisodeShape(10, 10, (1,), 5),), 0.0),
        Stage(None, (SHAPE, EpisodeShape(20, 20, (1,), 5)), 0.0),
    )
    short, long = (list(steps(tokens, 100, 3, stages)) for tokens in (100_000, 300_000))
    same = [step for step in short if step.begun < plateau(100_000)]
    assert same == long[: len(same)]
    assert short[len(same) + 1].rate < 1
    assert 0 < short[-1].rate < 0.1
    assert sum(step.tokens for step in short) >= 100_000 > short[-1].begun
    assert short != list(steps(100_000, 100, 4, stages))


def test_special_tokens_have_the_first_ids() -> None:
    assert [tokenizer().token_to_id(token) for token in SPECIAL_TOKENS] == [0, 1, 2]
