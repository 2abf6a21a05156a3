"""Writes a GGUF file as a model folder and compares it with the file's weights in float32. Runs as a program.

    python -m edge_rag.model_store.convert.prepare_gguf write FILE FOLDER    # FOLDER is created
    python -m edge_rag.model_store.convert.prepare_gguf compare FILE FOLDER

The last line of the output is a JSON object.
"""

from __future__ import annotations

import json
import resource
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.file_hash import file_sha256
from edge_rag.errors import EdgeRagError, ModelFolderInvalid
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.model_store.convert.comparison import LogitComparison, compare
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.gguf.architectures import describe_decoder
from edge_rag.runtime.gguf.file import GgufFile
from edge_rag.runtime.gguf.tokenizer import read_tokenizer
from edge_rag.runtime.gguf.weights import GgufWeights
from edge_rag.runtime.lowering.decoder_graph import write_decoder
from edge_rag.runtime.lowering.reference_decoder import reference_logits
from edge_rag.runtime.lowering.verification import teacher_forced_logits

_MAX_CONTEXT = 32_768
"""Longest context of a converted model, tokens."""

_TEXTS = Path(__file__).with_name("texts.txt")
_TEXT_TOKENS = 128
"""Tokens of each text that is compared."""


def write(path: Path, folder: Path) -> dict[str, object]:
    """Writes the model's files; returns its sizes and what its manifest says."""
    file = GgufFile(path)
    description = describe_decoder(file, _MAX_CONTEXT)
    tokenizer = read_tokenizer(file)
    template = file.text("tokenizer.chat_template", "")
    if not template:
        raise ModelFolderInvalid(f"{path.name}: tokenizer.chat_template is missing; a chat or instruct model has one")
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(_special_tokens(file)))
    (folder / "chat_template.jinja").write_text(template)
    ChatTokenizer.open(folder)
    write_decoder(description, GgufWeights(file, description), folder, {path.name: file_sha256(path)})
    sizes = description.geometry
    types = Counter(tensor.type.name for tensor in file.tensors.values() if len(tensor.shape) == 2)
    return {
        "licence": file.text("general.license", "NOASSERTION"),
        "weights": ", ".join(f"{name} ({count})" for name, count in types.most_common()),
        "family": file.text("general.architecture"),
        "architecture": file.text("general.architecture"),
        "sizes": {**asdict(sizes), "end_tokens": sorted(sizes.end_tokens), "page_bytes": sizes.page_bytes},
    }


def compare_with_file(path: Path, folder: Path) -> dict[str, object]:
    """Compares the model's logits with those of the file's weights in float32, on texts of several kinds."""
    file = GgufFile(path)
    description = describe_decoder(file, _MAX_CONTEXT)
    texts = list(_texts(ChatTokenizer.open(folder), description.max_context))
    pages = -(-max(text.size for text in texts) // description.geometry.page_tokens)
    decoder = PagedDecoder.open(folder, pages)
    teacher_forced_logits(decoder, texts[0][:1], 1)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    expected = reference_logits(description, GgufWeights(file, description), texts)
    found = [teacher_forced_logits(decoder, text, text.size) for text in texts]
    comparison: LogitComparison = compare(np.concatenate(expected), np.concatenate(found))
    return {**asdict(comparison), "good": comparison.passes_gate, "resident_bytes": resident}


def _texts(tokenizer: ChatTokenizer, max_context: int) -> Iterator[NDArray[np.int64]]:
    for text in _TEXTS.read_text("utf-8").split("\n\n---\n\n"):
        yield np.array(tokenizer.encode(text)[: min(_TEXT_TOKENS, max_context)], np.int64)


def _special_tokens(file: GgufFile) -> dict[str, str]:
    tokens = file.strings("tokenizer.ggml.tokens")
    keys = {name: f"tokenizer.ggml.{name}_token_id" for name in ("bos", "eos")}
    return {
        f"{name}_token": tokens[file.integer(key, 0, len(tokens) - 1)]
        for name, key in keys.items()
        if key in file.metadata
    }


def main(arguments: list[str]) -> int:
    """Runs one of the steps; returns the exit status."""
    step, path, folder = arguments
    steps = {"write": write, "compare": compare_with_file}
    try:
        print(json.dumps(steps[step](Path(path), Path(folder))))  # noqa: T201
    except EdgeRagError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
