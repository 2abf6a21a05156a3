"""The kernels without ONNX Runtime, for arm64 under emulation and here: the same bits."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ARM64_COMPILER, ARM64_EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
ARM64_OPTIONS = (
    "-DCMAKE_SYSTEM_NAME=Linux",
    "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
    f"-DCMAKE_CXX_COMPILER={ARM64_COMPILER}",
    "-DCMAKE_EXE_LINKER_FLAGS=-static",
)


def build(folder: Path, *options: str) -> Path:
    for command in (
        ["cmake", "-S", str(ROOT), "-B", str(folder), *options],
        ["cmake", "--build", str(folder), "--target", "kernel_test", "--parallel", "2"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return folder / "kernel_test"


def run(*command: str) -> list[str]:
    """Returns the checksum of all results and the builds that were compared."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


def test_arm64_kernels_agree_with_double_precision_and_give_the_bits_of_this_machine(tmp_path: Path) -> None:
    for program in ("cmake", ARM64_COMPILER, ARM64_EMULATOR):
        if shutil.which(program) is None:
            pytest.skip(f"no {program}")
    here, there = build(tmp_path / "here"), build(tmp_path / "arm64", *ARM64_OPTIONS)
    checksum, *names = run(ARM64_EMULATOR, str(there), "12")
    assert names == ["scalar", "neon_dot"]
    assert [checksum, "scalar"] == run(str(here), "12")[:2]
