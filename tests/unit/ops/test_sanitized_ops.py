"""The op's tests once more on a build that stops at the first bad access or undefined step."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.ops.op_graph import LIBRARY_VARIABLE

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
SANITIZE = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"


@pytest.fixture(scope="module")
def compiler() -> str:
    found = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), None)
    if found is None:
        pytest.skip("no C++ compiler")
    return found


@pytest.fixture(scope="module")
def runtime(compiler: str) -> str:
    """What must be loaded before Python: the sanitizer, and the C++ library whose exceptions it intercepts."""
    names = ("libasan.so", "libstdc++.so")
    found = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in names
    ]
    if not all(Path(path).is_absolute() for path in found):
        pytest.skip("the compiler has no shared AddressSanitizer runtime")
    return " ".join(found)


@pytest.fixture(scope="module")
def sanitized_library(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    build = tmp_path_factory.mktemp("sanitized")
    options = [
        f"-DCMAKE_CXX_COMPILER={compiler}",
        "-DCMAKE_BUILD_TYPE=Sanitized",
        "-DEDGE_RAG_WARNINGS_AS_ERRORS=ON",
        f"-DCMAKE_CXX_FLAGS=-O1 -g1 {SANITIZE}",
    ]
    subprocess.run(["cmake", "-S", str(ROOT), "-B", str(build), *options], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", str(build), "--target", "edge_rag_ops", "--parallel", "2"], check=True)
    return build / "libedge_rag_ops.so"


def test_the_op_passes_its_tests_under_address_and_undefined_behaviour_sanitizers(
    sanitized_library: Path, runtime: str
) -> None:
    environment = {
        **os.environ,
        LIBRARY_VARIABLE: str(sanitized_library),
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    names = (
        "test_paged_attention.py",
        "test_paged_attention_refusals.py",
        "test_windowed_attention.py",
        "kernels/test_kernel_builds.py",
        "test_quantized_matmul.py",
        "test_quantized_rows.py",
        "test_quantized_refusals.py",
        "test_encoder_ops.py",
    )
    tests = [
        *(str(Path(__file__).parent / name) for name in names),
        "-k",
        "not 4096 and not 700 and not 1200 and not 1100 and not long",
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--capture=no", *tests]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
