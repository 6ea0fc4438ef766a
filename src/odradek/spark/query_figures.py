"""What is known of streaming queries, and its families. Pure: Spark's progress comes as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from odradek.model.errors import ConfigError
from odradek.spark.reading.offsets import from_document
from odradek.telemetry.metrics import Family, counter, gauge, labels

QUERIES_MAX: Final = 500
OPERATORS_MAX: Final = 20
"""The most operators with state of one query that have series of their own."""
_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFigures:
    """The state of one operator of a query."""

    operator: str
    rows_count: int
    updated_rows_count: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFigures:
    """What is known of one query: sums since it started, and its last batch."""

    name: str
    packs_records: bool = False
    """Its sources pack many records in a row of Spark's: records are counted by offsets."""
    packs_output: bool = False
    """Its sink gets many records in a row of Spark's, which counts rows: what was written is not known here."""
    batch_id: int = -1
    """The last batch's number."""
    batch_count: int = 0
    input_rows_count: int = 0
    output_rows_count: int | None = None
    """None while the sink does not report it, and where it gets packed rows."""
    input_rows_per_s: float = 0.0
    processed_rows_per_s: float = 0.0
    phases_ms: Mapping[str, int] = field(default_factory=dict)
    """The last batch's milliseconds by phase, as Spark names them; `triggerExecution` is all of it."""
    state: tuple[StateFigures, ...] = ()
    watermark_ms: int | None = None
    offsets_behind: int | None = None
    """Offsets that were there and not read when the batch was planned; None where a source does not report them."""
    progressed_at_ms: int = 0
    """The wall time of the last report; 0 before the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFigures:
    """What is known of a session's queries at one moment."""

    queries: tuple[QueryFigures, ...] = ()
    failed_count: int = 0
    """Queries that ended with an error."""
    left_out_count: int = 0
    """Queries that started while `QUERIES_MAX` ran."""


def advanced(before: QueryFigures, progress: Mapping[str, Any], now_ms: int) -> QueryFigures:
    """Returns the figures after a batch; `progress`: Spark's StreamingQueryProgress as JSON."""
    written = (progress.get("sink") or {}).get("numOutputRows", -1)
    output_rows_count = before.output_rows_count
    if written is not None and written >= 0 and not before.packs_output:
        output_rows_count = (output_rows_count or 0) + written
    rows_count = records_read(progress, packs_records=before.packs_records)
    records_per_row = rows_count / (progress["numInputRows"] or 1) if before.packs_records else 1
    return QueryFigures(
        name=before.name,
        packs_records=before.packs_records,
        packs_output=before.packs_output,
        batch_id=progress["batchId"],
        batch_count=before.batch_count + 1,
        input_rows_count=before.input_rows_count + rows_count,
        output_rows_count=output_rows_count,
        input_rows_per_s=records_per_row * _finite(progress.get("inputRowsPerSecond")),
        processed_rows_per_s=records_per_row * _finite(progress.get("processedRowsPerSecond")),
        phases_ms=dict(progress.get("durationMs") or {}),
        state=tuple(
            StateFigures(
                operator=f"{number}-{operator.get('operatorName', '')}",
                rows_count=operator["numRowsTotal"],
                updated_rows_count=operator["numRowsUpdated"],
                memory_bytes=operator["memoryUsedBytes"],
            )
            for number, operator in enumerate((progress.get("stateOperators") or ())[:OPERATORS_MAX])
        ),
        watermark_ms=_watermark_ms((progress.get("eventTime") or {}).get("watermark")),
        offsets_behind=_offsets_behind(progress.get("sources") or ()),
        progressed_at_ms=now_ms,
    )


def records_read(progress: Mapping[str, Any], *, packs_records: bool) -> int:
    """Returns the count of records that a batch has read: Spark's rows, or, where a row packs many, the offsets it passed.

    A batch without a start offset is the first one of its query; it counts as rows.
    """
    rows_count: int = progress["numInputRows"]
    if not packs_records:
        return rows_count
    passed = 0
    for source in progress.get("sources") or ():
        try:
            start, end = (
                from_document(_document(source.get(key))).next_offsets for key in ("startOffset", "endOffset")
            )
        except (ConfigError, ValueError, TypeError, AttributeError):
            return rows_count
        passed += sum(max(offset - start.get(tp, 0), 0) for tp, offset in end.items())
    return max(passed, rows_count)


