"""Archives without Spark and without a broker: rows, batches, and topics that are made of lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("numpy", reason="numpy is absent")
pytest.importorskip("deltalake", reason="deltalake is absent")

import numpy as np
import pyarrow as pa
from tests.unit.spark.logs import FIRST_ID

from odradek.archive.checks.offset_runs import OffsetRuns
from odradek.archive.checks.topic_side import LogExtent
from odradek.archive.files.data_files import layout_of, write_files
from odradek.archive.files.reading import FileReader
from odradek.archive.opening import open_archive, open_or_create
from odradek.archive.store.location import ArchiveLocation, archive_location
from odradek.archive.store.values import BatchId, NewBatch
from odradek.archive.tables.commit import Committed, commit_batch
from odradek.archive.tables.port import ArchiveTable, TableFormat
from odradek.model.ids import TopicPartition
from odradek.spark.reading.offsets import OffsetRange

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("bucket", pa.string()),
    ]
)
ORDERS = TopicPartition("orders", 0)
HOUR_US = 3_600_000_000


def rows(partition: TopicPartition, offsets: Iterable[int]) -> Any:
    """One record at each offset; the bucket changes every four offsets, and is null in the first one."""
    listed = list(offsets)
    count = len(listed)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([partition.topic] * count, pa.string()),
            pa.array([partition.partition] * count, pa.int32()),
            pa.array(listed, pa.int64()),
            pa.array([entry * HOUR_US for entry in listed], SCHEMA.field("timestamp").type),
            pa.array([b"key"] * count, pa.binary()),
            pa.array([b"value %d" % number for number in listed], pa.binary()),
            pa.array([[{"key": "h", "value": b"x"}]] * count, HEADERS),
            pa.array(
                [f"{listed_entry // 4} %/=é" if listed_entry // 4 else None for listed_entry in listed],
                pa.string(),
            ),
        ],
        schema=SCHEMA,
    )


def at_times(times_us: list[int]) -> Any:
    """Rows whose timestamps are these microseconds."""
    batch = rows(ORDERS, range(len(times_us)))
    times = pa.array(times_us, pa.int64()).cast(SCHEMA.field("timestamp").type)
    return batch.set_column(batch.schema.get_field_index("timestamp"), SCHEMA.field("timestamp"), times)


@dataclass
class TestArchive:
    """An archive as a driver sees it; `reopened` is what the next driver sees."""

    __test__ = False
    location: ArchiveLocation
    table_format: TableFormat
    partition_by: Sequence[str] = ()
    file_bytes: int = 1 << 20
    written: int = 0

    @property
    def table(self) -> ArchiveTable:
        return open_or_create(
            self.location, SCHEMA, table_format=self.table_format, partition_by=tuple(self.partition_by)
        )

    def batch(self, number: int, ranges: Sequence[OffsetRange], *batches: Any, query: str = "q") -> NewBatch:
        """Write the files of a batch, as its tasks do; a row at each offset unless `batches` are given."""
        self.written += 1
        system = self.location.file_system()
        layout = layout_of(self.table, self.file_bytes)
        given = batches or [rows(span.partition, range(span.start, span.end)) for span in ranges]
        files = write_files(system, self.location.path, f"s-{number}-{self.written}", layout, given)
        return NewBatch(
            id=BatchId(sink="s", query=query, batch=number), files=tuple(files), ranges=tuple(ranges)
        )

    def commit(self, batch: NewBatch, **more: Any) -> Committed:
        return commit_batch(self.table, batch, **more)

    def add(self, number: int, start: int, end: int, *, query: str = "q", **more: Any) -> Committed:
        """A whole batch: the offsets of one partition."""
        extent = OffsetRange(partition=ORDERS, start=start, end=end)
        return self.commit(self.batch(number, [extent], query=query), **more)

    def rows(self) -> list[dict[str, Any]]:
        """All rows, through a table that knows nothing of earlier ones, by offset."""
        table = open_archive(self.location)
        reader = FileReader(location=table.location, schema=table.schema)
        results = [
            row for file in table.files() for read_row in reader.read(file) for row in read_row.to_pylist()
        ]
        return sorted(results, key=lambda row: (row["topic"], row["partition"], row["offset"]))

    def offsets(self) -> list[int]:
        return [row["offset"] for row in self.rows()]


@pytest.fixture(params=[record.value for record in TableFormat])
def table_format(request: pytest.FixtureRequest) -> TableFormat:
    return TableFormat(request.param)


@pytest.fixture
def archive(tmp_path: Path, table_format: TableFormat) -> TestArchive:
    return TestArchive(archive_location(str(tmp_path / "archive")), table_format)


@pytest.fixture
def archive_by_bucket(tmp_path: Path, table_format: TableFormat) -> TestArchive:
    return TestArchive(archive_location(str(tmp_path / "archive")), table_format, ["bucket"])


@dataclass
class ListedTopics:
    """A `TopicSide` made of lists: which offsets hold a record, and which of those are committed."""

    ends: dict[TopicPartition, LogExtent]
    records: dict[TopicPartition, Iterable[int]]
    aborted: dict[TopicPartition, Iterable[int]] = field(default_factory=dict)
    compacted: set[str] = field(default_factory=set)
    ids: dict[str, UUID] = field(default_factory=dict)
    reads: int = 0

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        there = {partition.topic for partition in self.ends}
        return {topic: self.ids.get(topic, FIRST_ID) for topic in topics if topic in there}

    def names(self, named: Iterable[str], pattern: str | None) -> list[str]:
        return list(named)

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        wanted = set(topics)
        return sorted(partition for partition in self.ends if partition.topic in wanted)

    def extents(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogExtent]:
        return {partition: self.ends[partition] for partition in partitions if partition in self.ends}

    def offsets(self, partition: TopicPartition, within: LogExtent, *, committed: bool) -> OffsetRuns:
        self.reads += 1
        results = set(self.records.get(partition, ()))
        if not committed:
            results |= set(self.aborted.get(partition, ()))
        listed = [outcome for outcome in results if within.start <= outcome < within.end]
        return OffsetRuns.of(np.array(listed, np.int64))

    def is_compacted(self, topic: str) -> bool:
        return topic in self.compacted


@pytest.fixture
def topics() -> Callable[..., ListedTopics]:
    """One partition: `topics(0, 10)` has all of 0 to 9; `gaps` hold no record, `aborted` ones that are aborted."""

    def make(start: int, end: int, *, gaps: Iterable[int] = (), aborted: Iterable[int] = ()) -> ListedTopics:
        records = set(range(start, end)) - set(gaps) - set(aborted)
        return ListedTopics(
            {ORDERS: LogExtent(start=start, end=end)}, {ORDERS: records}, {ORDERS: set(aborted)}
        )

    return make


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A place is what the test says, not what this machine's environment says."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
