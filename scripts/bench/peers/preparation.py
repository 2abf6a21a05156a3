"""Everything before the first measurement: environments and models."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from scripts.bench.harness.command import ROOT
from scripts.bench.harness.processes import run_program
from scripts.bench.peers.contenders import BENCH, DECODER, IK_LLAMA, Contender, Environment

_NICE = ("nice", "-n", "10")


def install(environment: Environment) -> None:
    for command in environment.installation:
        run_program((*_NICE, *command), ROOT, variables=environment.variables)


def build_ik_llama(source: Path) -> None:
    """Builds ik_llama.cpp for this machine, and the library that drives it."""
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


def make_model(contender: Contender) -> None:
    """Makes a contender's model of the file; a peer's is kept, ours is made anew: that is part of the measurement."""
    if not contender.making:
        return
    if contender.environment is None:
        data = contender.model.parents[1]
        if contender.name == DECODER:
            shutil.rmtree(data, ignore_errors=True)
        if not contender.model.exists():
            run_program((*_NICE, *contender.making, str(data)), ROOT)
    elif not contender.model.exists():
        contender.model.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=contender.model.parent, prefix="unfinished-") as scratch:
            unfinished = Path(scratch) / contender.model.name
            run_program((*_NICE, *contender.making, str(unfinished)), ROOT)
            shutil.move(unfinished, contender.model)
