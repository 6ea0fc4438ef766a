"""Reads the state of a streams program's operators from their changelog topics: the last value of each key.

A changelog may hold a key many times. The last one of each is found with a table on disk, so a million keys need no more
memory than ten.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from odradek import client
from odradek.client import Admin, Consumer
from odradek.model.aliases import ClientSettings
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import TopicPartition
from odradek.pipelines.carrying import OperatorState, state_topics
from odradek.pipelines.outline import ProgramKind
from odradek.pipelines.state_values import name_in, value_in
from odradek.pipelines.status import PipelineStatus
from odradek.runtime.ports import Clock

_READ_COMMITTED: Final = 1
_POLL_S: Final = 0.5
_SILENCE_S: Final = 15.0
_CACHE_KIB: Final = 32_768

ChangelogRow = tuple[int, bytes, bytes | None]
"""Task, name, and data; None: it was deleted."""


class NoSuchState(OdradekError):
    """The error for a state that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """One row of an operator's state."""

    task: int
    part: str
    """An operator may keep several maps: its own names of them."""
    key: object
    value: object


def chosen_states(
    name: str, status: PipelineStatus | None, operator: str | None, output: str | None
) -> list[OperatorState]:
    """Returns the states of a pipeline that ran: all, or an operator's, or an output's. NoSuchState when there is
    none."""
    outline = None if status is None else status.outline
    if outline is None:
        raise NoSuchState(f"pipeline {name} has not reported its state yet: start it once")
    if outline.kind is not ProgramKind.STREAMS:
        raise NoSuchState(
            f"pipeline {name} is plain PySpark: its state is in the checkpoint only. Spark reads it:"
            ' spark.read.format("statestore").load(CHECKPOINT)'
        )
    every = state_topics(outline)
    chosen = [
        state for state in every if operator in (None, state.operator) and output in (None, state.output)
    ]
    if not chosen:
        known = ", ".join(f"{state.operator} (output {state.output})" for state in every)
        what = f"no operator {operator!r} with state" if operator else "no operator with state"
        raise NoSuchState(
            f"pipeline {name} has {what}: {f'there is {known}' if known else 'it keeps nothing'}"
        )
    return chosen


@contextmanager
def committed_rows(
    admin: Admin, servers: str, topic: str, clock: Clock, **settings: object
) -> Iterator[Iterator[StateRow]]:
    """A context with the rows of a changelog as they are committed now, in the order of their names.

    NoSuchState when there is no such topic. `settings` are for the consumer.
    """
    ends = _ends(admin, topic)
    with (
        tempfile.TemporaryDirectory(prefix="odradek-state-") as directory,
        closing(LastRows(Path(directory) / "rows")) as last,
    ):
        last.put(_records(topic, ends, servers, clock, settings))
        yield last.rows()


class LastRows:
    """The last data of each name, in a file."""

    def __init__(self, file: Path) -> None:
        self._table = sqlite3.connect(file, isolation_level=None)
        for setting in (
            "journal_mode=OFF",
            "synchronous=OFF",
            f"cache_size=-{_CACHE_KIB}",
            "temp_store=FILE",
        ):
            self._table.execute(f"PRAGMA {setting}")
        self._table.execute(
            "CREATE TABLE state (name BLOB, task INTEGER, data BLOB, PRIMARY KEY (name, task)) WITHOUT ROWID"
        )

    def close(self) -> None:
        """Closes the table. Idempotent."""
        self._table.close()

    def put(self, rows: Iterable[ChangelogRow]) -> None:
        """Stores rows, which must be in the order of the changelog."""
        self._table.execute("BEGIN")
        self._table.executemany("INSERT OR REPLACE INTO state (task, name, data) VALUES (?, ?, ?)", rows)
        self._table.execute("COMMIT")

    def rows(self) -> Iterator[StateRow]:
        """Yields the rows, ordered by name, without those that a task keeps about itself."""
        stored = self._table.execute(
            "SELECT name, task, data FROM state WHERE data IS NOT NULL ORDER BY name, task"
        )
        for name, task, data in stored:
            entry = name_in(name)
            if entry is not None:
                yield StateRow(task=task, part=entry.part, key=entry.key, value=value_in(data))


def _ends(admin: Admin, topic: str) -> dict[TopicPartition, int]:
    try:
        partitions = admin.describe_topics([topic])[topic].topic_partitions
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise NoSuchState(
            f"there is no topic {topic}: the state is in the checkpoint only (delivery exactly_once writes changelogs)"
        ) from None
    ends = admin.list_offsets(dict.fromkeys(partitions, client.LATEST), isolation=_READ_COMMITTED)
    return {tp: end.offset for tp, end in ends.items()}


def _records(
    topic: str, ends: dict[TopicPartition, int], servers: str, clock: Clock, settings: ClientSettings
) -> Iterator[ChangelogRow]:
    with Consumer(
        servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        allow_auto_create_topics=False,
        enable_auto_commit=False,
        **settings,
    ) as consumer:
        consumer.assign(list(ends))
        consumer.seek_to_beginning()
        heard_at = clock.monotonic()
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            records = consumer.poll(_POLL_S)
            for record in records:
                if record.offset < ends[TopicPartition(topic, record.partition)]:
                    yield record.partition, record.key or b"", record.value
            if records:
                heard_at = clock.monotonic()
            elif clock.monotonic() - heard_at > _SILENCE_S:
                raise client.TimedOutError(
                    f"reading {topic}: its last records did not come within {_SILENCE_S:g} s"
                )
