"""What is said of the rounds: a table of figures, a table of ratios, a picture, JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from edge_rag.model_store.convert.comparison import LogitComparison
from scripts.bench.peers.contenders import OURS, RANDOM
from scripts.bench.peers.figures import LESS_IS_BETTER, MEASURES, Figures, advantage, median_figures
from scripts.bench.peers.load import Load

Rounds = Mapping[str, Sequence[Figures]]
"""What was measured of each contender, in order."""


@dataclass(frozen=True, slots=True)
class Form:
    """In which form a program runs the model.

    Attributes:
        text: Of its weights and its cache.
        comparison: With the weights in float32; None for random weights, or if it failed.
        missing: What stands in its place.
    """

    text: str
    comparison: LogitComparison | None
    missing: str = RANDOM

    @property
    def divergence(self) -> str:
        """What the table says of it."""
        found = self.comparison
        return self.missing if found is None else f"KL {found.divergence:.4f}, same token {found.same_token:.1%}"


def titles(load: Load) -> dict[str, str]:
    """Returns what each measure is called."""
    context = f"{load.context:,}"
    return {
        "decode_many": f"decode {load.sequences} x {context}, tokens/s",
        "decode_one": f"decode 1 x {context}, tokens/s",
        "prefill": f"prefill {context}, tokens/s",
        "peak_memory": f"peak memory {load.sequences} x {context}, MiB",
        "load": "load, s",
    }


def shown(measure: str, figures: Figures) -> str:
    """Returns a figure in its title's unit."""
    value = getattr(figures, measure)
    if measure == "peak_memory":
        return f"{value / 2**20:,.0f}"
    return f"{value:,.1f}" if measure == "load" or value < 100 else f"{value:,.0f}"


def figures_table(rounds: Rounds, load: Load, forms: Mapping[str, Form]) -> Table:
    """Returns the medians, with the lowest and highest round where there are several, and each program's form."""
    table = Table(title=f"{load.threads} threads, medians")
    table.add_column("program")
    table.add_column("form")
    table.add_column("divergence from fp32")
    for title in titles(load).values():
        table.add_column(title, justify="right")
    for name, runs in rounds.items():
        cells = []
        for measure in MEASURES:
            cell = shown(measure, median_figures(runs))
            if len(runs) > 1:
                ordered = sorted(runs, key=lambda figures: float(getattr(figures, measure)))
                cell += f" ({shown(measure, ordered[0])} to {shown(measure, ordered[-1])})"
            cells.append(cell)
        form = forms.get(name, Form("", None))
        table.add_row(name, form.text, form.divergence, *cells)
    return table


def markdown(rounds: Rounds, load: Load, forms: Mapping[str, Form]) -> str:
    """Returns the medians as the table of docs/benchmarks.md, without memory and load."""
    shown_measures = ("decode_many", "decode_one", "prefill")
    headings = [title for measure, title in titles(load).items() if measure in shown_measures]
    lines = [f"| program | form | divergence from fp32 | {' | '.join(headings)} |", "|---" * (3 + len(headings)) + "|"]
    for name, runs in rounds.items():
        form, medians = forms.get(name, Form("", None)), median_figures(runs)
        cells = [name, form.text, form.divergence, *(shown(measure, medians) for measure in shown_measures)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def ratios(rounds: Rounds) -> dict[str, dict[str, dict[str, float]]]:
    """Returns by which factor each of ours is better than each of the others: of ours, of theirs, by measure."""
    medians = {name: median_figures(runs) for name, runs in rounds.items()}
    return {
        ours: {name: dict(advantage(medians[ours], theirs)) for name, theirs in medians.items() if name not in OURS}
        for ours in OURS
        if ours in medians
    }


def ratios_table(rounds: Rounds, load: Load) -> Table:
    """Returns the ratios of medians; over 1 we are faster, smaller or quicker to load."""
    table = Table(title="ours against theirs, ratio of medians, over 1 is better")
    table.add_column("ours")
    table.add_column("theirs")
    for title in titles(load).values():
        table.add_column(title.rpartition(",")[0], justify="right")
    for ours, others in ratios(rounds).items():
        for theirs, by_measure in others.items():
            table.add_row(ours, theirs, *(f"{by_measure[measure]:.2f}x" for measure in MEASURES))
    return table


def as_json(rounds: Rounds, load: Load, failures: Mapping[str, str], forms: Mapping[str, Form]) -> dict[str, Any]:
    """Returns everything that was found."""
    return {
        "load": asdict(load),
        "medians": {name: asdict(median_figures(runs)) for name, runs in rounds.items()},
        "ratios": ratios(rounds),
        "rounds": {name: [asdict(figures) for figures in runs] for name, runs in rounds.items()},
        "forms": {name: asdict(form) for name, form in forms.items()},
        "failures": dict(failures),
    }


def plot(rounds: Rounds, load: Load, target: Path) -> None:
    """Draws a panel for each measure: the median as a bar, every round as a dot."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(MEASURES), figsize=(3.4 * len(MEASURES), 0.5 * len(rounds) + 1.6), sharey=True)
    names = list(rounds)
    for axis, (measure, title) in zip(axes, titles(load).items(), strict=True):
        scale = 2**20 if measure == "peak_memory" else 1
        medians = [getattr(median_figures(runs), measure) / scale for runs in rounds.values()]
        axis.barh(names, medians, color=["tab:blue" if name in OURS else "tab:gray" for name in names])
        for line, runs in enumerate(rounds.values()):
            axis.plot([getattr(one, measure) / scale for one in runs], [line] * len(runs), "k.", markersize=4)
        axis.set(title=title + ("\n(less is better)" if measure in LESS_IS_BETTER else "\n(more is better)"))
    axes[0].invert_yaxis()
    figure.suptitle(f"{load.threads} threads")
    figure.tight_layout()
    figure.savefig(target, dpi=120)
    plt.close(figure)
