"""Spark Connect and JDBC of the SQL server: they show its streams and tables, follow them, and change nothing.

One server and one JVM for all tests here.
"""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
from tests.kit.commands import RunningCommand
from tests.kit.waiting import eventually
from tests.spark.sql.test_sql_engine import as_users_start_it
from tests.spark.sql.thrift_session import ThriftSession

pytest.importorskip("pyspark", reason="PySpark is absent")
pytest.importorskip("grpc_status", reason="the client of Spark Connect is absent")

import pyspark
from pyspark.errors import UnsupportedOperationException
from pyspark.sql.connect.functions import udf
from pyspark.sql.connect.session import SparkSession as ConnectSession

from odradek.sql.rest_client import RestClient

FOLLOWS_S: Final = 60
SECRET: Final = "only-the-server-knows"
SECRET_NAME: Final = "ODRADEK_OF_THE_SERVER"
STATEMENTS: Final = """
CREATE STREAM orders (customer STRING KEY, item STRING, amount DECIMAL(6, 2), at TIMESTAMP, day DATE,
    tags MAP<STRING, INT>, place STRUCT<city STRING, seen TIMESTAMP>)
    WITH (KAFKA_TOPIC='door-orders', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE users (id STRING PRIMARY KEY, city STRING)
    WITH (KAFKA_TOPIC='door-users', VALUE_FORMAT='JSON', PARTITIONS=1);
INSERT INTO orders (rowtime, customer, item, amount, at, day, tags, place) VALUES
    (5, 'ann', 'tea', 12.34, '2026-01-02T03:04:05.678', '2026-01-02', MAP('x' := 1),
    STRUCT(city := 'Oslo', seen := '2026-01-02T03:04:05.678'));
INSERT INTO users VALUES ('ann', 'Oslo');
INSERT INTO users VALUES ('bob', 'Rome');
INSERT INTO users VALUES ('ann', 'Bonn');
"""
CHANGES: Final = """
DROP TABLE users
CREATE TABLE y (a INT)
CREATE TEMPORARY VIEW y AS SELECT 1
CREATE TEMPORARY FUNCTION f AS 'odradek.F'
INSERT INTO users VALUES ('eve', 'Kyiv')
WITH x AS (SELECT 'eve' AS id, 'Kyiv' AS city) INSERT INTO users SELECT * FROM x
INSERT OVERWRITE DIRECTORY '/tmp/odradek' USING csv SELECT 1
EXECUTE IMMEDIATE 'DROP TABLE users'
BEGIN DROP TABLE users; END
SET spark.sql.runSQLOnFiles = true
RESET
ADD JAR '/tmp/odradek.jar'
CACHE TABLE users
SELECT * FROM text.`/etc/hostname`
SELECT TRANSFORM (id) USING 'cat' AS (a STRING) FROM users
SELECT * FROM STREAM orders
""".strip().splitlines()


@dataclass(frozen=True)
class Doors:
    rest: RestClient
    connect: str
    jdbc: str
    spark: ConnectSession
    temporary: Path
    """The server's directory of temporary files."""

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.spark.sql(query).collect()]

    def beeline(self, arguments: str, *statements: str) -> str:
        """What it prints."""
        jars = Path(pyspark.__file__).parent / "jars"
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", "org.apache.hive.beeline.BeeLine"]
        options = ["--silent=true", "--outputformat=csv2", "--force=true", "-u", f"{self.jdbc}/{arguments}"]
        given = [option for statement in statements for option in ("-e", statement)]
        finished = subprocess.run(
            [*command, *options, *given], capture_output=True, text=True, timeout=120, check=False
        )
        return finished.stdout + finished.stderr


TABLES: Final = {"orders", "users", "ksql_processing_log"}
"""The server makes the last one."""


@pytest.fixture(scope="module")
def doors(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    directory = tmp_path_factory.mktemp("doors")
    with tempfile.TemporaryDirectory(prefix="doors-") as temporary:  # a short path, for sockets
        yield from served(servers, directory, Path(temporary))


def served(servers: str, directory: Path, temporary: Path) -> Iterator[Doors]:
    words = ["sql", "serve", "--listen", "127.0.0.1:0", "--connect", "0", "--jdbc", "127.0.0.1:0"]
    words += ["--bootstrap", servers, "--data", str(directory), "--service-id", "doors"]
    environment = as_users_start_it() | {SECRET_NAME: SECRET, "TMPDIR": str(temporary)}
    with RunningCommand(*words, log_file=directory / "server.log", environment=environment) as server:
        rest = RestClient(url=server.address)
        rest.execute(STATEMENTS)
        connect, jdbc = server.wait_until_ready(), server.wait_until_ready()
        spark = ConnectSession(connect)
        try:
            wait_for(lambda: spark.sql("SHOW TABLES").count(), len(TABLES))
            yield Doors(rest, connect, jdbc, spark, temporary)
        finally:
            spark.stop()


def wait_for(ask: Callable[[], object], expected: object) -> None:
    """Poll: clients do not hear when a table is there."""
    eventually(ask, holds=lambda state: state == expected)


def test_a_notebook_reads_a_stream(doors: Doors) -> None:
    (row,) = doors.spark.table("orders").collect()
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC).replace(tzinfo=None)
    assert row.asDict(recursive=True) == {
        "CUSTOMER": "ann",
        "ITEM": "tea",
        "AMOUNT": Decimal("12.34"),
        "AT": moment,
        "DAY": date(2026, 1, 2),
        "TAGS": {"x": 1},
        "PLACE": {"CITY": "Oslo", "SEEN": moment},
        "ROWTIME": 5,
        "ROWPARTITION": row.ROWPARTITION,
        "ROWOFFSET": 0,
    }


