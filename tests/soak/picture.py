"""The series of a run as small multiples: one panel for each figure, one line for each broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.soak.slopes import Point

_PANELS: Final = (
    ("rss_bytes", "memory, MB", 1 << 20),
    ("descriptors", "descriptors", 1),
    ("threads", "threads", 1),
    ("close_wait_count", "sockets in CLOSE_WAIT", 1),
    ("log_bytes", "broker's own log, MB", 1 << 20),
    ("data_bytes", "data on disk, MB", 1 << 20),
    ("loop_holds", "loop holds, so far", 1),
    ("lag_ms", "event loop's lag, ms", 1),
    ("p50_ms", "bystander's p50, ms", 1),
    ("p99_ms", "bystander's p99, ms", 1),
    ("max_ms", "bystander's longest, ms", 1),
    ("cpu_s", "processor time, s", 1),
)
_COLUMNS: Final = 3
_COLOURS: Final = ("#1b6ca8", "#d1495b", "#3c8d53")


def draw(all_series: Mapping[str, Sequence[Point]], title: str, file: Path) -> None:
    """A PNG. ImportError without matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = -(-len(_PANELS) // _COLUMNS)
    figure, axes = plt.subplots(rows, _COLUMNS, figsize=(13, 2.5 * rows), sharex=True)
    for axis, (name, label, unit) in zip(axes.flat, _PANELS, strict=True):
        for colour, (series, points) in zip(
            _COLOURS,
            sorted(entry for entry in all_series.items() if entry[0].endswith(f" {name}")),
            strict=False,
        ):
            minutes = [seconds / 60 for seconds, _ in points]
            axis.plot(
                minutes,
                [value / unit for _, value in points],
                color=colour,
                linewidth=1.1,
                label=series[: -len(name) - 1],
            )
        axis.set_title(label, fontsize=10, loc="left")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("minutes")
    axes.flat[0].legend(fontsize=8, frameon=False)
    figure.suptitle(title, fontsize=12, x=0.01, ha="left")
    figure.tight_layout()
    figure.savefig(file, dpi=130)
    plt.close(figure)
