import json
from dataclasses import replace
from pathlib import Path

import pytest

from edge_rag.errors import StorageError
from edge_rag.runtime.session.compile_cache import CompiledGraphs, CompiledKey

KEY = CompiledKey("model 1", "a16w8.1", "sdk 2.51", "HTP v73", {"vtcm_mb": "8"})
OTHERS = (
    replace(KEY, model="model 2"),
    replace(KEY, lowering="a16w8.2"),
    replace(KEY, compiler="sdk 2.52"),
    replace(KEY, device="HTP v75"),
    replace(KEY, options={"vtcm_mb": "4"}),
)


def kept(root: Path, key: CompiledKey = KEY) -> CompiledGraphs:
    graphs = CompiledGraphs(root, "m-qnn", key)
    graphs.store("32.onnx", b"short", {"mask": -40.0})
    graphs.store("64.onnx", b"long", {"mask": -40.0})
    return graphs


def test_stored_graphs_are_found_with_the_same_key(tmp_path: Path) -> None:
    kept(tmp_path)
    again = CompiledGraphs(tmp_path, "m-qnn", KEY)
    found = again.find("64.onnx")
    assert found is not None
    assert found.read_bytes() == b"long"
    assert again.value("mask") == -40.0
    assert again.find("128.onnx") is None


@pytest.mark.parametrize("key", OTHERS)
def test_nothing_is_found_for_another_key(tmp_path: Path, key: CompiledKey) -> None:
    kept(tmp_path)
    other = CompiledGraphs(tmp_path, "m-qnn", key)
    assert other.find("32.onnx") is None
    assert other.value("mask") is None


def test_a_folder_renamed_to_another_key_is_not_used(tmp_path: Path) -> None:
    folder = kept(tmp_path).folder
    other = CompiledGraphs(tmp_path, "m-qnn", OTHERS[0])
    other.folder.rmdir()
    folder.rename(other.folder)
    assert CompiledGraphs(tmp_path, "m-qnn", OTHERS[0]).find("32.onnx") is None


@pytest.mark.parametrize("content", [b"shorT", b"shor", b"short ", b""])
def test_a_graph_that_was_altered_is_not_found_and_the_other_is(tmp_path: Path, content: bytes) -> None:
    graphs = kept(tmp_path)
    (graphs.folder / "32.onnx").write_bytes(content)
    again = CompiledGraphs(tmp_path, "m-qnn", KEY)
    assert again.find("32.onnx") is None
    assert again.find("64.onnx") is not None
    again.store("32.onnx", b"made again", {"mask": -40.0})
    assert CompiledGraphs(tmp_path, "m-qnn", KEY).find("32.onnx") is not None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"key": 1}', b"\xff", b'{"key": {}, "values": 1, "files": 2}'])
def test_a_damaged_description_makes_every_graph_unverified(tmp_path: Path, content: bytes) -> None:
    graphs = kept(tmp_path)
    (graphs.folder / "compiled.json").write_bytes(content)
    assert CompiledGraphs(tmp_path, "m-qnn", KEY).find("32.onnx") is None


@pytest.mark.parametrize("values", [{"mask": "x"}, {"mask": None}, {"mask": True}])
def test_a_description_with_values_that_are_not_numbers_is_ignored(tmp_path: Path, values: dict[str, object]) -> None:
    path = kept(tmp_path).folder / "compiled.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"values": values}))
    assert CompiledGraphs(tmp_path, "m-qnn", KEY).find("32.onnx") is None


def test_a_graph_that_others_could_write_is_not_opened(tmp_path: Path) -> None:
    graphs = kept(tmp_path)
    (graphs.folder / "32.onnx").chmod(0o666)
    assert graphs.find("32.onnx") is None


def test_a_link_in_the_place_of_a_graph_is_not_followed_and_is_replaced(tmp_path: Path) -> None:
    graphs = kept(tmp_path / "root")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"short")
    (graphs.folder / "32.onnx").unlink()
    (graphs.folder / "32.onnx").symlink_to(elsewhere)
    assert graphs.find("32.onnx") is None
    path = graphs.store("32.onnx", b"new", {})
    assert not path.is_symlink()
    assert elsewhere.read_bytes() == b"short"


def test_a_folder_that_others_could_write_to_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    kept(root)
    root.chmod(0o777)
    with pytest.raises(StorageError, match="others could write there"):
        CompiledGraphs(root, "m-qnn", KEY)


def test_old_keys_of_a_model_are_removed_and_other_models_stay(tmp_path: Path) -> None:
    old, other = kept(tmp_path, OTHERS[2]), CompiledGraphs(tmp_path, "m-qnn-2", KEY)
    graphs = kept(tmp_path)
    graphs.remove_other_keys()
    assert not old.folder.exists()
    assert other.folder.exists()
    assert graphs.find("32.onnx") is not None


def engines(root: Path, key: CompiledKey = KEY) -> CompiledGraphs:
    graphs = CompiledGraphs(root, "m-tensorrt", key)
    assert graphs.remove_unverified() == 0
    for name in ("whole.engine", "sm87.timing"):
        (graphs.folder / name).write_bytes(name.encode())
        (graphs.folder / name).chmod(0o664)
    assert graphs.record() == 2
    return graphs


def test_recorded_files_of_a_provider_stay_for_the_next_start(tmp_path: Path) -> None:
    engines(tmp_path)
    again = CompiledGraphs(tmp_path, "m-tensorrt", KEY)
    assert again.remove_unverified() == 2
    found = again.find("whole.engine")
    assert found is not None
    assert found.read_bytes() == b"whole.engine"


def test_an_unknown_altered_or_partial_engine_is_removed_before_the_provider_reads_it(tmp_path: Path) -> None:
    folder = engines(tmp_path).folder
    (folder / "whole.engine").write_bytes(b"whole.enginE")
    (folder / "foreign.engine").write_bytes(b"from elsewhere")
    (folder / "link.engine").symlink_to(folder / "sm87.timing")
    (folder / "deeper").mkdir()
    (folder / "deeper" / "more.engine").write_bytes(b"from elsewhere")
    again = CompiledGraphs(tmp_path, "m-tensorrt", KEY)
    assert again.remove_unverified() == 1
    assert {path.name for path in folder.iterdir()} == {"sm87.timing", "compiled.json"}
    (folder / "whole.engine").write_bytes(b"built again")
    assert again.record() == 2
    assert CompiledGraphs(tmp_path, "m-tensorrt", KEY).remove_unverified() == 2


def test_an_engine_that_others_could_have_written_is_removed(tmp_path: Path) -> None:
    folder = engines(tmp_path).folder
    (folder / "whole.engine").chmod(0o666)
    assert CompiledGraphs(tmp_path, "m-tensorrt", KEY).remove_unverified() == 1
    assert not (folder / "whole.engine").exists()


def test_engines_that_were_not_recorded_before_a_crash_are_removed(tmp_path: Path) -> None:
    graphs = CompiledGraphs(tmp_path, "m-tensorrt", KEY)
    (graphs.folder / "whole.engine").write_bytes(b"half of i")
    assert CompiledGraphs(tmp_path, "m-tensorrt", KEY).remove_unverified() == 0
    assert list(graphs.folder.iterdir()) == []
