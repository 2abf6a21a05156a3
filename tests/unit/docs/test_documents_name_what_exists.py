import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_rag.config.settings import Settings

ROOT = Path(__file__).parents[3]
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "models/README.md")
PATH = re.compile(
    r"`((?:\.ci|edge_rag|proto|models|tests|deploy|scripts|systemd)/[\w./*{},-]*|[\w-]+\.(?:py|toml|txt|md|cpp|h|proto))`"
)
SECTIONS = "models|retriever|reranker|generator|offload|ingest|limits|log|audit|metrics|traces|throttle|tls|discovery"
SETTING = re.compile(rf"`({SECTIONS})\.([a-z_]+)`")


def named_paths() -> Iterator[tuple[str, str]]:
    for document in DOCUMENTS:
        for match in PATH.finditer((ROOT / document).read_text()):
            yield document, match.group(1)


@pytest.mark.parametrize(("document", "path"), sorted(set(named_paths())))
def test_a_path_named_in_a_document_exists(document: str, path: str) -> None:
    places = [ROOT, (ROOT / document).parent]
    assert any(any(place.glob(path.rstrip("/"))) for place in places) or ("/" not in path and any(ROOT.rglob(path)))


def test_the_architecture_names_every_source_file_of_the_rooms() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for folder in sorted(path for path in (ROOT / "edge_rag").iterdir() if path.is_dir() and path.name[0] != "_"):
        assert f"edge_rag/{folder.name}/" in text, f"{folder.name} is not in ARCHITECTURE.md"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_setting_named_in_a_document_exists(document: str) -> None:
    for section, key in SETTING.findall((ROOT / document).read_text()):
        if f"{section}.{key}" in {path for _, path in named_paths()}:
            continue
        model = Settings.model_fields[section].annotation
        assert model is not None
        assert key in model.model_fields, f"{document} names the setting {section}.{key}"
