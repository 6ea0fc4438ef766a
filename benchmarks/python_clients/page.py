"""The table of a run: for the terminal, and for the sections of docs/benchmarks.md and its history that a run replaces."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import published
from benchmarks.python_clients.job import OURS

_BEGIN, _END = "<!-- python clients -->\n", "<!-- /python clients -->"
PAGE_PEER: Final = "confluent-kafka"
"""The client whose rows the page has: the fastest of the others."""
_HEAD: Final = (
    "| what | values | beside | its records/s | records/s | ratio | its CPU s per million (user + sys) |"
    " CPU s per million (user + sys) | ratio |\n"
    "|---|---|---|---:|---:|---:|---:|---:|---:|\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One client's one round."""

    what: str
    value_bytes: int
    client: str
    round_number: int
    records_per_second: float
    user_seconds_per_million: float
    system_seconds_per_million: float

    @property
    def cpu_seconds_per_million(self) -> float:
        return self.user_seconds_per_million + self.system_seconds_per_million


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median of the rounds' ratios, the lowest and the highest."""

    median: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.lowest:.2f}–{self.highest:.2f})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Our client beside another one. Figures are medians; a ratio is ours to the other's of the same round."""

    what: str
    value_bytes: int
    client: str
    records_per_second: float
    our_records_per_second: float
    rate_ratio: Spread
    """Above 1: ours is faster."""
    user_seconds_per_million: float
    system_seconds_per_million: float
    our_user_seconds_per_million: float
    our_system_seconds_per_million: float
    cpu_ratio: Spread
    """Below 1: ours takes less CPU."""


def rows_of(measurements: Sequence[Measurement]) -> list[Row]:
    """Returns a row for each client beside ours, in the order in which they were measured."""
    by_client: dict[tuple[str, int, str], dict[int, Measurement]] = {}
    for measurement in measurements:
        key = (measurement.what, measurement.value_bytes, measurement.client)
        by_client.setdefault(key, {})[measurement.round_number] = measurement
    order = list(dict.fromkeys(measurement.what for measurement in measurements))
    return [
        _row(by_client[what, value_bytes, OURS], theirs)
        for (what, value_bytes, client), theirs in sorted(
            by_client.items(), key=lambda pair: (order.index(pair[0][0]), pair[0][1])
        )
        if client != OURS and (what, value_bytes, OURS) in by_client
    ]


def _row(ours: dict[int, Measurement], theirs: dict[int, Measurement]) -> Row:
    pairs = [(ours[number], theirs[number]) for number in theirs if number in ours]
    their = [pair[1] for pair in pairs]
    our = [pair[0] for pair in pairs]
    return Row(
        what=their[0].what,
        value_bytes=their[0].value_bytes,
        client=their[0].client,
        records_per_second=statistics.median(measurement.records_per_second for measurement in their),
        our_records_per_second=statistics.median(measurement.records_per_second for measurement in our),
        rate_ratio=_spread(mine.records_per_second / other.records_per_second for mine, other in pairs),
        user_seconds_per_million=statistics.median(
            measurement.user_seconds_per_million for measurement in their
        ),
        system_seconds_per_million=statistics.median(
            measurement.system_seconds_per_million for measurement in their
        ),
        our_user_seconds_per_million=statistics.median(
            measurement.user_seconds_per_million for measurement in our
        ),
        our_system_seconds_per_million=statistics.median(
            measurement.system_seconds_per_million for measurement in our
        ),
        cpu_ratio=_spread(
            mine.cpu_seconds_per_million / other.cpu_seconds_per_million
            for mine, other in pairs
            if other.cpu_seconds_per_million > 0
        ),
    )


def _spread(ratios: Iterable[float]) -> Spread:
    known = list(ratios) or [float("nan")]
    return Spread(median=statistics.median(known), lowest=min(known), highest=max(known))


def markdown(rows: Iterable[Row]) -> str:
    return _HEAD + "".join(
        f"| {row.what} | {_size(row.value_bytes)} | {row.client} | {row.records_per_second:,.0f}"
        f" | {row.our_records_per_second:,.0f} | {row.rate_ratio}"
        f" | {row.user_seconds_per_million:.2f} + {row.system_seconds_per_million:.2f}"
        f" | {row.our_user_seconds_per_million:.2f} + {row.our_system_seconds_per_million:.2f}"
        f" | {row.cpu_ratio} |\n"
        for row in rows
    )


def write_json(path: Path, facts: dict[str, Any], measurements: Sequence[Measurement]) -> None:
    document = {
        **facts,
        "table": [asdict(row) for row in rows_of(measurements)],
        "measurements": [asdict(measurement) for measurement in measurements],
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def publish(page: Path, facts: dict[str, Any], measurements: Sequence[Measurement]) -> None:
    """Puts the rows beside the fastest peer between the page's two marks, all rows into the page of its history, and every
    measurement into a JSON file beside the page."""
    history = published.history_of(page)
    samples = page.with_name(f"{page.stem}-python-clients.json")
    where = facts["machine"]
    run = (
        f"{facts['rounds']} rounds of about {facts['megabytes']} MB, finished {facts['finished']}, on {where['cores']} cores"
        f" ({where['cpu']}), {where['memory_gb']} GB of memory, Linux {where['kernel']}, Python {where['python']};"
        f" {facts['clients']}. Every sample: [{samples.name}]({samples.name})."
    )
    rows = rows_of(measurements)
    on_page = markdown(row for row in rows if row.client == PAGE_PEER)
    more = f"[Rows beside the others]({history.name}#python-clients)."
    texts = {
        page: published.with_section(page, _BEGIN, _END, f"{run} {more}\n\n{on_page}"),
        history: published.with_section(history, _BEGIN, _END, f"{run}\n\n{markdown(rows)}"),
    }
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    write_json(samples, facts, measurements)


def _size(value_bytes: int) -> str:
    return f"{value_bytes // 1024} KiB" if value_bytes % 1024 == 0 else f"{value_bytes} B"
