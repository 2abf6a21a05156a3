"""Measures how well the encoder ranks on the NPU, or its simulator, as it does on processor cores.

    python -m scripts.bench.encoders.npu_agreement [--data FILE] [--questions N] [--passages N] [--compiled FOLDER]

Questions and passages are taken evenly from a file in SQuAD format. Printed are the cosines between both encoders'
vectors and Spearman's correlation of the passages' order by each, for one vector a text and for token vectors, a
question at a time and over all scores. On the simulator a text takes half a second to several seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.placement import ModelStage
from edge_rag.device.profile import builtin_profiles
from edge_rag.runtime.encoder.npu.encoders import open_text_encoder_on_npu
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.encoder.token_vectors import TokenVectors

REPOSITORY = Path(__file__).resolve().parents[3]

Scores = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Spearman's correlation of two rankings: over all scores, and a question's on the average and at least."""

    all: float
    mean: float
    least: float


def spearman(one: Scores, other: Scores) -> float:
    ranks = [np.argsort(np.argsort(scores.reshape(-1))) for scores in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def agreement(one: Scores, other: Scores) -> Agreement:
    each = [spearman(left, right) for left, right in zip(one, other, strict=True)]
    return Agreement(spearman(one, other), float(np.mean(each)), min(each))


def max_sim(questions: list[TokenVectors], passages: list[TokenVectors]) -> Scores:
    return np.array(
        [[(one.vectors @ other.vectors.T).max(axis=1).mean() for other in passages] for one in questions], np.float32
    )


def main() -> None:
    shared = Path(os.environ.get("EDGE_RAG_SHARED", REPOSITORY.parent / "shared"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=shared / "data" / "xquad-a.json", help="questions, SQuAD format")
    parser.add_argument("--model", type=Path, default=REPOSITORY / "models" / "minilm-l6", help="an embedder's folder")
    parser.add_argument("--questions", type=int, default=24, help="how many questions")
    parser.add_argument("--passages", type=int, default=24, help="how many passages")
    parser.add_argument("--compiled", type=Path, help="where compiled graphs are kept; left out, nowhere")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise SystemExit(f"{arguments.data} is not there; name a file in SQuAD format with --data")
    articles = json.loads(arguments.data.read_text(encoding="utf-8"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    asked = [paragraph["qas"][0]["question"] for paragraph in paragraphs][:: -(-len(paragraphs) // arguments.questions)]
    told = [paragraph["context"] for paragraph in paragraphs][:: -(-len(paragraphs) // arguments.passages)]
    (profile,) = (profile for profile in builtin_profiles() if profile.name == "qnn-htp")
    options = profile.stages[ModelStage.EMBEDDER].providers[0].options
    with ExitStack() as scratch:
        compiled = arguments.compiled or Path(scratch.enter_context(tempfile.TemporaryDirectory()))
        npu = open_text_encoder_on_npu(arguments.model, options, compiled, lambda graph: print(graph, flush=True))
        encoders = npu, TextEncoder.open(arguments.model)
        vectors = [(encoder.embed_questions(asked), encoder.embed(told)) for encoder in encoders]
        tokens = [(encoder.token_vectors(asked), encoder.token_vectors(told)) for encoder in encoders]
    cosines = np.concatenate([(one * other).sum(axis=1) for one, other in zip(*vectors, strict=True)])
    by_vector = agreement(vectors[0][0] @ vectors[0][1].T, vectors[1][0] @ vectors[1][1].T)
    by_token = agreement(max_sim(*tokens[0]), max_sim(*tokens[1]))
    if arguments.json:
        rankings = {"by_vector": asdict(by_vector), "by_token": asdict(by_token)}
        print(json.dumps({"least_cosine": float(cosines.min()), "mean_cosine": float(cosines.mean()), **rankings}))
        return
    print(f"{len(asked)} questions, {len(told)} passages; cosine {cosines.mean():.4f}, at least {cosines.min():.4f}")
    for name, found in (("one vector a text", by_vector), ("max-sim of tokens", by_token)):
        print(f"{name}: Spearman {found.all:.4f} over all, {found.mean:.4f} a question, at least {found.least:.4f}")


if __name__ == "__main__":
    main()
