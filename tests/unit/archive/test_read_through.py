"""Topic and archive read as one: which offsets come from where, and that the rows are what the topic gave."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

import pyarrow as pa
import pyarrow.parquet as pq
from tests.unit.archive.conftest import HOUR_US, ORDERS, SCHEMA, ListedTopics, TestArchive, rows
from tests.unit.spark.logs import Logs

from odradek.archive.checks.status import archive_status
from odradek.archive.files.compaction import compact
from odradek.archive.files.reading import FileReader
from odradek.archive.history import archive_view
from odradek.archive.history.archive_view import ArchiveView
from odradek.archive.history.archived_catalog import ArchivedCatalog
from odradek.archive.history.archived_rows import first_at
from odradek.archive.history.read_through import ArchiveHistory
from odradek.archive.history.record_columns import as_records, needed_columns
from odradek.archive.opening import open_archive, open_or_create
from odradek.archive.store.location import archive_location
from odradek.archive.store.values import KEY_HEADER, TIME_HEADER, ArchiveError, BatchId, DataFile, NewBatch
from odradek.archive.tables.commit import commit_batch
from odradek.archive.tables.parquet import ParquetArchive
from odradek.archive.tables.port import TableFormat
from odradek.model.errors import ConfigError, KafkaError
from odradek.model.ids import TopicPartition
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import ReadOptions, read_options
from odradek.spark.options.positions import EARLIEST, LATEST
from odradek.spark.reading.batch import plan_batch
from odradek.spark.reading.offsets import OffsetRange
from odradek.spark.reading.pruning import Numbers, Pruning, pruned

HOUR_MS = HOUR_US // 1_000
OTHER = TopicPartition("orders", 1)
HEADERS = SCHEMA.field("headers").type
KINDS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
    "record": pa.struct([("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS)]),
}
COLUMNS = "topic,partition,offset,timestamp,key,value,headers"
"""All but the timestamp's type, which the archives here do not have."""


class ReadThrough:
    """What Spark would do with an archive and a topic, without Spark."""

    def __init__(self, archive: TestArchive, logs: Logs, **options: str) -> None:
        given = {
            "kafka.bootstrap.servers": "h:1",
            "subscribe": "orders",
            "archive": str(archive.location),
            "columns": COLUMNS,
        }
        self.options: ReadOptions = read_options({**given, **options}, Use.BATCH_READ)
        assert self.options.archive is not None
        self.history = ArchiveHistory(self.options.archive, self.options)
        self.logs = logs

    def plan(self) -> list[OffsetRange]:
        return plan_batch(self.options, self.history.over(self.logs))

    def divide(self, ranges: list[OffsetRange]) -> tuple[list[dict[str, Any]], list[tuple[int, int]]]:
        """The rows from the archive, by partition and offset, and what is left to be read of topics."""
        divided = self.history.divide(ranges, self.logs, self.options)
        schema = pa.schema([(name, KINDS[name]) for name in self.options.projection.columns])
        task = pickle.loads(pickle.dumps(self.history))
        results = [
            row
            for share in divided.in_history
            for batch in task.read(pickle.loads(pickle.dumps(share)), self.options, schema, None)
            for row in batch.to_pylist()
        ]
        in_order = sorted(results, key=lambda row: (row["partition"], row["offset"]))
        return in_order, [(in_topic.start, in_topic.end) for in_topic in divided.in_topics]

    def read(self) -> tuple[list[int], list[tuple[int, int]]]:
        """The archive's offsets, and the topic's ranges, of a batch read."""
        kept, rest = self.divide(self.plan())
        return [row["offset"] for row in kept], rest


def extent(start: int, end: int, partition: TopicPartition = ORDERS) -> OffsetRange:
    return OffsetRange(partition=partition, start=start, end=end)


def logs(start: int, end: int) -> Logs:
    return Logs({ORDERS: (start, end)}, ms_per_record=HOUR_MS)


@pytest.fixture
def filled(archive: TestArchive) -> TestArchive:
    """Offsets 10 to 29, in two files."""
    archive.add(0, 10, 20)
    archive.add(1, 20, 30)
    return archive