def test_a_table_has_the_present_row_of_each_key_at_every_query(doors: Doors) -> None:
    query = "SELECT id, city FROM users ORDER BY id"
    assert doors.rows(query) == [("ann", "Bonn"), ("bob", "Rome")]
    doors.rest.execute("INSERT INTO users VALUES ('cyd', 'Pula');")
    assert doors.rows(query) == [("ann", "Bonn"), ("bob", "Rome"), ("cyd", "Pula")]
    joined = "SELECT u.city, count(*) FROM orders o JOIN users u ON o.customer = u.id GROUP BY u.city"
    assert doors.rows(joined) == [("Bonn", 1)]


def test_tables_come_and_go_with_statements(doors: Doors) -> None:
    def names() -> set[str]:
        return {table.name for table in doors.spark.catalog.listTables()}

    doors.rest.execute(
        "CREATE STREAM later (v STRING) WITH (KAFKA_TOPIC='door-later', VALUE_FORMAT='JSON', PARTITIONS=1);"
    )
    wait_for(names, TABLES | {"later"})
    assert doors.rows("SELECT v FROM later") == []
    doors.rest.execute("DROP STREAM later;")
    wait_for(names, TABLES)


def test_statements_that_change_something_are_refused(doors: Doors) -> None:
    for statement in CHANGES:
        with pytest.raises(UnsupportedOperationException, match="is refused: the doors of Spark only read"):
            doors.spark.sql(statement).collect()
    for function in ("reflect", "java_method", "try_reflect"):
        with pytest.raises(Exception, match="UNRESOLVED_ROUTINE"):
            doors.rows(f"SELECT * FROM VALUES ({function}('java.lang.System', 'lineSeparator'))")


def test_functions_do_not_read_files_that_their_options_name(doors: Doors, tmp_path: Path) -> None:
    schema = tmp_path / "schema"
    schema.write_text("what another program keeps")
    for call in (
        f"from_xml('<a><b>1</b></a>', 'b STRING', map('rowValidationXSDPath', '{schema}'))",
        f"schema_of_xml('<a><b>1</b></a>', map('rowValidationXSDPath', '{schema}'))",
        f"from_avro(X'00', '\"string\"', map('avroSchemaUrl', '{schema}'))",
        f"from_protobuf(X'00', 'Message', '{schema}')",
    ):
        with pytest.raises(Exception, match="UNRESOLVED_ROUTINE"):
            doors.rows(f"SELECT {call}")


def test_what_the_server_has_in_its_environment_is_not_shown(doors: Doors) -> None:
    variable = f"${{env:{SECRET_NAME}}}"
    assert doors.rows(f"SELECT '{variable}', '${{env:PATH}}', '${{system:user.home}}'") == [
        (variable, "${env:PATH}", "${system:user.home}")
    ]
    for settings, statement in (
        ({}, f"SELECT '{variable}'"),
        ({"set:hivevar:shown": variable}, "SET"),
        ({"set:hiveconf:shown": variable}, "SET"),
    ):
        with ThriftSession(doors.jdbc, settings) as session:
            rows = session.rows(statement)
            assert variable.encode() in rows
            assert SECRET.encode() not in rows
    with ThriftSession(doors.jdbc, {"set:hiveconf:hive.variable.substitute": "true"}) as session:
        assert b"Cannot modify hive.variable.substitute at runtime" in session.rows("SET")


def test_other_users_of_the_machine_neither_see_files_nor_reach_the_driver(doors: Doors) -> None:
    assert doors.rows("SELECT count(DISTINCT id % 7) FROM range(100)") == [(7,)]
    with ThriftSession(doors.jdbc, {}) as session:
        assert b"forty-two" in session.rows("SELECT 'forty-two'")
    (own,) = (path.parent.parent for path in doors.temporary.glob("odradek-sql-*/*/catalog"))
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    # some folders of Spark's come and go meanwhile, which os.walk does not mind
    names = {name.partition("-")[0] for _, folders, _ in os.walk(own) for name in folders}
    assert {"blockmgr", "artifacts", "operation_logs"} <= names
    settings = dict(doors.rows("SET"))
    assert settings["spark.authenticate"] == "true"
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"


def test_calls_that_change_something_or_bring_code_are_refused(doors: Doors, tmp_path: Path) -> None:
    users = doors.spark.table("users")
    calls: list[Callable[[], object]] = [
        lambda: users.write.saveAsTable("copied"),
        lambda: users.write.parquet(str(tmp_path / "copied")),
        lambda: users.createOrReplaceTempView("v"),
        lambda: users.select(udf(str.upper)("city")).collect(),
        lambda: users.mapInPandas(lambda frames: frames, "id STRING, city STRING").collect(),
        lambda: doors.spark.udf.register("f", str.upper),
        lambda: doors.spark.read.text("/etc/hostname").collect(),
        lambda: doors.spark.conf.set("spark.sql.runSQLOnFiles", "true"),
        lambda: doors.spark.addArtifact(__file__, file=True),
        lambda: users.persist(),
    ]
    for call in calls:
        with pytest.raises(UnsupportedOperationException, match="is refused: the doors of Spark only read"):
            call()
    assert not any(tmp_path.iterdir())


def test_beeline_reads_and_changes_nothing(doors: Doors) -> None:
    said = doors.beeline(
        "default", "!tables", "SELECT item, amount FROM orders", "DROP TABLE users", "SELECT 6 * 7 AS answer"
    )
    assert ",default,users,TABLE," in said
    assert "tea,12.34" in said
    assert "DropTable is refused: the doors of Spark only read" in said
    assert "answer\n42" in said
    said = doors.beeline("default?spark.sql.catalog.x=odradek.Catalog", "SELECT 6 * 7 AS answer")
    assert "the setting spark.sql.catalog.x is refused" in said
    assert "42\n" not in said
