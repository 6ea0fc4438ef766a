"""Runs the statements of a case: each query is a program of its own, which reads the bytes that the ones before wrote."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from tests.sql.case_files import Case, CaseRecord

from odradek.sql.applying import apply
from odradek.sql.changes import QueryStarted
from odradek.sql.functions.registering import register
from odradek.sql.language import parse
from odradek.sql.language.rewriting import with_default_formats
from odradek.sql.language.statements import SetProperty
from odradek.sql.metastore.catalog import SqlCatalog, SqlSource
from odradek.sql.metastore.query_ids import check_query_id
from odradek.sql.planning import Plan
from odradek.sql.planning.building import source_formats
from odradek.streams import Streams
from odradek.values.formats import RecordFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecord:
    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes], ...] = ()


def planned(case: Case) -> tuple[SqlCatalog, list[Plan]]:
    """SqlError for a statement that is refused."""
    catalog, plans = SqlCatalog(allows_python=True), []
    settings: dict[str, str] = {}
    for number, statement in enumerate(parse(case.statements)):
        if isinstance(statement, SetProperty):
            settings[statement.name] = statement.value
            continue
        check_query_id(statement)
        applied = apply(catalog, with_default_formats(statement, settings), number)
        catalog = applied.catalog
        plans += [change.plan for change in applied.changes if isinstance(change, QueryStarted)]
    return catalog, plans


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseBytes:
    """A case as bytes. `topics`: those that are compared, in the order of the queries that write them."""

    records: list[RawRecord]
    wanted: list[RawRecord]
    topics: list[str]

    @classmethod
    def of(cls, case: Case, catalog: SqlCatalog, plans: Iterable[Plan]) -> Self:
        sources = {source.topic: source for source in catalog.sources.values()}
        written = list(dict.fromkeys(plan.topic for plan in plans if plan.topic is not None))
        named = {record.topic for record in case.written}
        return cls(
            records=[
                _raw(record, sources[record.topic], timestamp=record.timestamp or 0)
                for record in case.records
            ],
            wanted=[
                _raw(record, sources[record.topic], timestamp=record.timestamp) for record in case.written
            ],
            topics=[topic for topic in written if topic in named or not named],
        )

    def compared(self, written: Iterable[RawRecord]) -> list[RawRecord]:
        """What was written to the topics that count, without the timestamps that the case does not say."""
        counted = [record for record in written if record.topic in self.topics]
        shown = [
            replace(record, timestamp=-1) if expected.timestamp == -1 else record
            for expected, record in zip(self.wanted, counted, strict=False)
        ]
        return [*shown, *counted[len(shown) :]]


def run(case: Case, spark: SparkSession) -> tuple[list[RawRecord], list[RawRecord]]:
    """What should be written, and what was: records of the topics of the queries."""
    catalog, plans = planned(case)
    register(spark, catalog.registered_functions)
    as_bytes = CaseBytes.of(case, catalog, plans)
    written: list[RawRecord] = []
    records = as_bytes.records
    for plan in plans:
        made = _run_plan(plan, records, spark)
        written += made
        records = _with_written(records, made)
    return as_bytes.wanted, as_bytes.compared(written)


def _with_written(records: Sequence[RawRecord], written: Sequence[RawRecord]) -> list[RawRecord]:
    """What a query wrote keeps its order, and stands behind the first record of its time; else at the end."""
    merged, start = list(records), 0
    for record in written:
        times = [earlier.timestamp for earlier in merged]
        if record.timestamp in times[start:]:
            start = times.index(record.timestamp, start) + 1
        elif record.timestamp not in times:
            start = len(merged)
        merged.insert(start, record)
        start += 1
    return merged


def _run_plan(plan: Plan, records: Iterable[RawRecord], spark: SparkSession) -> list[RawRecord]:
    app = Streams("case", emit="every", on_error="skip", spark=spark)
    plan.build(app)
    topics = {source.topic for source in plan.sources}
    key_format, value_format = plan.sink_formats()
    assert plan.topic is not None
    with app.test() as test:
        for record in records:
            if record.topic in topics:
                row = {"key": record.key, "value": record.value, "timestamp": record.timestamp}
                test.feed(record.topic, [{**row, "headers": record.headers}])
        return [
            RawRecord(
                topic=plan.topic,
                key=_bytes(key_format, record.key),
                value=_bytes(value_format, record.value),
                timestamp=record.timestamp,
            )
            for record in test.read(plan.topic)
        ]


def _bytes(form: RecordFormat, values: Any) -> bytes | None:
    if values is None:
        return None
    if not isinstance(values, dict):  # the driver shows a key of one column as its value
        values = {form.columns[0].column if form.columns else "nothing": values}
    return form.encode(values)


def _raw(record: CaseRecord, source: SqlSource, *, timestamp: int | None) -> RawRecord:
    return RawRecord(
        topic=record.topic,
        key=_key(record, source),
        value=None if record.value is None else record.value.encode(),
        timestamp=-1 if timestamp is None else timestamp,
        headers=record.headers,
    )


def _key(record: CaseRecord, source: SqlSource) -> bytes | None:
    if record.key is None:
        return None
    data = record.key.encode()
    form, _ = source_formats(source)
    kinds = [column.type.kind for column in form.columns]
    if form.name == "KAFKA" and kinds in (["INTEGER"], ["BIGINT"], ["DOUBLE"]):
        number = float(record.key) if kinds == ["DOUBLE"] else int(record.key)
        values = {form.columns[0].column: number}
        if record.window is not None:
            values |= {"window_start": record.window[0], "window_end": record.window[1]}
        return form.encode(values)
    if record.window is None:
        return data
    start, end = (bound.to_bytes(8, "big") for bound in record.window)
    is_session = source.window is not None and source.window.kind == "session"
    return data + (end + start if is_session else start)
