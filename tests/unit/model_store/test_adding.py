"""Adding folders that need no conversion, with every process that adding starts."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edge_rag.errors import ModelError, ModelFolderInvalid, ModelNotAdded
from edge_rag.model_store.add import add
from edge_rag.model_store.directory import StoreDirectory
from edge_rag.model_store.source import AddRequest, LocalFolder, ModelPrecision, NoProgress
from edge_rag.model_store.store import memory_bytes
from edge_rag.runtime.model_folder.folder import ModelRole, verify_model_folder
from tests.synthetic.serial_model import genai_folder
from tests.unit.model_store.adding import Interrupted, left_in

ROOT = Path(__file__).parents[3]
QUOTER = ROOT / "tests" / "fixtures" / "quoter"


def source_folder(target: Path) -> Path:
    genai_folder(target)
    (target / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Tiny\n")
    return target


def wish(folder: Path, name: str = "tiny") -> AddRequest:
    return AddRequest(LocalFolder(folder), name, ModelPrecision.INT4, None)


def test_a_genai_folder_becomes_a_closed_folder_that_holds_only_what_is_needed(
    store: StoreDirectory, tmp_path: Path
) -> None:
    written = add(store, wish(source_folder(tmp_path / "source")), NoProgress())
    folder = store.folder("tiny")
    manifest = verify_model_folder(folder, ModelRole.GENERATOR)
    assert manifest == written
    assert set(manifest.files) == {
        "model.onnx", "model.onnx.data", "genai_config.json",
        "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
    }  # fmt: skip
    assert (manifest.name, manifest.licence) == ("tiny", "apache-2.0")
    assert manifest.source.startswith("folder source, SHA-256")
    agreement = manifest.parameters["agreement_with_itself"]
    assert isinstance(agreement, dict)
    assert agreement["good"] is True
    assert left_in(store) == [".lock", "tiny"]
    needed = memory_bytes(manifest)
    assert needed is not None
    assert needed > sum(record.bytes for record in manifest.files.values())
    assert all(path.stat().st_nlink == 1 for path in folder.iterdir())


@pytest.mark.parametrize("source", [QUOTER, ROOT / "models" / "minilm-l6"], ids=["generator", "embedder"])
def test_a_finished_model_folder_is_added_under_its_new_name(store: StoreDirectory, source: Path) -> None:
    original = verify_model_folder(source)
    manifest = add(store, wish(source, "second"), NoProgress())
    assert manifest.name == "second"
    assert (manifest.role, manifest.licence, manifest.files) == (original.role, original.licence, original.files)


def test_a_name_that_is_taken_stays_with_its_model(store: StoreDirectory, tmp_path: Path) -> None:
    add(store, wish(QUOTER), NoProgress())
    before = verify_model_folder(store.folder("tiny"))
    with pytest.raises(ModelNotAdded, match="a model tiny exists"):
        add(store, wish(source_folder(tmp_path / "source")), NoProgress())
    assert verify_model_folder(store.folder("tiny")) == before


def spoil_weights(folder: Path) -> None:
    content = bytearray((folder / "model.onnx.data").read_bytes())
    content[: 1 << 16] = b"\x00\x00\x80\x7f" * (1 << 14)
    (folder / "model.onnx.data").write_bytes(content)


def change_head_size(folder: Path) -> None:
    document = json.loads((folder / "genai_config.json").read_bytes())
    document["model"]["decoder"]["head_size"] = 48
    (folder / "genai_config.json").write_text(json.dumps(document))


def hostile_template(folder: Path) -> None:
    mark = folder.parent / "canary"
    (folder / "chat_template.jinja").write_text(
        "{{ cycler.__init__.__globals__.os.system('touch " + str(mark) + "') }}"
        "{{ messages[0]['content'] }}{{ messages[1]['content'] }}"
    )


@pytest.mark.parametrize("spoil", [spoil_weights, change_head_size, hostile_template])
def test_a_model_that_cannot_be_trusted_to_compute_the_same_is_not_added(
    store: StoreDirectory, tmp_path: Path, spoil: object
) -> None:
    folder = source_folder(tmp_path / "source")
    assert callable(spoil)
    spoil(folder)
    with pytest.raises(ModelError):
        add(store, wish(folder), NoProgress())
    assert left_in(store) == [".lock"]
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("step", ["copying", "running", "inside", "writing the manifest", "syncing it to the disk"])
def test_an_interruption_at_any_step_leaves_the_store_as_it_was(
    store: StoreDirectory, tmp_path: Path, step: str
) -> None:
    with pytest.raises(KeyboardInterrupt):
        add(store, wish(source_folder(tmp_path / "source")), Interrupted(step))
    assert left_in(store) == [".lock"]


def test_what_a_killed_process_left_is_cleared_by_the_next_change(store: StoreDirectory, tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from edge_rag.model_store.directory import StoreDirectory\n"
        "store = StoreDirectory(Path(sys.argv[1]))\n"
        "with store.changing(), store.staging() as folder:\n"
        "    (folder / 'half.onnx').write_bytes(b'half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(store.path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(left_in(store)) == 2
    assert store.names() == ()
    with store.changing():
        assert left_in(store) == [".lock"]


def test_only_one_process_changes_the_store(store: StoreDirectory) -> None:
    with store.changing(), pytest.raises(ModelNotAdded, match="another process"), StoreDirectory(store.path).changing():
        pass


def test_a_link_put_in_place_of_a_file_while_it_is_copied_is_not_followed(
    store: StoreDirectory, tmp_path: Path
) -> None:
    folder = source_folder(tmp_path / "source")

    class Swapping(NoProgress):
        def begin(self, what: str, total_bytes: int | None = None) -> None:
            if what == "copying":
                (folder / "tokenizer.json").unlink()
                (folder / "tokenizer.json").symlink_to("/etc/passwd")

    with pytest.raises(ModelFolderInvalid, match=r"tokenizer\.json cannot be read"):
        add(store, wish(folder), Swapping())
    assert left_in(store) == [".lock"]


@pytest.mark.parametrize("module", ["prepare_checkpoint", "prepare_gguf", "prepare_encoder"])
def test_a_conversion_needs_no_torch(module: str) -> None:
    unwanted = "{'torch', 'transformers', 'sentence_transformers', 'onnxruntime_genai', 'gguf', 'safetensors'}"
    program = f"import sys, edge_rag.model_store.convert.{module}; sys.exit(bool({unwanted} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
