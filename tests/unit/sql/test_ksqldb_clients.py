"""Clients that were written for ksqlDB, unmodified."""

from __future__ import annotations

import asyncio
import gc
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.sql.running_server import sql_server
from tests.unit.sql.test_sql_server import EARLIEST

from odradek.sql.dbapi import InterfaceError, NotSupportedError, ProgrammingError, connect, literal, stream
from odradek.testing import LocalBroker


@pytest.fixture
def leaves_connections() -> Iterator[None]:
    """These clients do not close theirs."""
    yield
    gc.collect()


of_others = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with (
        LocalBroker() as broker,
        sql_server(broker.address, "clients", tmp_path_factory.mktemp("sql")) as client,
    ):
        client.execute(
            "CREATE STREAM words (id INT KEY, word STRING) WITH (KAFKA_TOPIC='words', VALUE_FORMAT='JSON', PARTITIONS=1);"
            "CREATE TABLE counts (word STRING PRIMARY KEY, n BIGINT)"
            " WITH (KAFKA_TOPIC='counts', VALUE_FORMAT='JSON', PARTITIONS=1);"
            "INSERT INTO words VALUES (1, 'tree'); INSERT INTO counts VALUES ('tree', 1); INSERT INTO counts VALUES ('sky', 2);"
        )
        yield client.url


@of_others
def test_ksqldb_of_pypi(url: str, leaves_connections: None) -> None:
    """HTTP/2 without TLS."""
    ksqldb = pytest.importorskip("ksqldb")
    client = ksqldb.KSQLdbClient(url)
    assert {
        "name": "ksql.service.id",
        "scope": "KSQL",
        "value": "clients",
        "editable": False,
    } in client.get_properties()
    assert "WORDS" in [stream["name"] for stream in client.ksql("SHOW STREAMS;")[0]["streams"]]
    assert client.query_sync("SELECT * FROM counts WHERE word = 'sky';")[1:] == [["sky", 2]]
    assert client.inserts_stream("words", [{"ID": 2, "WORD": "wind"}]) == [{"status": "ok", "seq": 0}]

    async def first_rows() -> list[Any]:
        text = "SELECT id, word FROM words EMIT CHANGES LIMIT 2;"
        return [row async for row in client.query_async(text, EARLIEST)]

    header, *rows = asyncio.run(first_rows())
    assert (header["columnNames"], header["columnTypes"]) == (["ID", "WORD"], ["INTEGER", "STRING"])
    assert rows == [[1, "tree"], [2, "wind"]]
    assert not client.close_query("nothing")


@of_others
def test_ksql_of_pypi(url: str, leaves_connections: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its HTTP/2 part stands on `hyper`, which Python 3.10 and later cannot import: the rest is tried."""
    hyper = types.ModuleType("hyper")
    hyper.HTTPConnection = None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hyper", hyper)
    ksql = pytest.importorskip("ksql")
    client = ksql.KSQLAPI(url)
    assert client.get_ksql_version()
    assert [table["name"] for table in client.ksql("SHOW TABLES;")[0]["tables"]] == ["COUNTS"]
    rows = client.query(
        "SELECT word FROM words EMIT CHANGES LIMIT 1;", stream_properties=EARLIEST, return_objects=True
    )
    assert list(rows) == [{"WORD": "tree"}]
    with pytest.raises(ksql.errors.KSQLError) as refused:
        client.ksql("DESCRIBE nothing;")
    assert refused.value.error_code == 40001
    assert client.create_stream("made", ["a BIGINT", "b VARCHAR"], "words", "JSON")


def test_the_database_api_of_python(url: str) -> None:
    with connect(url) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT word, n FROM counts WHERE word = ?", ["tree"])
        assert [column[:2] for column in cursor.description or ()] == [("WORD", "STRING"), ("N", "BIGINT")]
        assert cursor.fetchone() == ("tree", 1)
        assert cursor.fetchone() is None
        cursor.execute("INSERT INTO counts VALUES (?, ?)", ["it's ?", 3])
        assert cursor.description is None
        with pytest.raises(InterfaceError, match="no rows"):
            cursor.fetchone()
        with pytest.raises(ProgrammingError, match="NOTHING") as refused:
            cursor.execute("SELECT * FROM nothing")
        assert refused.value.code == 40001
        with pytest.raises(InterfaceError, match="2 parameters, and 1 question"):
            cursor.execute("SELECT * FROM counts WHERE word = ?", ["a", "b"])
        with pytest.raises(NotSupportedError):
            connection.rollback()


async def test_rows_of_a_push_query_by_column(url: str) -> None:
    rows = stream("SELECT * FROM words EMIT CHANGES;", url=url, properties=EARLIEST)
    async for row in rows:
        assert row == {"ID": 1, "WORD": "tree"}
        break
    await rows.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (1.5, "1.500000E+00"),
        ("it's", "'it''s'"),
        ([1, "a"], "ARRAY[1, 'a']"),
        ({"a": 1}, "MAP('a' := 1)"),
    ],
)
def test_values_as_literals(value: Any, text: str) -> None:
    assert literal(value) == text


def test_names_of_files_stay_out_of_the_way(tmp_path: Path) -> None:
    with pytest.raises(InterfaceError, match="cannot be a parameter"):
        literal(tmp_path)
