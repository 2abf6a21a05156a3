"""Reads the pairs of public data sets from clones of their repositories, each at the commit it was read at first."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge_rag.analysis.languages import ENGLISH_FUNCTION_WORDS
from scripts.training.entailment.pairs import Pair, Verdict

_SHORT: Final = {"e": Verdict.ENTAILMENT, "n": Verdict.NEUTRAL, "c": Verdict.CONTRADICTION}
_ASKED = re.compile(r'For the statement, "(.+)", does the hypothesis "(.*)" represent entailment', re.DOTALL)
_SPLIT: Final = " <::::> "
_LEAST_WORDS: Final = 0.75
_WORD = re.compile(r"[a-z]+")
_CLAIM = re.compile(r"\d[\d,.]*\d|\d|(?<=\S )[A-Z]\w+|\b(?:not|no|never|none|without|only|cannot)\b|n't\b")
_SPACED: Final = (
    (re.compile(r" ([,.;:!?%)\]]|'s\b|n't\b|'(?:re|ve|ll|d|m)\b)"), r"\1"),
    (re.compile(r"([(\[$£€]) "), r"\1"),
    (re.compile(r"''\s*([^']*?)\s*''"), r'"\1"'),
    (re.compile(r"(?<=\w) - (?=\w)"), "-"),
)


@dataclass(frozen=True, slots=True)
class Repository:
    """A clone to read from.

    Attributes:
        name: ``owner/name`` on GitHub.
        commit: What is read.
        licence: Of the data that is used.
    """

    name: str
    commit: str
    licence: str

    def text(self, clones: Path, path: str) -> str:
        """Returns a file.

        Raises:
            SystemExit: The clone, the commit or the file is missing.
        """
        clone = clones / self.name.replace("/", "+")
        done = subprocess.run(
            ["git", "-C", str(clone), "show", f"{self.commit}:{path}"], capture_output=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{clone}: {path} of {self.commit[:12]} cannot be read; clone {self.name} there")
        return done.stdout.decode("utf-8")


SNLI = Repository("nyu-mll/CNLI-generalization", "5c6d4df5f6a7e58d23c6db1a9dbc50eb9bcfda2b", "CC-BY-SA-4.0")
REVISED = Repository(
    "acmi-lab/counterfactually-augmented-data", "6f232a1d2a11462a30ce08fb4825b734ab30828e", "CC-BY-SA-4.0, Apache-2.0"
)
MULTI_NLI = Repository("technion-cs-nlp/LLMsKnow", "bee3ec5787e72f09ec1603e50e9b64c41fbc6f23", "OANC, CC-BY-SA-3.0")
WIKI_NLI = Repository("nyu-mll/semi-automatic-nli", "853c480133141f1b737744dc7d6e2db2686578bb", "CC-BY-SA-3.0")
MED = Repository("verypluming/MED", "860ba36ce95ecba9f1ebe348d3d8cf1b3cba435a", "CC-BY-SA-4.0")
HELP = Repository("verypluming/HELP", "3ee5c298d48549704629a3687ccd8a00168281b8", "CC-BY-SA-4.0")
WIKI_SPLIT = Repository(
    "google-research-datasets/wiki-split", "80f5bddf42d1a68201b7b107ee4b8d86d82e9fde", "CC-BY-SA-4.0"
)
SOURCES: Final = (SNLI, REVISED, MULTI_NLI, WIKI_NLI, MED, HELP, WIKI_SPLIT)


def written_pairs(clones: Path) -> Iterator[Pair]:
    """Yields the pairs that people wrote or judged."""
    for part in (0, 1, 3, 4):
        lines = SNLI.text(clones, f"data/preprocessed/data/snlisub{part}/train.jsonl").splitlines()
        rows = (json.loads(line) for line in lines)
        yield from (Pair(row["sentence1"], row["sentence2"], Verdict(row["gold_label"])) for row in rows)
    for row in _table(REVISED.text(clones, "NLI/revised_combined/train.tsv")):
        yield Pair(row["sentence1"], row["sentence2"], Verdict(row["gold_label"]))
    for part_name in ("train", "validation"):
        yield from multi_nli(clones, part_name)
    for part_name in ("base_wiki", "sim_wiki", "translate_wiki"):
        for line in WIKI_NLI.text(clones, f"data/{part_name}/train.jsonl").splitlines():
            row = json.loads(line)
            if row["label"] in _SHORT:
                yield Pair(row["premise"], row["hypothesis"], _SHORT[row["label"]])
    for row in _table(MED.text(clones, "MED.tsv")):
        yield Pair(row["sentence1"], row["sentence2"], _open(row["gold_label"]))
    for row in _table(HELP.text(clones, "output_en/leskexppmb_and.tsv")):
        yield Pair(joined(row["ori_sentence"]), joined(row["new_sentence"]), _open(row["gold_label"]))


def multi_nli(clones: Path, part: str, held_out: bool = False) -> Iterator[Pair]:
    """Yields pairs of MultiNLI: ``train``, ``validation`` less its last 2,000, or these."""
    rows = list(csv.DictReader(io.StringIO(MULTI_NLI.text(clones, f"data/mnli_{part}.csv"))))
    if part == "validation":
        rows = rows[-2_000:] if held_out else rows[:-2_000]
    for row in rows:
        if (found := _ASKED.match(row["Question"])) is not None:
            yield Pair(found[1].strip(), found[2].strip(), Verdict(row["Answer"]))


def split_sentences(clones: Path) -> Iterator[tuple[str, str, str]]:
    """Yields sentences of Wikipedia with the two that an editor split each into."""
    for part in ("tune", "validation", "test"):
        for line in WIKI_SPLIT.text(clones, f"{part}.tsv").splitlines():
            whole, _, parts = line.partition("\t")
            first, _, second = parts.partition(_SPLIT)
            if second:
                yield joined(whole), joined(first), joined(second)


def adds_nothing(premise: str, hypothesis: str) -> bool:
    """Whether the whole has the numbers, names, negations and most words of a part: editors also add and correct."""
    words = set(_WORD.findall(hypothesis.lower())) - ENGLISH_FUNCTION_WORDS
    known = set(_WORD.findall(premise.lower()))
    return all(claim in premise for claim in _CLAIM.findall(hypothesis)) and (
        len(words & known) >= _LEAST_WORDS * len(words)
    )


def joined(text: str) -> str:
    """Takes out the spaces that a tokenizer put before punctuation."""
    for pattern, instead in _SPACED:
        text = pattern.sub(instead, text)
    return text.strip()


def _open(label: str) -> Verdict:
    """The verdict of sets that tell entailment from all else only."""
    return Verdict.ENTAILMENT if label == Verdict.ENTAILMENT.value else Verdict.NOT_ENTAILED


def _table(text: str) -> Iterator[dict[str, str]]:
    return iter(csv.DictReader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE))
