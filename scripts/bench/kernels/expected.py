"""What a static model of the processor expects of the arm64 kernels' inner loops: an expectation, not a measurement.

The loops are cut out of the compiled kernels, and llvm-mca, which knows the execution units of a core and the latencies
of its instructions, says how many cycles a turn takes when all data are in the first-level cache and nothing else runs.
It does not know memory, and so says nothing of decoding one sequence, which memory bounds. A block of weights is the
inner loop as often as the block needs it and what is done once a block: scales, sums and their conversion to float.

llvm-mca from version 22 on is needed (Debian's llvm-22): earlier ones have no models of these cores. It has none of the
Cortex-A76, A78 and A78AE (it takes that of the Cortex-A57 for them, which is narrower and has no dot product); the
Neoverse N1 is the Cortex-A76 for servers, so that its line stands for them.

First compile the kernels for arm64, on any machine with g++-aarch64-linux-gnu:

  cmake -S . -B build/arm64 -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \\
    -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++
  cmake --build build/arm64 --target edge_rag_kernels
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CORES = {
    "neoverse-n1": "Neoverse N1 (Cortex-A76)",
    "neoverse-v1": "Neoverse V1",
    "neoverse-n2": "Neoverse N2",
    "neoverse-v2": "Neoverse V2",
}
_NEWER_CORES = ("neoverse-v1", "neoverse-n2", "neoverse-v2")
BUILDS = {"neon_dot": tuple(CORES), "neon_i8mm": _NEWER_CORES}
"""The cores that run a build."""

_OBJECTS = "CMakeFiles/edge_rag_kernels.dir/edge_rag/ops/kernels/kernels_{}.cpp.o"
_PRODUCTS = {"sdot": 16, "smmla": 32, "usmmla": 32}
_LANES = 16
_STEP = 8  # elements of a row in a turn of the inner loop
_TURNS = 50


@dataclass(frozen=True, slots=True)
class Loop:
    """An inner loop, and the code around it that makes a block.

    Attributes:
        name: What it is called in the table.
        function: A regular expression for its function's name, without namespaces; {rows} is the register tile's.
        rows: Rows that share a pass over the weights or pages; of attention, query heads.
        turns: Turns of the inner loop in a block; 0 to leave the code around it away.
    """

    name: str
    function: str
    rows: int
    turns: int = 0


_UNPACKED = r"add_product<\w+, [48], \(Line\)2, \(Fetch\)1, \(Zero\)0, \(Stored\)0, {rows}, 1>"
_NIBBLES = r"add_product<\w+, 4, \(Line\)1, \(Fetch\)0, \(Zero\)0, \(Stored\)0, {rows}, 1>"
_BYTES = r"add_product<\w+, 8, \(Line\)0, \(Fetch\)0, \(Zero\)0, \(Stored\)0, {rows}, 1>"
LOOPS = (
    Loop("product, prefill", _UNPACKED, 4),
    Loop("product, prefill, blocks of 128", _UNPACKED, 4, 16),
    Loop("product, prefill, blocks of 32", _UNPACKED, 4, 4),
    Loop("product, 4 rows of INT4", _NIBBLES, 4),
    Loop("product, 4 rows of INT8", _BYTES, 4),
    Loop("product, 2 rows of INT4", _NIBBLES, 2),
    Loop("attention, keys", r"multiply<\w+, \(Operand\)0, (?:64|128|256)l, 4, 1>", 4),
    Loop("attention, values", r"multiply<\w+, \(Operand\)1, 128l, 4, 1>", 4),
    Loop("attention, keys, 1 head", r"multiply<\w+, \(Operand\)0, (?:64|128|256)l, 1, 1>", 1),
)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the model says of a loop.

    Attributes:
        products: INT8 products a cycle.
        peak: Of the most that the build's product instruction reaches on that core, from 0 to 1.
    """

    products: float
    peak: float


Code = list[tuple[int, str]]
"""Addresses and instructions of a function."""


def _functions(built: Path, build: str) -> dict[str, Code]:
    path = built / _OBJECTS.format(build)
    if not path.exists():
        sys.exit(f"{path} is missing; --help says how to compile it")
    command = ["aarch64-linux-gnu-objdump", "-d", "-C", "--no-show-raw-insn", str(path)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Code] = {}
    code: Code = []
    for line in listing.splitlines():
        if name := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            code = found.setdefault(re.sub(r"edge_rag::|\(anonymous namespace\)::", "", name[1]), [])
        elif instruction := re.match(r"\s+([0-9a-f]+):\t(.*)", line):
            code.append((int(instruction[1], 16), instruction[2].split("//")[0].strip()))
    return found


