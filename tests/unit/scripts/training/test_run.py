"""A run gives the same weights each time, also when it is interrupted, and a model that Hugging Face runs alike."""

from __future__ import annotations

import hashlib
import io
import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from edge_rag.generator.prompt.template import PromptSettings, user_text
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from tests.unit.scripts.training.text import VOCABULARY, corpus, tokenizer

if TYPE_CHECKING:
    from scripts.training.quoter.run import Run

pytestmark = pytest.mark.convert

STEPS = 24
TOKENS_OF_A_STEP = 256


@pytest.fixture(autouse=True)
def torch_as_before() -> Iterator[None]:
    """A run sets what torch does in the whole process."""
    import torch

    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(strict)
    torch.utils.deterministic.fill_uninitialized_memory = filled


def made(folder: Path, seed: int = 0, tokens: int = STEPS * TOKENS_OF_A_STEP, **changed: Any) -> Run:
    from scripts.training.quoter.decoder import ModelSize
    from scripts.training.quoter.run import Run, RunSettings

    size = ModelSize(
        vocabulary=VOCABULARY,
        hidden=64,
        layers=2,
        heads=4,
        key_value_heads=2,
        head_size=16,
        intermediate=128,
        looking_layer=1,
    )
    settings = RunSettings(
        seed=seed,
        tokens=tokens,
        step_tokens=TOKENS_OF_A_STEP,
        size=size,
        matrix_rate=0.02,
        other_rate=0.004,
        device="cpu",
        threads=1,
        compiled=False,
        questions=4,
    )
    return Run(replace(settings, **changed), corpus(), tokenizer(), folder, "test")


def trained(run: Run, interrupted: Callable[[], bool] = lambda: False) -> bool:
    return run.train(lambda told: None, 1000.0, interrupted)


def weights(run: Run) -> str:
    return hashlib.sha256((run.export(None) / "model.safetensors").read_bytes()).hexdigest()


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path: Path) -> None:
    runs = [made(tmp_path / name, seed) for name, seed in (("a", 0), ("b", 0), ("c", 1))]
    assert all(trained(run) for run in runs)
    first, second, other = map(weights, runs)
    assert first == second != other


def test_an_interrupted_run_goes_on_to_the_weights_of_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = made(tmp_path / "whole")
    assert trained(whole)
    begun = made(tmp_path / "parts")
    assert not trained(begun, lambda: begun.progress.steps == 7)
    resumed = made(tmp_path / "parts")
    resumed.resume()
    assert resumed.progress.steps == 7
    assert weights(begun) == weights(resumed)
    assert trained(resumed)
    assert weights(resumed) == weights(whole)


def test_a_run_is_not_resumed_with_other_settings_or_shortened_too_late(tmp_path: Path) -> None:
    from scripts.training.quoter.checkpoint import DifferentRun

    run = made(tmp_path)
    trained(run, lambda: run.progress.steps == STEPS // 2)
    with pytest.raises(DifferentRun, match="seed was 0 and is 1"):
        made(tmp_path, seed=1).resume()
    with pytest.raises(DifferentRun, match="is the same run only up to"):
        made(tmp_path, tokens=STEPS // 2 * TOKENS_OF_A_STEP).resume()
    longer = made(tmp_path, tokens=10 * STEPS * TOKENS_OF_A_STEP)
    longer.resume()
    assert longer.progress.steps == STEPS // 2


def test_ctrl_c_ends_after_the_step_at_hand_with_a_state_to_go_on_from(tmp_path: Path) -> None:
    from scripts.training.quoter.command import _train

    class Interrupting(io.StringIO):
        """Stands for a terminal whose user presses Ctrl-C at the first report."""

        def write(self, text: str) -> int:
            if "step 20" in text:
                signal.raise_signal(signal.SIGINT)
            return super().write(text)

    run = made(tmp_path)
    before = signal.getsignal(signal.SIGINT)
    assert not _train(run, run.settings, 1000.0, Console(file=Interrupting(), width=200))
    assert signal.getsignal(signal.SIGINT) is before
    assert 20 <= run.progress.steps < STEPS
    resumed = made(tmp_path)
    resumed.resume()
    assert resumed.progress.steps == run.progress.steps
    assert trained(resumed)


def test_training_makes_what_is_trained_on_likelier_and_is_logged(tmp_path: Path) -> None:
    run = made(tmp_path, tokens=80 * TOKENS_OF_A_STEP)
    trained(run)
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log] == [20, 40, 60, 80]
    assert log[-1]["answer"] < log[0]["answer"] - 0.5
    assert log[-1]["tokens"] == 80 * TOKENS_OF_A_STEP


def test_what_is_written_says_how_it_came_to_be(tmp_path: Path) -> None:
    run = made(tmp_path)
    trained(run)
    measured = run.evaluate()
    assert measured.questions >= 4
    assert 0 <= measured.right <= 1
    told = json.loads((run.export(measured) / "training.json").read_text())
    assert told["seed"] == 0
    assert told["steps"] == STEPS
    assert told["tokens_done"] == STEPS * TOKENS_OF_A_STEP
    assert told["sources"] == corpus().sources
    assert told["corpus_sha256"] == corpus().sha256
    assert told["held_out"]["questions"] == measured.questions


def test_hugging_face_loads_the_model_and_gives_the_same_logits(tmp_path: Path) -> None:
    import torch
    from transformers import AutoTokenizer, Qwen3ForCausalLM

    from scripts.training.quoter.decoder import exchange_mask

    run = made(tmp_path)
    trained(run)
    folder = run.export(None)
    theirs = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompt = user_text(["The statement is executed.", "A name is bound."], "What is bound?")
    ids = ChatTokenizer.open(folder).encode_chat(PromptSettings().system, prompt)
    messages = [{"role": "system", "content": PromptSettings().system}, {"role": "user", "content": prompt}]
    rendered = AutoTokenizer.from_pretrained(folder).apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
    assert list(rendered) == ids
    token_ids = torch.tensor([ids])
    # Part of the prompt as prefix, the rest as its only exchange: both paths through attention.
    prefix = len(ids) // 2
    segments = torch.zeros(1, len(ids) - prefix, dtype=torch.long)
    mask = exchange_mask(torch.tensor([prefix]), segments, prefix, torch.float32)
    with torch.no_grad():
        outputs = run.model(token_ids, torch.arange(len(ids))[None], mask, prefix)
        ours = run.model.logits(outputs.stream[0], torch.float32).numpy()
        expected = theirs(token_ids).logits[0].numpy()
    np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-3)


