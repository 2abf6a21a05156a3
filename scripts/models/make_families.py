"""Makes a tiny random Hugging Face model of every family that can be added, with its fp32 logits beside it.

    python scripts/models/make_families.py --out FOLDER [FAMILY...]

Needs the ``convert`` extra.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from tiny_checkpoints import VOCABULARY, family_models, write_checkpoint

REFERENCE_TOKENS = 112


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help="which ones; all if none is named")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for model in family_models():
        if arguments.families and model.name not in arguments.families:
            continue
        network = write_checkpoint(model, arguments.out / model.name)
        token_ids = np.random.default_rng(model.seed).integers(0, VOCABULARY, REFERENCE_TOKENS)
        with torch.no_grad():
            logits = network(torch.from_numpy(token_ids)[None]).logits[0].numpy()
        np.savez(arguments.out / f"{model.name}.npz", token_ids=token_ids, logits=logits.astype(np.float32))


if __name__ == "__main__":
    main()
