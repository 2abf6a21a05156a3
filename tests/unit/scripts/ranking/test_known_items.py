from pathlib import Path

import pytest
from rich.console import Console

from edge_rag.runtime.encoder.text_encoder import TextEncoder
from scripts.bench.retrieval.descriptions import Description, join_descriptions
from scripts.bench.retrieval.known_items import LEAST_WORDS, Part, findable, part_of, sample_documents, sample_items
from scripts.bench.retrieval.package_search import measure

MINILM = Path(__file__).parents[4] / "models" / "minilm-l6"
PACKAGES = """Package: zsh
Source: zsh (5.9-4)
Version: 5.9-4
Description: shell with lots of features
Description-md5: aa
Section: shells

Package: zsh
Description: an older one
Description-md5: bb

Package: whole
Description: a record that has its text
 Written here
 and here.

Package: untranslated
Description: only a line
Description-md5: cc
"""
TRANSLATIONS = """Package: zsh
Description-md5: aa
Description-en: shell with lots of features
 Zsh is a UNIX command interpreter
 usable as a login shell.
 .
 It has:
  * completion
  * functions

"""


def description(number: int, synopsis: str = "", source: str = "") -> Description:
    text = f"The package numbered {number} does what no other package of this archive would ever do."
    return Description(f"package-{number}", source or f"source-{number}", synopsis or f"tool of number {number}", text)


MANY = [description(number) for number in range(400)]


def test_long_descriptions_are_joined_by_their_digest_and_lose_their_markup() -> None:
    untranslated, whole, zsh = join_descriptions(PACKAGES, [TRANSLATIONS])
    assert zsh == Description(
        "zsh",
        "zsh",
        "shell with lots of features",
        "Zsh is a UNIX command interpreter\nusable as a login shell.\n\nIt has:\n * completion\n * functions",
    )
    assert whole == Description("whole", "whole", "a record that has its text", "Written here\nand here.")
    assert untranslated == Description("untranslated", "untranslated", "only a line", "")


def test_equal_and_very_short_descriptions_are_not_documents() -> None:
    one, two = description(1), Description("other", "other", "else", description(1).text.replace(" ", "\n"))
    short = Description("short", "short", "few words", " ".join(["word"] * (LEAST_WORDS - 1)))
    enough = Description("enough", "enough", "words", " ".join(["word"] * LEAST_WORDS))
    assert findable([one, short, two, enough]) == [one, enough]


def test_all_packages_of_a_source_are_in_one_part_and_every_part_has_some() -> None:
    parts = {part_of(each) for each in MANY}
    assert parts == set(Part)
    for number in range(50):
        assert part_of(description(number, source="same")) is part_of(description(0, source="same"))


@pytest.mark.parametrize("part", list(Part))
def test_questions_are_of_the_part_asked_for_and_the_same_in_every_run(part: Part) -> None:
    documents = sample_documents(MANY, 300, seed=3)
    assert len(documents) == 300
    items = sample_items(documents, part, 20, seed=3)
    assert items == sample_items(documents, part, 20, seed=3)
    assert items
    for item in items:
        assert part_of(documents[item.document]) is part
        assert item.question == documents[item.document].synopsis


def test_a_synopsis_that_two_documents_have_is_no_question() -> None:
    twins = [description(number, synopsis, source="same") for number, synopsis in ((1, "A shell"), (2, "a  shell!"))]
    documents = sample_documents([*twins, description(3, "an editor", source="same")], 10, seed=1)
    assert [item.question for item in sample_items(documents, part_of(twins[0]), 10, seed=1)] == ["an editor"]


def test_known_items_are_found_and_the_collection_is_kept(tmp_path: Path) -> None:
    documents = sample_documents(MANY[:40], 40, seed=1)
    items = sample_items(documents, Part.TRAINING, 10, seed=1)
    encoder = TextEncoder.open(MINILM)
    console = Console(quiet=True)

    def stored() -> list[Path]:
        return sorted(path for path in tmp_path.glob("*/documents.sqlite3"))

    first = measure(documents, items, encoder, None, 5, tmp_path, console)
    assert list(first) == ["dense", "BM25", "fused", "fused and reranked"]
    assert first["BM25"].recall_at_1 == 1.0
    (kept,) = stored()
    before = kept.read_bytes()
    assert measure(documents, items, encoder, None, 5, tmp_path, console) == first
    assert stored() == [kept]
    assert kept.read_bytes() == before
