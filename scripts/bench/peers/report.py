"""What is said of the rounds: a table of figures with their share of the limit, a table of ratios, Markdown, JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edge_rag.model_store.convert.comparison import MAX_LOSS, LogitComparison
from scripts.bench.kernels.ceilings import Ceilings
from scripts.bench.kernels.decoder import DecoderSize
from scripts.bench.peers.contenders import OURS
from scripts.bench.peers.figures import LESS_IS_BETTER, MEASURES, Figures, median_figures
from scripts.bench.peers.load import Load

Rounds = Mapping[str, Sequence[Figures]]
"""What was measured of each contender, in order."""

Limits = Mapping[str, float]
"""The most tokens a second that the machine's limits allow, by measure."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a program's weights and cache, compared with the weights in float32; None if that failed."""

    text: str
    comparison: LogitComparison | None

    @property
    def divergence(self) -> str:
        found = self.comparison
        return (
            "could not be compared"
            if found is None
            else f"KL {found.divergence:.4f}, same token {found.same_token:.1%}"
        )

    @property
    def is_equal(self) -> bool:
        """Whether speed in this form counts: nothing is known to be lost, or no more than `models add` accepts."""
        return self.comparison is None or self.comparison.divergence <= MAX_LOSS


def limits(size: DecoderSize, ceilings: Ceilings, load: Load) -> Limits:
    middle = load.context + load.steps // 2
    many, one = (size.least_seconds(ceilings, sequences, middle, 1) for sequences in (load.sequences, 1))
    whole = size.least_seconds(ceilings, 1, load.context, load.context)
    return {"decode_many": load.sequences / many, "decode_one": 1 / one, "prefill": load.context / whole}


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
    value = getattr(figures, measure)
    if measure == "peak_memory":
        return f"{value / 2**20:,.0f}"
    return f"{value:,.1f}" if measure == "load" or value < 100 else f"{value:,.0f}"


def cell(measure: str, figures: Figures, limits: Limits) -> str:
    share = f", {getattr(figures, measure) / limits[measure]:.0%}" if measure in limits else ""
    return shown(measure, figures) + share


def best_of_others(rounds: Rounds, forms: Mapping[str, Form]) -> Figures | None:
    """Returns the best median of each measure among the others whose form is an equal; None if there are none."""
    equal = [name for name in rounds if name not in OURS and (name not in forms or forms[name].is_equal)]
    medians = [median_figures(rounds[name]) for name in equal]
    if not medians:
        return None
    choose = {measure: min if measure in LESS_IS_BETTER else max for measure in MEASURES}
    return Figures(**{name: choose[name](getattr(each, name) for each in medians) for name in MEASURES})


def markdown(rounds: Rounds, load: Load, forms: Mapping[str, Form], limits: Limits) -> str:
    """Returns a table of medians with their share of the limit, and what ours are times the best of the others."""
    measures = [measure for measure in MEASURES if measure != "load"]
    headings = [titles(load)[measure] for measure in measures]
    lines = [f"| program | form | divergence from fp32 | {' | '.join(headings)} |", "|---" * (3 + len(headings)) + "|"]
    medians = {name: median_figures(runs) for name, runs in rounds.items()}
    for name, figures in medians.items():
        form = forms.get(name, Form("", None))
        cells = [name, form.text, form.divergence, *(cell(measure, figures, limits) for measure in measures)]
        lines.append(f"| {' | '.join(cells)} |")
    allowed = [f"{limits[measure]:,.0f}" if measure in limits else "" for measure in measures]
    lines.append(f"| limit of the machine | | | {' | '.join(allowed)} |")
    if (best := best_of_others(rounds, forms)) is not None:
        for name in OURS:
            if name in medians:
                times = [f"{getattr(medians[name], measure) / getattr(best, measure):.2f}x" for measure in measures]
                lines.append(f"| {name}, times the best of the others | | | {' | '.join(times)} |")
    return "\n".join(lines)


def as_json(rounds: Rounds, load: Load, failures: Mapping[str, str], forms: Mapping[str, Form]) -> dict[str, Any]:
    return {
        "load": asdict(load),
        "medians": {name: asdict(median_figures(runs)) for name, runs in rounds.items()},
        "rounds": {name: [asdict(figures) for figures in runs] for name, runs in rounds.items()},
        "forms": {name: asdict(form) for name, form in forms.items()},
        "failures": dict(failures),
    }


def limits_as_json(rounds: Rounds, ceilings: Ceilings, limits: Limits) -> dict[str, Any]:
    """Returns the limits, of the machine and of the load's rates, and each median's share of them."""
    medians = {name: median_figures(runs) for name, runs in rounds.items()}
    return {
        "ceilings": asdict(ceilings),
        "limits": dict(limits),
        "shares": {
            name: {measure: getattr(figures, measure) / limit for measure, limit in limits.items()}
            for name, figures in medians.items()
        },
    }
