"""Makes a model folder of a BERT cross-encoder: INT8, pairs end to end, one score a pair, or logits of labels.

    python -m scripts.models.make_cross_encoder CHECKPOINT --output FOLDER --licence LICENCE

CHECKPOINT is a Hugging Face folder of a BertForSequenceClassification with one label (``config.json``,
``model.safetensors``, ``tokenizer.json``), such as the ms-marco-MiniLM models. Needs the ``reference`` extra.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

import onnx
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from edge_rag.runtime.encoder.bert_graph import BertShape, WeightPrecision, build_cross_encoder
from edge_rag.runtime.model_folder.folder import ModelRole, write_manifest

LONGEST = 512


def make_folder(
    checkpoint: Path,
    output: Path,
    precision: WeightPrecision | None,
    name: str,
    licence: str,
    source: str,
    made_by: str,
) -> None:
    """Writes the folder; what was in its files is replaced.

    Raises:
        SystemExit: A reranker has more than one label.
    """
    config = json.loads((checkpoint / "config.json").read_text())
    shape = BertShape.of(config, LONGEST)
    weights = {key.removeprefix("bert."): tensor for key, tensor in load_file(checkpoint / "model.safetensors").items()}
    labels = len(weights["classifier.bias"])
    if labels != 1:
        raise SystemExit(f"{checkpoint}: has {labels} labels, one is wanted")
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    output.mkdir(parents=True, exist_ok=True)
    onnx.save(build_cross_encoder(weights, shape, precision), output / "model.onnx")
    tokenizer.save(str(output / "tokenizer.json"), pretty=False)
    write_manifest(
        output,
        name=name,
        role=ModelRole.RERANKER,
        licence=licence,
        source=source,
        made_by=made_by,
        parameters={"max_tokens": shape.max_tokens},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="Hugging Face folder")
    parser.add_argument("--output", type=Path, required=True, help="model folder to write")
    parser.add_argument("--licence", required=True, help="of the weights, an SPDX name")
    arguments = parser.parse_args()
    try:
        digest = hashlib.sha256((arguments.checkpoint / "model.safetensors").read_bytes()).hexdigest()
        make_folder(
            arguments.checkpoint,
            arguments.output,
            WeightPrecision(bits=8, block_size=128),
            name=arguments.output.name,
            licence=arguments.licence,
            source=f"{arguments.checkpoint.name}; model.safetensors SHA-256 {digest}",
            made_by="scripts/models/make_cross_encoder.py: 8-bit weights and activations, a scale for every 128",
        )
    except (OSError, KeyError, ValueError) as error:
        raise SystemExit(f"{arguments.checkpoint}: {error}") from error
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