@pytest.mark.parametrize(
    ("log", "options", "kept", "rest"),
    [
        ((25, 40), {}, range(10, 30), [(30, 40)]),  # they overlap
        ((30, 40), {}, range(10, 30), [(30, 40)]),  # they touch
        ((0, 40), {}, range(10, 30), [(0, 10), (30, 40)]),  # the topic has all of it
        ((30, 30), {}, range(10, 30), []),  # all is archived, and gone
        ((25, 40), {"startingOffsets": '{"orders":{"0":15}}'}, range(15, 30), [(30, 40)]),
        ((25, 40), {"startingOffsets": '{"orders":{"0":35}}'}, (), [(35, 40)]),
        ((25, 40), {"endingOffsets": '{"orders":{"0":12}}'}, range(10, 12), []),
        ((25, 40), {"endingOffsets": '{"orders":{"0":34}}'}, range(10, 30), [(30, 34)]),
        ((25, 40), {"startingTimestamp": str(12 * HOUR_MS)}, range(12, 30), [(30, 40)]),
        ((25, 40), {"startingTimestamp": str(12 * HOUR_MS + 1)}, range(13, 30), [(30, 40)]),
        ((25, 40), {"startingTimestamp": str(33 * HOUR_MS)}, (), [(33, 40)]),
        ((30, 30), {"startingTimestamp": str(29 * HOUR_MS)}, (29,), []),
        (
            (25, 40),
            {"startingTimestamp": str(11 * HOUR_MS), "endingTimestamp": str(13 * HOUR_MS)},
            (11, 12),
            [],
        ),
        ((25, 40), {"endingTimestamp": str(32 * HOUR_MS)}, range(10, 30), [(30, 32)]),
        (
            (25, 40),
            {"startingOffsetsByTimestamp": f'{{"orders":{{"0":{28 * HOUR_MS}}}}}'},
            (28, 29),
            [(30, 40)],
        ),
    ],
)
def test_a_read_takes_from_the_archive_what_it_has_and_the_rest_from_the_topic(
    filled: TestArchive,
    log: tuple[int, int],
    options: dict[str, str],
    kept: Any,
    rest: list[tuple[int, int]],
) -> None:
    assert ReadThrough(filled, logs(*log), **options).read() == (list(kept), rest)


def test_rows_of_the_archive_are_those_that_the_topic_gave(archive_by_bucket: TestArchive) -> None:
    archive_by_bucket.add(0, 0, 10)
    read = ReadThrough(archive_by_bucket, logs(10, 10), columns=f"{COLUMNS},record")
    archived, rest = read.divide(read.plan())
    assert rest == []
    headers = [{"key": "h", "value": b"x"}]
    assert archived == [
        {
            "topic": "orders",
            "partition": 0,
            "offset": offset,
            "timestamp": datetime.fromtimestamp(offset * 3_600, UTC),
            "key": b"key",
            "value": b"value %d" % offset,
            "headers": headers,
            "record": {"key": b"key", "value": b"value %d" % offset, "headers": headers},
        }
        for offset in range(10)
    ]


def test_partitions_are_distinguished(archive: TestArchive) -> None:
    both = [extent(0, 4), extent(0, 8, OTHER)]
    mixed = [rows(ORDERS, range(2)), rows(OTHER, range(8)), rows(ORDERS, range(2, 4))]
    archive.commit(archive.batch(0, both, *mixed))
    read = ReadThrough(archive, Logs({ORDERS: (0, 6), OTHER: (0, 8)}))
    results, rest = read.divide([extent(1, 6), extent(5, 8, OTHER)])
    assert [(row["partition"], row["offset"]) for row in results] == [
        (0, 1), (0, 2), (0, 3), (1, 5), (1, 6), (1, 7)
    ]  # fmt: skip
    assert rest == [(4, 6)]


def test_only_rows_of_the_keys_that_a_filter_wants_leave_the_task(archive: TestArchive) -> None:
    archive.add(0, 0, 10)
    read = ReadThrough(archive, logs(0, 10))
    (share,) = read.history.divide([extent(0, 10)], read.logs, read.options).in_history
    schema = pa.schema([("offset", pa.int64()), ("key", pa.binary())])
    for keys, count in ((frozenset({b"key"}), 10), (frozenset({b"another"}), 0)):
        batches = read.history.read(share, read.options, schema, keys)
        assert sum(batch.num_rows for batch in batches) == count


def test_a_filter_on_time_reaches_into_the_archive(filled: TestArchive) -> None:
    read = ReadThrough(filled, logs(25, 40))
    pruning = Pruning(since_ms=14 * HOUR_MS, offset=Numbers(most=32))
    left = pruned(read.plan(), pruning, read.history.over(read.logs), keys_choose_partitions=False)
    kept, rest = read.divide(left)
    assert [row["offset"] for row in kept] == list(range(14, 30))
    assert rest == [(30, 33)]