def _finite(value: object) -> float:
    """Returns a rate. Spark writes NaN and infinities as text, or leaves them out, when a batch took no time."""
    return float(value) if isinstance(value, int | float) and abs(value) < float("inf") else 0.0


def _watermark_ms(text: str | None) -> int | None:
    """Returns a watermark; None before the first one, which Spark writes as 1970."""
    if text is None:
        return None
    ms = round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * _MS)
    return ms or None


def _offsets_behind(sources: Iterable[Mapping[str, object]]) -> int | None:
    """Returns the offsets between what was read and what was there; None if a source is none of ours, or does not report it."""
    behind = 0
    for source in sources:
        try:
            end, latest = (
                from_document(_document(source.get(key))).next_offsets
                for key in ("endOffset", "latestOffset")
            )
        except (ConfigError, ValueError, TypeError, AttributeError):
            return None
        behind += sum(max(offset - end.get(tp, offset), 0) for tp, offset in latest.items())
    return behind


def _document(offset: object) -> Any:
    return json.loads(offset) if isinstance(offset, str) else offset


def query_families(figures: SessionFigures, now_ms: int) -> list[Family]:
    """Returns the families of a session's queries. `now_ms`: milliseconds since 1970."""
    running = gauge("odradek_spark_queries", "Streaming queries that run.")
    running.add(len(figures.queries))
    failed = counter("odradek_spark_queries_failed", "Streaming queries that ended with an error.")
    failed.add(figures.failed_count)
    left_out = counter("odradek_spark_queries_left_out", "Queries that are not shown: too many ran.")
    left_out.add(figures.left_out_count)
    batches = counter("odradek_spark_query_batches", "Batches that ended since the query started.")
    rows_in = counter("odradek_spark_query_input_rows", "Rows that were read since the query started.")
    rows_out = counter("odradek_spark_query_output_rows", "Rows that were written since the query started.")
    arriving = gauge("odradek_spark_query_input_rows_per_second", "Rows that arrived, per second.")
    processed = gauge(
        "odradek_spark_query_processed_rows_per_second", "Rows that were processed, per second."
    )
    phases = gauge("odradek_spark_query_phase_seconds", "Duration of the last batch, by phase.")
    state_rows = gauge("odradek_spark_query_state_rows", "Rows of an operator's state.")
    state_bytes = gauge("odradek_spark_query_state_bytes", "Memory that an operator's state takes.")
    updated = gauge("odradek_spark_query_state_updated_rows", "Rows of state that the last batch changed.")
    watermark = gauge("odradek_spark_query_watermark_timestamp_seconds", "The watermark, as Unix time.")
    behind = gauge("odradek_spark_query_offsets_behind", "Offsets to read when the last batch was planned.")
    quiet = gauge("odradek_spark_query_seconds_since_progress", "Time since the query's last report.")
    named: dict[str, int] = {}
    for query in figures.queries:
        named[query.name] = count = named.get(query.name, 0) + 1
        name = query.name if count == 1 else f"{query.name} #{count}"
        text = labels(query=name)
        batches.add(query.batch_count, text)
        rows_in.add(query.input_rows_count, text)
        if query.output_rows_count is not None:
            rows_out.add(query.output_rows_count, text)
        arriving.add(query.input_rows_per_s, text)
        processed.add(query.processed_rows_per_s, text)
        for phase, duration_ms in query.phases_ms.items():
            phases.add(duration_ms / _MS, labels(query=name, phase=phase))
        for state in query.state:
            of_state = labels(query=name, operator=state.operator)
            state_rows.add(state.rows_count, of_state)
            state_bytes.add(state.memory_bytes, of_state)
            updated.add(state.updated_rows_count, of_state)
        if query.watermark_ms is not None:
            watermark.add(query.watermark_ms / _MS, text)
        if query.offsets_behind is not None:
            behind.add(query.offsets_behind, text)
        if query.progressed_at_ms:
            quiet.add(max(now_ms - query.progressed_at_ms, 0) / _MS, text)
    totals = [running, failed, left_out, batches, rows_in, rows_out, arriving, processed]
    return [*totals, behind, watermark, quiet, phases, state_rows, state_bytes, updated]
