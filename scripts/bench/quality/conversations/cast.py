"""Measures follow-ups of TREC's Conversational Assistance Track, which people wrote and resolved.

    git clone --depth 1 https://github.com/daltonj/treccastweb CAST
    python -m scripts.bench.quality.conversations.cast CAST                  # the odd-numbered topics: held out
    python -m scripts.bench.quality.conversations.cast CAST --half even

The track's collections (tens of gigabytes) are not used, so that its own measures cannot be computed. Measured is:

- On 2021, whose file has the passage that each turn was answered with: recall@5 of a turn's own passage among the
  passages of all turns and, as further ones, the answers of 2022. A turn comes with the questions before it and the
  passages they were answered with. ``automatic`` is the rewriting by a T5 model that the file has, ``resolved`` that by
  people. A passage is not always the best answer, so the ceiling is well below 100%.
- On 2019 and 2020, whose files have no answers: of the words that people added to make a question stand alone, the
  share that ours adds (``restored``), the words that ours adds and people did not (``wrong``, a question), and the
  share of the questions that people left as they were which ours leaves as they are (``kept``). Raw adds nothing.

Words are compared as index terms. Weights come from the same passages.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

from edge_rag.analysis.languages import ENGLISH_FUNCTION_WORDS
from edge_rag.analysis.terms import terms_of
from edge_rag.bootstrap.open_directory import open_data_directory
from edge_rag.core.documents.document import IngestStatus, Upload
from edge_rag.core.query import Turn, TurnSource
from edge_rag.errors import EdgeRagError
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.quality.conversations.follow_ups import COLLECTION, FOUND, REPOSITORY, WIDTH, Box
from scripts.bench.quality.quoting import RememberedEncoder

TURNS: Final = 8
"""Most earlier turns that a question may come with."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A turn of a topic.

    Attributes:
        topic: Its number.
        raw: As asked.
        automatic: As rewritten by a model; empty if the file has none.
        resolved: As rewritten by a person.
        passage: What it was answered with; empty if the file has none.
    """

    topic: int
    raw: str
    automatic: str
    resolved: str
    passage: str


def read_2021(folder: Path) -> list[list[Asked]]:
    """Returns the topics of 2021 with their answers."""
    return [
        [
            Asked(
                topic["number"],
                each["raw_utterance"].strip(),
                each["automatic_rewritten_utterance"].strip(),
                each["manual_rewritten_utterance"].strip(),
                each["passage"].strip(),
            )
            for each in topic["turn"]
        ]
        for topic in _json(folder / "2021" / "2021_manual_evaluation_topics_v1.0.json")
    ]


def read_2022_answers(folder: Path) -> list[str]:
    """Returns the answers of 2022, each once."""
    topics = _json(folder / "2022" / "2022_evaluation_topics_flattened_duplicated_v1.0.json")
    answers = [each.get("response", "").strip() for topic in topics for each in topic["turn"]]
    return list(dict.fromkeys(answer for answer in answers if answer))


def read_2019_and_2020(folder: Path) -> list[list[Asked]]:
    """Returns the topics of 2019 and 2020, which have no answers."""
    with (folder / "2019/data/evaluation/evaluation_topics_annotated_resolved_v1.0.tsv").open(encoding="utf-8") as file:
        resolved = dict(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    topics = [
        [
            Asked(
                topic["number"], each["raw_utterance"].strip(), "", resolved[f"{topic['number']}_{each['number']}"], ""
            )
            for each in topic["turn"]
        ]
        for topic in _json(folder / "2019/data/evaluation/evaluation_topics_v1.0.json")
    ]
    return topics + [
        [
            Asked(
                topic["number"],
                each["raw_utterance"].strip(),
                "",
                each["manual_rewritten_utterance"].strip(),
                "",
            )
            for each in topic["turn"]
        ]
        for topic in _json(folder / "2020" / "2020_manual_evaluation_topics_v1.0.json")
    ]


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def turns_before(topic: Sequence[Asked], place: int, names: dict[str, str]) -> tuple[Turn, ...]:
    """Returns the turns before one of a topic, with what they were answered with."""
    return tuple(
        Turn(each.raw, each.passage, (TurnSource(names[each.passage], (), each.passage),) if each.passage else ())
        for each in topic[max(0, place - TURNS) : place]
    )


def content_terms(text: str) -> set[str]:
    """Returns the index terms of a text without those of English function words."""
    return {term for start, end, term in terms_of(text) if text[start:end].lower() not in ENGLISH_FUNCTION_WORDS}


def found(box: Box, question: str, turns: tuple[Turn, ...], document: str) -> bool:
    passages = box.search(question, turns).ranked.passages[:FOUND]
    return any(each.passage.document == document for each in passages)


def measure_passages(box: Box, topics: Sequence[Sequence[Asked]], names: dict[str, str], console: Console) -> Table:
    """Returns recall@5 of the turns' own passages, of all turns after the first and of those that need resolution."""
    rows: dict[str, list[tuple[bool, ...]]] = {"first turns": [], "stand alone": [], "need the turns": []}
    for topic in track(topics, "2021", console=console):
        for place, each in enumerate(topic):
            if not each.passage:
                continue
            document = names[each.passage]
            turns = turns_before(topic, place, names)
            arms = ((each.raw, ()), (each.raw, turns), (each.automatic, ()), (each.resolved, ()))
            same = content_terms(each.resolved) <= content_terms(each.raw)
            kind = "first turns" if not place else "stand alone" if same else "need the turns"
            rows[kind].append(tuple(found(box, question, before, document) for question, before in arms))
    table = Table(title=f"2021: recall@{FOUND} of the turn's own passage")
    for heading in ("", "turns", "raw", "ours", "automatic", "resolved"):
        table.add_column(heading, justify="right" if heading else "left")
    for kind, found_by in rows.items():
        shares = (sum(arm) / len(found_by) for arm in zip(*found_by, strict=True))
        table.add_row(kind, str(len(found_by)), *(f"{share:.1%}" for share in shares))
    return table


