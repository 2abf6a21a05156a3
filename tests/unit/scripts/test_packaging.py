"""What a release consists of: its bill of materials, its checksums, and the offline bundle's installer."""

import ensurepip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from scripts.packaging.__main__ import alone_in
from scripts.packaging.building import ROOT, ReleaseError, Sources, check_content, sums
from scripts.packaging.sbom import bill_of_materials

SOURCES = Sources(ROOT, "0" * 40, 1_700_000_000)


def wheel(folder: Path, name: str, *lines: str) -> Path:
    info = f"{name.replace('-', '_')}-0.1.0.dist-info"
    path = folder / f"{name.replace('-', '_')}-0.1.0-py3-none-any.whl"
    metadata = "\n".join(["Metadata-Version: 2.4", f"Name: {name}", "Version: 0.1.0", *lines, ""])
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


def test_the_bill_of_materials_names_every_wheel_and_model_with_hash_and_licence(tmp_path: Path) -> None:
    wheels = [
        wheel(tmp_path, "first", "License-Expression: MIT AND Apache-2.0"),
        wheel(tmp_path, "Second.Part", "License: BSD"),
        wheel(tmp_path, "third", "Classifier: License :: OSI Approved :: MIT License"),
    ]
    text = bill_of_materials(SOURCES, wheels)
    assert text == bill_of_materials(SOURCES, wheels)
    bill: dict[str, Any] = json.loads(text)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    parts = {part["name"]: part for part in bill["components"]}
    assert {"first", "second-part", "third", "minilm-l6", "multilingual-e5-small"} == set(parts)
    assert parts["first"]["licenses"] == [{"expression": "MIT AND Apache-2.0"}]
    assert parts["second-part"]["licenses"] == [{"license": {"name": "BSD"}}]
    assert parts["third"]["licenses"] == [{"license": {"name": "MIT License"}}]
    assert parts["first"]["hashes"][0]["content"] == hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    references = [part["bom-ref"] for part in bill["components"]]
    assert bill["dependencies"][0]["dependsOn"] == sorted(set(references))


def test_the_models_wheel_has_every_default_model() -> None:
    project = tomllib.loads((ROOT / "deploy" / "models" / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    found = {path.name for path in (ROOT / "models").iterdir() if path.name != "README.md"}
    assert included == {f"../../models/{name}": f"edge_rag/models/{name}" for name in found}


@pytest.mark.parametrize("name", ["edge_rag/ops/register.cpp", "tests/test_it.py", "edge_rag/ops/kernels/lanes.h"])
def test_a_wheel_with_what_no_box_needs_is_refused(tmp_path: Path, name: str) -> None:
    path = wheel(tmp_path, "edge-rag")
    check_content(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, "")
    with pytest.raises(ReleaseError, match=name):
        check_content(path)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "bundle"
    (folder / "wheels").mkdir(parents=True)
    (pip,) = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    shutil.copy(pip, folder / "wheels")
    wheel(folder / "wheels", "edge-rag", "Provides-Extra: http", "Requires-Dist: edge-rag-part; extra == 'http'")
    wheel(folder / "wheels", "edge-rag-models")
    wheel(folder / "wheels", "edge-rag-part")
    shutil.copy(ROOT / "deploy" / "bundle" / "install.sh", folder)
    (folder / "machine").write_text(os.uname().machine + "\n")
    (folder / "pythons").write_text(f"3.5\n{sys.version_info.major}.{sys.version_info.minor}\n")
    (folder / "constraints.txt").write_text("edge-rag-part==0.1.0\n")
    seal(folder)
    return folder


def seal(folder: Path) -> None:
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    files = [path for path in folder.rglob("*") if path.is_file()]
    (folder / "SHA256SUMS").write_text(sums(files, folder))


def install(bundle: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHON": sys.executable}
    command = [str(bundle / "install.sh"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)


def test_a_bundle_installs_its_wheels_with_python_alone(bundle: Path, tmp_path: Path) -> None:
    result = install(bundle, "--prefix", str(tmp_path / "new"))
    assert result.returncode == 0, result.stderr
    names = {path.name for path in (tmp_path / "new" / "lib").glob("python*/site-packages/*.dist-info")}
    assert names == {f"edge_rag{part}-0.1.0.dist-info" for part in ("", "_models", "_part")}
    again = install(bundle, "--prefix", str(tmp_path / "new"))
    assert again.returncode == 1
    assert "exists already" in again.stderr


def test_a_damaged_bundle_installs_nothing(bundle: Path, tmp_path: Path) -> None:
    (bundle / "constraints.txt").write_text("edge-rag-part==0.1.1\n")
    for arguments in (["--prefix", str(tmp_path / "new")], ["--verify"], []):
        result = install(bundle, *arguments)
        assert result.returncode == 1
        assert "damaged" in result.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [("machine", "riscv64\n", "for riscv64"), ("pythons", "3.5\n", "for Python 3.5"), ("constraints.txt", "!\n", "")],
)
def test_a_bundle_that_does_not_fit_installs_nothing_and_says_why(
    bundle: Path, tmp_path: Path, name: str, text: str, message: str
) -> None:
    (bundle / name).write_text(text)
    seal(bundle)
    result = install(bundle, "--prefix", str(tmp_path / "new"))
    assert result.returncode != 0
    assert message in result.stderr
    assert not (tmp_path / "new").exists()


def test_a_second_build_into_the_same_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "made.whl").write_text("by the first")
    with alone_in(tmp_path), pytest.raises(ReleaseError, match="another build writes to"), alone_in(tmp_path):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["made.whl"]
