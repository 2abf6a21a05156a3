"""Measures extracted values beside quoted sentences, on questions whose answer is a number, a quantity or a date.

    python -m scripts.bench.quality.extraction                            # XQuAD's odd articles, and samples
    python -m scripts.bench.quality.extraction --half even --missed       # the half for tuning, and what is wrong
    python -m scripts.bench.quality.extraction --languages de,es          # the same questions in other languages

The value questions of XQuAD are told by a rule over the accepted answer in English (``GOLD``), not over what is
extracted; the files of the languages are parallel. Those of ``deploy/samples`` are in ``value_questions.json``, written
before any was asked, and are asked with those in English. Printed, by language and by kind of the accepted answer:

    in a cited span     share of the values that stand in the cited sentence, word for word
    exact               share of all questions whose value is an accepted one, as SQuAD compares texts
    by value            the same, where texts with the same numbers are equal if one has all other words of the other
    quote contains      share of all questions whose quoted sentence, in mode quote, holds an accepted text

Ends with status 1 if a value is not in a cited span.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import string
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.progress import track
from rich.table import Table

from edge_rag.analysis.numbers import normal_numbers
from edge_rag.analysis.values import ValueWords, value_words
from edge_rag.bootstrap.open_directory import open_data_directory
from edge_rag.core.documents.document import IngestStatus, Upload
from edge_rag.errors import EdgeRagError
from edge_rag.generator.extraction.answer import extract
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.quality.answer_quality import Asked
from scripts.bench.quality.quoting import COLLECTION, REPOSITORY, Answered, Box, RememberedEncoder, read_languages

VALUE_QUESTIONS: Final = Path(__file__).with_name("value_questions.json")
MEDIA_TYPES: Final = {".pdf": "application/pdf", ".html": "text/html", ".md": "text/markdown", ".txt": "text/plain"}

_NUMBER_WORDS: Final = value_words("en").numbers
_MONTH: Final = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_LEAD: Final = "(?:(?:about|around|over|after|before|in|nearly|approximately|by|since|between|from|every|at) )?"
_DATE: Final = rf"{_LEAD}(?:\d{{1,2}}(?:st|nd|rd|th)? )?{_MONTH}(?: \d{{1,2}})?(?:,? \d{{4}})?|{_LEAD}[12]\d{{3}}s?"
_DIGITS: Final = (
    rf"{_LEAD}[£$€]?\d[\d.,:]*[s%m]?(?:\s?(?:–|-|to|and|or)\s?\d[\d.,:]*)?(?: (?:%|percent|million|billion))?"
    r"(?: [a-z]+){0,3}"
)
_WORDS: Final = rf"{_LEAD}(?:{'|'.join(_NUMBER_WORDS)})(?: [a-z]+){{0,2}}"
_WITH_NUMBER: Final = rf"(?i)(?=.*(?:\d|\b(?:{'|'.join(_NUMBER_WORDS)})\b))\S+(?: \S+){{0,4}}"
GOLD: Final = {
    "date or year": re.compile(rf"(?:{_DATE})\.?"),
    "number in digits": re.compile(rf"(?:{_DIGITS})\.?"),
    "number in words": re.compile(rf"(?:{_WORDS})\.?"),
    "other with a number": re.compile(_WITH_NUMBER),
}
"""What an accepted answer looks like if it is a value, by kind; the first that fits."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a question got.

    Attributes:
        language: Language of the question.
        kind: Kind of its accepted answer.
        question: The question.
        value: What was extracted; None for the not-found answer.
        cited: Whether the value stands in the cited sentence.
        quoted: Whether the sentence quoted instead holds an accepted text.
    """

    language: str
    kind: str
    question: Asked
    value: str | None
    cited: bool
    quoted: bool

    @property
    def exact(self) -> bool:
        """Whether the value is an accepted text, as SQuAD compares them."""
        return self.value is not None and any(_plain(self.value) == _plain(each) for each in self.question.answers)

    @property
    def equal(self) -> bool:
        """Whether it is one by its numbers and the words beside them."""
        return self.exact or any(same_value(self.value or "", each, self.language) for each in self.question.answers)


class ValueQuestion(NamedTuple):
    """A question whose answer is a value: its language, the kind of its accepted answer, and the question."""

    language: str
    kind: str
    question: Asked


def _plain(text: str) -> str:
    """Returns a text as SQuAD compares it: lower case, without punctuation and articles. Hyphens part words."""
    spaced = re.sub("[-–]", " ", text.lower())
    kept = "".join(character for character in spaced if character not in string.punctuation)
    return " ".join(word for word in kept.split() if word not in ("a", "an", "the"))


def same_value(value: str, accepted: str, language: str = "en") -> bool:
    """Whether two texts have the same numbers in order, and one of them all other words of the other."""
    words = value_words(language)
    first, second = _numbers(value, words), _numbers(accepted, words)
    if not first or len(first) != len(second):
        return False
    others, accepted_others = _others(value, words), _others(accepted, words)
    same = all(one & other for one, other in zip(first, second, strict=True))
    return same and (others <= accepted_others or accepted_others <= others)


def _numbers(text: str, words: ValueWords) -> list[frozenset[str]]:
    found = [*normal_numbers(text), *words.spelled_numbers(text.replace("-", " "))]
    return [frozenset(number.readings) for number in sorted(found, key=lambda number: number.start)]


def _others(text: str, words: ValueWords) -> set[str]:
    return {word for word in re.findall(r"[^\W\d_]+|[%°$£€]", text.lower()) if word not in words.numbers}


def kind_of(answers: Iterable[str]) -> str | None:
    """Returns the kind of the first accepted answer that is a value; None if none is."""
    for answer in answers:
        for kind, pattern in GOLD.items():
            if pattern.fullmatch(answer.strip()):
                return kind
    return None


def outcome(value_question: ValueQuestion, answered: Answered) -> Outcome:
    """Returns what a question got: the value, and whether mode quote would have held it."""
    language, kind, question = value_question
    passages = answered.found.passages
    if answered.turned_away():
        return Outcome(language, kind, question, None, True, False)
    extracted = extract(question.text, passages, None)
    if extracted is None:
        return Outcome(language, kind, question, None, True, answered.holds(1))
    (value,) = extracted.values
    ranked = passages[value.passage]
    sentence = ranked.sentences[value.sentence]
    cited = extracted.text in ranked.passage.text[sentence.start : sentence.end]
    return Outcome(language, kind, question, extracted.text, cited, answered.holds(1))


def ask_all(
    encoder: RememberedEncoder, name: str, documents: Mapping[str, bytes], asked: Sequence[ValueQuestion]
) -> list[tuple[ValueQuestion, Answered]]:
    """Puts documents in a data directory and asks."""
    console = Console(stderr=True)
    with encoder.remembering(name), tempfile.TemporaryDirectory() as scratch:
        directory = open_data_directory(Path(scratch), encoder)
        try:
            for document, content in track(documents.items(), f"{name}: ingesting", console=console):
                media_type = MEDIA_TYPES[Path(document).suffix]
                taken = directory.library.ingest(Upload.of_bytes(COLLECTION, document, media_type, content))
                if taken.status is not IngestStatus.ADDED:
                    raise SystemExit(f"{document} was not taken: {taken.reason}")
            box = Box(directory, encoder, 4)
            return [(each, box.ask(each.question)) for each in track(asked, f"{name}: asking", console=console)]
        finally:
            directory.close()


def xquad(data: Path, language: str, half: str) -> tuple[dict[str, bytes], list[ValueQuestion]]:
    """Returns the paragraphs of all articles in a language and the value questions of a half."""
    read = read_languages(data, [*{"en": None, language: None}], half)
    documents = {
        f"{language}/{name}": text.encode() for each in read[language].documents for name, text in each.items()
    }
    pairs = zip(read["en"].questions, read[language].questions, strict=True)
    asked = [(kind_of(english.answers), question) for english, question in pairs]
    return documents, [ValueQuestion(language, kind, question) for kind, question in asked if kind is not None]


def samples(folder: Path) -> tuple[dict[str, bytes], list[ValueQuestion]]:
    """Returns the sample documents and their value questions."""
    documents = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    items = json.loads(VALUE_QUESTIONS.read_text("utf-8"))
    questions = [Asked(item["question"], 0, item["document"], tuple(item["answers"])) for item in items]
    return documents, [ValueQuestion("en", kind_of(each.answers) or "name or code", each) for each in questions]


def print_table(groups: Mapping[str, Sequence[Outcome]]) -> None:
    table = Table(title="extracted values")
    for heading in ("", "questions", "not found", "in a cited span", "exact", "by value", "quote contains"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, outcomes in groups.items():
        found = [each for each in outcomes if each.value is not None]
        shares = (
            _share([each.cited for each in found]),
            *(_share([getattr(each, field) for each in outcomes]) for field in ("exact", "equal", "quoted")),
        )
        row = (name, str(len(outcomes)), str(len(outcomes) - len(found)), *(f"{share:.1%}" for share in shares))
        table.add_row(*row, end_section=name.startswith("all"))
    Console().print(table)


def _share(values: Sequence[bool]) -> float:
    return sum(values) / max(1, len(values))


def main() -> None:
    """Reads the command line."""
    shared = Path(os.environ.get("EDGE_RAG_SHARED", REPOSITORY.parent / "shared"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=shared / "data" / "xquad-a", help="folder with LANG.json")
    parser.add_argument("--languages", default="en", help="languages of XQuAD, apart by commas")
    parser.add_argument("--half", choices=("odd", "even"), default="odd", help="articles whose questions are asked")
    parser.add_argument("--encoder", type=Path, default=REPOSITORY / "models" / "multilingual-e5-small")
    parser.add_argument("--vectors", type=Path, help="folder where vectors are kept between runs")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--missed", action="store_true", help="print the questions whose value is not an accepted one")
    arguments = parser.parse_args()
    groups: dict[str, list[Outcome]] = {}
    try:
        configure_thread_pool(arguments.threads)
        encoder = RememberedEncoder(TextEncoder.open(arguments.encoder), arguments.vectors)
        for language in arguments.languages.split(","):
            public = ask_all(encoder, language, *xquad(arguments.data, language, arguments.half))
            groups[f"XQuAD {language}, {arguments.half} articles"] = [outcome(*each) for each in public]
            if language == "en" and arguments.half == "odd":  # the samples are for measuring, not for tuning
                own = ask_all(encoder, "samples", *samples(REPOSITORY / "deploy" / "samples"))
                groups["samples"] = [outcome(*each) for each in own]
    except EdgeRagError as error:
        raise SystemExit(str(error)) from error
    everything = [each for outcomes in groups.values() for each in outcomes]
    kinds = dict.fromkeys(each.kind for each in everything)
    by_kind = {kind: [each for each in everything if each.kind == kind] for kind in kinds}
    print_table({"all": everything} | groups | by_kind)
    for each in everything if arguments.missed else ():
        if not each.exact:
            print(f"{each.question.text}\n    {each.value!r} for {' or '.join(map(repr, each.question.answers))}")
    sys.exit(0 if all(each.cited for each in everything) else 1)


if __name__ == "__main__":
    main()
