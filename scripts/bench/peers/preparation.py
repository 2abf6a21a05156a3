"""Everything before the first measurement: environments and models."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from scripts.bench.harness.processes import run_program
from scripts.bench.peers.contenders import (
    BENCH,
    DECODER,
    IK_LLAMA,
    PRECISIONS,
    ROOT,
    Contender,
    Environment,
    checkpoint,
)

_NICE = ("nice", "-n", "10")


def install(environment: Environment) -> None:
    """Makes a peer's environment.

    Raises:
        ProgramFailed: It could not be made; what there was is left.
    """
    for command in environment.installation:
        run_program((*_NICE, *command), ROOT, variables=environment.variables)


def build_ik_llama(source: Path) -> None:
    """Builds ik_llama.cpp for this machine, and the library that drives it.

    Args:
        source: A checkout of github.com/ikawrakow/ik_llama.cpp.

    Raises:
        ProgramFailed: CMake or a C++ compiler is missing, or it cannot be built.
    """
    build, target = BENCH / "peers" / "ik_llama.cpp", IK_LLAMA.folder / IK_LLAMA.library
    unneeded = (f"-DLLAMA_BUILD_{part}=OFF" for part in ("TESTS", "EXAMPLES", "SERVER"))
    options = ("-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DGGML_IQK_FA_ALL_QUANTS=OFF", *unneeded)
    headers = [f"-I{source / folder / 'include'}" for folder in (".", "ggml")]
    linked = (f"-L{build / 'src'}", "-lllama", f"-Wl,-rpath,{build / 'src'}")
    shim = str(Path(__file__).with_name("ik_llama.cpp"))
    for command in (
        ("cmake", "-S", str(source), "-B", str(build), *options),
        ("cmake", "--build", str(build), "--target", "llama", "--parallel", str(os.cpu_count() or 1)),
        ("c++", "-std=c++17", "-O2", "-shared", "-fPIC", *headers, shim, *linked, "-o", str(target)),
    ):
        run_program((*_NICE, *command), ROOT)


def make_checkpoint(shape: str) -> None:
    """Makes the random model, unless it is there.

    Raises:
        ProgramFailed: It could not be made.
    """
    if not (checkpoint(shape) / "model.safetensors").is_file():
        _make_random_model(shape, PRECISIONS[0])


def make_model(contender: Contender, shape: str) -> None:
    """Makes a contender's model from the checkpoint, unless it is there; a peer's that is there is whole.

    Raises:
        ProgramFailed: It could not be made.
    """
    if contender.environment is None and contender.making:
        # Made anew by each run: what `models add` makes of a file is part of what is measured.
        data = contender.model.parents[1]
        if contender.name == DECODER:
            shutil.rmtree(data, ignore_errors=True)
            run_program((*_NICE, *contender.making, str(data)), ROOT)
        elif not contender.model.exists():
            run_program((*_NICE, *contender.making, str(data)), ROOT)
    elif contender.environment is None:
        if not (contender.model / "paged.json").is_file():
            _make_random_model(shape, contender.model.name)
    elif not contender.model.exists():
        contender.model.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=contender.model.parent, prefix="unfinished-") as scratch:
            unfinished = Path(scratch) / contender.model.name
            variables = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
            run_program((*_NICE, *contender.making, str(unfinished)), ROOT, variables=variables)
            shutil.move(unfinished, contender.model)


def _make_random_model(shape: str, precision: str) -> None:
    command = (
        sys.executable,
        "-m",
        "scripts.models.make_random_model",
        shape,
        "--out",
        str(BENCH / shape),
        "--precision",
        precision,
    )
    run_program((*_NICE, *command), ROOT, variables={"PYTHONPATH": str(ROOT)})