def test_an_exchange_sees_its_prefix_and_itself_alone(tmp_path: Path) -> None:
    import torch

    from scripts.training.quoter.decoder import exchange_mask

    prefixes, segments = torch.tensor([2]), torch.tensor([[0, 0, 1, 1, -1]])
    sees = exchange_mask(prefixes, segments, 3, torch.float32)[0, 0] == 0
    assert sees.int().tolist() == [
        [1, 1, 0, 1, 0, 0, 0, 0],
        [1, 1, 0, 1, 1, 0, 0, 0],
        [1, 1, 0, 0, 0, 1, 0, 0],
        [1, 1, 0, 0, 0, 1, 1, 0],
        [1, 1, 0, 0, 0, 0, 0, 1],
    ]


def test_the_command_says_what_to_do_without_text_without_a_run_and_over_one(tmp_path: Path) -> None:
    from scripts.training.quoter.command import train_quoter

    done = CliRunner().invoke(train_quoter, ["--text", str(tmp_path), "--out", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "--fetch downloads what is missing" in done.output
    assert not (tmp_path / "out").exists()
    resumed = CliRunner().invoke(train_quoter, ["--text", str(tmp_path), "--out", str(tmp_path), "--resume"])
    assert "holds no run to go on with" in resumed.output
    (tmp_path / "state.pt").write_bytes(b"")
    again = CliRunner().invoke(train_quoter, ["--text", str(tmp_path), "--out", str(tmp_path)])
    assert "holds a run; --resume goes on with it" in again.output
    assert (again.exit_code, resumed.exit_code) == (1, 1)
    assert "Examples:" in CliRunner().invoke(train_quoter, ["--help"]).output


def test_before_its_first_step_a_model_repeats_likelier_than_chance_what_followed_a_token_before() -> None:
    import torch

    from scripts.training.quoter.decoder import Decoder, ModelSize, exchange_mask

    torch.manual_seed(0)
    size = ModelSize()
    model = Decoder(size)
    token_ids = torch.randint(3, size.vocabulary, (1, 200))
    token_ids[0, 150:190] = token_ids[0, 20:60]
    mask = exchange_mask(torch.tensor([100]), torch.zeros(1, 100, dtype=torch.long), 100, torch.float32)
    with torch.no_grad():
        stream = model(token_ids, torch.arange(200)[None], mask, 100).stream[0]
        likely = model.logits(stream, torch.float32).log_softmax(-1)
    repeated = torch.arange(151, 189)
    following = likely[repeated, token_ids[0, repeated + 1]].mean()
    others = likely[repeated][:, token_ids[0, 60:140]].mean()
    assert following > others + 0.1
