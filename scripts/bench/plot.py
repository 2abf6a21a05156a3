"""Draws what a benchmark wrote as JSON: an SVG for docs/images. Needs matplotlib (the extra `bench`).

    python -m scripts.bench.peers --json > build/peers.json
    python -m scripts.bench.plot build/peers.json docs/images/peers.svg
    python -m scripts.bench.first_question --other FOLDER --json > build/first.json
    python -m scripts.bench.plot build/first.json docs/images/first_question.svg

Bars are medians, dots the rounds, dashed lines the machine's limits. The last line of a picture says where it is from.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_PANEL_INCHES, _ROW_INCHES, _FRAME_INCHES = 3.0, 0.32, 1.5
_OURS, _THEIRS = "#1f77b4", "#9a9a9a"
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "edge-rag", "font.size": 9}
_MIB = 2**20


def peers(found: Mapping[str, Any], plt: Any) -> Any:
    """Draws a panel for each measure, a bar for each program."""
    load = found["load"]
    context = f"{load['context']:,}"
    titles = {
        "decode_many": f"decode {load['sequences']} x {context}, tokens/s",
        "decode_one": f"decode 1 x {context}, tokens/s",
        "prefill": f"prefill {context}, tokens/s",
        "peak_memory": "peak memory, MiB (less is better)",
    }
    names = list(found["rounds"])
    height = _ROW_INCHES * len(names) + _FRAME_INCHES
    figure, axes = plt.subplots(1, len(titles), figsize=(_PANEL_INCHES * len(titles), height), sharey=True)
    colors = [_OURS if name.startswith("edge-rag") else _THEIRS for name in names]
    for axis, (measure, title) in zip(axes, titles.items(), strict=True):
        scale = _MIB if measure == "peak_memory" else 1
        axis.barh(names, [found["medians"][name][measure] / scale for name in names], color=colors)
        for line, name in enumerate(names):
            rounds = [figures[measure] / scale for figures in found["rounds"][name]]
            axis.plot(rounds, [line] * len(rounds), "k.", markersize=3)
        if measure in found["limits"]:
            axis.axvline(found["limits"][measure], color="k", linestyle="--", linewidth=0.8)
        axis.set_title(title, fontsize=9)
    axes[0].invert_yaxis()
    return figure


def first_question(found: Mapping[str, Any], plt: Any) -> Any:
    """Draws two bars for each time of a question: this checkout's and the other's."""
    rows = {name: row for name, row in found["rows"].items() if not name.startswith("ingest")}
    figure, axis = plt.subplots(figsize=(2 * _PANEL_INCHES, 2 * _ROW_INCHES * len(rows) + _FRAME_INCHES))
    for number, (side, label, color) in enumerate((("this", "now", _OURS), ("other", "before", _THEIRS))):
        places = [line + 0.4 * number for line in range(len(rows))]
        bars = axis.barh(places, [row[f"{side}_ms"] for row in rows.values()], 0.38, color=color, label=label)
        axis.bar_label(bars, fmt="{:,.0f}", padding=2)
    axis.margins(x=0.12)  # room for the labels
    axis.set_yticks([line + 0.2 for line in range(len(rows))], list(rows))
    axis.invert_yaxis()
    axis.legend(loc="lower right")
    axis.set_title("a question whose passages nobody asked for before, ms", fontsize=9)
    return figure


KINDS: Mapping[str, Callable[[Mapping[str, Any], Any], Any]] = {"peers": peers, "first_question": first_question}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="JSON of a benchmark")
    parser.add_argument("target", type=Path, help="SVG to write")
    arguments = parser.parse_args()
    found = json.loads(arguments.source.read_text(encoding="utf-8"))
    kind = found.get("benchmark")
    if kind not in KINDS:
        parser.error(f"{arguments.source} is of {kind!r}; drawn are {', '.join(KINDS)}")
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    with mpl.rc_context(_SETTINGS):
        figure = KINDS[kind](found, plt)
        figure.text(0.01, 0.01, f"{found['machine']}; {found['date']}; commit {found['commit']}", fontsize=7)
        figure.tight_layout(rect=(0, 0.04, 1, 1))
        figure.savefig(arguments.target, metadata={"Date": None})


if __name__ == "__main__":
    main()
