"""What a run leaves behind: a table for people, JSON for machines, a chart for both."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import psutil

from benchmarks.contenders import Contender
from benchmarks.samples import Finding, Sample

_ODRADEK, _PAGE_CACHE = "odradek", "odradek-page-cache"
_CPU: Final = "broker CPU"
"""The beginning of each quantity of CPU."""
_Kind: TypeAlias = tuple[str, str, str]
"""Measure, condition and quantity: what a row is about."""


class Headline(NamedTuple):
    """A row of the chart: in plain words, and which finding it is."""

    label: str
    measure: str
    condition: str
    quantity: str
    contender: str = _ODRADEK

    @property
    def row(self) -> tuple[str, str, str, str]:
        """The finding that the row shows."""
        return self.measure, self.condition, self.quantity, self.contender


HEADLINES: Final = (
    Headline("write 1 KiB records", "produce", "1 KiB, acks=all", "MB/s"),
    Headline("read 1 KiB records", "consume", "1 KiB", "MB/s"),
    Headline("CPU to read", "consume", "1 KiB", "broker CPU s per GB out"),
    Headline("write, 3 brokers", "3 brokers: produce", "1 KiB, acks=all", "MB/s"),
    Headline("CPU to write, 3 brokers", "3 brokers: produce", "1 KiB, acks=all", "broker CPU s per GB in"),
    Headline(
        "acknowledgement p50, after fsync",
        "acknowledgement",
        "1 KiB values at 1,000 records/s, acks=all",
        "p50 ms",
    ),
    Headline(
        "acknowledgement p50, Kafka's promise",
        "acknowledgement",
        "1 KiB values at 1,000 records/s, acks=all",
        "p50 ms",
        _PAGE_CACHE,
    ),
    Headline(
        "acknowledgement p99, 3 brokers, Kafka's promise",
        "3 brokers: acknowledgement",
        "1 KiB values at 500 records/s, acks=all",
        "p99 ms",
        _PAGE_CACHE,
    ),
    Headline(
        "requests of one record",
        "small requests",
        "50 producers, one record of 100 B each, acks=1",
        "requests/s",
    ),
    Headline("offset commits", "offset commits", "16 connections", "commits/s"),
    Headline("transactions", "transactions", "one producer, one record each", "transactions/s"),
    Headline("rebalance of 500 members", "rebalance", "500 members", "ms"),
    Headline(
        "acknowledgement p99 while others catch up",
        "catch-up reader",
        "2,000,000 cold records of 1 KiB, others write 1,000 a second",
        "p99 ms of acknowledgement with",
    ),
    Headline("compaction", "compaction", "1 KiB values, 3 of each key, lz4", "MB/s"),
    Headline(
        "1,000 topics created and served",
        "3 brokers: topics made",
        "1,000 by one request, served by their leaders",
        "s",
    ),
    Headline("memory under load", "memory", "under load", "PSS MB"),
    Headline("start", "start to first acknowledged record", "first start, topic auto-created", "ms"),
    Headline(
        "restart of 10,000 partitions",
        "3 brokers: restart after kill -9 of all",
        "10,000 partitions, in sync",
        "s",
    ),
    Headline(
        "writes go on after a leader's death",
        "3 brokers: kill -9 to the next acknowledgement",
        "of a partition's leader",
        "ms for librdkafka",
    ),
)
"""What the chart shows, where it was measured. Odradek with its default, unless the label names Kafka's promise."""
_ROWS_MAX: Final = 24
"""How many rows a chart has that shows none of the headlines."""
_COLOURS: Final = {"better": "#0072B2", "level": "#999999", "worse": "#D55E00"}
"""Okabe and Ito's: they differ in lightness, too."""
_INK: Final = "0.15"
_AXIS: Final = (1 / 8, 64.0)
_TICKS: Final = {
    1 / 8: "1/8",
    1 / 4: "1/4",
    1 / 2: "1/2",
    1: "1",
    2: "2x",
    4: "4x",
    8: "8x",
    16: "16x",
    32: "32x",
}


def machine() -> dict[str, Any]:
    """Returns what the figures were measured on, without the machine's name."""
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


def markdown(
    results: Iterable[Finding], who: Sequence[Contender], peer: str, *, cpu_beside: bool = False
) -> str:
    """Returns one row for each figure: medians of all contenders, and our ratios to the peer with their spread.

    With `cpu_beside`, ratios of CPU are columns of the row that they belong to. Without the peer there are no ratios,
    and CPU has rows.
    """
    rows: dict[_Kind, dict[str, Finding]] = {}
    for finding in results:
        rows.setdefault((finding.measure, finding.condition, finding.quantity), {})[finding.contender] = (
            finding
        )
    ours = [contender for contender in who if contender.key != peer]
    with_peer = len(ours) < len(who)
    cpu_of = _cpu_rows(rows) if cpu_beside and with_peer else {}
    beside = set(cpu_of.values())
    head = ["what", "conditions", "figure", *(contender.title for contender in who)]
    if with_peer:
        head += [f"{contender.title} / Kafka" for contender in ours]
    if cpu_of:
        head += [f"broker CPU: {contender.title} / Kafka" for contender in ours]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * 3 + "---:|" * (len(head) - 3)]
    for kind, by_contender in rows.items():
        if kind in beside:
            continue
        cells = list(kind)
        cells += [
            _number(by_contender[contender.key].values.median) if contender.key in by_contender else ""
            for contender in who
        ]
        if with_peer:
            cells += [_ratio(by_contender.get(contender.key)) for contender in ours]
        if cpu_of:
            cpu = rows[cpu_of[kind]] if kind in cpu_of else {}
            cells += [_ratio(cpu.get(contender.key)) for contender in ours]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cpu_rows(rows: Iterable[_Kind]) -> dict[_Kind, _Kind]:
    """Returns the row of CPU for each first row of a measure and a condition; CPU that no other row goes with is absent."""
    first: dict[tuple[str, str], _Kind] = {}
    cpu: dict[tuple[str, str], _Kind] = {}
    for kind in rows:
        target = cpu if kind[2].startswith(_CPU) else first
        target.setdefault((kind[0], kind[1]), kind)
    return {kind: cpu[case] for case, kind in first.items() if case in cpu}