def _loops(code: Code) -> list[range]:
    """Indices of the instructions of every loop: what a branch jumps back over."""
    index = {address: i for i, (address, _) in enumerate(code)}
    found = []
    for i, (_, instruction) in enumerate(code):
        branch = re.match(r"(?:b(?:\.\w+)?|cbn?z|tbn?z)\s.*?\b([0-9a-f]+) <", instruction)
        begin = index.get(int(branch[1], 16), i) if branch else i
        if begin < i:
            found.append(range(begin, i + 1))
    return found


def _products(code: Code, part: range) -> int:
    return sum(_PRODUCTS.get(code[i][1].split()[0], 0) for i in part)


def _block(code: Code, turns: int) -> list[str]:
    """The instructions of the innermost loop of products, or those of a block of so many turns."""
    loops = _loops(code)
    inner = max((loop for loop in loops if _products(code, loop)), key=lambda loop: (-len(loop), _products(code, loop)))
    text = [_without_target(instruction) for _, instruction in code]
    if turns == 0:
        return [text[i] for i in inner]
    outer = min((loop for loop in loops if loop.start < inner.start and inner.stop < loop.stop), key=len)
    # What is fetched early is left away: other loops, and instructions that only fetch.
    other = {i for loop in loops if loop.stop <= inner.start or loop.start >= inner.stop for i in loop}
    around = [i for i in outer if i not in inner and i not in other and not text[i].startswith("prfm")]
    before = [text[i] for i in around if i < inner.start]
    after = [text[i] for i in around if i >= inner.stop]
    return before + [text[i] for i in inner] * turns + after


def _without_target(instruction: str) -> str:
    return re.sub(r"[0-9a-f]+ <.*>", "0", instruction).replace("\t", " ")


def _cycles(program: str, core: str, instructions: list[str]) -> float:
    """Cycles of one run through the instructions of many, once the pipeline is full."""
    totals = []
    for runs in (_TURNS, 3 * _TURNS):
        command = [program, "-mtriple=aarch64", f"-mcpu={core}", "-mattr=+dotprod,+i8mm", f"-iterations={runs}"]
        command += ["-resource-pressure=false", "-instruction-info=false"]
        done = subprocess.run(command, input="\n".join(instructions), check=True, capture_output=True, text=True)
        found = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
        if found is None:
            sys.exit(f"{program} says nothing of cycles:\n{done.stdout[:500]}")
        totals.append(int(found[1]))
    return (totals[1] - totals[0]) / (2 * _TURNS)


def _peak(program: str, core: str, build: str) -> float:
    """Products a cycle of product instructions that wait for nothing."""
    name = "sdot" if build == "neon_dot" else "smmla"
    instructions = [f"{name} v{i}.4s, v30.16b, v31.16b" for i in range(24)]
    return len(instructions) * _PRODUCTS[name] / _cycles(program, core, instructions)


def expect(program: str, built: Path) -> dict[tuple[str, str, str], Expectation]:
    """By loop, build and core.

    Args:
        program: llvm-mca.
        built: Folder of the arm64 build.
    """
    found = {}
    for build, cores in BUILDS.items():
        functions = _functions(built, build)
        peaks = {core: _peak(program, core, build) for core in cores}
        for loop in LOOPS:
            pattern = re.compile(loop.function.replace("{rows}", str(loop.rows)))
            code = next((code for name, code in functions.items() if pattern.search(name)), None)
            if code is None:
                sys.exit(f"{build} has no {pattern.pattern}")
            instructions = _block(code, loop.turns)
            useful = sum(_PRODUCTS.get(line.split()[0], 0) for line in instructions)
            for core in cores:
                products = useful / _cycles(program, core, instructions)
                found[loop.name, build, core] = Expectation(products, products / peaks[core])
    return found


def table(found: dict[tuple[str, str, str], Expectation]) -> str:
    """Products a cycle, and of the product instruction's most, in Markdown."""
    columns = [(core, build) for core in CORES for build, cores in BUILDS.items() if core in cores]
    lines = [
        "| inner loop | " + " | ".join(f"{CORES[core]}, `{build}`" for core, build in columns) + " |",
        "|---" * (1 + len(columns)) + "|",
    ]
    for loop in LOOPS:
        cells = [found[loop.name, build, core] for core, build in columns]
        lines.append(f"| {loop.name} | " + " | ".join(f"{c.products:.1f} ({c.peak:.0%})" for c in cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        "kernels.expected", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--built", type=Path, default=Path("build/arm64"), help="folder of the build [%(default)s]")
    parser.add_argument("--llvm-mca", default="llvm-mca-22", help="the program, from version 22 on [%(default)s]")
    arguments = parser.parse_args()
    for program in (arguments.llvm_mca, "aarch64-linux-gnu-objdump"):
        if shutil.which(program) is None:
            sys.exit(f"no {program}: apt-get install llvm-22 binutils-aarch64-linux-gnu")
    print(table(expect(arguments.llvm_mca, arguments.built)))


if __name__ == "__main__":
    main()