def test_what_is_in_neither_is_an_error(filled: TestArchive, caplog: pytest.LogCaptureFixture) -> None:
    read = ReadThrough(filled, logs(35, 40))
    with pytest.raises(
        ArchiveError, match=r"offsets 30 to 34 of orders-0 are neither in the topic.* has 10 to 29"
    ):
        read.read()
    with pytest.raises(KafkaError, match="begins at offset 10, after offset 5"):
        ReadThrough(filled, logs(35, 40), startingOffsets='{"orders":{"0":5}}').read()
    going_on = ReadThrough(filled, logs(35, 40), failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert going_on.read() == (list(range(10, 30)), [(30, 40)])  # reading 30 to 34 reports them once more
    assert "offsets 30 to 34" in caplog.text


def test_a_stream_finds_in_the_archive_what_retention_took_since_it_looked(filled: TestArchive) -> None:
    read = ReadThrough(filled, logs(25, 60))
    assert read.divide([extent(28, 40)])[1] == [(30, 40)]
    filled.add(2, 30, 50)
    read.logs.spans[ORDERS] = (45, 60)
    kept, rest = read.divide([extent(40, 55)])
    assert [row["offset"] for row in kept] == list(range(40, 50))
    assert rest == [(50, 55)]


def test_a_long_stream_reads_files_that_are_still_there(
    filled: TestArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction replaces the files that the stream has seen, and expiry removes them."""
    read = ReadThrough(filled, logs(25, 40))
    read.divide([extent(10, 12)])
    table = open_archive(filled.location)
    old = table.files()
    assert compact(table, 1 << 20).removed_count == 2
    kept, _ = read.divide([extent(10, 30)])
    assert len(kept) == 20, "files that were replaced stay for a while"
    for file in old:
        Path(filled.location.within(file.path)).unlink()
    monkeypatch.setattr(archive_view, "RECENT_S", -1.0)
    kept, _ = read.divide([extent(10, 30)])
    assert [row["offset"] for row in kept] == list(range(10, 30))


def test_a_file_that_went_while_it_was_read_is_named(filled: TestArchive) -> None:
    read = ReadThrough(filled, logs(25, 40))
    (share,) = read.history.divide([extent(10, 20)], read.logs, read.options).in_history
    Path(filled.location.within(share.files[0].path)).unlink()
    with pytest.raises(ArchiveError, match="no longer exists: it was replaced, and expired"):
        list(read.history.read(share, read.options, pa.schema([("offset", pa.int64())]), None))


def test_a_topic_that_was_made_again_is_not_mixed_with_its_archive(filled: TestArchive) -> None:
    with pytest.raises(ArchiveError, match=r"ends at offset 7, but the archive has it up to 30"):
        ReadThrough(filled, logs(0, 7)).read()


def test_a_partition_that_appears_later_begins_in_the_archive(
    filled: TestArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = ArchivedCatalog(
        Logs({ORDERS: (25, 40), OTHER: (3, 9)}), ArchiveView(open_archive(filled.location))
    )
    assert catalog.offsets({OTHER: EARLIEST, ORDERS: EARLIEST}) == {OTHER: 3, ORDERS: 10}
    filled.commit(filled.batch(2, [extent(0, 6, OTHER)]))
    monkeypatch.setattr(archive_view, "RECENT_S", -1.0)
    assert catalog.offsets({OTHER: EARLIEST, ORDERS: LATEST}) == {OTHER: 0, ORDERS: 40}
    assert catalog.offsets({TopicPartition("gone", 0): EARLIEST}) == {}


def test_looking_for_a_time_ends_when_nothing_earlier_can_come(
    filled: TestArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    read = FileReader.read

    def noting(reader: FileReader, file: DataFile, *given: Any, **more: Any) -> Iterator[Any]:
        opened.append(file.path)
        return read(reader, file, *given, **more)

    monkeypatch.setattr(FileReader, "read", noting)
    files = open_archive(filled.location).files()
    assert first_at(filled.location, files, {ORDERS: 12 * HOUR_MS}) == {ORDERS: 12}
    assert len(opened) == 1
    assert first_at(filled.location, files, {ORDERS: 25 * HOUR_MS}) == {ORDERS: 25}
    assert len(opened) == 2, "a file whose newest record is too old is not opened"
    assert first_at(filled.location, files, {ORDERS: 30 * HOUR_MS}) == {}
    assert first_at(filled.location, files, {}) == {}
    assert len(opened) == 2


def test_a_record_that_came_late_is_found_by_its_time_all_the_same(archive: TestArchive) -> None:
    def at(offsets: list[int], hours: list[int]) -> Any:
        batch = rows(ORDERS, offsets)
        times = pa.array([hour * HOUR_US for hour in hours], SCHEMA.field("timestamp").type)
        return batch.set_column(batch.schema.get_field_index("timestamp"), SCHEMA.field("timestamp"), times)

    archive.commit(archive.batch(0, [extent(0, 3)], at([0, 1, 2], [1, 9, 2])))
    archive.commit(archive.batch(1, [extent(3, 6)], at([3, 4, 5], [3, 4, 5])))
    files = open_archive(archive.location).files()
    assert first_at(archive.location, files, {ORDERS: 3 * HOUR_MS}) == {ORDERS: 1}


@pytest.mark.parametrize(
    "ms",
    [
        -1,
        0,
        1,
        1_700_000_000_123,
        9_007_199_254_741,
        9_223_372_036_854_775,
        -9_223_372_036_854_775,
        1_700_000_000_123_456,
    ],
)
def test_times_are_those_of_the_records_however_odd(ms: int) -> None:
    """The last one is in microseconds: a producer's mistake that is kept, and comes back."""
    row = pa.record_batch(
        {"offset": pa.array([0], pa.int64()), "timestamp": pa.array([ms * 1_000], KINDS["timestamp"])}
    )
    assert as_records(row)["timestamp"].to_pylist() == [ms]


def test_what_an_archive_keeps_in_headers_comes_back_and_the_headers_go(archive: TestArchive) -> None:
    """The third record has such headers of its own, to which the archive has added empty ones; the fourth has no number."""
    own = [{"key": "h", "value": b"x"}]
    last_us = (2**63 - 1) // 1_000 * 1_000

    def kept(time_ms: bytes | None, key: bytes | None) -> list[dict[str, Any]]:
        return [{"key": TIME_HEADER, "value": time_ms}, {"key": KEY_HEADER, "value": key}]

    headers = [
        own + kept(b"1700000000000000000", None),
        kept(None, b"\xff"),
        own + kept(b"1", b"k") + kept(None, None),
        kept(b"x", None),
    ]
    kinds = {"headers": HEADERS, "timestamp": KINDS["timestamp"], "key": pa.string(), "offset": pa.int64()}
    columns = {
        "headers": headers,
        "timestamp": [last_us, 0, 0, 0],
        "key": ["a", None, None, "d"],
        "offset": [0, 1, 2, 3],
    }
    rows = pa.record_batch({name: pa.array(column, kinds[name]) for name, column in columns.items()})
    assert as_records(rows).to_pylist() == [
        {"offset": 0, "timestamp": 1_700_000_000 * 10**9, "key": b"a", "headers": own},
        {"offset": 1, "timestamp": 0, "key": b"\xff", "headers": []},
        {"offset": 2, "timestamp": 0, "key": None, "headers": own + kept(b"1", b"k")},
        {"offset": 3, "timestamp": 0, "key": b"d", "headers": kept(b"x", None)},
    ]
    text_keys = pa.schema(
        [
            ("topic", pa.string()),
            ("timestamp", KINDS["timestamp"]),
            ("key", pa.string()),
            ("headers", HEADERS),
        ]
    )
    for column, needed in (
        ("key", ["key", "headers"]),
        ("timestampMs", ["timestamp", "headers"]),
        ("timestamp", ["timestamp"]),
    ):
        assert needed_columns([column], text_keys, archive.location).names == ["topic", *needed]
    others = text_keys.set(3, pa.field("headers", pa.map_(pa.string(), pa.binary())))
    assert needed_columns(["key"], others, archive.location).names == ["topic", "key"], (
        "of a query of one's own"
    )


def test_an_old_archive_with_text_keys_that_are_none_is_healed_by_compaction(archive: TestArchive) -> None:
    """Files that were written before keys were looked at."""
    schema = SCHEMA.set(SCHEMA.get_field_index("key"), pa.field("key", pa.string()))
    table = open_or_create(archive.location, schema, table_format=archive.table_format)
    for number in range(2):
        batch = rows(ORDERS, [number]).drop_columns(["key"])
        bad = pa.array([b"\xff"], pa.binary()).view(pa.string())
        batch = batch.add_column(schema.get_field_index("key"), "key", bad)
        Path(archive.location.within("data")).mkdir(exist_ok=True)
        path = f"data/old-{number}.parquet"
        pq.write_table(
            pa.Table.from_batches([batch.cast(schema)]).cast(table.file_schema), archive.location.within(path)
        )
        size_bytes = Path(archive.location.within(path)).stat().st_size
        file = DataFile(path=path, size_bytes=size_bytes, row_count=1, ranges=(extent(number, number + 1),))
        new = NewBatch(
            id=BatchId(sink="s", query="q", batch=number), files=(file,), ranges=(extent(number, number + 1),)
        )
        commit_batch(table, new)
    for healed in (False, True):
        read = ReadThrough(archive, logs(0, 2), columns="partition,offset,key,headers")
        records, _ = read.divide(read.plan())
        assert [(record["key"], record["headers"]) for record in records] == [
            (b"\xff", [{"key": "h", "value": b"x"}])
        ] * 2
        if not healed:
            compact(open_archive(archive.location), 1 << 20)
    assert {row["key"] for row in archive.rows()} == {None}


def test_absent_times_headers_and_values_are_those_of_a_record(archive: TestArchive) -> None:
    none = pa.record_batch(
        {
            "offset": pa.array([0], pa.int64()),
            "timestamp": pa.nulls(1, KINDS["timestamp"]),
            "timestampType": pa.nulls(1, pa.int32()),
            "headers": pa.nulls(1, HEADERS),
            "value": pa.nulls(1, pa.string()),
            "undecoded": pa.array([b"\xff"], pa.binary()),
        }
    )
    assert as_records(none).to_pylist() == [
        {"offset": 0, "timestamp": -1, "timestamp_type": 0, "value": b"\xff", "headers": []}
    ]


def test_an_archive_without_what_is_asked_for_says_so(archive: TestArchive) -> None:
    with pytest.raises(
        ConfigError, match="has no column timestampType: leave it out with the option columns"
    ):
        needed_columns(["offset", "timestampType"], SCHEMA, archive.location)
    decoded = pa.schema([("topic", pa.string()), ("value", pa.struct([("id", pa.int64())]))])
    with pytest.raises(ConfigError, match="holds decoded values, not the topic's own"):
        needed_columns(["value"], decoded, archive.location)
    assert needed_columns(["topic"], decoded, archive.location).names == ["topic"]


class CountedRanges(tuple[OffsetRange, ...]):
    """Ranges that count how often they are looked at."""

    __slots__ = ()
    step_count: ClassVar[int] = 0

    def __iter__(self) -> Iterator[OffsetRange]:
        for extent in super().__iter__():
            type(self).step_count += 1
            yield extent


def test_many_partitions_are_planned_and_counted_in_linear_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = TestArchive(archive_location(str(tmp_path / "a")), TableFormat.PARQUET)
    partitions = [TopicPartition("orders", number) for number in range(300)]
    archive.commit(archive.batch(0, [extent(0, 2, partition) for partition in partitions]))
    list_files = ParquetArchive.files

    def counted(table: ParquetArchive) -> list[DataFile]:
        return [replace(file, ranges=CountedRanges(file.ranges)) for file in list_files(table)]

    monkeypatch.setattr(ParquetArchive, "files", counted)
    read = ReadThrough(archive, Logs(dict.fromkeys(partitions, (0, 2))), startingTimestamp="1")
    CountedRanges.step_count = 0
    (share,) = read.history.divide(
        [extent(1, 2, partition) for partition in partitions], read.logs, read.options
    ).in_history
    assert len(share.extents) == len(partitions)
    statuses = archive_status(archive.table, ListedTopics({}, {})).partitions
    assert [status.file_count for status in statuses] == [1] * len(partitions)
    assert read.plan() == [extent(1, 2, partition) for partition in partitions]
    assert CountedRanges.step_count <= 20 * len(partitions)


def test_a_place_without_an_archive_is_refused(archive: TestArchive) -> None:
    with pytest.raises(ArchiveError, match="there is no archive at"):
        ReadThrough(archive, logs(0, 1))
