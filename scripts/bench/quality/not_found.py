"""The not-found curve: what a threshold on the evidence turns away, of questions with an answer and without; pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_LOST = 0.05
"""Share of answerable questions that may be turned away."""

LEAST_TURNED_AWAY = 0.70
"""Share of unanswerable questions that must be."""


@dataclass(frozen=True, slots=True)
class Point:
    """What one threshold does.

    Attributes:
        threshold: Questions with less evidence are turned away, 0 to 1.
        answerable: Share of the answerable ones that are, 0 to 1.
        unanswerable: Share of the unanswerable ones that are, 0 to 1.
    """

    threshold: float
    answerable: float
    unanswerable: float


def turned_away(evidence: Sequence[float], threshold: float) -> float:
    """Returns the share below a threshold.

    Args:
        evidence: Ascending, at least one value.
        threshold: What is enough.
    """
    return bisect_left(evidence, threshold) / len(evidence)


def curve(answerable: Sequence[float], unanswerable: Sequence[float], thresholds: Sequence[float]) -> tuple[Point, ...]:
    """Returns what each threshold does.

    Args:
        answerable: Evidence of each question that has an answer, at least one.
        unanswerable: Evidence of each one that has none, at least one.
        thresholds: Any.
    """
    with_answer, without = sorted(answerable), sorted(unanswerable)
    return tuple(
        Point(threshold, turned_away(with_answer, threshold), turned_away(without, threshold))
        for threshold in thresholds
    )


def separation(answerable: Sequence[float], unanswerable: Sequence[float]) -> float:
    """Returns how often an answerable question has more evidence than an unanswerable one, 0 to 1; ties count half.

    It is the area under the ROC curve.

    Args:
        answerable: Evidence of each question that has an answer, at least one.
        unanswerable: Evidence of each one that has none, at least one.
    """
    ranked = sorted([(value, True) for value in answerable] + [(value, False) for value in unanswerable])
    won, without_below, start = 0.0, 0, 0
    while start < len(ranked):
        end = start
        while end < len(ranked) and ranked[end][0] == ranked[start][0]:
            end += 1
        with_answer = sum(has for _, has in ranked[start:end])
        without = end - start - with_answer
        won += with_answer * (without_below + without / 2)
        without_below += without
        start = end
    return won / (len(answerable) * len(unanswerable))


def plot(points: Sequence[Point], default: Point, target: Path) -> None:
    """Draws both shares over the threshold, what is asked of them, and the default. Needs matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 4.8))
    thresholds = [point.threshold for point in points]
    lines = (
        ("no answer in the documents", "tab:red", [point.unanswerable for point in points], default.unanswerable),
        ("answer in the documents", "tab:blue", [point.answerable for point in points], default.answerable),
    )
    for name, colour, shares, at_default in lines:
        axis.plot(thresholds, shares, color=colour, linewidth=2, label=name)
        axis.plot([default.threshold], [at_default], "o", color=colour)
        axis.annotate(
            f"{at_default:.1%}",
            (default.threshold, at_default),
            textcoords="offset points",
            xytext=(10, -4),
            backgroundcolor="white",
            color=colour,
            fontweight="bold",
        )
    axis.axvline(
        default.threshold, color="black", linewidth=1, linestyle="--", label=f"default threshold, {default.threshold:g}"
    )
    axis.axhline(
        LEAST_TURNED_AWAY, color="tab:red", linewidth=1, linestyle=":", label=f"at least {LEAST_TURNED_AWAY:.0%}"
    )
    axis.axhline(MOST_LOST, color="tab:blue", linewidth=1, linestyle=":", label=f"at most {MOST_LOST:.0%}")
    axis.set(
        title="Questions that get the not-found answer",
        xlabel="threshold on the evidence",
        ylabel="share turned away",
        xlim=(0, 1),
        ylim=(0, 1),
    )
    axis.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1.0))
    axis.grid(alpha=0.3)
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3, frameon=False)
    figure.savefig(target, dpi=120, bbox_inches="tight")
    plt.close(figure)
