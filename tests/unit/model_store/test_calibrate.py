"""Calibration adds a CUDA form to a model folder."""

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from edge_rag.errors import ConfigurationError, ModelFolderInvalid
from edge_rag.model_store.calibrate import Calibration, calibrate
from edge_rag.runtime.decoder.cuda.folder import CUDA_FILES, read_cuda_form
from edge_rag.runtime.decoder.cuda.kv_scales import read_scales
from edge_rag.runtime.lowering.geometry import read_geometry
from edge_rag.runtime.model_folder.folder import ModelRole, verify_model_folder
from edge_rag.storage.backup import DATABASE

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REPOSITORY / "tests" / "fixtures" / "quoter", tmp_path / "quoter"))


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    documents = tmp_path / "documents"
    (documents / "below").mkdir(parents=True)
    (documents / "pump.md").write_text("The bearings must be greased every 500 operating hours. " * 30)
    (documents / "below" / "valve.txt").write_text("Close the suction valve first.")
    (documents / "below" / "picture.png").write_bytes(b"\x89PNG")
    return documents


def test_a_folder_gets_a_form_for_cuda_and_stays_verified(folder: Path, documents: Path) -> None:
    before = verify_model_folder(folder, ModelRole.GENERATOR)
    counts: list[int] = []
    done = calibrate(folder, documents, 100_000, 1.1, counts.append)
    after = verify_model_folder(folder, ModelRole.GENERATOR, required=CUDA_FILES)
    assert (after.name, after.licence, after.parameters) == (before.name, before.licence, before.parameters)
    assert after.files.keys() - before.files.keys() == set(CUDA_FILES)
    assert read_cuda_form(folder) == read_geometry(folder)
    made = json.loads((folder / "kv_scales.json").read_text())["made"]
    assert made == {"texts": done.texts, "tokens": done.tokens, "margin": 1.1, "model": "quoter"}
    assert done == Calibration(2, counts[-1])
    assert counts == sorted(counts)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["documents", "quoter"]


def test_a_larger_margin_gives_larger_scales_in_the_same_proportion(folder: Path, documents: Path) -> None:
    found = []
    for margin in (1.0, 2.0):
        calibrate(folder, documents, 50, margin, lambda _: None)
        found.append(read_scales(folder / "kv_scales.json", read_geometry(folder)))
    assert found[1].keys == pytest.approx(2 * found[0].keys, rel=1e-6)
    assert found[1].values == pytest.approx(2 * found[0].values, rel=1e-6)


def test_documents_without_text_change_nothing(folder: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in folder.iterdir())
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match="has no text"):
        calibrate(folder, tmp_path / "empty", 100, 1.1, lambda _: None)
    assert sorted(path.name for path in folder.iterdir()) == before


def test_an_altered_folder_is_refused(folder: Path, documents: Path) -> None:
    (folder / "stray.json").write_text("{}")
    with pytest.raises(ModelFolderInvalid, match=r"stray\.json"):
        calibrate(folder, documents, 100, 1.1, lambda _: None)


def test_the_command_calibrates_on_the_documents_of_the_data_directory(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with sqlite3.connect(data / DATABASE) as connection:
        connection.execute("CREATE TABLE documents (document INTEGER PRIMARY KEY, text TEXT NOT NULL)")
        connection.execute("INSERT INTO documents (text) VALUES ('Grease the bearings every 500 hours.')")
    connection.close()
    # A process of its own: the size of the thread pool is fixed when it is first used.
    command = [sys.executable, "-m", "edge_rag", "models", "calibrate", str(folder), "--data-dir", str(data), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["model"], report["texts"]) == (str(folder), 1)
    verify_model_folder(folder, ModelRole.GENERATOR, required=CUDA_FILES)
