"""What becomes of answers when ten times as many questions come as can be answered.

    python -m scripts.bench.load.overload [--full] [--times 10] [--seconds 30] [--generator FOLDER] [--shared] [--json]

A daemon of its own serves the samples with its defaults. First clients ask as much as it can answer, several numbers of
them after each other; the most answers a second are the peak. Then ten times as many questions a second come, whatever
becomes of them, for half a minute, with --full for ten. Clients have the last processor to themselves and the daemon
the others, as if they were on another machine; with --shared all have all. Take the figures on a machine that does
nothing else. Exits with 1 where a bound is not kept:

- answers a second at least 90% of the peak
- 99% of refusals within 50 ms, and each of them says when to come back
- no queue longer than its bound
- memory flat: the most of the last third at most 5% over the most of the first
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.harness.command import make_parser, print_json
from scripts.bench.harness.daemon import Daemon, Watched, daemon_with_samples
from scripts.bench.harness.figures import percentile
from scripts.bench.harness.processors import divided, work_on
from scripts.bench.load.clients import Ended, clients

LEAST_GOODPUT = 0.9
SLOWEST_REFUSAL_S = 0.05
MOST_GROWTH = 1.05
_AT_ONCE = (8, 32, 96)


@dataclass(frozen=True)
class Figures:
    """What was measured; rates are a second, ``share`` is goodput by peak, ``fill`` the fullest queue by its bound."""

    peak: float
    offered: float
    goodput: float
    share: float
    refused: int
    failed: dict[str, int]
    without_pushback: int
    refusal_p50_ms: float
    refusal_p99_ms: float
    answer_p50_s: float
    fill: float
    resident_first_mib: float
    resident_last_mib: float
    unanswered: int

    def broken(self) -> list[str]:
        """The bounds that are not kept."""
        growth = self.resident_last_mib / self.resident_first_mib
        bounds = (
            (self.share < LEAST_GOODPUT, f"goodput is {self.share:.0%} of the peak, at least {LEAST_GOODPUT:.0%}"),
            (
                self.refusal_p99_ms > 1000 * SLOWEST_REFUSAL_S,
                f"99% of refusals take {self.refusal_p99_ms:.0f} ms, at most {1000 * SLOWEST_REFUSAL_S:.0f}",
            ),
            (self.without_pushback > 0, f"{self.without_pushback} refusals did not say when to come back"),
            (self.fill > 1, f"a queue was at {self.fill:.0%} of its bound"),
            (growth > MOST_GROWTH, f"memory grew to {growth:.0%}, at most {MOST_GROWTH:.0%}"),
            (self.refused == 0, "nothing was refused: that was no overload"),
        )
        return [problem for is_broken, problem in bounds if is_broken]


def answers_a_second(ends: list[Ended], began_s: float, seconds: float) -> float:
    """Answers that came within the time, a second."""
    done = (end for end in ends if end.status == "OK" and began_s <= end.began_s + end.took_s <= began_s + seconds)
    return sum(1 for _ in done) / seconds


def peak_of(there: Daemon, seconds: float, deadline_s: float) -> float:
    """Most answers a second with several numbers of clients, after some to warm up."""
    best = 0.0
    for at_once in (_AT_ONCE[0], *_AT_ONCE):
        with clients(there.address, seconds, deadline_s, at_once=at_once) as asking:
            ends = asking.ends()
        first = min(end.began_s for end in ends)
        rate = answers_a_second(ends, first, seconds)
        print(f"{at_once:4} at once: {rate:6.1f} answers a second", file=sys.stderr)
        best = max(best, rate)
    return best


def figures(peak: float, offered: float, ends: list[Ended], seen: Watched, seconds: float) -> Figures:
    """Sums an overload up. Goodput is counted once queues are full: the first tenth is left out."""
    first = min(end.began_s for end in ends) + 0.1 * seconds
    goodput = answers_a_second(ends, first, 0.9 * seconds)
    refused = [end for end in ends if end.status == "RESOURCE_EXHAUSTED"]
    others = [end.status for end in ends if end.status not in ("OK", "RESOURCE_EXHAUSTED")]
    third = max(1, len(seen.resident_mib) // 3)
    return Figures(
        peak=peak,
        offered=offered,
        goodput=goodput,
        share=goodput / peak,
        refused=len(refused),
        failed={status: others.count(status) for status in sorted(set(others))},
        without_pushback=sum(not end.pushback for end in refused),
        refusal_p50_ms=1000 * percentile([end.took_s for end in refused], 0.5),
        refusal_p99_ms=1000 * percentile([end.took_s for end in refused], 0.99),
        answer_p50_s=percentile([end.took_s for end in ends if end.status == "OK"], 0.5),
        fill=seen.fill,
        resident_first_mib=max(seen.resident_mib[:third]),
        resident_last_mib=max(seen.resident_mib[-third:]),
        unanswered=seen.unanswered,
    )


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--full", action="store_true", help="ten minutes of overload")
    parser.add_argument("--seconds", type=float, default=30, help="how long otherwise, seconds (default: 30)")
    parser.add_argument("--peak-seconds", type=float, default=10, help="how long the peak is looked for (default: 10)")
    parser.add_argument("--times", type=float, default=10, help="how much more than the peak (default: 10)")
    parser.add_argument("--deadline", type=float, default=60, help="deadline of each question, seconds (default: 60)")
    parser.add_argument("--generator", type=Path, help="folder of a language model [none: answers are quotes]")
    parser.add_argument("--shared", action="store_true", help="clients and daemon work on the same processors")
    wanted = parser.parse_args()
    seconds = 600.0 if wanted.full else wanted.seconds
    processors = divided()
    if not wanted.shared:
        work_on(processors.senders)
    with daemon_with_samples(
        processors=None if wanted.shared else processors.daemon, generator=wanted.generator
    ) as there:
        peak = peak_of(there, wanted.peak_seconds, wanted.deadline)
        offered = wanted.times * peak
        print(f"{offered:.0f} questions a second for {seconds:.0f} s", file=sys.stderr)
        with there.watched() as seen, clients(there.address, seconds, wanted.deadline, a_second=offered) as asking:
            ends = asking.ends()
    found = figures(peak, offered, ends, seen, seconds)
    if wanted.json:
        print_json(found)
    else:
        print(f"peak        {found.peak:8.1f} answers a second")
        print(f"offered     {found.offered:8.1f} questions a second, {found.refused} refused, failed: {found.failed}")
        print(f"goodput     {found.goodput:8.1f} answers a second, {found.share:.0%} of the peak")
        print(f"refusals    p50 {found.refusal_p50_ms:.1f} ms, p99 {found.refusal_p99_ms:.1f} ms")
        print(f"answers     p50 {found.answer_p50_s:.2f} s")
        print(f"queues      at most {found.fill:.0%} of their bounds, {found.unanswered} looks without an answer")
        print(f"memory      {found.resident_first_mib:.0f} MiB at first, {found.resident_last_mib:.0f} MiB at last")
    problems = found.broken()
    for problem in problems:
        print(f"not kept: {problem}", file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
