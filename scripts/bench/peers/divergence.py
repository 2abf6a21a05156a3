"""How far each program's next-token distributions are from those of a GGUF file's weights in float32."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.model_store.convert import comparison
from edge_rag.model_store.convert.comparison import LogitComparison, compare
from edge_rag.runtime.gguf.architectures import describe_decoder
from edge_rag.runtime.gguf.file import GgufFile
from edge_rag.runtime.gguf.weights import GgufWeights
from edge_rag.runtime.lowering.reference_decoder import reference_logits
from scripts.bench.harness.command import ROOT
from scripts.bench.harness.processes import ProgramFailed, run_program
from scripts.bench.peers.contenders import DECODER, ENGINE, Contender

TEXTS = Path(comparison.__file__).with_name("texts.txt")
"""The texts that `models add` compares on."""

TEXT_TOKENS = 256
"""Most tokens of each text."""

_MAX_CONTEXT = 32_768


def divergences(
    source: Path,
    ready: Sequence[Contender],
    threads: int,
    timeout_s: float,
    failures: dict[str, str],
) -> Mapping[str, LogitComparison]:
    """Compares every program's logits with the reference's.

    Returns:
        The comparisons by name.
    """
    ours = next((one for one in ready if one.environment is None), None)
    if ours is None:
        return {}
    file = GgufFile(source)
    description = describe_decoder(file, _MAX_CONTEXT)
    tokenizer = ChatTokenizer.open(ours.model)
    texts = [
        np.array(tokenizer.encode(text)[:TEXT_TOKENS], np.int64)
        for text in TEXTS.read_text("utf-8").split("\n\n---\n\n")
    ]
    expected = np.concatenate(reference_logits(description, GgufWeights(file, description), texts))
    found: dict[str, LogitComparison] = {}
    with tempfile.TemporaryDirectory() as scratch:
        packed = Path(scratch) / "texts.npz"
        np.savez(packed, *texts)
        for contender in ready:
            if contender.name == ENGINE and DECODER in found:
                found[ENGINE] = found[DECODER]
                continue
            try:
                logits = _logits(contender, packed, Path(scratch) / "logits.npy", threads, timeout_s)
            except ProgramFailed as error:
                failures[contender.name] = f"divergence: {error}"
            else:
                # Some heads are padded: what lies past the vocabulary is no token.
                found[contender.name] = compare(expected, logits[:, : expected.shape[1]])
    return found


def _logits(contender: Contender, texts: Path, target: Path, threads: int, timeout_s: float) -> NDArray[np.float32]:
    command = [contender.python, "-m", contender.module, str(contender.model), "--texts", str(texts)]
    options = [option for option in contender.options if option != "--engine"]
    run_program([*command, "--logits", str(target), f"--threads={threads}", *options], ROOT, timeout_s)
    logits: NDArray[np.float32] = np.load(target)
    return logits
