"""Measures the answers of every mode with a generator of one's own on a SQuAD-format file, over gRPC.

    python -m scripts.bench.quality.modes --generator FILE.gguf [--data FILE] [--out FILE.jsonl] [--json]

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
import os
import re
import string
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

from edge_rag.client import AskOptions, Client, ClientError, PassagesReceived, RetryPolicy
from edge_rag.core.answer import Citation, Finished, FinishReason, TextDelta, Unsupported, still_unsupported
from edge_rag.core.query import AnswerMode, KvPrecision
from scripts.bench.harness.daemon import DaemonFailed, running
from scripts.bench.quality.answer_quality import Articles, Asked, read_articles

REPOSITORY: Final = Path(__file__).resolve().parents[3]
KEPT_OUT: Final = 4
"""One article of so many is kept out."""

NAME: Final = "measured"
REFUSAL: Final = re.compile(
    r"could not find|not (?:mentioned|provided|specified|stated|given|found|included|explicitly)|no information|"
    r"does not (?:contain|mention|provide|specify)|cannot (?:find|answer|determine)|unable to|not enough information",
    re.IGNORECASE,
)
"""What answers without an answer say, in the words that models were seen to use."""


@dataclass(frozen=True, slots=True)
class Given:
    """A question and the answer to it in one mode.

    Attributes:
        mode: The mode.
        question: The question.
        document: The document that holds the answer; empty if none was ingested.
        accepted: Texts that it accepts.
        text: The answer.
        cited: Documents of its citations, and their texts.
        unsupported: Parts marked as unsupported.
        conflicts: Its numbers that a passage contradicts.
        reason: How it ended.
        in_passages: Whether a passage contains an accepted text.
        seconds: Time from the call to the end.
    """

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
        """Whether it is another answer than the not-found one."""
        return self.reason != FinishReason.NOT_FOUND.value


@dataclass(frozen=True, slots=True)
class Row:
    """The answers of one mode; shares of all questions of a kind, 0 to 1.

    Attributes:
        mode: The mode.
        answerable: Questions with an answer in the collection.
        in_passages: Of them: an accepted text is in a passage of the prompt.
        gold: The answer contains an accepted text.
        f1: Mean word F1 with the closest accepted text.
        cited: It cites anything.
        right: It cites the paragraph that holds the answer.
        unsupported: A part of it is marked as unsupported.
        not_found: It is the not-found answer.
        unanswerable: Questions without.
        refused: Of them: the not-found answer.
        refused_in_words: Another answer that says that there is none.
        cited_anyway: An answer with a citation.
        words: Median length of answers, words.
        seconds: Median time of an answer; concurrent questions share the machine.
    """

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


def words(text: str) -> list[str]:
    """Returns the words as SQuAD's evaluation compares them: lower case, no punctuation, no articles."""
    bare = "".join(" " if character in "-–—" else character for character in text.lower())
    bare = "".join(character for character in bare if character not in string.punctuation)
    return [word for word in bare.split() if word not in {"a", "an", "the"}]


def contains(text: str, accepted: Sequence[str]) -> bool:
    """Whether a text contains one of the accepted ones, word by word."""
    padded = f" {' '.join(words(text))} "
    return any(f" {' '.join(words(each))} " in padded for each in accepted)


def f1(text: str, accepted: Sequence[str]) -> float:
    """Returns the harmonic mean of word precision and recall with the closest accepted text, 0 to 1."""
    return max((_f1(Counter(words(text)), Counter(words(each))) for each in accepted), default=0.0)


def _f1(mine: Counter[str], theirs: Counter[str]) -> float:
    common = (mine & theirs).total()
    return 2 * common / (mine.total() + theirs.total()) if common else 0.0


def summarize(mode: str, answers: Sequence[Given]) -> Row:
    """Judges the answers of a mode."""
    mine = [each for each in answers if each.mode == mode]
    yes, no = [each for each in mine if each.document], [each for each in mine if not each.document]

    def share(of: Sequence[Given], held: Sequence[bool]) -> float:
        return sum(held) / len(of) if of else 0.0

    return Row(
        mode=mode,
        answerable=len(yes),
        in_passages=share(yes, [each.in_passages for each in yes]),
        gold=share(yes, [each.found and contains(each.text, each.accepted) for each in yes]),
        f1=mean([f1(each.text, each.accepted) if each.found else 0.0 for each in yes] or [0.0]),
        cited=share(yes, [each.found and bool(each.cited) for each in yes]),
        right=share(yes, [each.found and any(name == each.document for name, _ in each.cited) for each in yes]),
        unsupported=share(yes, [each.found and each.unsupported > 0 for each in yes]),
        not_found=share(yes, [not each.found for each in yes]),
        unanswerable=len(no),
        refused=share(no, [not each.found for each in no]),
        refused_in_words=share(no, [each.found and bool(REFUSAL.search(each.text)) for each in no]),
        cited_anyway=share(no, [each.found and bool(each.cited) for each in no]),
        words=median([len(each.text.split()) for each in mine if each.found] or [0]),
        seconds=median([each.seconds for each in mine] or [0.0]),
    )


