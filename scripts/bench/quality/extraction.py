"""Measures extracted values beside quoted sentences, on questions whose answer is a number, a quantity or a date.

    python -m scripts.bench.quality.extraction                            # XQuAD's odd articles, and samples
    python -m scripts.bench.quality.extraction --half even                # the half for tuning
    python -m scripts.bench.quality.extraction --languages de,es          # the same questions in other languages

A rule over the accepted answer in English (``GOLD``) says which questions of XQuAD are value questions; the files of
the languages are parallel. Those of ``deploy/samples`` are in ``value_questions.json``. Printed, by language and by
kind of the accepted answer:

    in a cited span     share of the values that stand in the cited sentence, word for word
    exact               share of all questions whose value is an accepted one, as SQuAD compares texts
    by value            the same, where texts with the same numbers are equal if one has all other words of the other
    quote contains      share of all questions whose quoted sentence, in mode quote, holds an accepted text

Ends with status 1 if a value is not in a cited span.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.progress import track

from edge_rag.analysis.numbers import normal_numbers
from edge_rag.analysis.values import ValueWords, value_words
from edge_rag.errors import EdgeRagError
from edge_rag.generator.extraction.answer import extract
from edge_rag.generator.quote_generator import QuoteSettings
from edge_rag.generator.quoting.answer import points_of
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.harness.collection import Collection, RememberedEncoder, opened
from scripts.bench.harness.command import XQUAD, add_model_options, console, make_parser, print_json, print_table
from scripts.bench.harness.figures import share
from scripts.bench.harness.squad import Question, read_languages
from scripts.bench.quality.judging import words
from scripts.bench.quality.samples import sample_documents, value_questions

_PASSAGES: Final = 4
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
    """A value question and its outcome; ``value`` is None for the not-found answer."""

    language: str
    kind: str
    question: Question
    value: str | None
    cited: bool
    quoted: bool

    @property
    def exact(self) -> bool:
        return self.value is not None and any(words(self.value) == words(each) for each in self.question.answers)

    @property
    def equal(self) -> bool:
        return self.exact or any(same_value(self.value or "", each, self.language) for each in self.question.answers)


def same_value(value: str, accepted: str, language: str = "en") -> bool:
    """Whether two texts have the same numbers in order, and one of them all other words of the other."""
    known = value_words(language)
    first, second = _numbers(value, known), _numbers(accepted, known)
    if not first or len(first) != len(second):
        return False
    others, accepted_others = _others(value, known), _others(accepted, known)
    same = all(one & other for one, other in zip(first, second, strict=True))
    return same and (others <= accepted_others or accepted_others <= others)


def _numbers(text: str, known: ValueWords) -> list[frozenset[str]]:
    found = [*normal_numbers(text), *known.spelled_numbers(text.replace("-", " "))]
    return [frozenset(number.readings) for number in sorted(found, key=lambda number: number.start)]


def _others(text: str, known: ValueWords) -> set[str]:
    return {word for word in re.findall(r"[^\W\d_]+|[%°$£€]", text.lower()) if word not in known.numbers}


def kind_of(answers: Iterable[str]) -> str | None:
    """Returns the kind of the first accepted answer that is a value; None if none is."""
    for answer in answers:
        for kind, pattern in GOLD.items():
            if pattern.fullmatch(answer.strip()):
                return kind
    return None


def outcome(collection: Collection, language: str, kind: str, question: Question) -> Outcome:
    found, ranked = collection.ask(question.text, _PASSAGES)
    settings = QuoteSettings()
    if ranked.evidence < settings.not_found_below:
        return Outcome(language, kind, question, None, True, False)
    points = points_of(question.text, ranked.passages, 1, settings.margin, found.term_weights)
    quoted = any(answer in point.quote.text for point in points for answer in question.answers)
    extracted = extract(question.text, ranked.passages, None)
    if extracted is None:
        return Outcome(language, kind, question, None, True, quoted)
    (value,) = extracted.values
    passage = ranked.passages[value.passage]
    sentence = passage.sentences[value.sentence]
    cited = extracted.text in passage.passage.text[sentence.start : sentence.end]
    return Outcome(language, kind, question, extracted.text, cited, quoted)


def ask_all(
    encoder: RememberedEncoder, name: str, documents: Mapping[str, str | bytes], asked: Sequence[tuple[str, Question]]
) -> list[Outcome]:
    language = "en" if name == "samples" else name
    with opened(encoder, documents, name) as collection:
        questions = track(asked, f"{name}: asking", console=console())
        return [outcome(collection, language, kind, question) for kind, question in questions]


def show(groups: Mapping[str, Sequence[Outcome]]) -> None:
    rows = []
    for name, outcomes in groups.items():
        found = [each for each in outcomes if each.value is not None]
        shares = [share([each.cited for each in found])]
        shares += [share([getattr(each, field) for each in outcomes]) for field in ("exact", "equal", "quoted")]
        rows.append((name, str(len(outcomes)), str(len(outcomes) - len(found)), *(f"{each:.1%}" for each in shares)))
    headings = ("", "questions", "not found", "in a cited span", "exact", "by value", "quote contains")
    print_table("extracted values", headings, rows)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, default=XQUAD, help="folder with LANG.json")
    parser.add_argument("--languages", default="en", help="languages of XQuAD, apart by commas")
    parser.add_argument("--half", choices=("odd", "even"), default="odd", help="articles whose questions are asked")
    add_model_options(parser)
    arguments = parser.parse_args()
    languages = arguments.languages.split(",")
    read = read_languages(arguments.data, list(dict.fromkeys(["en", *languages])))
    groups: dict[str, list[Outcome]] = {}
    try:
        configure_thread_pool(arguments.threads)
        encoder = RememberedEncoder(TextEncoder.open(arguments.encoder))
        for language in languages:
            pairs = zip(read["en"].questions, read[language].questions, strict=True)
            kinds = [(kind_of(english.answers), each) for english, each in pairs]
            asked = [(kind, each) for kind, each in kinds if kind and each.article % 2 == (arguments.half == "odd")]
            groups[f"XQuAD {language}, {arguments.half} articles"] = ask_all(
                encoder, language, read[language].texts, asked
            )
        if "en" in languages and arguments.half == "odd":  # the samples are for measuring, not for tuning
            own = [(kind_of(each.answers) or "name or code", each) for each in value_questions()]
            groups["samples"] = ask_all(encoder, "samples", sample_documents(), own)
    except EdgeRagError as error:
        raise SystemExit(str(error)) from error
    everything = [each for outcomes in groups.values() for each in outcomes]
    by_kind = {
        kind: [each for each in everything if each.kind == kind] for kind in dict.fromkeys(e.kind for e in everything)
    }
    if arguments.json:
        print_json(groups)
    else:
        show({"all": everything} | groups | by_kind)
    sys.exit(0 if all(each.cited for each in everything) else 1)


if __name__ == "__main__":
    main()
