"""Records that go from their topic to an operator with state, and nothing is computed of them on the way: the source packs them
for the operator's tasks itself (`odradek.spark.reading.task_rows`), and the JVM makes no row of each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import LongType

from odradek.spark.reading import key_hashes
from odradek.spark.reading import schema as read_schema
from odradek.spark.reading.task_rows import TaskRows
from odradek.streams.plan.schemas import DeclaredSchema
from odradek.streams.translation.formats import is_decoded_by_source
from odradek.streams.translation.frames import PlainRecords

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from odradek.streams.plan.operators import TopicSource
    from odradek.streams.translation.frames import RecordFrame

_COLUMNS: Final = ("key", "value", "partition", "offset", "headers")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_NAMES: Final = frozenset({"true", "false", "null"})
"""Words of SQL that look like a column, and are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainInput:
    """An input of plain records: what its rows are for the tasks. The fields are the same as in `TaskRows`."""

    of: PlainRecords
    arguments: tuple[tuple[str, str | None], ...] | None = None
    has_key_beside: bool = False

    def packed(
        self, *, rows: pa.Schema, tasks: tuple[int, ...], port: int, turn: tuple[int, ...]
    ) -> DataFrame:
        """Returns the rows of the tasks, packed. `turn` ends the order of each."""
        records = self.of
        task_rows = TaskRows(
            records=records.records,
            rows=rows,
            tasks=tasks,
            source=records.source,
            port=port,
            key=records.key,
            value=records.value,
            arguments=self.arguments,
            has_key_beside=self.has_key_beside,
            needs_key=records.needs_key,
            needs_value=records.needs_value,
            skips_negative_times=records.skips_negative_times,
            hops=records.hops,
            steps=(*records.steps, *turn),
        )
        return records.load({"taskRows": task_rows.to_text()})


def plain_input(frame: RecordFrame) -> PlainInput | None:
    """Returns the input of an operator whose payload is the value."""
    return None if frame.plain is None else PlainInput(of=frame.plain)


def plain_records(
    source: TopicSource, number: int, schema: StructType, load: Callable[[Mapping[str, str]], DataFrame]
) -> PlainRecords | None:
    """Returns the records of a topic; None where Spark decodes them, or keys have types whose hashes only Spark knows. `schema`
    is the schema of its DataFrame."""
    if source.everywhere or source.timestamp is not None or source.versioned_ms is not None:
        return None
    if not (is_decoded_by_source(source.key) and is_decoded_by_source(source.value)):
        return None
    read = type(schema)([schema[name] for name in _COLUMNS]).add("timestampMs", LongType())
    records = read_schema.arrow_schema(read)
    key = _bare(source.key)
    kinds = (
        [records.field("key").type]
        if key is not None
        else [field.type for field in records.field("key").type]
    )
    if not all(map(key_hashes.is_hashed, kinds)):
        return None
    return PlainRecords(
        load=load,
        records=records,
        source=number,
        key=key,
        value=_bare(source.value),
        skips_negative_times=source.skips_negative_times,
    )


def _bare(schema: DeclaredSchema) -> str | None:
    return schema.names[0] if schema.bare else None


def plain_arguments(
    expressions: Mapping[str, str], fields: tuple[str, ...]
) -> tuple[tuple[str, str | None], ...] | None:
    """Returns the arguments of aggregates by their names: each a field of the value, or None for true. None where one of them
    is computed."""
    arguments: list[tuple[str, str | None]] = []
    for name, text in expressions.items():
        is_field = _NAME.fullmatch(text) is not None and text.lower() not in _NO_NAMES and text in fields
        if not is_field and text != "true":
            return None
        arguments.append((name, text if is_field else None))
    return tuple(arguments)
