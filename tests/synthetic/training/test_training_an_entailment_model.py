"""A tiny entailment model is trained, stopped, gone on with, and made a model folder of."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from edge_rag.runtime.encoder.bert_graph import WeightPrecision
from edge_rag.runtime.encoder.entailment import EntailmentModel
from edge_rag.runtime.model_folder.folder import ModelRole
from scripts.training.entailment.pairs import LABELS, Pair, Verdict
from tests.synthetic.tiny_model import FIXTURES

pytestmark = pytest.mark.convert

WORDS = ["valve", "pump", "bearing", "month", "grease", "plug"]
TEXTS = [f"the {one} of the {two}" for one in WORDS for two in WORDS]
PAIRS = [Pair(text, text, Verdict.ENTAILMENT) for text in TEXTS]
PAIRS += [
    Pair(text, f"never {text}", random.Random(text).choice([*LABELS[1:], Verdict.NOT_ENTAILED])) for text in TEXTS
]
OPTIONS = ["--clones", "unused", "--steps", "10", "--batch", "4", "--warm-up", "2", "--max-tokens", "64"]


def trained(start: Path, output: Path, *options: str) -> dict[str, Any]:
    from safetensors.numpy import load_file

    from scripts.training.entailment.__main__ import parse, train

    arguments = parse(["--output", str(output), "--start", str(start), *OPTIONS, *options])
    train(arguments, PAIRS, Console(quiet=True))
    return dict(load_file(output / "checkpoint" / "model.safetensors"))


def test_a_run_is_made_shorter_without_another_result(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scripts.training.loop import Optimization

    whole = trained(start, tmp_path / "whole")
    saved: list[int] = []

    def stopped(run: Optimization, save: Any = Optimization.save) -> None:
        save(run)
        saved.append(run.step)
        if run.step == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Optimization, "save", stopped)
    with pytest.raises(KeyboardInterrupt):
        trained(start, tmp_path / "parts", "--steps", "12", "--save-every", "4")
    monkeypatch.undo()
    assert saved == [4]
    parts = trained(start, tmp_path / "parts", "--save-every", "4")
    for name, tensor in whole.items():
        np.testing.assert_array_equal(tensor, parts[name], err_msg=name)


def test_another_length_is_refused_once_the_learning_rate_falls(start: Path, tmp_path: Path) -> None:
    trained(start, tmp_path)
    with pytest.raises(SystemExit, match="other options"):
        trained(start, tmp_path, "--steps", "20")


def test_only_what_is_known_of_a_verdict_is_learned() -> None:
    import torch

    from scripts.training.entailment.__main__ import loss_of

    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2]]))
    expected = {Verdict.ENTAILMENT: 0.5, Verdict.NEUTRAL: 0.3, Verdict.CONTRADICTION: 0.2, Verdict.NOT_ENTAILED: 0.5}
    for verdict, probability in expected.items():
        loss, right = loss_of(logits, [Pair("a", "b", verdict)])
        assert float(loss) == pytest.approx(-np.log(probability), rel=1e-5)
        assert right == (verdict is Verdict.ENTAILMENT)


def test_the_checkpoint_becomes_a_model_folder_that_judges_as_torch_does(start: Path, tmp_path: Path) -> None:
    import torch
    from tokenizers import Tokenizer
    from transformers import BertForSequenceClassification

    from scripts.models.make_cross_encoder import make_folder

    trained(start, tmp_path)
    checkpoint = tmp_path / "checkpoint"
    named: dict[str, Any] = {"name": "tiny", "licence": "Apache-2.0", "source": "a test", "made_by": "a test"}
    precision = WeightPrecision(bits=8, block_size=128)
    make_folder(checkpoint, tmp_path / "folder", precision, **named, role=ModelRole.ENTAILMENT, max_tokens=64)
    found = EntailmentModel.open(tmp_path / "folder").probabilities([(TEXTS[0], text) for text in TEXTS[:4]])
    model: Any = BertForSequenceClassification.from_pretrained(checkpoint).eval()
    assert list(model.config.id2label.values()) == [label.value for label in LABELS]
    for row, text in zip(found, TEXTS[:4], strict=True):
        encoded = Tokenizer.from_file(str(FIXTURES / "tiny-cross-encoder" / "tokenizer.json")).encode(TEXTS[0], text)
        with torch.no_grad():
            logits = model(
                input_ids=torch.tensor([encoded.ids]), token_type_ids=torch.tensor([encoded.type_ids])
            ).logits
        np.testing.assert_allclose(row, torch.softmax(logits, dim=-1)[0].numpy(), atol=0.02)
    with pytest.raises(SystemExit, match="has 3 labels, one is wanted"):
        make_folder(checkpoint, tmp_path / "scores", precision, **named)
