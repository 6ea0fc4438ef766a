"""Persistent and push queries of the SQL server: they survive the death of their JVM, of the server, and of its directory.

One server and one JVM at a time. A producer goes on writing all the while; in the end each record counts once.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

import pytest
from tests.kit.commands import RunningCommand
from tests.kit.waiting import eventually

from odradek.archive.checks.topic_side import BrokerTopics
from odradek.archive.checks.verify import all_faults, verify_archive
from odradek.archive.files.reading import FileReader
from odradek.archive.opening import open_archive
from odradek.archive.store.location import archive_location
from odradek.archive.tables.port import ArchiveTable
from odradek.client import Consumer, Producer
from odradek.model.ids import TopicPartition
from odradek.sql.rest_client import RestClient, ServerRefusal

PATIENCE_S: Final = 180
EARLIEST: Final = {"auto.offset.reset": "earliest"}
CUSTOMERS: Final = 3
PARENT: Final = 1


@contextmanager
def serving(
    servers: str,
    service_id: str,
    directory: Path,
    *settings: str,
    more_environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[RestClient, subprocess.Popen[str]]]:
    words = ["sql", "serve", "--listen", "127.0.0.1:0"]
    words += ["--bootstrap", servers, "--data", str(directory), "--service-id", service_id]
    words += [word for setting in settings for word in ("--set", setting)]
    log_file = directory.parent / f"{directory.name}.log"
    environment = {**as_users_start_it(), **more_environment}
    with RunningCommand(*words, log_file=log_file, environment=environment) as server:
        yield RestClient(url=server.address, timeout_s=PATIENCE_S), server.process


def as_users_start_it() -> dict[str, str]:
    """Removes what tests say of Python: the engine chooses then how planners and workers start."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}


