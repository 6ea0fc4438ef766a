"""What a run leaves behind: a table for people, JSON for machines, a chart for both."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from benchmarks.contenders import Contender
from benchmarks.samples import Finding, Sample

CHART_QUANTITIES = (
    "MB/s",
    "broker CPU s per GB in",
    "broker CPU s per GB out",
    "p50 ms",
    "p99 ms",
    "p99.9 ms",
    "PSS MB",
    "ms",
    "ms for librdkafka",
    "s",
)
"""What the chart shows, from top to bottom; records/s and RSS would say the same again."""
CHART_TICKS = {
    1 / 16: "1/16",
    1 / 8: "1/8",
    1 / 4: "1/4",
    1 / 2: "1/2",
    1: "1",
    2: "2",
    4: "4",
    8: "8",
    16: "16",
    32: "32",
}


def machine() -> dict[str, Any]:
    """Where the figures come from; without the machine's name."""
    return {
        "cpu": _cpu_name(),
        "cores": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def write_json(
    path: Path, facts: dict[str, Any], samples: Sequence[Sample], results: Sequence[Finding]
) -> None:
    document = {
        **facts,
        "findings": [{**asdict(finding), "verdict": finding.verdict} for finding in results],
        "samples": [asdict(sample) for sample in samples],
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def markdown(results: Iterable[Finding], who: Sequence[Contender], peer: str) -> str:
    """One row for each figure: medians of all contenders, and our ratios to the peer with their spread."""
    rows: dict[tuple[str, str, str], dict[str, Finding]] = {}
    for finding in results:
        rows.setdefault((finding.measure, finding.condition, finding.quantity), {})[finding.contender] = (
            finding
        )
    ours = [contender for contender in who if contender.key != peer]
    with_peer = len(ours) < len(who)
    head = ["what", "conditions", "figure", *(contender.title for contender in who)]
    if with_peer:
        head += [f"{contender.title} / Kafka" for contender in ours]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * 3 + "---:|" * (len(head) - 3)]
    for (measure, condition, quantity), by_contender in rows.items():
        cells = [measure, condition, quantity]
        cells += [
            _number(by_contender[contender.key].values.median) if contender.key in by_contender else ""
            for contender in who
        ]
        if with_peer:
            cells += [_ratio(by_contender.get(contender.key)) for contender in ours]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(path: Path, results: Sequence[Finding], who: Sequence[Contender], title: str) -> None:
    """Ratios to the peer as dots with their spread, on a logarithmic scale; the good side is to the right."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    shown = [
        finding for finding in results if finding.ratio is not None and finding.quantity in CHART_QUANTITIES
    ]
    if not shown:
        return
    shown.sort(key=lambda item: CHART_QUANTITIES.index(item.quantity))
    rows = list(dict.fromkeys(_label(finding) for finding in shown))
    figure, axes = plt.subplots(figsize=(11, 1.4 + 0.34 * len(rows)))
    ours = [record for record in who if any(finding.contender == record.key for finding in shown)]
    for number, contender in enumerate(ours):
        mine = [finding for finding in shown if finding.contender == contender.key]
        lowest, middle, highest = zip(*(_goodness(finding) for finding in mine), strict=True)
        axes.errorbar(
            middle,
            [rows.index(_label(finding)) + 0.28 * (number - (len(ours) - 1) / 2) for finding in mine],
            xerr=[
                [mid - low for mid, low in zip(middle, lowest, strict=True)],
                [high - mid for mid, high in zip(middle, highest, strict=True)],
            ],
            fmt="o",
            markersize=5,
            capsize=3,
            label=contender.title,
        )
    axes.axvline(1, color="0.4", linewidth=1)
    axes.set_xscale("log")
    axes.set_xticks(list(CHART_TICKS), list(CHART_TICKS.values()))
    axes.minorticks_off()
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.set_ylim(len(rows) - 0.3, -0.7)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.set_xlabel(
        "times as good as Apache Kafka: dots are medians, bars reach from the worst round to the best"
    )
    axes.set_title(title, fontsize=10, pad=28)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(ours), fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _label(finding: Finding) -> str:
    return f"{finding.measure}, {finding.condition}: {finding.quantity}"


def _goodness(finding: Finding) -> tuple[float, float, float]:
    """A ratio turned so that more is better: (lowest, median, highest)."""
    ratio = finding.ratio
    assert ratio is not None
    if finding.better == "higher":
        return ratio.lowest, ratio.median, ratio.highest
    return 1 / ratio.highest, 1 / ratio.median, 1 / ratio.lowest


def _ratio(finding: Finding | None) -> str:
    if finding is None or finding.ratio is None:
        return ""
    ratio = finding.ratio
    text = f"{ratio.median:.2f} ({ratio.lowest:.2f}–{ratio.highest:.2f})"
    return f"{text} {finding.verdict}"


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()
