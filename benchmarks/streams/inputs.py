"""What the programs read, round by round, and what must be in their output then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

_BASE_MS: Final = 1_700_000_000_000 // 60_000 * 60_000
_WORDS_PER_LINE: Final = 5
VOCABULARY: Final = 10_000
USERS: Final = 10_000
VISITORS: Final = 2_000
_WINDOWS_PER_ROUND: Final = 5
_WINDOW_MS: Final = 60_000
_SETTLE_S: Final = 8.0


@dataclass(slots=True, kw_only=True)
class Expectation:
    """What must be read in the end: the last value of each key, and how many records if that is fixed."""

    table: dict[bytes, bytes] = field(default_factory=dict)
    record_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundInput:
    """Rows for each input topic, by its place, in order; what is expected after them, of the round's own keys."""

    rows: tuple[tuple[int, pa.RecordBatch], ...]
    expected: Expectation
    settle_s: float = 0.0
    """How long to wait behind it: nothing tells that a table has been read."""

    @property
    def record_count(self) -> int:
        return sum(batch.num_rows for _, batch in self.rows)


def _rows(keys: list[str], values: list[str], times_ms: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array(keys, pa.string()).cast(pa.binary()),
            "value": pa.array(values, pa.string()).cast(pa.binary()),
            "timestamp": pa.array(times_ms, pa.int64()),
        }
    )


def _times(number: int, count: int) -> Any:
    """Evenly over the windows of a round."""
    length_ms = _WINDOWS_PER_ROUND * _WINDOW_MS
    return _BASE_MS + number * length_ms + np.arange(count) * length_ms // count


def _encoded(table: Mapping[str, object]) -> dict[bytes, bytes]:
    return {key.encode(): str(value).encode() for key, value in table.items()}


def _words(count: int) -> Iterator[RoundInput]:
    """Lines of five words; some words are far more frequent than others."""
    weights = 1 / (np.arange(VOCABULARY) + 10)
    words = np.array([f"word{number}" for number in range(VOCABULARY)])
    totals = np.zeros(VOCABULARY, np.int64)
    for number in range(1_000):
        draw = np.random.default_rng(number)
        chosen = draw.choice(VOCABULARY, (count, _WORDS_PER_LINE), p=weights / weights.sum())
        totals += np.bincount(chosen.ravel(), minlength=VOCABULARY)
        lines = [" ".join(line) for line in words[chosen].tolist()]
        keys = [f"line{place}" for place in range(count)]
        table = {
            word: total for word, total in zip(words.tolist(), totals.tolist(), strict=True) if total > 0
        }
        yield RoundInput(
            rows=((0, _rows(keys, lines, _times(number, count))),),
            expected=Expectation(table=_encoded(table)),
        )


def _filter_map(count: int) -> Iterator[RoundInput]:
    """Each tenth record is left out."""
    for number in range(1_000):
        keys = [f"key{place % USERS}" for place in range(count)]
        values = [
            f"{'no' if place % 10 == 0 else 'yes'}, record {place} of {number}" for place in range(count)
        ]
        kept = {
            key: value.upper() for key, value in zip(keys, values, strict=True) if not value.startswith("no")
        }
        yield RoundInput(
            rows=((0, _rows(keys, values, _times(number, count))),),
            expected=Expectation(table=_encoded(kept), record_count=count - (count + 9) // 10),
        )


def _windows(count: int) -> Iterator[RoundInput]:
    """Visits of two thousand visitors; each round has five new windows."""
    for number in range(1_000):
        visitors = np.random.default_rng(number).integers(0, VISITORS, count)
        times = _times(number, count)
        starts = times // _WINDOW_MS * _WINDOW_MS
        pairs, totals = np.unique(visitors * (1 << 45) + starts, return_counts=True)
        table = {
            f"visitor{pair >> 45}@{pair & ((1 << 45) - 1)}": total
            for pair, total in zip(pairs.tolist(), totals.tolist(), strict=True)
        }
        keys = [f"visitor{visitor}" for visitor in visitors.tolist()]
        yield RoundInput(
            rows=((0, _rows(keys, ["a page of the site"] * count, times)),),
            expected=Expectation(table=_encoded(table)),
        )


def _stream_table(count: int) -> Iterator[RoundInput]:
    """Ten thousand users first; then items of theirs."""
    users = [f"user{number}" for number in range(USERS)]
    names = _rows(users, [f"name of {user}" for user in users], np.full(USERS, _BASE_MS))
    yield RoundInput(rows=((1, names),), expected=Expectation(), settle_s=_SETTLE_S)
    for number in range(1_000):
        keys = [users[buyer] for buyer in np.random.default_rng(number).integers(0, USERS, count)]
        values = [f"item{number}-{place}" for place in range(count)]
        joined = {key: f"{value}:name of {key}" for key, value in zip(keys, values, strict=True)}
        yield RoundInput(
            rows=((0, _rows(keys, values, _times(number + 1, count))),),
            expected=Expectation(table=_encoded(joined), record_count=count),
        )


def _table_table(count: int) -> Iterator[RoundInput]:
    """Two tables of ten thousand users; both change all the time."""
    users = [f"user{number}" for number in range(USERS)]
    sides: tuple[dict[str, str], dict[str, str]] = ({}, {})
    half = count // 2
    for number in range(1_000):
        rows = []
        for place, side in enumerate(sides):
            draw = np.random.default_rng(2 * number + place)
            keys = [users[user] for user in draw.integers(0, USERS, half).tolist()]
            values = [f"{'lr'[place]}{number}-{row}" for row in range(half)]
            side.update(zip(keys, values, strict=True))
            rows.append((place, _rows(keys, values, _times(number, half))))
        joined = {
            user: f"{sides[0][user]}|{sides[1][user]}"
            for user in users
            if user in sides[0] and user in sides[1]
        }
        yield RoundInput(rows=tuple(rows), expected=Expectation(table=_encoded(joined)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A program that both sides have. `rounds(n)` makes inputs of about n records each; the first ones warm up."""

    title: str
    inputs: int
    rounds: Callable[[int], Iterator[RoundInput]]
    program: str | None = None
    """What the sides call it; None: as the case."""
    scale: int = 1
    """How many times the records of a round: so many that the interval of commits does not decide."""


LATENCY: Final = "stateless"
CASES: Final[dict[str, Case]] = {
    "filter-map": Case(
        title="filter and map: a native operator", inputs=1, rounds=_filter_map, program=LATENCY, scale=5
    ),
    "words": Case(title="word count: lines of 5 words, 10,000 words", inputs=1, rounds=_words),
    "windows": Case(title="windowed count: 2,000 keys, 5 windows of a minute", inputs=1, rounds=_windows),
    "stream-table": Case(title="stream-table join: 10,000 keys", inputs=2, rounds=_stream_table),
    "table-table": Case(title="table-table join: 10,000 keys", inputs=2, rounds=_table_table),
}
