"""Writes a GGUF file's weights multiplied out and rounded to Q8_0. Runs in llama.cpp's environment.

python -m scripts.bench.peers.requantize FILE.gguf OUT.gguf
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from typing import Any

_MOSTLY_Q8_0 = 7
"""Number of llama.cpp's file type."""


def main() -> None:
    source, target = sys.argv[1:]
    api: Any = importlib.import_module("llama_cpp")
    parameters = api.llama_model_quantize_default_params()
    parameters.nthread, parameters.allow_requantize, parameters.ftype = 2, True, _MOSTLY_Q8_0
    if api.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(parameters)) != 0:
        raise SystemExit(f"llama.cpp could not quantize {source}")


if __name__ == "__main__":
    main()
