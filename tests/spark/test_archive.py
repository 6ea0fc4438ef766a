"""Topics archived by Spark: each record once, whatever dies, and read back as a table."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")
pytest.importorskip("deltalake", reason="deltalake is absent")

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.programs.own_program import ROOT, command, last_lines

from odradek import Producer
from odradek.archive.checks.status import archive_status
from odradek.archive.checks.topic_side import BrokerTopics
from odradek.archive.checks.verify import PartitionFindings, all_faults, verify_archive
from odradek.archive.opening import open_archive
from odradek.archive.row_columns import ValueFormat, row_columns, with_archive_columns
from odradek.archive.run import reason_in
from odradek.archive.store.location import ArchiveLocation
from odradek.archive.store.values import ArchiveError
from odradek.archive.tables.port import TableFormat
from odradek.cli.main import main
from odradek.config.files.properties import format_properties
from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.testing import LocalBroker

Run = Callable[..., list[str]]


@pytest.fixture
def check(servers: str, location: ArchiveLocation) -> Callable[[], list[PartitionFindings]]:
    def findings() -> list[PartitionFindings]:
        return verify_archive(open_archive(location), BrokerTopics(servers))

    return findings


def table(spark: SparkSession, location: ArchiveLocation, **options: str) -> DataFrame:
    return spark.read.format("odradek-archive").options(**options).load(location.path)


def test_a_topic_becomes_a_table_and_goes_on_where_it_ended(
    spark: SparkSession, new_topic: Any, run: Run, check: Any, location: ArchiveLocation, servers: str
) -> None:
    topic = new_topic(3)
    for partition in range(3):
        topic.send_numbers(0, 50 + partition, partition=partition)
    assert [line.split(" in ")[0] for line in run(topic)] == ["batch 0: 153 records"]
    topic.send_numbers(50, 60, partition=0)
    topic.send(None, partition=1, key=b"gone", headers=[("h", b"1"), ("h", None)], timestamp_ms=77)
    run(topic)
    run(topic)
    assert all_faults(check()) == []
    rows = table(spark, location).orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset) for row in rows] == [
        *((0, offset) for offset in range(60)),
        *((1, offset) for offset in range(52)),
        *((2, offset) for offset in range(52)),
    ]
    last = rows[60 + 51]
    assert (last.topic, last.key, last.value, last.timestampType) == (topic.name, b"gone", None, 0)
    assert [(header.key, header.value) for header in last.headers] == [("h", b"1"), ("h", None)]
    assert last.timestamp.timestamp() == 0.077
    status = archive_status(open_archive(location), BrokerTopics(servers))
    assert [
        (partition_status.position, partition_status.end, partition_status.behind)
        for partition_status in status.partitions
    ] == [
        (60, 60, 0),
        (52, 52, 0),
        (52, 52, 0),
    ]
    assert status.row_count == 164


def test_values_are_decoded_and_what_is_not_valid_is_kept(
    spark: SparkSession, topic: Any, run: Run, check: Any, location: ArchiveLocation
) -> None:
    undecodable = [
        *(
            b'{"id": "no number"}',
            b"broken",
            b"",
            b"null",
            b'[{"id": 5}]',
            b'{"id": 2}x',
            b'{"id": 2} {"id": 3}',
        ),
        *(b'{"id": 2}]', b'{"id": 2},{"id": 3}', b'{"id": 2}],"v":[{"id": 3}', b'{"id": 2}]}}', b'{"id": 2'),
    ]
    topic.send(b' {"id": 1, "name": "a"}\n', *undecodable, None, timestamp_ms=86_400_000)
    columns = row_columns(
        value=ValueFormat.JSON,
        value_schema="id BIGINT, name STRING",
        key_as_string=True,
        partition_by=["day=date(timestamp)"],
    )
    run(topic, columns)
    rows = table(spark, location).orderBy("offset").collect()
    assert [row.value and row.value.asDict() for row in rows] == [
        {"id": 1, "name": "a"},
        *[None] * len(undecodable),
        None,
    ]
    assert [row.undecoded for row in rows] == [None, *undecodable, None]
    assert {str(row.day) for row in rows} == {"1970-01-02"}
    assert all_faults(check()) == []
    (file, *_) = open_archive(location).files()
    assert file.path.startswith("day=1970-01-02/")


@pytest.fixture
def own_signals() -> Iterator[None]:
    """`odradek archive run` takes signals over; this process has its own back afterwards."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    for number, handler in before:
        signal.signal(number, handler)


