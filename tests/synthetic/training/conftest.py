"""What trainings in the tests begin with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.synthetic.tiny_model import FIXTURES

TOKENIZER = FIXTURES / "tiny-cross-encoder" / "tokenizer.json"


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder with random weights."""
    import torch
    from tokenizers import Tokenizer
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("start")
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=Tokenizer.from_file(str(TOKENIZER)).get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=256,
    )
    BertModel(config).save_pretrained(folder)
    shutil.copyfile(TOKENIZER, folder / "tokenizer.json")
    return folder
