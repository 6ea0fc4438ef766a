"""Records that an operator's code cannot handle: an error, a line in the log, or a dead letter (KIP-1033)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from odradek.dead_letters.headers import FailedConsumer, HeaderPairs, Origin, RecordFailure, letter_headers
from odradek.model.errors import OdradekError
from odradek.model.lazy import lazy
from odradek.streams.plan.operators import TopicSource
from odradek.streams.plan.program import Program
from odradek.streams.processors.ports import InputRow

if TYPE_CHECKING:
    from odradek.spark.dead_letters import letters as spark_letters
else:
    spark_letters = lazy("odradek.spark.dead_letters.letters")

log: Final = logging.getLogger("odradek.streams")
_HEADER: Final = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])


class RecordFailedError(OdradekError):
    """Code of the program's raised for a record. The message names operator, topic, partition and offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letters:
    """How failing records are handled. `topic`: their dead letters go there; None: they are left out, and logged.
    `is_quiet`: another query of the program does that.
    """

    topic: str | None
    is_quiet: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRules:
    """How failing records are handled in one query of a program. `elsewhere`: operators whose letters another one writes."""

    program: Program
    elsewhere: frozenset[str] = frozenset()

    def of(self, operator: str) -> Letters | None:
        """Of an operator that cannot handle a record."""
        if self.program.on_error == "fail":
            return None
        topic = self.program.bad if self.program.on_error == "dead-letter" else None
        return Letters(topic=topic, is_quiet=operator in self.elsewhere)

    def of_source(self, source: TopicSource) -> Letters | None:
        """Of bytes that cannot be decoded."""
        if source.bad is not None:
            return Letters(topic=source.bad, is_quiet=source.name in self.elsewhere)
        return self.of(source.name)


@dataclass(slots=True, kw_only=True)
class FailedRows:
    """Of one operator, batch and task. `letters` None: the first one ends the query. `origins`: the records as they were read,
    by source, partition and offset. `topics`: by number of the source.
    """

    operator: str
    letters: Letters | None
    topics: Mapping[int, str]
    origins: dict[tuple[int, ...], Any] = field(default_factory=dict)
    packed: list[bytes] = field(default_factory=list)
    """Dead letters, each in Arrow's stream format."""

    def add(self, row: InputRow, error: Exception) -> None:
        """RecordFailedError where failures end the query."""
        source, partition, offset = row.order[1:4]
        place = f"{self.topics.get(source, f'source {source}')}-{partition} offset {offset}"
        text = f"{self.operator} failed at {place}: {type(error).__name__}: {error}"
        if self.letters is None:
            raise RecordFailedError(text) from error
        if self.letters.is_quiet:
            return
        if self.letters.topic is None:
            log.warning("left out: %s", text)
            return
        origin = self.origins.get((source, partition, offset))
        self.packed.append(packed_letter(origin, RecordFailure.of(error, self.operator)))


def packed_letter(origin: Any, failure: RecordFailure) -> bytes:
    """The dead letter of a record. `origin` has the fields of `letters.ORIGIN_TYPE`."""
    place = spark_letters.batch_place()
    headers = letter_headers(
        [(header["key"], header["value"]) for header in origin["headers"] or ()],
        Origin(
            topic=origin["topic"],
            partition=origin["partition"],
            offset=origin["offset"],
            timestamp_ms=origin["timestamp"],
        ),
        failure,
        FailedConsumer(query=place.query, batch=place.batch),
    )
    return packed_records([(origin["key"], origin["value"], headers)])


def packed_records(records: Iterable[tuple[bytes | None, bytes | None, HeaderPairs]]) -> bytes:
    """Key, value and headers of records, as the sink takes them out of a row that passes."""
    keys, values, headers = zip(*records, strict=True)
    rows = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([None if key is None else bytes(key) for key in keys], pa.binary()),
            "value": pa.array([None if value is None else bytes(value) for value in values], pa.binary()),
            "headers": pa.array(
                [[{"key": name, "value": value} for name, value in pairs] for pairs in headers],
                pa.list_(_HEADER),
            ),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked_records(data: bytes) -> list[dict[str, Any]]:
    """As dicts: key, value, headers."""
    with pa.ipc.open_stream(data) as stream:
        rows: list[dict[str, Any]] = stream.read_all().to_pylist()
    return rows
