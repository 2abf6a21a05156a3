"""How much of its prompts a page cache saves, by the order of passages and by what is evicted. No model, no clock.

    python -m scripts.bench.engine.page_reuse [--pages 512 2048] [--requests 3000] [--shift 400] [--json]

Questions over passages drawn by a Zipf law go through the real page pool one after the other, greedily, answers
included. Printed: the share of prompt tokens that was found, over the last two thirds of the questions, for each order
of passages and each rule of eviction:

rank       as drawn, as rankings look to a cache           lru      the longest unused page goes
document   by number                                       uses     the one asked for least, with decay: the default
hot        as in the daemon, what is asked for often first forever  the one asked for least, nothing decays
top last   hot, but the best passage next to the question
known      by the Zipf law itself, which nobody knows

``--shift N`` has other passages become the popular ones after every N questions.

``--pruned SHARE`` prints another table instead: prompt tokens that are computed, as a share of those of whole prompts,
where all passages are whole, and where they have only SHARE of their tokens, which differ from question to question:
from the first one on that is not popular, as generator.context_pruning has it, all that are not popular, and all.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.progress import track
from rich.table import Table

from edge_rag.engine.kv_cache.block_pool import HALF_LIFE_POOLS, BlockPool
from edge_rag.engine.kv_cache.prefix_cache import PageKey
from edge_rag.engine.kv_cache.reservation import Reservation
from edge_rag.engine.scheduling.plan import PlanEntry, StepPlan
from edge_rag.engine.sequence import SequenceId
from edge_rag.generator.prompt.passage_order import PassageKey, PassagePopularity
from scripts.bench.harness.workload import Corpus, PassageLoad

PAGE_TOKENS = 32
LOAD = PassageLoad()
RULES: Mapping[str, float] = {"lru": 1e-4, "uses": HALF_LIFE_POOLS, "forever": 1e6}
Order = Callable[[PassagePopularity, tuple[int, ...]], tuple[int, ...]]
Shown = Callable[[list[int], int, tuple[int, ...], PassagePopularity], list[int]]
"""What of a prompt is shown to the model."""


def _hot(popularity: PassagePopularity, drawn: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(drawn[place] for place in popularity.arrange([PassageKey("", passage, passage) for passage in drawn]))


ORDERS: Mapping[str, Order] = {
    "rank": lambda popularity, drawn: drawn,
    "document": lambda popularity, drawn: tuple(sorted(drawn)),
    "hot": _hot,
    "top last": lambda popularity, drawn: (*_hot(popularity, drawn[1:]), drawn[0]),
}


def share_found(
    order: Order, half_life_pools: float, pages: int, requests: int, shift: int, seed: int, load: PassageLoad = LOAD
) -> float:
    """Returns the share of prompt tokens found in the cache, 0 to 1."""
    found, asked = _replay(order, half_life_pools, pages, requests, shift, seed, load, lambda prompt, *_: prompt)
    return found / asked


def share_computed(
    order: Order, kept: float, spared: str, pages: int, requests: int, shift: int, seed: int, load: PassageLoad = LOAD
) -> float:
    """Returns the prompt tokens that are computed as a share of those of whole prompts, 0 to 1.

    Args:
        order: The order of passages.
        kept: Share of a passage that is left of it.
        spared: Which popular passages are whole: those at the ``front``, ``all`` or ``none``.
        pages: Pages of the cache.
        requests: Questions.
        shift: Questions after which others become popular; 0: never.
        seed: Of the questions.
        load: Sizes.
    """
    left = round(kept * load.passage_tokens)

    def prune(prompt: list[int], number: int, passages: tuple[int, ...], popularity: PassagePopularity) -> list[int]:
        shown, at, is_front = prompt[: load.system_tokens], load.system_tokens, True
        for passage in passages:
            whole = prompt[at : at + load.passage_tokens]
            is_popular = popularity.lists(PassageKey("", passage, passage))
            is_front = is_front and is_popular
            is_whole = kept == 1 or (spared == "front" and is_front) or (spared == "all" and is_popular)
            shown += whole if is_whole else [load.vocabulary + number, *whole[1:left]]
            at += load.passage_tokens
        return shown + prompt[at:]

    found, asked = _replay(order, HALF_LIFE_POOLS, pages, requests, shift, seed, load, prune)
    return (asked - found) / (load.prompt_tokens * (requests - requests // 3))


def _replay(
    order: Order,
    half_life_pools: float,
    pages: int,
    requests: int,
    shift: int,
    seed: int,
    load: PassageLoad,
    shown: Shown,
) -> tuple[int, int]:
    """Returns the prompt tokens that were found, and all, of the last two thirds of the questions."""
    corpus = Corpus(load, seed, shift)
    pool = BlockPool(pages, PAGE_TOKENS, half_life_pools=half_life_pools)
    popularity = PassagePopularity()
    found = asked = 0
    for number, question in enumerate(corpus.questions(requests)):
        passages = order(popularity, question.passages)
        popularity.record(PassageKey("", passage, passage) for passage in passages)
        prompt = shown([int(token) for token in corpus.prompt(question, passages)], number, passages, popularity)
        answer = [-number - 1] * load.answer_tokens
        cached = _run(pool, SequenceId(number), prompt, answer)
        if number >= requests // 3:
            found += cached
            asked += len(prompt)
    return found, asked


def _run(pool: BlockPool, sequence: SequenceId, prompt: list[int], answer: list[int]) -> int:
    keys: list[PageKey] = []
    pages = pool.match("corpus", prompt, keys)
    pool.share(sequence, pages)
    first = len(pages) * pool.page_tokens
    tokens = prompt + answer
    with Reservation(pool, StepPlan((PlanEntry(sequence, first, len(tokens) - first, True),))) as reserved:
        reserved.commit()
    pool.register_full(sequence, "corpus", tokens, len(tokens), keys)
    pool.release(sequence)
    return first


def _known(requests: int, shift: int, seed: int, load: PassageLoad) -> Order:
    """Orders by how often passages are drawn in this very trace, between two shifts."""
    part = shift or requests
    drawn = [question.passages for question in Corpus(load, seed, shift).questions(requests)]
    counts: list[dict[int, int]] = [{} for _ in range(-(-requests // part))]
    for number, passages in enumerate(drawn):
        for passage in passages:
            counts[number // part][passage] = counts[number // part].get(passage, 0) + 1
    numbers = iter(range(requests))

    def order(popularity: PassagePopularity, passages: tuple[int, ...]) -> tuple[int, ...]:
        known = counts[next(numbers) // part]
        return tuple(sorted(passages, key=lambda passage: (-known[passage], passage)))

    return order


def main() -> None:
    parser = argparse.ArgumentParser("page_reuse", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pages", type=int, nargs="+", default=[512, 2048], help="pages of the cache, of 32 tokens")
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--shift", type=int, default=0, help="questions after which others become popular; 0: never")
    parser.add_argument("--passages", type=int, default=LOAD.passages, help="passages that are asked for [%(default)s]")
    parser.add_argument("--exponent", type=float, default=LOAD.exponent, help="of the Zipf law [%(default)s]")
    parser.add_argument("--pruned", type=float, metavar="SHARE", help="what pruning leaves of a passage, 0 to 1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    load = PassageLoad(passages=arguments.passages, exponent=arguments.exponent)
    shape = (arguments.requests, arguments.shift, arguments.seed, load)
    rows: list[tuple[int, str, dict[str, float]]] = []
    if arguments.pruned is not None:
        for pages, name in ((pages, name) for pages in arguments.pages for name in ("rank", "document", "hot")):
            kinds = {"whole": "", "behind the popular": "front", "not popular": "all", "all": "none"}
            computed = {
                kind: share_computed(ORDERS[name], arguments.pruned if spared else 1, spared, pages, *shape)
                for kind, spared in kinds.items()
            }
            rows.append((pages, name, computed))
        _print(f"prompt tokens computed, {arguments.requests} questions", rows, arguments.json)
        return
    todo = [(pages, name) for pages in arguments.pages for name in (*ORDERS, "known")]
    for pages, name in track(todo, "simulating", console=Console(stderr=True), disable=not sys.stderr.isatty()):
        found = {
            rule: share_found(ORDERS[name] if name in ORDERS else _known(*shape), half_life, pages, *shape)
            for rule, half_life in RULES.items()
        }
        rows.append((pages, name, found))
    _print(f"prompt tokens found, {arguments.requests} questions", rows, arguments.json)


def _print(title: str, rows: list[tuple[int, str, dict[str, float]]], as_json: bool) -> None:
    if as_json:
        json.dump([{"pages": pages, "order": name} | found for pages, name, found in rows], sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    table = Table(title=title)
    for heading in ("pages", "order", *rows[0][2]):
        table.add_column(heading, justify="left" if heading == "order" else "right")
    for pages, name, found in rows:
        table.add_row(str(pages), name, *(f"{share:.1%}" for share in found.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
