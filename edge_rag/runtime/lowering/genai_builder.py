"""The onnxruntime-genai model builder with fixes for three model families; takes the builder's arguments.

    python -m edge_rag.runtime.lowering.genai_builder -i CHECKPOINT -o FOLDER -p int4 -e cpu

Bugs of version 0.18 with transformers 5, each found by comparing logits with Hugging Face's:

- SmolLM3: layers without positions are rotated, by a node whose input does not exist on the CPU.
- Gemma 3: the base frequencies of local and global layers are read from where transformers 4 kept them.
- Phi-3 and Phi-4 with long contexts: the same for the name of the scaling.
"""

from __future__ import annotations

import runpy
from importlib import import_module
from typing import Any

_BUILDER = "onnxruntime_genai.models.builder"


def patch_builder() -> None:
    import_module("onnxruntime_genai.models")  # makes `builders` importable, the name that the builder uses
    rotate_only_layers_with_positions(import_module("builders.smollm").SmolLM3Model)
    find_both_frequencies(import_module("builders.gemma").Gemma3Model)
    find_scaling(import_module("builders.phi").Phi3MiniLongRoPEModel)


def rotate_only_layers_with_positions(model: Any) -> None:
    """Removes the rotary embedding from the layers that a SmolLM3 configuration names."""
    make_attention = model.make_attention

    def corrected(self: Any, layer_id: int, *arguments: Any, **settings: Any) -> None:
        rotated = self.attention_attrs["rope"]
        self.attention_attrs["rope"] = rotated and bool(self.no_rope_layers[layer_id])
        try:
            make_attention(self, layer_id, *arguments, **settings)
        finally:
            self.attention_attrs["rope"] = rotated

    model.make_attention = corrected


def find_both_frequencies(model: Any) -> None:
    """Copies the frequencies of a Gemma 3 configuration to where the builder reads them."""
    initialize = model.__init__

    def corrected(self: Any, config: Any, *arguments: Any) -> None:
        kinds = config.rope_parameters
        if "full_attention" in kinds:
            config.rope_local_base_freq = kinds["sliding_attention"]["rope_theta"]
            config.rope_parameters = dict(kinds["full_attention"])
        initialize(self, config, *arguments)

    model.__init__ = corrected


def find_scaling(model: Any) -> None:
    """Sets the scaling of a long-context Phi under the name that the builder reads."""
    make_rope_init = model.make_rope_init

    def corrected(self: Any, config: Any) -> None:
        config.rope_parameters.setdefault("type", config.rope_parameters["rope_type"])
        make_rope_init(self, config)

    model.make_rope_init = corrected


if __name__ == "__main__":
    patch_builder()
    runpy.run_module(_BUILDER, run_name="__main__", alter_sys=True)