def draw(path: Path, results: Sequence[Finding], title: str) -> None:
    """Draws one bar for each headline, from the line "as good as Kafka" to the median ratio.

    Right and blue is better, left and orange is worse, grey is level. Thin lines reach from the worst round to the best.
    Nothing is drawn where there is no ratio.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = chart_rows(results)
    if not rows:
        return
    height = 1.4 + 0.27 * len(rows)
    figure, axes = plt.subplots(figsize=(8, height))
    axes.set_xscale("log")
    for number, (_, finding) in enumerate(rows):
        _draw_bar(axes, number, finding)
    _draw_axes(axes, [label for label, _ in rows])
    _draw_key(figure, title, height)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.42 / height))
    figure.savefig(path, dpi=200)
    plt.close(figure)


def _draw_bar(axes: Any, number: int, finding: Finding) -> None:
    worst, middle, best = (_within_axis(value) for value in _goodness(finding))
    axes.barh(number, middle - 1, left=1, height=0.62, color=_COLOURS[finding.verdict], zorder=2)
    axes.plot((worst, best), (number, number), color=_INK, linewidth=1, zorder=3)
    is_right = middle >= 1
    axes.annotate(
        chart_figure(finding),
        (max(middle, best, 1.0) if is_right else min(middle, worst, 1.0), number),
        xytext=(5 if is_right else -5, 0),
        textcoords="offset points",
        ha="left" if is_right else "right",
        va="center",
        fontsize=9,
        color=_INK,
    )


def _draw_axes(axes: Any, labels: Sequence[str]) -> None:
    axes.axvline(1, color=_INK, linewidth=1.4, zorder=4)
    axes.annotate(
        "as good as Kafka", (1, -0.6), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=9
    )
    axes.set_xlabel("times as good as Apache Kafka, in the same run (logarithmic)", fontsize=9)
    axes.set_xlim(_AXIS[0] / 1.6, _AXIS[1] * 2.2)
    axes.set_xticks(list(_TICKS), list(_TICKS.values()), fontsize=9)
    axes.minorticks_off()
    axes.set_yticks(range(len(labels)), labels, fontsize=9.5)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="0.9", zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _draw_key(figure: Any, title: str, height: float) -> None:
    from matplotlib import patches

    texts = {
        "worse": "\u25c0 worse in every round",
        "level": "level: rounds disagree",
        "better": "better in every round \u25b6",
    }
    figure.suptitle(title, fontsize=12, fontweight="bold", y=0.995)
    figure.legend(
        handles=[patches.Patch(color=_COLOURS[verdict], label=text) for verdict, text in texts.items()],
        loc="upper center",
        bbox_to_anchor=(0.5, 1 - 0.22 / height),
        ncols=3,
        fontsize=9,
        frameon=False,
    )


def chart_rows(results: Sequence[Finding]) -> list[tuple[str, Finding]]:
    """Returns the headlines that have a ratio, the best first; of a run without any of them, the first rows that have one."""
    by_row = {
        (finding.measure, finding.condition, finding.quantity, finding.contender): finding
        for finding in results
        if finding.ratio is not None
    }
    rows = [(line.label, by_row[line.row]) for line in HEADLINES if line.row in by_row]
    if not rows:
        rows = [
            (f"{finding.measure}, {finding.condition}: {finding.quantity}", finding)
            for finding in by_row.values()
        ][:_ROWS_MAX]
    return sorted(rows, key=lambda row: -_goodness(row[1])[1])


def chart_figure(finding: Finding) -> str:
    """Returns what stands beside a bar: how many times as good, or as bad, as Kafka."""
    if finding.verdict == "level":
        return "level"
    middle = _goodness(finding)[1]
    times = middle if middle >= 1 else 1 / middle
    return f"{times:.0f}x" if times >= 10 else f"{times:.1f}x"


def _within_axis(goodness: float) -> float:
    return min(max(goodness, _AXIS[0]), _AXIS[1])


def _goodness(finding: Finding) -> tuple[float, float, float]:
    """A ratio turned so that more is better: (lowest, median, highest)."""
    ratio = finding.ratio
    assert ratio is not None
    if finding.better == "higher":
        return ratio.lowest, ratio.median, ratio.highest
    return tuple(1 / max(value, 1e-9) for value in (ratio.highest, ratio.median, ratio.lowest))  # type: ignore[return-value]


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
