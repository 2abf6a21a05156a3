"""The Debian package: made of a bundle's wheels, and tried on a clean system from installation to purge."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from scripts.packaging.building import ROOT, Machine, ReleaseError, run
from scripts.packaging.clean_root import clean_root

ARCHITECTURES: Final = {Machine.X86_64: "amd64", Machine.AARCH64: "arm64"}

PACKAGES_BEFORE: Final = ("python3", "systemd-standalone-sysusers", "systemd-standalone-tmpfiles")
"""What the package depends on and Debian's smallest system lacks."""


def build_deb(bundle: Path, out: Path, machine: Machine, epoch: int) -> Path:
    with tempfile.TemporaryDirectory(prefix="edge-rag-deb-") as name:
        run("tar", "-xf", bundle, "-C", name, "--strip-components=1")
        wheels: list[str | Path] = ["--wheels", Path(name) / "wheels", "--output", out]
        wheels += ["--arch", ARCHITECTURES[machine]]
        environment = {"PYTHON": sys.executable, "SOURCE_DATE_EPOCH": str(epoch)}
        return Path(run(ROOT / "scripts" / "build-deb", *wheels, environment=environment).strip())


def newer_deb(package: Path, out: Path) -> Path:
    """Makes the same package with a higher version, for an upgrade, and returns it."""
    version = run("dpkg-deb", "--field", package, "Version").strip()
    number, _, python = version.partition("+")
    higher = f"{number}.1"
    with tempfile.TemporaryDirectory(prefix="edge-rag-deb-") as name:
        run("dpkg-deb", "--raw-extract", package, name)
        control = Path(name, "DEBIAN", "control")
        control.write_text(control.read_text().replace(f"Version: {version}", f"Version: {higher}+{python}"))
        (module,) = Path(name).glob("usr/lib/edge-rag/lib/python3*/site-packages/edge_rag/__init__.py")
        module.write_text(module.read_text().replace(f'"{number}"', f'"{higher}"'))
        compiled: list[str | Path] = ["--invalidation-mode", "unchecked-hash", "-s", name, "-p", "/", module]
        run(sys.executable, "-m", "compileall", "-q", "-f", *compiled)
        file = out / package.name.replace(version, f"{higher}+{python}")
        run("dpkg-deb", "--build", "--root-owner-group", "-Znone", name, file)
    return file


def check_deb(package: Path) -> str:
    """Installs, asks, upgrades, tries a downgrade, removes and purges; returns the seconds of each step."""
    with tempfile.TemporaryDirectory(prefix="edge-rag-newer-") as name, clean_root(packages=PACKAGES_BEFORE) as root:
        newer = newer_deb(package, Path(name))
        script = ROOT / "scripts" / "packaging" / "debian_lifecycle.sh"
        shared = [package.resolve(), newer, script]
        return root.checked("bash", *(f"/mnt/{file.name}" for file in (script, *shared[:2])), shared=shared)


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m scripts.packaging.debian PACKAGE.deb")
    try:
        print(check_deb(Path(sys.argv[1])), end="")
    except ReleaseError as error:
        sys.exit(f"scripts.packaging.debian: {error}")


if __name__ == "__main__":
    main()
