"""The Debian package, made in small: of the checkout's own files and click, without libraries and models.

``python -m scripts.packaging.debian PACKAGE.deb`` installs, upgrades and purges a whole one.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import files as files_of
from importlib.metadata import version
from pathlib import Path

import pytest

import edge_rag
from edge_rag.config.settings import load_settings

ROOT = Path(__file__).parents[3]
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES = f"usr/lib/edge-rag/lib/python{MINOR}/site-packages"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed"),
]


def wheel(folder: Path, name: str, number: str, contents: dict[str, bytes], requires: str = "") -> None:
    info = f"{name}-{number}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{number}-py3-none-any.whl", "w") as file:
        for path, content in contents.items():
            file.writestr(path, content)
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n{requires}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    sources = {
        str(path.relative_to(ROOT)): path.read_bytes()
        for part in ("cli", "core")
        for path in (ROOT / "edge_rag" / part).rglob("*.py")
    }
    sources |= {f"edge_rag/{name}": (ROOT / "edge_rag" / name).read_bytes() for name in ("__init__.py", "errors.py")}
    sources |= {"edge_rag/tests/left_out.py": b"", "edge_rag/ops/library.so": b"\0GLIBC_2.17\0GLIBC_2.34\0GLIBC_2.4\0"}
    click = {str(path): path.read_binary() for path in files_of("click") or () if path.suffix == ".py"}
    wheel(folder, "edge_rag", edge_rag.__version__, sources, "Requires-Dist: click\nProvides-Extra: http")
    wheel(folder, "edge_rag_models", edge_rag.__version__, {"edge_rag/models/catalog.toml": b""})
    wheel(folder, "click", version("click"), click)
    return folder


def build(wheels: Path, output: Path, arch: str = "amd64") -> Path:
    command = [ROOT / "scripts" / "build-deb", "--wheels", wheels, "--arch", arch, "--output", output]
    environment = os.environ | {"PYTHON": sys.executable, "SOURCE_DATE_EPOCH": "1795478400"}
    ended = subprocess.run(
        [*map(str, command), "--compress", "gzip"], env=environment, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    return Path(ended.stdout.strip())


@pytest.fixture(scope="module")
def package(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(wheels, tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def unpacked(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    subprocess.run(["dpkg-deb", "--raw-extract", str(package), str(folder)], check=True, timeout=60)
    return folder


def shown(package: Path, *what: str) -> bytes:
    return subprocess.run(["dpkg-deb", *what, str(package)], check=True, capture_output=True, timeout=60).stdout


def test_a_package_for_arm64_is_made_on_any_machine_and_the_same_files_each_time(
    wheels: Path, package: Path, tmp_path: Path
) -> None:
    """The wheels of this test are for every machine, so nothing else may differ."""
    other = build(wheels, tmp_path, "arm64")
    assert b"\n Architecture: arm64\n" in shown(other, "--info")
    assert shown(other, "--fsys-tarfile") == shown(package, "--fsys-tarfile")


def test_it_is_for_one_minor_version_of_python(unpacked: Path) -> None:
    control = (unpacked / "DEBIAN" / "control").read_text()
    assert f"Version: {edge_rag.__version__}+py{MINOR}\n" in control
    assert f"python3 (>= {MINOR}), python3 (<< 3.{sys.version_info.minor + 1}~)" in control
    assert "libc6 (>= 2.34)," in control
    assert "@" not in control.replace("root@localhost", "")
    assert str((unpacked / "usr/lib/edge-rag/bin/python").readlink()) == f"/usr/bin/python{MINOR}"


def test_manual_pages_and_completions_lie_where_programs_look(unpacked: Path) -> None:
    share = unpacked / "usr" / "share"
    assert (share / "man/man1/edge-rag-models-add.1.gz").is_file()
    assert "_EDGE_RAG_COMPLETE" in (share / "bash-completion/completions/edge-rag").read_text()
    assert (share / "zsh/vendor-completions/_edge-rag").read_text().startswith("#compdef edge-rag")
    assert "complete" in (share / "fish/vendor_completions.d/edge-rag.fish").read_text()


def test_the_settings_are_a_conffile_and_name_the_folders_of_the_service(unpacked: Path) -> None:
    assert (unpacked / "DEBIAN" / "conffiles").read_text() == "/etc/edge-rag/edge-rag.toml\n"
    settings = load_settings(unpacked / "etc/edge-rag/edge-rag.toml")
    assert (settings.local_listen, str(settings.data_directory)) == (
        "unix:/run/edge-rag/edge-rag.sock",
        "/var/lib/edge-rag",
    )


def test_the_unit_runs_the_program_of_the_package(unpacked: Path) -> None:
    unit = (unpacked / "usr/lib/systemd/system/edge-rag.service").read_text()
    assert "ExecStart=/usr/bin/edge-rag serve --config /etc/edge-rag/edge-rag.toml\n" in unit
    assert "/opt/" not in unit
    assert str((unpacked / "usr/bin/edge-rag").readlink()) == "../lib/edge-rag/bin/edge-rag"


def test_every_module_is_compiled_and_tests_of_packages_are_left_out(unpacked: Path) -> None:
    modules = list((unpacked / PACKAGES).rglob("*.py"))
    assert modules
    tag = sys.implementation.cache_tag
    assert not [path for path in modules if not (path.parent / "__pycache__" / f"{path.stem}.{tag}.pyc").is_file()]
    assert not (unpacked / PACKAGES / "edge_rag/tests").exists()
    assert str(unpacked.parent).encode() not in (unpacked / PACKAGES / "edge_rag/__init__.py").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [(("upgrade", "0.2.0", "0.1.0"), True), (("upgrade", "0.1.0", "0.2.0"), False), (("install",), False)],
)
def test_only_a_downgrade_is_refused(unpacked: Path, tmp_path: Path, arguments: tuple[str, ...], refused: bool) -> None:
    """The script runs with its folders moved below the test's; the program that it calls ends at once."""
    program = tmp_path / "usr/lib/edge-rag/bin/python"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\ncase $* in *status*) exit 3;; esac\n")
    program.chmod(0o755)
    script = (unpacked / "DEBIAN" / "preinst").read_text()
    for folder in ("/usr/lib/edge-rag", "/opt/edge-rag", "/var/backups", "/run/systemd"):
        script = script.replace(folder, f"{tmp_path}{folder}")
    ended = subprocess.run(["sh", "-c", script, "preinst", *arguments], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, "is older than" in ended.stderr) == ((1, True) if refused else (0, False))
