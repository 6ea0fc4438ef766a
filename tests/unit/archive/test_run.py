"""Where a run begins, how much a batch takes, and how an error inside of Spark is reported."""

from __future__ import annotations

import json

import pytest

from odradek.archive.checks.topic_side import LogExtent
from odradek.archive.row_columns import Derived, RowColumns, ValueFormat, row_columns
from odradek.archive.run import BatchSizes, RunTerms, portions, reason_in, sink_options, starting_offsets
from odradek.archive.store.location import archive_location
from odradek.archive.store.values import DataFile
from odradek.model.errors import ConfigError, KafkaError
from odradek.model.exception_text import class_name
from odradek.model.ids import TopicPartition

ONE, TWO = TopicPartition("t", 1), TopicPartition("t", 2)


def test_a_run_begins_where_the_archive_ends_and_new_partitions_at_their_first_record() -> None:
    extents = {ONE: LogExtent(start=0, end=50), TWO: LogExtent(start=3, end=9)}
    assert json.loads(starting_offsets({ONE: 40}, extents) or "") == {"t": {"1": 40, "2": -2}}


def test_a_new_archive_begins_with_all_there_is() -> None:
    assert starting_offsets({}, {ONE: LogExtent(start=0, end=50)}) is None


def test_topics_that_are_archived_but_not_asked_for_are_left_alone() -> None:
    other = TopicPartition("other", 0)
    assert starting_offsets({other: 40}, {ONE: LogExtent(start=0, end=50)}) is None


def test_what_is_lost_is_skipped_only_when_the_user_says_so() -> None:
    extents = {ONE: LogExtent(start=45, end=50)}
    assert json.loads(starting_offsets({ONE: 40}, extents) or "") == {"t": {"1": 40}}
    assert json.loads(starting_offsets({ONE: 40}, extents, skipping_lost=True) or "") == {"t": {"1": 45}}


def test_a_batch_waits_for_as_many_records_as_fill_the_files() -> None:
    files = [DataFile(path="f", size_bytes=1_000, row_count=100)]
    assert portions(files, 5_000, 2) == BatchSizes(least=1_000, most=4_000)
    assert portions([], 200, 3) == BatchSizes(least=3, most=12)


def test_the_sink_gets_what_the_user_asked_for() -> None:
    terms = RunTerms(
        bootstrap="127.0.0.1:1",
        location=archive_location("s3://lake/orders", endpoint="http://127.0.0.1:9000", region="eu-north-1"),
        columns=RowColumns(partition_by=(Derived(name="day", expression="date(timestamp)"),)),
        skipping_lost=True,
    )
    assert sink_options(terms, "/tmp/c") == {
        "path": "s3://lake/orders",
        "endpoint": "http://127.0.0.1:9000",
        "region": "eu-north-1",
        "partitionBy": "day",
        "sinkId": "archive",
        "fileBytes": str(128 << 20),
        "leaveGaps": "true",
        "checkpointLocation": "/tmp/c",
    }


def test_a_pattern_that_is_no_regular_expression_is_refused_before_spark_starts() -> None:
    location = archive_location("/a")
    with pytest.raises(
        ConfigError,
        match=r"^--pattern '\[' is not a regular expression: unterminated character set.*use --topic$",
    ):
        RunTerms(bootstrap="127.0.0.1:1", location=location, pattern="[")
    assert RunTerms(bootstrap="127.0.0.1:1", location=location, pattern="orders-.*").pattern == "orders-.*"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "[STREAM_FAILED] ...\n  File ...\nodradek.archive.values.ArchiveError: the archive ends at 5\n\tat org",
            "the archive ends at 5",
        ),
        ("x odradek.model.errors.KafkaError: OFFSET_OUT_OF_RANGE: gone\n", "OFFSET_OUT_OF_RANGE: gone"),
        (f"x {class_name(KafkaError)}: OFFSET_OUT_OF_RANGE: gone\n", "OFFSET_OUT_OF_RANGE: gone"),
        ("java.lang.OutOfMemoryError: heap", None),
    ],
)
def test_our_own_errors_are_found_in_what_spark_says(text: str, reason: str | None) -> None:
    assert reason_in(text) == reason


def test_columns_to_partition_by_are_names_or_expressions() -> None:
    columns = row_columns(
        value=ValueFormat.RAW,
        value_schema=None,
        key_as_string=False,
        partition_by=["topic", "day = date(timestamp)", "big=length(value)>=5"],
    )
    assert columns.partition_by == (
        Derived(name="topic", expression="topic"),
        Derived(name="day", expression="date(timestamp)"),
        Derived(name="big", expression="length(value)>=5"),
    )


@pytest.mark.parametrize(
    ("value", "schema", "partition_by", "reason"),
    [
        ("json", None, [], "need a schema"),
        ("csv", " ", [], "need a schema"),
        ("raw", "id INT", [], "of use with values as json or csv"),
        ("raw", None, ["date(timestamp)"], "NAME=EXPRESSION"),
        ("raw", None, ["day="], "NAME=EXPRESSION"),
    ],
)
def test_columns_that_could_not_work_are_refused(
    value: str, schema: str | None, partition_by: list[str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        row_columns(
            value=ValueFormat(value), value_schema=schema, key_as_string=False, partition_by=partition_by
        )
