"""A tiny cross-encoder is trained, stopped, gone on with, and made a model folder of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console

from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from scripts.training.reranker.corpus import TrainingText
from tests.synthetic.tiny_model import FIXTURES

if TYPE_CHECKING:
    from scripts.training.reranker.examples import Example
    from scripts.training.reranker.training import Trainer

pytestmark = pytest.mark.convert

ROOT = Path(__file__).parents[3]
NAMES = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett", "kilo", "lima"]
TEXTS = [
    TrainingText(
        f"thing {name}",
        f"Number {number} is kept in room {name}. Whoever needs number {number} must ask in the {name} office.",
        f"where {name} is kept",
    )
    for number, name in enumerate(NAMES)
]


@pytest.fixture(scope="module")
def trained(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command does, on other texts than an archive's."""
    from scripts.training.reranker.__main__ import parse, train

    output = tmp_path_factory.mktemp("trained")
    small = ["--steps", "3", "--lists", "2", "--negatives", "3", "--max-tokens", "200", "--frozen-layers", "1"]
    train(parse(["--output", str(output), "--start", str(start), *small]), TEXTS, Console(quiet=True))
    return output / "checkpoint"


def tensors(checkpoint: Path) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return dict(load_file(checkpoint / "model.safetensors"))


def easy(number: int) -> Example:
    from scripts.training.reranker.examples import Example
    from scripts.training.reranker.questions import QuestionKind

    return Example(QuestionKind.ASKED, "where", ("yes yes yes", "no no no", "no no", "no"), (0.0, 0.0, 0.0, 0.0))


def trainer(start: Path, folder: Path, rate: float = 3e-3) -> tuple[Trainer, Any]:
    from scripts.training.pair_model import PairModel
    from scripts.training.reranker.training import Schedule, Trainer

    model = PairModel(start, 64, frozen_layers=0, half=False, seed=1)
    return Trainer(model, Schedule(20, 2, rate, 3, 100), "tiny", folder), model


def test_only_layers_that_are_not_frozen_change(start: Path, trained: Path) -> None:
    before = {f"bert.{name}": tensor for name, tensor in tensors(start).items()}
    after = tensors(trained)
    changed = {name for name, tensor in before.items() if not np.array_equal(tensor, after[name])}
    assert any("layer.1" in name for name in changed)
    assert not any("embeddings" in name or "layer.0" in name for name in changed)


def test_training_puts_the_right_passage_first(start: Path, tmp_path: Path) -> None:
    training, model = trainer(start, tmp_path)
    losses: list[float] = []
    assert training.run(easy, lambda progress: losses.append(progress.loss), lambda: False)
    assert len(losses) == training.step == 20
    assert losses[-1] < losses[0]
    example = easy(0)
    assert model.scores([(example.question, passage) for passage in example.passages]).argmax() == 0


def test_a_run_that_was_stopped_ends_with_the_weights_of_one_that_was_not(start: Path, tmp_path: Path) -> None:
    whole, model = trainer(start, tmp_path / "whole")
    whole.run(easy, lambda progress: None, lambda: False)
    model.save(tmp_path / "whole")
    stopped, _ = trainer(start, tmp_path / "parts")
    assert not stopped.run(easy, lambda progress: None, lambda: stopped.step == 7)
    resumed, model = trainer(start, tmp_path / "parts")
    resumed.resume()
    assert resumed.step == 7
    assert resumed.run(easy, lambda progress: None, lambda: False)
    model.save(tmp_path / "parts")
    one, two = tensors(tmp_path / "whole"), tensors(tmp_path / "parts")
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        np.testing.assert_array_equal(tensor, two[name], err_msg=name)


def test_a_state_of_other_options_is_refused(start: Path, tmp_path: Path) -> None:
    first, _ = trainer(start, tmp_path)
    first.save()
    other, _ = trainer(start, tmp_path, rate=0.5)
    with pytest.raises(SystemExit, match="other options"):
        other.resume()


def test_the_first_ctrl_c_lets_a_step_end_and_the_second_does_not() -> None:
    from scripts.training.loop import stop_request

    before = signal.getsignal(signal.SIGINT)
    with stop_request(Console(quiet=True)) as stopping:
        os.kill(os.getpid(), signal.SIGINT)
        assert stopping.wait(10)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_checkpoint_becomes_a_model_folder_that_scores_as_torch_does(trained: Path, tmp_path: Path) -> None:
    import torch
    from transformers import BertForSequenceClassification

    folder = tmp_path / "folder"
    command = [sys.executable, "-m", "scripts.models.make_cross_encoder", str(trained)]
    command += ["--output", str(folder), "--licence", "Apache-2.0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    encoder = PairEncoder.open(folder)
    pairs = [("where is alpha kept", text.text) for text in TEXTS[:4]]
    model = BertForSequenceClassification.from_pretrained(trained).eval()
    with torch.no_grad():
        expected = [_score(model, question, passage) for question, passage in pairs]
    np.testing.assert_allclose(encoder.score(pairs), expected, atol=0.02)


def _score(model: Any, question: str, passage: str) -> float:
    import torch
    from tokenizers import Tokenizer

    encoded = Tokenizer.from_file(str(FIXTURES / "tiny-cross-encoder" / "tokenizer.json")).encode(question, passage)
    ids, types = torch.tensor([encoded.ids]), torch.tensor([encoded.type_ids])
    return float(model(input_ids=ids, token_type_ids=types).logits[0, 0])
