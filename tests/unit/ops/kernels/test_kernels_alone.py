"""The kernels without ONNX Runtime, for arm64 under emulation and here: the same bits."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.ops.op_graph import builds

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[4]
ARM64_COMPILER, ARM64_EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
ARM64_OPTIONS = (
    "-DCMAKE_SYSTEM_NAME=Linux",
    "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
    f"-DCMAKE_CXX_COMPILER={ARM64_COMPILER}",
    "-DCMAKE_EXE_LINKER_FLAGS=-static",
)


def require(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"no {program}")


PROGRAMS = ("kernel_test", "quantized_kernel_test", "encoder_kernel_test")


def build(folder: Path, *options: str) -> Path:
    """Compiles the library and the kernels' tests as they are installed, but for warnings, which are errors here."""
    for command in (
        ["cmake", "-S", str(ROOT), "-B", str(folder), "-DEDGE_RAG_WARNINGS_AS_ERRORS=ON", *options],
        ["cmake", "--build", str(folder), "--target", "edge_rag_ops", *PROGRAMS, "--parallel", "2"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return folder


def run(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("cmake")
    return build(tmp_path_factory.mktemp("here"))


def test_the_library_compiles_without_a_warning_and_its_kernels_agree_with_double_precision(here: Path) -> None:
    for program in PROGRAMS:
        _checksum, *names = run(str(here / program))
        assert tuple(names) == builds()


@pytest.fixture(scope="module")
def arm64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require(ARM64_COMPILER, ARM64_EMULATOR)
    return build(tmp_path_factory.mktemp("arm64"), *ARM64_OPTIONS)


@pytest.mark.parametrize(
    ("processor", "expected"),
    [("cortex-a53", ["scalar"]), ("cortex-a76", ["scalar", "neon_dot"]), ("max", ["scalar", "neon_dot", "neon_i8mm"])],
)
def test_arm64_kernels_are_those_the_processor_runs_and_give_the_bits_of_this_machine(
    here: Path, arm64: Path, processor: str, expected: list[str]
) -> None:
    for program in PROGRAMS:
        checksum, *names = run(ARM64_EMULATOR, "-cpu", processor, str(arm64 / program), "12")
        assert names == expected
        assert [checksum, "scalar"] == run(str(here / program), "12")[:2]