def test_the_command_logs_in(
    spark: SparkSession, location: ArchiveLocation, tmp_path: Path, own_signals: None, capsys: Any
) -> None:
    login = tmp_path / "client.properties"
    with LocalBroker(secure=True) as broker:
        login.touch(mode=0o600)
        login.write_text(format_properties(broker.client_settings))
        reach = ["-b", broker.address, "--command-config", str(login)]
        with Producer.from_config(
            {"bootstrap.servers": broker.address, **broker.client_settings}
        ) as producer:
            for number in range(20):
                producer.send("orders", b"%d" % number)
        assert main(["archive", "run", location.path, "-t", "orders", "--once", *reach]) == 0
        assert main(["archive", "verify", location.path, *reach]) == 0
        assert "every record is there once: 20 rows" in capsys.readouterr().err
        capsys.readouterr()
        assert main(["archive", "status", location.path, "--json", *reach]) == 0
        assert json.loads(capsys.readouterr().out)["records"] == 20


@pytest.mark.parametrize("table_format", [TableFormat.PARQUET])
def test_csv_and_another_format(
    spark: SparkSession,
    topic: Any,
    run: Run,
    check: Any,
    location: ArchiveLocation,
    table_format: TableFormat,
) -> None:
    topic.send(b"7,seven", b"x,y", b"8")
    columns = row_columns(
        value=ValueFormat.CSV, value_schema="id INT, name STRING", key_as_string=False, partition_by=[]
    )
    run(topic, columns, table_format=table_format)
    rows = table(spark, location, columns="offset,value,undecoded").orderBy("offset").collect()
    assert rows[0].value.asDict() == {"id": 7, "name": "seven"}
    assert [row.undecoded for row in rows[1:]] == [b"x,y", b"8"]
    assert open_archive(location).format is table_format
    assert all_faults(check()) == []


def test_what_columns_cannot_hold_stops_nothing_and_is_kept(
    spark: SparkSession, new_topic: Any, run: Run, read: Any, check: Any, location: ArchiveLocation
) -> None:
    """Nanoseconds that were sent as milliseconds, bytes that are no text, a key that is longer than a file's name may be."""
    topic = new_topic(1, **{"message.timestamp.after.max.ms": str(2**63 - 1)})
    topic.send(b"nano", key=b"k", timestamp_ms=1_700_000_000 * 10**9)
    topic.send(b"micro", key=b"\xff\xfe", headers=[("h", b"1")], timestamp_ms=1_700_000_000_000_000)
    topic.send(b"\xff", key=b"y" * 300, timestamp_ms=86_400_000)
    own = [("odradek.archive.timestamp", b"1234567890123456"), ("odradek.archive.key", b"x")]
    topic.send(b"own headers", headers=own, timestamp_ms=86_400_000)
    columns = row_columns(
        value=ValueFormat.STRING,
        value_schema=None,
        key_as_string=True,
        partition_by=["day=date(timestamp)", "k=coalesce(key, headers[1].key)"],
    )
    run(topic, columns)
    assert all_faults(check()) == []
    rows = (
        table(spark, location)
        .orderBy("offset")
        .selectExpr("key", "value", "undecoded", "cast(day as string) AS day")
        .collect()
    )
    assert [tuple(row) for row in rows] == [
        ("k", "nano", None, None),
        (None, "micro", None, None),
        ("y" * 300, None, b"\xff", "1970-01-02"),
        (None, "own headers", None, "1970-01-02"),
    ]
    names = "partition,offset,timestampMs,timestamp,key,value,headers"
    plain = ["offset", "timestampMs", "unix_micros(timestamp)", "key", "value", "to_json(headers)"]
    both = [
        [
            tuple(row)
            for row in read(topic, columns=names, **archive).orderBy("offset").selectExpr(*plain).collect()
        ]
        for archive in ({"archive": location.path}, {})
    ]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("value", "schema", "partition_by", "reason"),
    [
        (
            "raw",
            None,
            "Value=topic",
            r"^--partition-by Value=\.\.\.: there is a column value; take another name$",
        ),
        ("raw", None, "KEY=topic", "there is a column key"),
        ("json", "a INT", "Undecoded=topic", "there is a column undecoded"),
        (
            "raw",
            None,
            "k=nonsense(",
            r"^--partition-by k=nonsense\(: Syntax error at or near end of input; write SQL over",
        ),
        (
            "raw",
            None,
            "k=nosuch",
            r"^--partition-by k=nosuch: .*`nosuch` cannot be resolved.*as in day=date\(timestamp\)$",
        ),
        (
            "json",
            "a NOTYPE",
            "topic",
            r"^--schema 'a NOTYPE': field a has the type NOTYPE, which does not exist; write NAME TYPE",
        ),
        (
            "csv",
            "a INT, b STRUCT<c: INT>",
            "topic",
            r"^--schema: a CSV value has no struct<c:int> \(b\): declare it STRING$",
        ),
    ],
)
def test_columns_that_spark_cannot_make_are_refused_in_one_line(
    spark: SparkSession, value: str, schema: str | None, partition_by: str, reason: str
) -> None:
    records = spark.createDataFrame([], "topic STRING, `offset` BIGINT, key BINARY, value BINARY")

    def read() -> None:
        columns = row_columns(
            value=ValueFormat(value), value_schema=schema, key_as_string=False, partition_by=[partition_by]
        )
        with_archive_columns(records, columns)

    with pytest.raises(ConfigError, match=reason) as caught:
        read()
    assert "\n" not in str(caught.value)