def spread(questions: Sequence[Asked], count: int) -> list[Asked]:
    """Returns ``count`` questions, evenly spread over the file; all if there are fewer."""
    taken = min(count, len(questions))
    return [questions[place * len(questions) // taken] for place in range(taken)]


def chosen(articles: Articles, answerable: int, unanswerable: int) -> tuple[dict[str, str], list[tuple[Asked, bool]]]:
    """Returns the documents to ingest, and the questions, each with whether they answer it."""
    inside = [number for number in range(len(articles.documents)) if number % KEPT_OUT != KEPT_OUT - 1]
    documents = {name: text for number in inside for name, text in articles.documents[number].items()}
    asked = [each for each in articles.questions if each.document in documents]
    foreign = [each for each in articles.questions if each.article not in inside and each.document not in documents]
    return documents, [(each, True) for each in spread(asked, answerable)] + [
        (each, False) for each in spread(foreign, unanswerable)
    ]


def ask(client: Client, asked: Asked, answerable: bool, mode: AnswerMode, max_tokens: int) -> Given:
    """Asks a question in a mode."""
    began = time.perf_counter()
    text, in_passages, reason = "", False, ""
    cited: list[Citation] = []
    unsupported: list[Unsupported] = []
    conflicts = 0
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


def measure(client: Client, arguments: argparse.Namespace, articles: Articles, console: Console) -> list[Given]:
    """Ingests the documents and asks every question in every mode."""
    documents, questions = chosen(articles, arguments.answerable, arguments.unanswerable)
    for name, text in track(documents.items(), "ingesting", console=console):
        client.ingest(name, partial(io.BytesIO, text.encode()), media_type="text/plain")
    modes = [AnswerMode(name) for name in arguments.modes]

    def in_every_mode(item: tuple[Asked, bool]) -> list[Given]:
        return [ask(client, *item, mode, arguments.max_tokens) for mode in modes]

    with ThreadPoolExecutor(arguments.concurrency) as pool:
        answers = pool.map(in_every_mode, questions)
        return [each for group in track(answers, "asking", total=len(questions), console=console) for each in group]


def table(rows: Sequence[Row], title: str) -> Table:
    """Returns the table of all modes."""
    shown = Table(title=title)
    headings: Mapping[str, str] = {
        "in_passages": "in the passages", "gold": "gold contained", "f1": "F1", "cited": "cited",
        "right": "right paragraph", "unsupported": "unsupported", "not_found": "not found",
        "refused": "no answer: not found", "refused_in_words": "says so", "cited_anyway": "cites",
    }  # fmt: skip
    for heading in ("mode", *headings.values(), "words", "s"):
        shown.add_column(heading, justify="left" if heading == "mode" else "right")
    for row in rows:
        shares = [f"{getattr(row, name):.2f}" if name == "f1" else f"{getattr(row, name):.0%}" for name in headings]
        shown.add_row(row.mode, *shares, f"{row.words:g}", f"{row.seconds:.1f}")
    return shown


def main() -> None:
    shared = Path(os.environ.get("EDGE_RAG_SHARED", REPOSITORY.parent / "shared"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generator", required=True, help="what `edge-rag models add` takes: a file, folder or name")
    parser.add_argument("--data", type=Path, default=shared / "data" / "xquad-a.json", help="file in SQuAD format")
    parser.add_argument("--modes", nargs="+", default=[mode.value for mode in AnswerMode])
    parser.add_argument("--answerable", type=int, default=100)
    parser.add_argument("--unanswerable", type=int, default=60)
    parser.add_argument("--max-tokens", type=int, default=96, help="longest answer [%(default)s]")
    parser.add_argument("--concurrency", type=int, default=8, help="questions asked at once [%(default)s]")
    parser.add_argument("--kv", choices=[kv.value for kv in KvPrecision], default="int8", help="[%(default)s]")
    parser.add_argument("--out", type=Path, help="write every answer here, one JSON object a line")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    if not arguments.data.is_file():
        raise SystemExit(f"{arguments.data} is not there: give a file in SQuAD format with --data")
    try:
        articles = read_articles(arguments.data)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{arguments.data} is not in SQuAD format: {error!r}") from error
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="edge-rag-") as folder:
        data = Path(folder, "data")
        add = [sys.executable, "-m", "edge_rag", "models", "add", arguments.generator, "--name", NAME]
        subprocess.run([*add, "--data-dir", str(data)], check=True, stdout=sys.stderr)
        made = json.loads((data / "models" / NAME / "manifest.json").read_text("utf-8"))["parameters"]
        settings = f'[models]\ngenerator = "{NAME}"\n'
        settings += f'[generator]\nkv = "{arguments.kv}"\n'
        try:
            with (
                running(data, settings, listen=None) as daemon,
                Client(daemon.address, retry=RetryPolicy(max_backoff_s=60), timeout_s=600) as client,
            ):
                answers = measure(client, arguments, articles, console)
        except (DaemonFailed, ClientError) as error:
            raise SystemExit(str(error)) from error
    if arguments.out:
        lines = (json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in answers)
        arguments.out.write_text("".join(lines), "utf-8")
    rows = [summarize(mode, answers) for mode in arguments.modes]
    agreement = made.get("agreement_with_original", {})
    if arguments.json:
        found = {
            "generator": arguments.generator,
            "form": made.get("weights"),
            "kv": arguments.kv,
            "agreement": agreement,
        }
        print(json.dumps(found | {"modes": [asdict(row) for row in rows]}, indent=2))
        return
    divergence = agreement.get("divergence", float("nan"))
    form = f"{made.get('weights', 'weights of its own')}, KL {divergence:.4f}, KV {arguments.kv}"
    Console(width=180).print(table(rows, f"{rows[0].answerable} answerable, {rows[0].unanswerable} not; {form}"))


if __name__ == "__main__":
    main()
