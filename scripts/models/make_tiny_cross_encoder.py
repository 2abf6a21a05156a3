"""Makes tests/fixtures/tiny-cross-encoder: a random BERT cross-encoder as Hugging Face's classes export it.

    python scripts/models/make_tiny_cross_encoder.py [--output FOLDER]

Beside the folder, ``FOLDER-int8`` is the same model as make_cross_encoder.py makes it, and ``FOLDER.npz`` keeps pairs
of texts and the scores that Hugging Face's fp32 gives them.
"""

from __future__ import annotations

import argparse
import string
import tempfile
from pathlib import Path

import numpy as np
import onnx
import torch
from make_cross_encoder import make_folder
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification

from edge_rag.runtime.encoder.bert_graph import WeightPrecision
from edge_rag.runtime.model_folder.folder import ModelRole, write_manifest

REPOSITORY = Path(__file__).resolve().parents[2]
MAX_TOKENS = 48
PAIRS = (
    ("how often", "grease the bearings every month"),
    ("how often", "the valve opens at eleven bar"),
    ("where is the valve", "a"),
    ("x", "never plug a relief valve that lifts"),
)


def build_tokenizer() -> Tokenizer:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    characters = string.ascii_lowercase + string.digits + ".,"
    words = [*special, *characters, *(f"##{character}" for character in characters)]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    return tokenizer


def without_traces(model: onnx.ModelProto) -> onnx.ModelProto:
    """Drops the exporter's notes, which hold stack traces with the paths of the machine it ran on."""
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    del model.functions[:]
    for part in (*model.graph.node, *model.graph.input, *model.graph.output, *model.graph.value_info):
        del part.metadata_props[:]
        part.doc_string = ""
    for tensor in model.graph.initializer:
        del tensor.metadata_props[:]
    return model


class Scorer(torch.nn.Module):
    """Takes the inputs in the order of the export, and gives the logits alone."""

    def __init__(self, model: BertForSequenceClassification) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids, attention_mask=mask, token_type_ids=types).logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=REPOSITORY / "tests" / "fixtures" / "tiny-cross-encoder")
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer()
    tokenizer.save(str(output / "tokenizer.json"))
    torch.manual_seed(11)
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=MAX_TOKENS,
        num_labels=1,
        # Ten times the usual spread: scores of a random model are otherwise all but equal.
        initializer_range=0.2,
        attn_implementation="eager",
    )
    scorer = Scorer(BertForSequenceClassification(config)).eval()
    # One tensor each: the exporter takes arguments that are the same object for the same input.
    example = tuple(torch.full((2, 8), value, dtype=torch.int64) for value in (1, 1, 0))
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens", max=MAX_TOKENS)}
    program = torch.onnx.export(
        scorer,
        example,
        input_names=["input_ids", "attention_mask", "token_type_ids"],
        output_names=["logits"],
        dynamic_shapes=(axes, axes, axes),
        dynamo=True,
        verbose=False,
    )
    onnx.save(without_traces(program.model_proto), output / "model.onnx")
    write_manifest(
        output,
        name="tiny-cross-encoder",
        role=ModelRole.RERANKER,
        licence="Apache-2.0",
        source="random weights, seed 11",
        made_by="scripts/models/make_tiny_cross_encoder.py",
        parameters={"max_tokens": MAX_TOKENS},
    )
    with tempfile.TemporaryDirectory() as checkpoint:
        scorer.model.save_pretrained(checkpoint)
        tokenizer.save(str(Path(checkpoint) / "tokenizer.json"))
        make_folder(
            Path(checkpoint),
            output.with_name(f"{output.name}-int8"),
            WeightPrecision(bits=8, block_size=128),
            name="tiny-cross-encoder-int8",
            licence="Apache-2.0",
            source="random weights, seed 11",
            made_by="scripts/models/make_tiny_cross_encoder.py",
        )
    scores = []
    for first, second in PAIRS:
        encoding = tokenizer.encode(first, second)
        ids, types = torch.tensor([encoding.ids]), torch.tensor([encoding.type_ids])
        with torch.no_grad():
            scores.append(scorer(ids, torch.ones_like(ids), types).item())
    np.savez(output.with_suffix(".npz"), pairs=np.array(PAIRS), scores=np.array(scores, np.float32))
    print(f"wrote {output}: scores {[round(score, 3) for score in scores]}")


if __name__ == "__main__":
    main()
