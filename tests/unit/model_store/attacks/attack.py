"""What an attack is: a folder with one thing wrong about it, and canaries that would show that something of it ran.

The canaries: a shared library that makes a file when it is loaded, a pickle that does when it is read, Python that does
when it is imported.
"""

import os
import pickle
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Canary:
    """What would be there if something of a folder had run: a mark that must stay absent, a library that makes it."""

    mark: Path
    library: Path

    def pickled(self) -> bytes:
        return pickle.dumps(_Touch(str(self.mark)))

    def python(self) -> str:
        return f"open({str(self.mark)!r}, 'w').close()\n"


Build = Callable[[Path, Canary], object]


@dataclass(frozen=True)
class Attack:
    """One folder: what is wrong with it, how it is built, and what the refusal must contain."""

    name: str
    build: Build
    says: str


class _Touch:
    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._path}",)


def make_canary(folder: Path) -> Canary:
    mark, source, library = folder / "canary", folder / "canary.c", folder / "canary.so"
    source.write_text(
        "#include <stdio.h>\n"
        f'__attribute__((constructor)) static void sing(void) {{ FILE *f = fopen("{mark}", "w"); if (f) fclose(f); }}\n'
        "void *RegisterCustomOps(void *options, const void *api) { return 0; }\n"
    )
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", library, source], check=True)
    return Canary(mark, library)


def after(base: Callable[[Path], object], *steps: Callable[[Path], object]) -> Build:
    def build(folder: Path, canary: Canary) -> None:
        base(folder)
        for step in steps:
            step(folder)

    return build


def replace(base: Callable[[Path], object], name: str, content: bytes) -> Build:
    def build(folder: Path, canary: Canary) -> None:
        base(folder)
        (folder / name).write_bytes(content)

    return build
