"""What a run's programs get to know, and where they keep how far they are: as Spark does it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

QUERY = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A query from `source` into `target`, with an exactly-once sink."""

    servers: str
    source: str
    target: str
    partitions: int
    sink_id: str
    checkpoint: str
    workers: int
    records_per_batch: int
    planted: str = ""
    """A mistake of `planted.py`."""

    def as_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(**json.loads(text))


class Checkpoint:
    """`offsets/N` is written before batch N runs, `commits/N` after it. Each file is there whole, or not at all."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        for name in ("offsets", "commits"):
            (self._directory / name).mkdir(parents=True, exist_ok=True)

    def next_batch(self) -> tuple[int, dict[int, int], dict[int, int] | None]:
        """Its number, where it begins, and where it ends if that was decided before."""
        number = self._last("commits") + 1
        before = self._read(number - 1) if number else {}
        return number, before, self._read(number) if self._last("offsets") == number else None

    def plan(self, number: int, ends: dict[int, int]) -> None:
        self._write("offsets", number, json.dumps(ends))

    def commit(self, number: int) -> None:
        self._write("commits", number, "")

    def _last(self, name: str) -> int:
        numbers = [int(named.name) for named in (self._directory / name).iterdir() if named.name.isdigit()]
        return max(numbers, default=-1)

    def _read(self, number: int) -> dict[int, int]:
        ends = json.loads((self._directory / "offsets" / str(number)).read_text())
        return {int(partition): end for partition, end in ends.items()}

    def _write(self, name: str, number: int, text: str) -> None:
        temporary = self._directory / f".{name}-{number}"
        temporary.write_text(text)
        os.replace(temporary, self._directory / name / str(number))