def test_aborted_transactions_and_control_records_are_no_gaps(
    topic: Any, run: Run, check: Any, servers: str
) -> None:
    for number in range(3):
        with Producer(servers, transactional_id=f"{topic.name}-{number}") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic.name, b"one", partition=0)
            producer.flush()
            (producer.abort_transaction if number == 1 else producer.commit_transaction)()
    run(topic)
    (finding,) = check()
    assert finding.faults == []
    assert (finding.row_count, finding.aborted, finding.control) == (2, 1, 3)


def test_records_that_are_lost_before_they_are_archived_stop_the_run(
    topic: Any, run: Run, check: Any
) -> None:
    topic.send_numbers(0, 10)
    run(topic)
    topic.send_numbers(10, 20)
    topic.cut(15)
    with pytest.raises(ArchiveError, match=r"now begins at offset 15, after offset 10"):
        run(topic)
    run(topic, skipping_lost=True)
    (finding,) = check()
    assert finding.faults == []
    assert list(finding.unknown) == [(10, 15)]


def test_a_fresh_checkpoint_that_begins_elsewhere_is_refused(
    topic: Any, run: Run, location: ArchiveLocation, read_stream: Any, tmp_path: Path, run_to_end: Any
) -> None:
    topic.send_numbers(0, 10)
    run(topic)
    topic.send_numbers(10, 20)
    frame = read_stream(topic, includeHeaders="true", startingOffsets=json.dumps({topic.name: {"0": 5}}))
    query = (
        frame.select(*open_archive(location).schema.names)
        .writeStream.format("odradek-archive")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start(location.path)
    )
    with pytest.raises(StreamingQueryException) as caught:
        run_to_end(query)
    assert "the archive has everything below 10: they would be there twice" in (
        reason_in(str(caught.value)) or ""
    )


def test_a_driver_that_is_killed_leaves_no_double_and_no_gap(
    new_topic: Any, servers: str, location: ArchiveLocation, run: Run, check: Any, tmp_path: Path
) -> None:
    """A JVM of its own is killed by -9 between the archive's commit and Spark's; the run after it goes on from the archive."""
    topic = new_topic(2)
    for partition in range(2):
        topic.send_numbers(0, 40, partition=partition)
    terms = {
        "servers": servers,
        "topic": topic.name,
        "place": location.path,
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    words = command("tests.spark.programs.killed_archive", terms)
    died = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert died.returncode != 0
    positions = open_archive(location).state().positions
    assert sum(positions.values()) == 40, last_lines(died.stderr)  # two batches of 20 records
    run(topic)
    assert all_faults(check()) == []
    assert open_archive(location).state().positions == {
        TopicPartition(topic.name, number): 40 for number in range(2)
    }
