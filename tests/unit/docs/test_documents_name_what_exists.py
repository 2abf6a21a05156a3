"""Paths, links, settings and metrics in documents exist, and the index has every page."""

import re
import subprocess
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel

from edge_rag.config.settings import Settings
from scripts.generate_docs.registry import registry

ROOT = Path(__file__).parents[3]
PAGES = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
DOCUMENTS = [*PAGES, "models/README.md", "scripts/bench/README.md"]
PRESENT = [document for document in DOCUMENTS if document != "CHANGELOG.md"]
GUIDES = [document for document in PRESENT if not document.startswith("scripts/")]
"""Benchmarks have names like settings."""
PATH = re.compile(
    r"`((?:\.ci|edge_rag|proto|models|tests|deploy|scripts|systemd|docs)/[\w./*{},-]*"
    r"|[\w-]+\.(?:py|toml|txt|md|cpp|h|proto))`"
)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[\w-]*)?\)")
SECTIONS = "|".join(name for name, field in Settings.model_fields.items() if str(field.annotation).startswith("<class"))
SETTING = re.compile(rf"`({SECTIONS})((?:\.[a-z_]+)+)(?: = [^`]*)?`")
METRIC = re.compile(r"`(edge_rag_[a-z0-9_]+)`")


def found_in(pattern: re.Pattern[str], documents: list[str]) -> list[tuple[str, str]]:
    return sorted({(name, match) for name in documents for match in pattern.findall((ROOT / name).read_text())})


@cache
def file_names() -> frozenset[str]:
    listed = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.splitlines()
    return frozenset(Path(file).name for file in files if (ROOT / file).exists())


@cache
def exists(document: str, path: str) -> bool:
    places = [ROOT, (ROOT / document).parent]
    names = [path.rstrip("/")]
    while brace := re.search(r"\{([^}]*)\}", names[0]):
        names = [name.replace(brace[0], each) for name in names for each in brace[1].split(",")]
    return all(
        any(any(place.glob(name)) for place in places) or any(fnmatch(each, name) for each in file_names())
        for name in names
    )


@pytest.mark.parametrize(("document", "path"), found_in(PATH, PRESENT))
def test_a_path_named_in_a_document_exists(document: str, path: str) -> None:
    assert exists(document, path)


@pytest.mark.parametrize(("document", "target"), found_in(LINK, DOCUMENTS))
def test_a_link_leads_to_a_file(document: str, target: str) -> None:
    assert ((ROOT / document).parent / target).exists()


@pytest.mark.parametrize("document", GUIDES)
def test_a_setting_named_in_a_document_exists(document: str) -> None:
    current = (ROOT / document).read_text().partition("## Tried, measured, dropped")[0]
    for section, keys in SETTING.findall(current):
        if exists(document, f"{section}{keys}"):
            continue
        model: object = Settings.model_fields[section].annotation
        for key in keys.strip(".").split("."):
            assert isinstance(model, type), f"{document} names the setting {section}{keys}"
            assert issubclass(model, BaseModel), f"{document} names the setting {section}{keys}"
            assert key in model.model_fields, f"{document} names the setting {section}{keys}"
            model = model.model_fields[key].annotation


@cache
def series() -> frozenset[str]:
    samples = {sample.name for family in registry().collect() for sample in family.samples}
    return frozenset(samples | {re.sub(r"_(bucket|created)$", "", name) for name in samples})


@pytest.mark.parametrize(("document", "metric"), found_in(METRIC, [page for page in GUIDES if "/adr/" not in page]))
def test_a_metric_named_in_a_document_exists(document: str, metric: str) -> None:
    assert metric in series()


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/") and page != "docs/index.md"])
def test_every_page_is_linked_from_the_index(page: str) -> None:
    assert f"]({page.removeprefix('docs/')})" in (ROOT / "docs" / "index.md").read_text()
