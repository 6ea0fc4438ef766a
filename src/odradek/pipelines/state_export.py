"""State in a file: JSON lines, or Parquet. Row by row, whatever their number."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Protocol

from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.pipelines.carrying import OperatorState
from odradek.pipelines.state_reading import StateRow

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa = lazy("pyarrow")
    pq = lazy("pyarrow.parquet")

PARQUET: Final = ".parquet"
JSON_LINES: Final = (".jsonl", ".ndjson", ".json")
_ROWS_AT_ONCE: Final = 10_000


class StateFile(Protocol):
    """Rows of states, one after the other."""

    def write(self, state: OperatorState, rows: Iterable[StateRow]) -> int:
        """Gives how many there were."""


def row_of(state: OperatorState, row: StateRow) -> dict[str, object]:
    """Returns a row as JSON."""
    return {
        "output": state.output,
        "operator": state.operator,
        "task": row.task,
        "part": row.part,
        "key": row.key,
        "value": row.value,
    }


class JsonLines:
    """Writes rows of state as JSON, one object on each line."""

    def __init__(self, lines: IO[str]) -> None:
        self._lines = lines

    def write(self, state: OperatorState, rows: Iterable[StateRow]) -> int:
        count = 0
        for row in rows:
            self._lines.write(json.dumps(row_of(state, row), ensure_ascii=False) + "\n")
            count += 1
        return count


class ParquetRows:
    """Writes rows of state as Parquet, in the columns of the JSON lines. `key` and `value` are JSON as text, since an
    operator's rows need not look alike."""

    def __init__(self, file: IO[bytes]) -> None:
        texts = [(name, pa.string()) for name in ("output", "operator", "part", "key", "value")]
        self._schema = pa.schema([*texts[:2], ("task", pa.int32()), *texts[2:]])
        self._writer = pq.ParquetWriter(file, self._schema)

    def write(self, state: OperatorState, rows: Iterable[StateRow]) -> int:
        count, left = 0, iter(rows)
        while some := list(islice(left, _ROWS_AT_ONCE)):
            content = [row_of(state, row) for row in some]
            for row in content:
                row["key"], row["value"] = _json(row["key"]), _json(row["value"])
            self._writer.write_batch(pa.RecordBatch.from_pylist(content, schema=self._schema))
            count += len(some)
        return count

    def close(self) -> None:
        self._writer.close()


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


@contextmanager
def state_file(path: Path) -> Iterator[StateFile]:
    """A new file, whose ending selects its format. ConfigError for another ending, or when the file exists."""
    if path.suffix not in (PARQUET, *JSON_LINES):
        raise ConfigError(f"{path}: the name ends in {PARQUET}, or in {JSON_LINES[0]} for JSON lines")
    if path.exists():
        raise ConfigError(f"{path} is there already: it is not written over")
    if path.suffix != PARQUET:
        with path.open("w", encoding="utf-8") as lines:
            yield JsonLines(lines)
        return
    with path.open("wb") as file:
        rows = ParquetRows(file)
        try:
            yield rows
        finally:
            rows.close()
