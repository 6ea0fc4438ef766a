"""Clients that were written for ksqlDB, unmodified."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import sys
import types
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

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


class Kafbat:
    """What Kafbat UI 1.x sends from its KSQL tab, and what it reads of answers: `KsqlApiClient`, `KsqlServiceV2` and
    `ResponseParser` of kafbat/kafka-ui. A table is a header, columns and rows.
    """

    _KSQL: Final = "application/vnd.ksql.v1+json"

    def __init__(self, url: str) -> None:
        place = urllib.parse.urlsplit(url)
        self._address = (place.hostname or "", place.port or 0)

    def select(self, text: str, properties: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
        """Its decoder takes each member of the array as soon as it is whole, however the chunks are cut."""
        with self._asked("/query", self._KSQL, text, properties) as response:
            if response.status >= 400:
                yield "Execution error", json.loads(response.read())
                return
            for member in self._members(response):
                if member.get("header"):
                    yield "Schema", self._columns(member["header"]["schema"])
                elif member.get("row"):
                    yield "Row", member["row"]["columns"]
                elif member.get("errorMessage") is not None:
                    yield "Error", member["errorMessage"]

    def statement(self, text: str) -> list[tuple[str, Any]]:
        with self._asked("/ksql", "application/json", text, {}) as response:
            content = response.read()
            if response.status >= 400:
                return [("Execution error", json.loads(content))]
            if not content:
                return [("Query Result", "Success")]
            return [self._table(entity) for entity in json.loads(content)]

    @contextmanager
    def _asked(
        self, path: str, kind: str, text: str, properties: Mapping[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        with closing(http.client.HTTPConnection(*self._address, timeout=30)) as connection:
            body = json.dumps({"ksql": text, "streamsProperties": dict(properties)})
            connection.request("POST", path, body, {"Accept": self._KSQL, "Content-Type": kind})
            with closing(connection.getresponse()) as response:
                yield response

    @staticmethod
    def _members(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
        decoder, held = json.JSONDecoder(), ""
        while piece := response.read1(7):
            held += piece.decode("latin-1")
            while (start := held.lstrip("[,\n ")) and start != "]":
                try:
                    member, end = decoder.raw_decode(start)
                except ValueError:
                    break
                yield member
                held = start[end:]

    @staticmethod
    def _columns(schema: str) -> list[str]:
        """Commas outside of structs and of names in back quotes part columns."""
        columns, depth, quoted = [""], 0, False
        for char in schema:
            depth += (char == "<") - (char == ">")
            quoted ^= char == "`"
            if char == "," and depth == 0 and not quoted:
                columns.append("")
            elif char != " " or columns[-1]:
                columns[-1] += char
        return columns

    @staticmethod
    def _table(entity: dict[str, Any]) -> tuple[str, Any]:
        arrays = {"streams": "Streams", "tables": "Tables", "queries": "Queries", "kafka_topics": "Topics"}
        kind = entity["@type"]
        if kind in arrays:
            return arrays[kind], entity["topics" if kind == "kafka_topics" else kind]
        members = {"currentStatus": "commandStatus", "sourceDescription": "sourceDescription"}
        members |= {"queryDescription": "queryDescription", "properties": "properties"}
        return kind, entity[members[kind]]


def test_kafbat(url: str) -> None:
    kafbat = Kafbat(url)
    ((header, streams),) = kafbat.statement("LIST STREAMS;")
    assert header == "Streams"
    (words,) = (stream for stream in streams if stream["name"] == "WORDS")
    assert (words["topic"], words["keyFormat"], words["valueFormat"]) == ("words", "KAFKA", "JSON")
    ((header, tables),) = kafbat.statement("LIST TABLES;")
    (counts,) = (table for table in tables if table["name"] == "COUNTS")
    assert (header, counts["topic"], counts["isWindowed"]) == ("Tables", "counts", False)
    assert [title for title, _ in kafbat.statement("SHOW QUERIES;")] == ["Queries"]
    assert [title for title, _ in kafbat.statement("SHOW TOPICS;")] == ["Topics"]
    assert kafbat.statement("DESCRIBE words;")[0][1]["name"] == "WORDS"
    assert kafbat.statement("SHOW PROPERTIES;")[0][1]
    created = kafbat.statement(
        "CREATE STREAM nested (at STRUCT<x INT, y INT>, `a, b` INT)"
        " WITH (KAFKA_TOPIC='nested', VALUE_FORMAT='JSON', PARTITIONS=1);"
    )
    assert created[0][1]["status"] == "SUCCESS"
    assert kafbat.statement("INSERT INTO nested VALUES (STRUCT(x := 1, y := 2), 3);") in (
        [],
        [("Query Result", "Success")],
    )
    ((error, refusal),) = kafbat.statement("DESCRIBE nothing;")
    assert (error, refusal["error_code"]) == ("Execution error", 40001)

    (pulled, row) = kafbat.select("SELECT * FROM counts WHERE word = 'sky';", {})
    assert (pulled, row) == (("Schema", ["`WORD` STRING KEY", "`N` BIGINT"]), ("Row", ["sky", 2]))
    pushed = list(kafbat.select("SELECT id, word FROM words EMIT CHANGES LIMIT 1;", EARLIEST))
    assert pushed == [("Schema", ["`ID` INTEGER", "`WORD` STRING"]), ("Row", [1, "tree"])]
    (schema, nested) = kafbat.select("SELECT * FROM nested EMIT CHANGES LIMIT 1;", EARLIEST)
    assert schema[1] == ["`AT` STRUCT<`X` INTEGER, `Y` INTEGER>", "`a, b` INTEGER"]
    assert nested[1] == [{"X": 1, "Y": 2}, 3]
    ((wrong, said),) = kafbat.select("SELECT * FROM nothing EMIT CHANGES;", {})
    assert (wrong, said["error_code"]) == ("Execution error", 40001)


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
