"""Topic and archive read as one by Spark: what retention took comes from the archive, in batches and in streams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")
pytest.importorskip("deltalake", reason="deltalake is absent")

import pyarrow as pa
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from odradek import Admin, TopicPartition
from odradek.archive.files.compaction import compact
from odradek.archive.files.data_files import layout_of, write_files
from odradek.archive.opening import open_archive, open_or_create
from odradek.archive.row_columns import ValueFormat, row_columns
from odradek.archive.store.location import ArchiveLocation
from odradek.archive.store.values import BatchId, NewBatch
from odradek.archive.tables.commit import commit_batch
from odradek.spark.reading.offsets import OffsetRange

Run = Callable[..., list[str]]
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def numbers(start: int, end: int) -> list[str]:
    return [str(number) for number in range(start, end)]


def test_a_batch_reads_history_and_topic_as_one(
    spark: SparkSession, new_topic: Any, run: Run, read: Any, location: ArchiveLocation
) -> None:
    """An archive of text, partitioned; the topic holds the last ten of thirty records, of which five are archived, too."""
    topic = new_topic(2)
    for number in range(25):
        value = b"no JSON" if number == 3 else b'{"n": %d}' % number
        topic.send(
            value, key=b"k%d" % (number % 3), timestamp_ms=number * 3_600_000, headers=[("h", b"%d" % number)]
        )
    columns = row_columns(
        value=ValueFormat.STRING, value_schema=None, key_as_string=True, partition_by=["day=date(timestamp)"]
    )
    run(topic, columns)
    topic.cut(20)
    topic.send(*(b'{"n": %d}' % number for number in range(25, 30)), timestamp_ms=10**9)
    topic.send(b'{"n": 99}', partition=1)

    rows = read(topic, archive=location.path, includeHeaders="true").orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset) for row in rows] == [*((0, n) for n in range(30)), (1, 0)]
    first = rows[1]
    assert (first.key, first.value, first.timestamp.timestamp()) == (b"k1", b'{"n": 1}', 3_600.0)
    assert [(header.key, header.value) for header in first.headers] == [("h", b"1")]
    assert read(topic, archive=location.path, startingTimestamp=str(22 * 3_600_000)).count() == 3 + 5 + 1

    def decoded(**more: str) -> DataFrame:
        return read(
            topic,
            archive=location.path,
            filterPushdown="true",
            valueDecode="json",
            valueSchema="n INT",
            **more,
        )

    spark.conf.set(PUSHDOWN, "true")
    try:
        (bad,) = decoded(decodeErrors="dead-letter").where("offset < 5 AND value IS NULL").collect()
        assert (bad.deadLetter.offset, bad.deadLetter.value, bad.deadLetter.key) == (3, b"no JSON", b"k0")
        of_one_key = "partition = 0 AND offset BETWEEN 18 AND 26 AND key = CAST('k0' AS BINARY)"
        assert sorted(row.value.n for row in decoded().where(of_one_key).collect()) == [18, 21, 24]
        late = decoded().where("timestamp >= timestamp_millis(79200000)")
        assert late.count() == 9, "offset 3 is not read"
    finally:
        spark.conf.unset(PUSHDOWN)
    with pytest.raises(
        PySparkException, match=r"the value at .*-0 offset 3 is not JSON that fits valueSchema"
    ):
        decoded().collect()


@pytest.fixture
def keep(location: ArchiveLocation) -> Callable[..., None]:
    """What a run would archive of a topic of numbers: `keep(topic, 0, 20)`, each call in a file of its own."""
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("timestampType", pa.int32()),
            ("key", pa.binary()),
            ("value", pa.binary()),
        ]
    )

    def archive(topic: Any, start: int, end: int) -> None:
        table = open_or_create(location, schema)
        rows = [
            {"topic": topic.name, "partition": 0, "offset": n, "timestamp": n * 1_000, "value": b"%d" % n}
            for n in range(start, end)
        ]
        batch = pa.RecordBatch.from_pylist(rows, schema=schema)
        files = write_files(
            location.file_system(), location.path, f"f-{start}", layout_of(table, 1 << 20), [batch]
        )
        extent = OffsetRange(partition=TopicPartition(topic.name, 0), start=start, end=end)
        name = BatchId(sink="s", query="q", batch=start)
        commit_batch(table, NewBatch(id=name, files=tuple(files), ranges=(extent,)))

    return archive


def test_a_stream_begins_in_the_archive_and_goes_on_in_the_topic(
    topic: Any,
    keep: Callable[..., None],
    read_stream: Any,
    run_to_end: Any,
    location: ArchiveLocation,
    servers: str,
    tmp_path: Path,
) -> None:
    """Files are compacted while it reads; between its runs the topic loses what it has not read."""
    topic.send_numbers(0, 50)
    keep(topic, 0, 20)
    keep(topic, 20, 40)
    topic.cut(30)
    arrived: list[str] = []
    group = f"lag-of-{topic.name}"

    def take(batch: DataFrame, number: int) -> None:
        arrived.extend(bytes(row.value).decode() for row in batch.collect())
        if number == 0:
            assert compact(open_archive(location), 1 << 20).removed_count == 2

    def run_stream() -> None:
        options = {"archive": location.path, "maxOffsetsPerTrigger": "18", "publishOffsets": group}
        run_to_end(
            read_stream(topic, columns="value", **options)
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "c"))
            .trigger(availableNow=True)
            .start()
        )

    run_stream()
    assert sorted(arrived, key=int) == numbers(0, 50)
    topic.send_numbers(50, 65)
    keep(topic, 40, 60)
    topic.cut(60)
    run_stream()
    assert sorted(arrived, key=int) == numbers(0, 65)
    with Admin(servers) as admin:
        (committed,) = admin.list_group_offsets(group, [TopicPartition(topic.name, 0)]).values()
    assert committed is not None
    assert committed.offset == 65


def test_what_is_in_neither_fails_the_query_unless_asked_otherwise(
    topic: Any,
    keep: Callable[..., None],
    read: Any,
    read_stream: Any,
    collect_stream: Any,
    location: ArchiveLocation,
) -> None:
    topic.send_numbers(0, 20)
    keep(topic, 0, 10)
    topic.cut(15)
    gap = r"offsets 10 to 14 of .*-0 are neither in the topic"
    with pytest.raises(PySparkException, match=gap):
        read(topic, archive=location.path).count()
    with pytest.raises(StreamingQueryException, match=gap):
        collect_stream(read_stream(topic, archive=location.path))
    assert read(topic, archive=location.path, failOnDataLoss="false").count() == 15