def wait_for(ask: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    """Poll: there is no call when a query has written its rows."""
    return eventually(ask, holds=holds, seconds=PATIENCE_S, every_s=0.25)


def family(process_id: int) -> list[int]:
    """A process and all below it."""
    children = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (status := status_of(int(entry.name))):
            children[int(status[PARENT])].append(int(entry.name))
    members = [process_id]
    for member in members:
        members += children[member]
    return members


def status_of(process_id: int) -> list[str]:
    """What follows its name in proc(5)'s stat: state, parent, ... Empty for a process that has ended."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def jvm_of(server: subprocess.Popen[str]) -> int:
    """The process id of its engine. A launcher's shell has gone by the time a query runs; a process that the JVM begins has its
    name for a moment, and stands behind it.
    """
    java_id, *_ = (process_id for process_id in family(server.pid) if program_of(process_id) == "java")
    return java_id


def kill_jvm(client: RestClient, server: subprocess.Popen[str]) -> int:
    """How many records were counted before."""
    before = counted(client)
    os.kill(jvm_of(server), signal.SIGKILL)
    return before


def program_of(process_id: int) -> str:
    """Empty for a process that ended meanwhile: Spark's Python processes are short-lived."""
    try:
        return Path(f"/proc/{process_id}/exe").readlink().name
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_there(process_id: int) -> bool:
    """A zombie is not: the container's first process may not reap it."""
    return bool(status := status_of(process_id)) and status[0] != "Z"


class Orders:
    """Writes the numbers 2, 3, … of customers in turn, 50 a second, until it is ended."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.end_number = 2

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _write(self) -> None:
        with Producer(self._servers) as producer:
            while not self._is_over.wait(0.02):
                number = self.end_number
                key = b"customer-%d" % (number % CUSTOMERS)
                producer.send("sql-orders", b'{"AMOUNT":%d}' % number, key=key)
                self.end_number += 1


def said(log: Path, event: str) -> list[str]:
    """The lines of a server's log with an event."""
    return [line for line in log.read_text().splitlines() if event in line]


def totals(client: RestClient) -> list[list[Any]]:
    with client.query("SELECT * FROM sql_totals;") as query:
        return sorted(query)


def counted(client: RestClient) -> int:
    return sum(row[1] for row in totals(client))


def committed(servers: str, topic: str, enough: int) -> list[bytes | None]:
    """The values of a topic with one partition: `enough` of them, and what else comes within a second."""
    values: list[bytes | None] = []
    with Consumer(servers, isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            polled = consumer.poll(1.0)
            values += [record.value for record in polled]
            if not polled and len(values) >= enough:
                return values
            assert time.monotonic() < deadline, f"{len(values)} of {enough} records"


def expected_totals(numbers: range) -> list[list[Any]]:
    return [
        [f"customer-{customer}", len(numbers[customer::CUSTOMERS]), sum(numbers[customer::CUSTOMERS])]
        for customer in range(CUSTOMERS)
    ]


def pause_and_resume(client: RestClient, query_id: str) -> None:
    def state() -> str:
        (explained,) = client.execute(f"EXPLAIN {query_id};")
        said: str = explained["queryDescription"]["state"]
        return said

    client.execute(f"PAUSE {query_id};")
    assert state() == "PAUSED"
    client.execute(f"RESUME {query_id};")
    assert state() == "RUNNING"


def a_record_wakes_the_query_that_sleeps(client: RestClient, log: Path, expected: list[list[Any]]) -> None:
    wait_for(lambda: said(log, "sql_query_sleeps"), bool)
    client.execute("INSERT INTO sql_orders VALUES ('customer-0', 1000000);")
    expected[0] = ["customer-0", expected[0][1] + 1, expected[0][2] + 1_000_000]
    wait_for(lambda: totals(client), lambda rows: rows == expected)
    wait_for(lambda: said(log, "sql_query_woken"), bool)


def create_archives(client: RestClient, lake: Path) -> None:
    """One of a stream, and one of a query: both begin with the first record."""
    created = client.execute(
        f"CREATE ARCHIVE sql_kept FROM sql_orders WITH (PATH='{lake}/kept', EVERY='1 SECOND');"
        f"CREATE ARCHIVE sql_even WITH (PATH='{lake}/even', FORMAT='parquet', EVERY='1 SECOND', KAFKA_TOPIC='sql-even')"
        " AS SELECT customer, amount FROM sql_orders WHERE amount % 2 = 0;",
        properties=EARLIEST,
    )
    assert [entity["commandStatus"]["status"] for entity in created] == ["SUCCESS", "SUCCESS"]


def queries_are_altered(client: RestClient) -> None:
    """Alters two queries while records come: one by keep, one by carry. What they write is as if nothing had happened."""
    client.execute(
        "CREATE TABLE sql_users (id STRING PRIMARY KEY, name STRING)"
        " WITH (KAFKA_TOPIC='sql-users', VALUE_FORMAT='JSON', PARTITIONS=1);"
    )
    totals = (
        "ALTER TABLE sql_totals AS SELECT customer, COUNT(*) AS n, {} AS total FROM sql_orders"
        " WHERE amount >= 0 GROUP BY customer;"
    )
    even = (
        "ALTER STREAM sql_even AS SELECT o.customer AS customer, amount FROM sql_orders o LEFT JOIN sql_users u"
        " ON o.customer = u.id WHERE amount % 2 = 0;"
    )
    assert possible_modes(client, totals.format("SUM(amount)")) == ["keep", "carry", "rebuild"]
    assert possible_modes(client, totals.format("MAX(amount)")) == ["rebuild"]
    assert possible_modes(client, even) == ["carry"]
    assert possible_modes(client, even.replace("amount FROM", "amount * 2 AS twice FROM")) == []
    with pytest.raises(ServerRefusal, match="what aggregate-1 keeps of each key changes"):
        client.execute(totals.format("MAX(amount)"))
    with pytest.raises(ServerRefusal, match="WITH \\(MODE='carry'\\) AS SELECT … is possible"):
        client.execute(
            even.replace("ALTER", "CREATE OR REPLACE").replace(
                "sql_even AS", "sql_even WITH (KAFKA_TOPIC='sql-even') AS"
            )
        )
    by_keep, by_carry = client.execute(totals.format("SUM(amount)") + even)
    assert by_keep["commandStatus"]["message"].endswith("continues by keep")
    assert by_carry["commandStatus"]["message"].endswith("continues by carry")


def a_table_is_rebuilt(client: RestClient, expected: list[list[Any]]) -> None:
    """Rebuilds a table from the first record on, into a topic of its own, which takes over when it has caught up."""
    (started,) = client.execute(
        "ALTER TABLE sql_totals WITH (MODE='rebuild') AS"
        " SELECT customer, COUNT(*) AS n, -SUM(amount) AS below FROM sql_orders GROUP BY customer;"
    )
    assert "takes the place of CTAS_SQL_TOTALS" in started["commandStatus"]["message"]

    def topics() -> list[str]:
        return [table["topic"] for table in client.execute("SHOW TABLES;")[0]["tables"]]

    wait_for(topics, lambda names: "SQL_TOTALS.v2" in names)
    assert "SQL_TOTALS" not in topics()
    rebuilt = [[customer, count, -total] for customer, count, total in expected]
    wait_for(lambda: totals(client), lambda rows: rows == rebuilt)


def possible_modes(client: RestClient, statement: str) -> list[str]:
    (explained,) = client.execute(f"EXPLAIN {statement}")
    return [mode["mode"] for mode in explained["queryDescription"]["upgradeModes"] if mode["possible"]]


def archives_hold_each_record_once(client: RestClient, servers: str, lake: Path, numbers: range) -> None:
    """Also those that came while the JVM and the server were killed. Of a record that is no JSON, the bytes are there."""
    evens = [number for number in numbers if number % 2 == 0]
    wait_for(lambda: archived_rows(client), lambda rows: rows == [len(numbers) + 1, len(evens)])
    kept, even = (open_archive(archive_location(str(lake / name))) for name in ("kept", "even"))
    for table in (kept, even):
        findings = verify_archive(table, BrokerTopics(servers))
        assert all_faults(findings) == []
        assert all(finding.doubled == 0 and not len(finding.lost) for finding in findings)
    committed_rows, even_rows = (rows_of(table) for table in (kept, even))
    amounts = [row["value"] and row["value"]["AMOUNT"] for row in committed_rows]
    assert sorted(amount for amount in amounts if amount is not None) == list(numbers)
    (unread,) = (row for row in committed_rows if row["value"] is None)
    assert (unread["undecoded"], unread["key"]) == (b"no JSON", {"CUSTOMER": "customer-0"})
    assert sorted(row["value"]["AMOUNT"] for row in even_rows) == evens
    assert {row["topic"] for row in even_rows} == {"sql-even"}


def archived_rows(client: RestClient) -> list[int]:
    described = client.execute("DESCRIBE sql_kept EXTENDED; DESCRIBE ARCHIVE sql_even EXTENDED;")
    return [entity["archiveDescription"]["rows"] for entity in described]


def rows_of(table: ArchiveTable) -> list[dict[str, Any]]:
    reader = FileReader(location=table.location, schema=table.schema)
    return [row for file in table.files() for batch in reader.read(file) for row in batch.to_pylist()]


def archives_are_looked_after(client: RestClient, lake: Path) -> None:
    (listed,) = client.execute("SHOW ARCHIVES;")
    ids = {archive["name"]: archive["queryId"] for archive in listed["archives"]}
    assert {archive["state"] for archive in listed["archives"]} == {"RUNNING"}
    (explained,) = client.execute(f"EXPLAIN {ids['SQL_EVEN']};")
    assert "read topic sql-even from where the archive ends" in explained["queryDescription"]["executionPlan"]
    pause_and_resume(client, ids["SQL_KEPT"])
    dropped = client.execute("DROP ARCHIVE sql_even DELETE FILES; DROP ARCHIVE sql_kept; SHOW ARCHIVES;")
    assert dropped[-1]["archives"] == []
    assert [path.name for path in lake.iterdir()] == ["kept"]
    client.execute("DROP STREAM sql_even DELETE TOPIC;")


def test_queries_go_on_exactly_once_after_kills_and_without_their_directory(
    servers: str, tmp_path: Path
) -> None:
    with serving(servers, "killed", tmp_path / "a") as (client, server):
        client.execute(
            "CREATE STREAM sql_orders (customer STRING KEY, amount INT)"
            " WITH (KAFKA_TOPIC='sql-orders', VALUE_FORMAT='JSON', PARTITIONS=1);"
            " INSERT INTO sql_orders VALUES ('customer-0', 0); INSERT INTO sql_orders VALUES ('customer-1', 1);"
        )
        client.execute(
            "CREATE STREAM sql_watched (customer STRING KEY, amount INT)"
            " WITH (KAFKA_TOPIC='sql-orders', VALUE_FORMAT='JSON', BAD='sql-dead');"
            " CREATE STREAM sql_late AS SELECT customer, amount FROM sql_watched;"
        )
        client.execute(
            "CREATE TABLE sql_totals AS SELECT customer, COUNT(*) AS n, SUM(amount) AS total FROM sql_orders"
            " GROUP BY customer;",
            properties=EARLIEST,
        )
        create_archives(client, tmp_path / "lake")
        with Orders(servers) as orders:
            wait_for(lambda: counted(client), lambda count: count > 100)
            wait_for(lambda: archived_rows(client), lambda rows: min(rows) > 10)
            queries_are_altered(client)
            with Producer(servers) as producer:  # no query dies of it: it is left out, or goes to BAD
                producer.send("sql-orders", b"no JSON", key=b"customer-0")
            with client.query("SELECT UCASE(customer) AS who FROM sql_totals EMIT CHANGES LIMIT 3;") as query:
                assert {who for (who,) in query} <= {f"CUSTOMER-{number}" for number in range(CUSTOMERS)}

            seen = kill_jvm(client, server)
            seen = wait_for(lambda: counted(client), lambda count: count > seen + 100)

            below = family(server.pid)[1:]
            server.kill()
            server.wait(60)
            wait_for(
                lambda: [process_id for process_id in below if is_there(process_id)], lambda left: not left
            )
            sleeps = ("odradek.sql.awake.queries=1", "odradek.sql.sleep.after.ms=1000")
            with serving(servers, "killed", tmp_path / "b", *sleeps) as (client, _):
                wait_for(lambda: counted(client), lambda count: count > seen + 100)
                orders.__exit__()
                numbers = range(orders.end_number)
                expected = expected_totals(numbers)
                wait_for(lambda: totals(client), lambda rows: rows == expected)
                # a query that began at the end of its stream, as SELECT does unless auto.offset.reset says earliest
                late = committed(servers, "SQL_LATE", len(numbers) - 2)
                assert late == [b'{"AMOUNT":%d}' % number for number in numbers[2:]]
                assert committed(servers, "sql-dead", 1) == [b"no JSON"]
                archives_hold_each_record_once(client, servers, tmp_path / "lake", numbers)
                a_record_wakes_the_query_that_sleeps(client, tmp_path / "b.log", expected)
                assert len(committed(servers, "SQL_LATE", len(late) + 1)) == len(late) + 1
                archives_are_looked_after(client, tmp_path / "lake")
                a_table_is_rebuilt(client, expected)
                (listed, _) = client.execute("SHOW QUERIES;")[0]["queries"]
                assert re.fullmatch(r"C[ST]AS_SQL_(LATE|TOTALS)_\d+", listed["id"])
                pause_and_resume(client, listed["id"])
                ended = client.execute("TERMINATE ALL; DROP TABLE sql_totals DELETE TOPIC; SHOW QUERIES;")[-1]
                assert ended["queries"] == []
