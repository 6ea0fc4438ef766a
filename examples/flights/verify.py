"""The same numbers by another road: pandas on the source data, with no topic, no Spark and no `time_hour` in between."""

from __future__ import annotations

import numpy as np
import pandas as pd

GROUP = ["hour", "origin", "carrier"]
DELAY_TOLERANCE = 1e-9


def expected(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Departures, cancellations and mean delay for each hour, origin and carrier, counted from the local times."""
    flights = tables["flights"]
    local = pd.to_datetime(flights[["year", "month", "day", "hour"]].astype(int))
    frame = pd.DataFrame(
        {
            "hour": local.dt.tz_localize("America/New_York").dt.tz_convert("UTC"),
            "origin": flights["origin"].astype(str),
            "carrier": flights["carrier"].astype(str),
            "departed": flights["dep_time"].notna(),
            "delay": flights["dep_delay"].astype("Float64").to_numpy(dtype=float, na_value=np.nan),
        }
    )
    counted = frame.groupby(GROUP).agg(
        departures=("departed", "sum"), flights=("departed", "size"), mean_delay=("delay", "mean")
    )
    counted["cancellations"] = counted["flights"] - counted["departures"]
    names = tables["airlines"].set_index("carrier")["name"].astype(str)
    counted["airline"] = names.reindex(counted.index.get_level_values("carrier")).to_numpy()
    return counted[["airline", "departures", "cancellations", "mean_delay"]]


def differences(result: pd.DataFrame, wanted: pd.DataFrame) -> list[str]:
    """What is wrong with the pipeline's result, in sentences; empty when every group is equal."""
    got = result.assign(hour=pd.to_datetime(result["hour"], utc=True)).set_index(GROUP).sort_index()
    problems = []
    if got.index.has_duplicates:
        problems.append(f"{got.index.duplicated().sum():,} groups came out more than once.")
        got = got[~got.index.duplicated()]
    doubled = got[got["versions"] != 1]
    if len(doubled):
        problems.append(
            f"{len(doubled):,} groups were written more than once, first {_spell(doubled.index[0])}."
        )
    missing, extra = wanted.index.difference(got.index), got.index.difference(wanted.index)
    if len(missing):
        problems.append(f"{len(missing):,} groups are missing, the first being {_spell(missing[0])}.")
    if len(extra):
        problems.append(f"{len(extra):,} groups should not be there, the first being {_spell(extra[0])}.")
    common = wanted.index.intersection(got.index)
    got, wanted = got.loc[common], wanted.loc[common]
    for column in ("airline", "departures", "cancellations"):
        wrong = got[column].to_numpy() != wanted[column].to_numpy()
        problems += _differences(column, wrong, got, wanted)
    ours, theirs = got["mean_delay"].to_numpy(float), wanted["mean_delay"].to_numpy(float)
    equal = np.isclose(ours, theirs, rtol=0, atol=DELAY_TOLERANCE, equal_nan=True)
    return problems + _differences("mean_delay", ~equal, got, wanted)


def _differences(column: str, wrong: np.ndarray, got: pd.DataFrame, wanted: pd.DataFrame) -> list[str]:
    if not wrong.any():
        return []
    first = int(np.flatnonzero(wrong)[0])
    return [
        f"{column} differs in {wrong.sum():,} groups, first in {_spell(got.index[first])}:"
        f" {got[column].iloc[first]} instead of {wanted[column].iloc[first]}."
    ]


def _spell(group: tuple[pd.Timestamp, str, str]) -> str:
    hour, origin, carrier = group
    return f"{carrier} from {origin} at {hour:%Y-%m-%d %H:%M} UTC"
