"""Makes a model folder of the checkpoint of ``scripts.training.entailment``: one INT8 ONNX graph.

    python -m scripts.models.make_entailment CHECKPOINT --output FOLDER

Nothing is written when the INT8 graph judges too many of the sixty claims of the benchmark otherwise than fp32. Needs
the ``reference`` extra.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np

from edge_rag.runtime.encoder.bert_graph import WeightPrecision
from edge_rag.runtime.encoder.entailment import EntailmentModel
from edge_rag.runtime.model_folder.folder import ModelRole, read_manifest, write_manifest
from scripts.models.make_cross_encoder import make_folder
from scripts.training.entailment.sources import SOURCES

REPOSITORY = Path(__file__).resolve().parents[2]
CLAIMS = REPOSITORY / "scripts" / "bench" / "quality" / "entailment" / "claims.json"
MAX_TOKENS = 256
PRECISION = WeightPrecision(bits=8, block_size=128)
LEAST_AGREEMENT = 0.97
MOST_BYTES = 25_000_000
NOTICE = """Weights: all-MiniLM-L6-v2 of the sentence-transformers project (Apache-2.0), trained further by edge-rag
(scripts/training/entailment) on pairs of sentences from these data sets and on sentences altered by program. They are
published under CC-BY-SA-4.0, the licence of the data sets.

{sources}

SNLI: Bowman et al., A large annotated corpus for learning natural language inference, 2015.
Counterfactually-augmented data: Kaushik et al., Learning the difference that makes a difference, 2020.
MultiNLI: Williams et al., A broad-coverage challenge corpus for sentence understanding through inference, 2018.
Wikipedia pairs: Vania et al., Asking crowdworkers to write entailment examples, 2020.
MED and HELP: Yanaka et al., Can neural networks understand monotonicity reasoning?, 2019; HELP, 2019.
WikiSplit: Botha et al., Learning to split and rephrase from Wikipedia edit history, 2018.
Texts of Wikipedia are by its authors. Sentences of Python's documentation: Python Software Foundation, PSF-2.0.
"""


def sample_pairs(file: Path) -> list[tuple[str, str]]:
    """Returns the premises and hypotheses of a file of claims."""
    claims = json.loads(file.read_text(encoding="utf-8"))
    return [(each["sentence"], claim) for each in claims for claim in (*each["holds"], *each["fails"])]


def main() -> None:
    """Makes the folder as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="Hugging Face folder")
    parser.add_argument("--output", type=Path, required=True, help="model folder to write")
    arguments = parser.parse_args()
    digest = hashlib.sha256((arguments.checkpoint / "model.safetensors").read_bytes()).hexdigest()
    pairs = sample_pairs(CLAIMS)
    with tempfile.TemporaryDirectory() as scratch:
        judged = {}
        for form, precision in (("fp32", None), ("int8", PRECISION)):
            make_folder(
                arguments.checkpoint,
                Path(scratch) / form,
                precision,
                name=arguments.output.name,
                licence="CC-BY-SA-4.0",
                source=(
                    "sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), trained by scripts/training/entailment; "
                    f"model.safetensors SHA-256 {digest}"
                ),
                made_by=(
                    "scripts/models/make_entailment.py: BERT graph over pairs end to end; 8-bit weights and "
                    "activations, a scale for every 128"
                ),
                role=ModelRole.ENTAILMENT,
                max_tokens=MAX_TOKENS,
            )
            judged[form] = EntailmentModel.open(Path(scratch) / form).probabilities(pairs)
        same = float(np.mean(judged["fp32"].argmax(axis=1) == judged["int8"].argmax(axis=1)))
        most = float(np.abs(judged["fp32"] - judged["int8"]).max())
        print(f"of {len(pairs)} pairs {same:.1%} are judged as by fp32; a probability is off by {most:.3f} at most")
        if same < LEAST_AGREEMENT:
            raise SystemExit(f"the quantized model strays too far from fp32 (allowed: {LEAST_AGREEMENT:.0%} agreement)")
        made = Path(scratch) / "int8"
        sources = "\n".join(f"{each.name} on GitHub at {each.commit[:12]}: {each.licence}" for each in SOURCES)
        (made / "NOTICE").write_text(NOTICE.format(sources=sources), encoding="utf-8")
        described = read_manifest(made)
        arguments.output.mkdir(parents=True, exist_ok=True)
        for file in ("model.onnx", "tokenizer.json", "config.json", "NOTICE"):
            shutil.copyfile(made / file, arguments.output / file)
        manifest = write_manifest(
            arguments.output,
            name=described.name,
            role=described.role,
            licence=described.licence,
            source=described.source,
            made_by=described.made_by,
            parameters=described.parameters,
        )
    size = sum(record.bytes for record in manifest.files.values())
    if size > MOST_BYTES:
        raise SystemExit(f"{arguments.output} takes {size} bytes, {MOST_BYTES} are allowed")
    print(f"wrote {arguments.output}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
