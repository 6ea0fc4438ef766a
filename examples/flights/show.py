"""What the demo shows: a table of carriers, a chart, and where the time went."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

CARRIERS_SHOWN = 4
COLOURS = {"EWR": "#2f6f8f", "JFK": "#c2703d", "LGA": "#6b8f3a"}


@dataclass
class Stages:
    """Seconds per stage, in the order they happened."""

    seconds: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begun

    def table(self) -> Table:
        table = Table(title="Where the time went", title_justify="left")
        table.add_column("stage")
        table.add_column("seconds", justify="right")
        table.add_column("", style="dim", no_wrap=True)
        for name, seconds in self.seconds.items():
            table.add_row(name, f"{seconds:.1f}", self.notes.get(name, ""))
        table.add_section()
        table.add_row("all", f"{sum(self.seconds.values()):.1f}", "")
        return table


def carriers(result: pd.DataFrame) -> pd.DataFrame:
    """The busiest carriers of each origin, over the whole year."""
    weighted = result.assign(delay_minutes=result["mean_delay"].fillna(0) * result["departures"])
    totals = weighted.groupby(["origin", "airline"], as_index=False)[
        ["departures", "cancellations", "delay_minutes"]
    ].sum()
    totals["mean_delay"] = totals["delay_minutes"] / totals["departures"]
    totals["cancelled"] = totals["cancellations"] / (totals["departures"] + totals["cancellations"])
    ordered = totals.sort_values(["origin", "departures"], ascending=[True, False])
    return ordered.groupby("origin").head(CARRIERS_SHOWN)


def carriers_table(result: pd.DataFrame) -> Table:
    table = Table(title="The busiest carriers of each origin in 2013", title_justify="left")
    table.add_column("origin")
    table.add_column("carrier")
    for heading in ("departures", "cancelled", "mean delay"):
        table.add_column(heading, justify="right")
    previous = None
    for row in carriers(result).itertuples():
        if previous not in (None, row.origin):
            table.add_section()
        shown = row.origin if row.origin != previous else ""
        previous = row.origin
        table.add_row(
            shown, row.airline, f"{row.departures:,}", f"{row.cancelled:.1%}", f"{row.mean_delay:.1f} min"
        )
    return table


def draw(result: pd.DataFrame, path: Path) -> None:
    """Mean delay and cancellations of every day of the year, by origin."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.dates import DateFormatter, MonthLocator

    day = (
        pd.to_datetime(result["hour"], utc=True)
        .dt.tz_convert("America/New_York")
        .dt.tz_localize(None)
        .dt.normalize()
    )
    weighted = result.assign(day=day, delay_minutes=result["mean_delay"].fillna(0) * result["departures"])
    daily = weighted.groupby(["origin", "day"], as_index=False)[
        ["departures", "cancellations", "delay_minutes"]
    ].sum()
    figure, (upper, lower) = plt.subplots(2, 1, sharex=True, figsize=(11, 6.5), height_ratios=[3, 2])
    bottom: pd.Series | None = None
    for origin, colour in COLOURS.items():
        of = daily[daily["origin"] == origin].set_index("day")
        delay = (of["delay_minutes"] / of["departures"]).rolling(7, center=True, min_periods=1).mean()
        upper.plot(delay.index, delay, color=colour, label=origin, linewidth=1.6)
        cancelled = of["cancellations"].reindex(sorted(daily["day"].unique()), fill_value=0)
        lower.bar(cancelled.index, cancelled, bottom=bottom, width=1.0, color=colour)
        bottom = cancelled if bottom is None else bottom + cancelled
    upper.set_title("Flights from New York in 2013, from the topic departures_hourly", loc="left")
    upper.set_ylabel("mean departure delay\n(minutes, 7-day mean)")
    upper.axhline(0, color="#999999", linewidth=0.6)
    upper.legend(frameon=False, ncols=3)
    lower.set_ylabel("cancellations per day")
    lower.xaxis.set_major_locator(MonthLocator())
    lower.xaxis.set_major_formatter(DateFormatter("%b"))
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.01)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def console() -> Console:
    """Plain text where no one looks at a terminal, then wide enough for the tables."""
    plain = Console(highlight=False, soft_wrap=True)
    return plain if plain.is_terminal else Console(highlight=False, soft_wrap=True, width=110)


def progress(out: Console) -> Progress:
    """Bars of records, with how many of how many."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=out,
    )
