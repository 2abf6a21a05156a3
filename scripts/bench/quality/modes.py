"""Measures the answers of every mode with a generator of one's own on a SQuAD-format file, over gRPC.

    python -m scripts.bench.quality.modes --generator FILE.gguf... [--data FILE] [--out FILE.jsonl] [--json]

Every fourth article stays out of the collection: its questions have no answer there. Each question is asked in every
mode, one mode after the other, so that the modes see the same passages and, but for quotes, write the same text.
Printed for each mode, as shares: of the answerable questions, how many answers contain an accepted text, their F1
(words in common with the closest accepted text), how many cite anything, the right paragraph, and have a part marked as
unsupported, and how many get the not-found answer; of the unanswerable ones, how many get the not-found answer, say in
words that there is none, or cite a passage all the same. A not-found answer counts as wrong, never as left out.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

from rich.progress import track

from edge_rag.client import AskOptions, Client, ClientError, PassagesReceived, RetryPolicy
from edge_rag.core.answer import Citation, Finished, FinishReason, TextDelta, Unsupported, still_unsupported
from edge_rag.core.query import AnswerMode
from scripts.bench.harness.command import SQUAD_FILE, console, make_parser, print_json, print_table, require_file
from scripts.bench.harness.daemon import ADDED, DaemonFailed, add_generator, running
from scripts.bench.harness.figures import share
from scripts.bench.harness.squad import Articles, Question, read_articles
from scripts.bench.quality.judging import contains, f1

KEPT_OUT: Final = 4
"""One article of so many is kept out."""

REFUSAL: Final = re.compile(
    r"could not find|not (?:mentioned|provided|specified|stated|given|found|included|explicitly)|no information|"
    r"does not (?:contain|mention|provide|specify)|cannot (?:find|answer|determine)|unable to|not enough information",
    re.IGNORECASE,
)
"""Answers without an answer, in the words that models were seen to use."""

_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Given:
    """A question and the answer to it in one mode."""

    mode: str
    question: str
    document: str
    accepted: tuple[str, ...]
    text: str
    cited: tuple[tuple[str, str], ...]
    unsupported: int
    conflicts: int
    reason: str
    in_passages: bool
    seconds: float

    @property
    def found(self) -> bool:
        return self.reason != FinishReason.NOT_FOUND.value


@dataclass(frozen=True, slots=True)
class Row:
    """The answers of one mode; shares of all questions with (``answerable``) and without an answer, 0 to 1."""

    mode: str
    answerable: int
    in_passages: float
    gold: float
    f1: float
    cited: float
    right: float
    unsupported: float
    not_found: float
    unanswerable: int
    refused: float
    refused_in_words: float
    cited_anyway: float
    words: float
    seconds: float


HEADINGS: Final[Mapping[str, str]] = {
    "in_passages": "in the passages", "gold": "gold contained", "f1": "F1", "cited": "cited",
    "right": "right paragraph", "unsupported": "unsupported", "not_found": "not found",
    "refused": "no answer: not found", "refused_in_words": "says so", "cited_anyway": "cites",
}  # fmt: skip


def summarize(mode: str, answers: Sequence[Given]) -> Row:
    """Judges the answers of a mode."""
    mine = [each for each in answers if each.mode == mode]
    yes, no = [each for each in mine if each.document], [each for each in mine if not each.document]
    return Row(
        mode=mode,
        answerable=len(yes),
        in_passages=share([each.in_passages for each in yes]),
        gold=share([each.found and contains(each.text, each.accepted) for each in yes]),
        f1=mean([f1(each.text, each.accepted) if each.found else 0.0 for each in yes] or [0.0]),
        cited=share([each.found and bool(each.cited) for each in yes]),
        right=share([each.found and any(name == each.document for name, _ in each.cited) for each in yes]),
        unsupported=share([each.found and each.unsupported > 0 for each in yes]),
        not_found=share([not each.found for each in yes]),
        unanswerable=len(no),
        refused=share([not each.found for each in no]),
        refused_in_words=share([each.found and bool(REFUSAL.search(each.text)) for each in no]),
        cited_anyway=share([each.found and bool(each.cited) for each in no]),
        words=median([len(each.text.split()) for each in mine if each.found] or [0]),
        seconds=median([each.seconds for each in mine] or [0.0]),
    )


def chosen(
    articles: Articles, answerable: int, unanswerable: int
) -> tuple[dict[str, str], list[tuple[Question, bool]]]:
    """Returns the documents to ingest, and questions, evenly spread, each with whether they answer it."""
    inside = [number for number in range(len(articles.documents)) if number % KEPT_OUT != KEPT_OUT - 1]
    documents = {name: text for number in inside for name, text in articles.documents[number].items()}
    asked = [each for each in articles.questions if each.document in documents]
    foreign = [each for each in articles.questions if each.article not in inside and each.document not in documents]
    return documents, [
        (of[place * len(of) // taken], held)
        for of, wanted, held in ((asked, answerable, True), (foreign, unanswerable, False))
        for taken in (min(wanted, len(of)),)
        for place in range(taken)
    ]


def ask(client: Client, asked: Question, answerable: bool, mode: AnswerMode, max_tokens: int) -> Given:
    began = time.perf_counter()
    text, in_passages, reason, conflicts = "", False, "", 0
    cited: list[Citation] = []
    unsupported: list[Unsupported] = []
    for event in client.ask(asked.text, AskOptions(mode=mode, max_tokens=max_tokens, temperature=0.0)):
        match event:
            case PassagesReceived():
                in_passages = any(contains(passage.text, asked.answers) for passage in event.passages)
            case TextDelta():
                text += event.text
            case Citation():
                cited.append(event)
            case Unsupported():
                unsupported.append(event)
            case Finished():
                reason, conflicts = event.reason.value, len(event.conflicts)
    return Given(
        mode=mode.value,
        question=asked.text,
        document=asked.document if answerable else "",
        accepted=asked.answers,
        text=text,
        cited=tuple((each.document, each.text) for each in cited),
        unsupported=len(still_unsupported(unsupported, cited)),
        conflicts=conflicts,
        reason=reason,
        in_passages=in_passages,
        seconds=time.perf_counter() - began,
    )


def measure(generator: str, articles: Articles, wanted: argparse.Namespace) -> tuple[list[Given], dict[str, Any]]:
    """Asks every question in every mode; returns the answers, and the manifest's parameters of the generator."""
    documents, questions = chosen(articles, wanted.answerable, wanted.unanswerable)
    modes = [AnswerMode(name) for name in wanted.modes]
    with tempfile.TemporaryDirectory(prefix="edge-rag-") as folder:
        data = Path(folder, "data")
        config = add_generator(generator, data)
        made = json.loads((data / "models" / ADDED / "manifest.json").read_text("utf-8"))["parameters"]
        with (
            running(data, config, listen=None) as daemon,
            Client(daemon.address, retry=RetryPolicy(max_backoff_s=60), timeout_s=600) as client,
        ):
            for name, text in track(documents.items(), "ingesting", console=console()):
                client.ingest(name, partial(io.BytesIO, text.encode()), media_type="text/plain")

            def in_every_mode(item: tuple[Question, bool]) -> list[Given]:
                return [ask(client, *item, mode, wanted.max_tokens) for mode in modes]

            with ThreadPoolExecutor(_AT_ONCE) as pool:
                answers = track(pool.map(in_every_mode, questions), "asking", len(questions), console=console())
                return [each for group in answers for each in group], made


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--generator", nargs="+", required=True, help="files, folders or names for `models add`")
    parser.add_argument("--data", type=Path, default=SQUAD_FILE, help="file in SQuAD format")
    parser.add_argument("--modes", nargs="+", default=[mode.value for mode in AnswerMode])
    parser.add_argument("--answerable", type=int, default=100)
    parser.add_argument("--unanswerable", type=int, default=60)
    parser.add_argument("--max-tokens", type=int, default=96, help="longest answer [%(default)s]")
    parser.add_argument("--out", type=Path, help="write every answer here, one JSON object a line")
    arguments = parser.parse_args()
    require_file(arguments.data)
    articles = read_articles(arguments.data)
    everything: dict[str, dict[str, Any]] = {}
    for generator in arguments.generator:
        try:
            answers, made = measure(generator, articles, arguments)
        except (DaemonFailed, ClientError) as error:
            raise SystemExit(str(error)) from error
        if arguments.out:
            with arguments.out.open("a", encoding="utf-8") as out:
                out.writelines(
                    json.dumps({"generator": generator} | asdict(each), ensure_ascii=False) + "\n" for each in answers
                )
        rows = [summarize(mode, answers) for mode in arguments.modes]
        agreement = made.get("agreement_with_original", {})
        everything[generator] = {"form": made.get("weights"), "agreement": agreement, "modes": rows}
        if not arguments.json:
            divergence = agreement.get("divergence", float("nan"))
            title = f"{generator}, {made.get('weights', 'weights of its own')}, KL {divergence:.4f}"
            shown = [
                (row.mode, *(f"{getattr(row, name):.2f}" if name == "f1" else f"{getattr(row, name):.0%}"
                             for name in HEADINGS), f"{row.words:g}", f"{row.seconds:.1f}")
                for row in rows
            ]  # fmt: skip
            title += f"; {rows[0].answerable} answerable, {rows[0].unanswerable} not"
            print_table(title, ("mode", *HEADINGS.values(), "words", "s"), shown)
    if arguments.json:
        print_json(
            {name: found | {"modes": [asdict(row) for row in found["modes"]]} for name, found in everything.items()}
        )


if __name__ == "__main__":
    main()
