"""What Spark's progress becomes as metrics. The progress is as Spark 4 writes it."""

from __future__ import annotations

import json
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from odradek.spark.query_figures import (
    OPERATORS_MAX,
    QueryFigures,
    SessionFigures,
    advanced,
    query_families,
    records_read,
)
from odradek.telemetry.exposition import written

NEW = QueryFigures(name="totals")


def progress(**changes: Any) -> dict[str, Any]:
    state = {
        "operatorName": "stateStoreSave",
        "numRowsTotal": 7,
        "numRowsUpdated": 2,
        "memoryUsedBytes": 4_096,
    }
    source = {
        "endOffset": {"orders": {"0": 5, "1": 3}},
        "latestOffset": {"orders": {"0": 9, "1": 3}},
        "numInputRows": 40,
    }
    return {
        "batchId": 3,
        "numInputRows": 40,
        "inputRowsPerSecond": 20.5,
        "processedRowsPerSecond": 80.0,
        "durationMs": {"addBatch": 400, "triggerExecution": 500},
        "eventTime": {"watermark": "2026-01-01T00:00:01.500Z"},
        "stateOperators": [state],
        "sources": [source],
        "sink": {"numOutputRows": 4},
    } | changes


def samples(
    *queries: QueryFigures, now_ms: int = 60_000
) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = written(query_families(SessionFigures(queries=queries, failed_count=3), now_ms)).decode()
    return {
        (sample.name.removeprefix("odradek_spark_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_batch_is_added_to_those_before_it() -> None:
    figures = advanced(advanced(NEW, progress(), 10_000), progress(numInputRows=2), 50_000)
    shown = samples(figures)
    of_query = (("query", "totals"),)
    assert shown["query_batches_total", of_query] == 2
    assert shown["query_input_rows_total", of_query] == 42
    assert shown["query_output_rows_total", of_query] == 8
    assert shown["query_offsets_behind", of_query] == 4
    assert shown["query_watermark_timestamp_seconds", of_query] == 1_767_225_601.5
    assert shown["query_seconds_since_progress", of_query] == 10
    assert shown["query_phase_seconds", (("phase", "addBatch"), ("query", "totals"))] == 0.4
    state = (("operator", "0-stateStoreSave"), ("query", "totals"))
    assert shown["query_state_rows", state] == 7
    assert shown["query_state_bytes", state] == 4_096
    assert shown["queries", ()] == 1
    assert shown["queries_failed_total", ()] == 3


def test_what_is_not_known_has_no_sample() -> None:
    later = advanced(
        NEW,
        progress(
            eventTime={},
            sink={"numOutputRows": -1},
            sources=[{"endOffset": "RateStreamOffset", "latestOffset": None}],
            inputRowsPerSecond="NaN",
            stateOperators=[],
        ),
        1,
    )
    names = {name for name, _ in samples(later)}
    assert not names & {
        "query_output_rows_total",
        "query_offsets_behind",
        "query_watermark_timestamp_seconds",
        "query_state_rows",
    }
    assert samples(later)["query_input_rows_per_second", (("query", "totals"),)] == 0
    assert (
        advanced(NEW, progress(eventTime={"watermark": "1970-01-01T00:00:00.000Z"}), 1).watermark_ms is None
    )


def test_offsets_come_as_text_or_as_objects() -> None:
    source = {
        "endOffset": json.dumps({"orders": {"0": 5}}),
        "latestOffset": json.dumps({"orders": {"0": 8, "1": 10}}),
    }
    assert advanced(NEW, progress(sources=[source]), 1).offsets_behind == 3


def test_queries_of_one_name_and_names_of_any_kind_are_shown_apart() -> None:
    hostile = QueryFigures(name='a"b\\c\nd')
    shown = samples(NEW, NEW, hostile)
    names = {dict(texts)["query"] for name, texts in shown if name == "query_batches_total"}
    assert names == {"totals", "totals #2", 'a"b\\c\nd'}


def test_a_query_has_a_bounded_number_of_operators() -> None:
    state = {"operatorName": "x", "numRowsTotal": 1, "numRowsUpdated": 1, "memoryUsedBytes": 1}
    assert len(advanced(NEW, progress(stateOperators=[state] * 1_000), 1).state) == OPERATORS_MAX


def test_what_a_sink_gets_in_packs_is_not_counted_as_rows() -> None:
    wrote = progress(sink={"description": "odradek", "numOutputRows": 7})
    assert advanced(NEW, wrote, 1).output_rows_count == 7
    figures = advanced(advanced(QueryFigures(name="totals", packs_output=True), wrote, 1), wrote, 2)
    assert figures.output_rows_count is None
    assert "query_output_rows_total" not in {name for name, _ in samples(figures)}


def test_records_that_a_source_packs_are_counted_by_offsets() -> None:
    source = {"startOffset": {"orders": {"0": 100}}, "endOffset": {"orders": {"0": 500, "1": 3}}}
    few_rows = progress(numInputRows=4, sources=[source], inputRowsPerSecond=8.0, processedRowsPerSecond=16.0)
    figures = advanced(QueryFigures(name="totals", packs_records=True), few_rows, 10_000)
    assert figures.input_rows_count == 403
    assert figures.input_rows_per_s == 806.0
    assert figures.processed_rows_per_s == 1_612.0
    assert advanced(figures, few_rows, 20_000).input_rows_count == 806
    assert records_read(few_rows, packs_records=False) == 4
