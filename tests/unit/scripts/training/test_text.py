"""What of packages becomes text to train on."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.training.quoter.text.corpus import is_prose, read_corpus, well_formed
from scripts.training.quoter.text.packages import WORDNET, MissingText, archives, fetch
from scripts.training.quoter.text.prose import paragraphs
from scripts.training.quoter.text.wordnet import read_wordnet
from tests.unit.scripts.training.text import FILES

SENTENCE = "The pump starts when the level in the tank is low."


@pytest.mark.parametrize(
    ("path", "data", "expected"),
    [
        ("usr/share/doc/a/a.html", b"<p>One &amp; two.</p><pre>x = 1</pre><li>Three.", ["One & two.", "Three."]),
        ("usr/share/help/C/a/a.page", b"<page><title>T</title><p>A <gui>key</gui>.</p></page>", ["T", "A key."]),
        ("usr/share/doc/a/a.txt.gz", gzip.compress(b"One.\n\nTwo\nlines."), ["One.", "Two lines."]),
        ("usr/share/perl/a.pod", b"=head1 A\n\nUse C<open>.\n\n  code\n\n=cut\n\nmy $x;", ["Use open."]),
        (
            "usr/share/dictd/a.dict",
            b"Pump \\Pump\\, n.\n   A machine. [1913]\n\n   See {Tank}.",
            ["Pump is a machine.", "See Tank."],
        ),
        ("usr/share/doc/a/copyright", b"All rights.", []),
        ("usr/share/doc/a/fr-FR/a.html", b"<p>Bonjour.</p>", []),
        ("usr/share/doc/a/a.de.html", b"<p>Guten Tag.</p>", []),
        ("usr/share/doc/a/a.png", b"\x89PNG", []),
    ],
    ids=["html", "page", "gzip", "pod", "dictionary", "copyright", "language folder", "language suffix", "picture"],
)
def test_paragraphs_are_the_running_text_of_each_format(path: str, data: bytes, expected: list[str]) -> None:
    assert [" ".join(text.split()) for text in paragraphs(path, data)] == expected


@pytest.mark.parametrize(
    "sentence",
    [
        "Too short.",
        "no capital stands at the beginning of the sentence.",
        "The end of this sentence is not there",
        "See https://example.org for all of the details.",
        "Diese Zeile enthält nur Wörter einer anderen Sprache hier.",
        "Copyright 1996 by the authors of the program and others.",
        "The " + "very " * 60 + "end.",
    ],
)
def test_what_does_not_read_as_english_prose_is_left_out(sentence: str) -> None:
    assert not is_prose(sentence)


def test_a_sentence_is_learned_once_and_few_with_one_beginning() -> None:
    repeated = [SENTENCE, SENTENCE.upper().capitalize(), f"{SENTENCE} It stops when the tank is full of water."]
    assert [len(paragraph) for paragraph in well_formed(repeated)] == [1, 1]
    alike = [f"This option is one of the many number {n} options." for n in range(40)]
    assert 5 < len(list(well_formed(alike))) < 20


def test_wordnet_gives_base_forms_synonyms_kinds_and_definitions() -> None:
    words, definitions = read_wordnet({path: text.encode() for path, text in FILES.items()})
    assert words.base_form("began") == "begin"
    assert words.base_form("Starting") == "start"
    assert words.base_form("statements") == "statement"
    assert words.base_form("unknowns") == "unknowns"
    assert words.synonyms["begin"] == ("start",)
    assert words.kinds["rossum"] == "thing"
    assert definitions == [
        "Statement is the something that is carried out. Thing is a separate entity. "
        "Rossum is a Dutch programmer who wrote an interpreter (born 1956)."
    ]


def package(folder: Path, name: str, files: dict[str, str]) -> None:
    root = folder / f"{name}-root"
    for path, text in {**files, "DEBIAN/control": CONTROL.format(name=name)}.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    command = ["dpkg-deb", "--root-owner-group", "--build", str(root), str(folder / f"{name}_1_all.deb")]
    subprocess.run(command, check=True, capture_output=True)


CONTROL = "Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: Nobody <nobody@example.org>\nDescription: test\n"


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")
def test_the_corpus_names_every_package_file_and_keeps_held_out_text_apart(tmp_path: Path) -> None:
    said = "\n\n".join(f"The pump number {n} starts when the level of the tank {n} is low." for n in range(300))
    package(tmp_path, "manual", {"usr/share/doc/manual/manual.txt": said})
    package(tmp_path, WORDNET, FILES)
    found = archives(tmp_path, ["manual", WORDNET])
    read: list[str] = []
    corpus, again = read_corpus(found, read.append), read_corpus(found)
    assert read == ["manual", WORDNET]
    assert corpus.sources == {each.path.name: each.sha256 for each in found}
    assert corpus.held_out
    assert not set(corpus.held_out) & set(corpus.learned)
    assert (corpus.sha256, corpus.learned, corpus.held_out) == (again.sha256, again.learned, again.held_out)


def test_missing_doubled_and_broken_packages_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingText, match=r"package manual is not in .*--fetch"):
        archives(tmp_path, ["manual"])
    (tmp_path / "manual_1_all.deb").write_bytes(b"no package")
    (broken,) = archives(tmp_path, ["manual"])
    with pytest.raises(MissingText, match=r"manual_1_all\.deb cannot be read as a Debian package"):
        list(broken.members())
    (tmp_path / "manual_2_all.deb").write_bytes(b"")
    with pytest.raises(MissingText, match=r"keep one of manual_1_all\.deb, manual_2_all\.deb"):
        archives(tmp_path, ["manual"])


def test_nothing_is_fetched_that_is_there_and_without_apt_the_message_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "manual_1_all.deb").write_bytes(b"")
    fetch(tmp_path, ["manual"])
    with pytest.raises(MissingText, match="apt-get, which does not run here"):
        fetch(tmp_path, ["manual", "other"])