def measure_words(box: Box, topics: Sequence[Sequence[Asked]], console: Console) -> Table:
    """Returns how many of the words that people added ours adds."""
    needed = restored = wrong = changed = left = kept = 0
    for topic in track(topics, "2019 and 2020", console=console):
        for place, each in enumerate(topic):
            if not place:
                continue
            ours = box.search(each.raw, turns_before(topic, place, {})).standalone
            raw, resolved = content_terms(each.raw), content_terms(each.resolved)
            added = content_terms(ours or "") - raw
            if resolved <= raw:
                left += 1
                kept += ours is None
                continue
            changed += 1
            needed += len(resolved - raw)
            restored += len(added & resolved)
            wrong += len(added - resolved)
    table = Table(title="2019 and 2020: words added")
    for heading in (
        "turns that need words",
        "words needed",
        "restored",
        "wrong a turn",
        "turns that need none",
        "kept",
    ):
        table.add_column(heading, justify="right")
    table.add_row(
        str(changed),
        str(needed),
        f"{restored / max(1, needed):.1%}",
        f"{wrong / max(1, changed):.2f}",
        str(left),
        f"{kept / max(1, left):.1%}",
    )
    return table


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a checkout of daltonj/treccastweb")
    parser.add_argument("--half", choices=("both", "even", "odd"), default="odd", help="topics that count, by number")
    parser.add_argument(
        "--encoder", type=Path, default=REPOSITORY / "models" / "multilingual-e5-small", help="model folder"
    )
    parser.add_argument("--vectors", type=Path, help="folder where vectors are kept between runs")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    console = Console(stderr=True)
    try:
        with_answers, without = read_2021(arguments.folder), read_2019_and_2020(arguments.folder)
        passages = [each.passage for topic in with_answers for each in topic if each.passage]
        passages += read_2022_answers(arguments.folder)
    except (OSError, KeyError, ValueError) as error:
        raise SystemExit(f"{arguments.folder} is no checkout of daltonj/treccastweb: {error!r}") from error
    names = {text: f"passage-{number:04d}.txt" for number, text in enumerate(dict.fromkeys(passages))}

    def half(topics: Sequence[Sequence[Asked]]) -> list[Sequence[Asked]]:
        return [
            topic for topic in topics if arguments.half == "both" or topic[0].topic % 2 == (arguments.half == "odd")
        ]

    try:
        configure_thread_pool(arguments.threads)
        encoder = RememberedEncoder(TextEncoder.open(arguments.encoder), arguments.vectors)
        with tempfile.TemporaryDirectory() as scratch, encoder.remembering("cast"):
            directory = open_data_directory(Path(scratch), encoder)
            try:
                for text, name in track(names.items(), "ingesting", console=console):
                    outcome = directory.library.ingest(Upload.of_bytes(COLLECTION, name, "text/plain", text.encode()))
                    if outcome.status is not IngestStatus.ADDED:
                        raise SystemExit(f"{name} was not taken: {outcome}")
                box = Box(directory, encoder)
                Console(width=WIDTH).print(measure_passages(box, half(with_answers), names, console))
                Console(width=WIDTH).print(measure_words(box, half(without), console))
            finally:
                directory.close()
    except EdgeRagError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
