"""Tables of a program, asked through views of their topics."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from odradek import Admin, NewTopic, Producer
from odradek.model.errors import ConfigError
from odradek.streams.plan.operators import TopicSink
from odradek.streams.queryable_tables import QueryableTable, QueryableTables
from odradek.streams.restore.changelogs import make_compacted
from odradek.testing.local import LocalBroker


def struct(text: str) -> StructType:
    kind = StructType()
    for column in text.split(", "):
        kind = kind.add(*column.split())
    return kind


def asked(key: str, value: str, form: str) -> QueryableTable:
    schema = StructType().add("__key", struct(key)).add("__value", struct(value))
    frame: Any = SimpleNamespace(rows=SimpleNamespace(schema=schema))
    return QueryableTable.of(TopicSink(name="to", topic="totals", key_format=form, value_format=form), frame)


@pytest.mark.parametrize(
    ("key", "value", "form", "formats"),
    [
        ("key string", "n long, total double", "json", ("string", "json")),
        ("id long", "value long", "json", ("json", "json")),
        ("id long", "value string", "kafka", ("long", "string")),
        ("id short", "value integer", "kafka", ("short", "int")),
        ("item string, window_start long", "value binary", "json", ("json", "bytes")),
        ("item string, size integer", "n integer, m integer", "csv", ("string", "string")),
    ],
)
def test_a_view_reads_what_the_program_writes(
    key: str, value: str, form: str, formats: tuple[str, str]
) -> None:
    table = asked(key, value, form)
    assert (table.key, table.value) == formats


def test_a_table_is_asked_by_its_topic(odradek_broker: LocalBroker) -> None:
    options = {"kafka.bootstrap.servers": odradek_broker.address}
    make_compacted(options, "asked-totals")
    make_compacted(options, "asked-totals")  # it is there
    with Producer(odradek_broker.address) as producer:
        for name, text in (("ann", b'{"n": 1}'), ("bob", b'{"n": 2}'), ("cleo", b'{"n": 3}')):
            producer.send("asked-totals", text, key=name.encode())
    tables = QueryableTables(
        options, {"asked-totals": QueryableTable(topic="asked-totals", key="string", value="json")}
    )
    try:
        view = tables["asked-totals"]
        assert view["ann"] == {"n": 1}
        assert [row.key for row in view.range("b", "d")] == ["bob", "cleo"]
        assert view.freshness().lag == 0
        assert tables["asked-totals"] is view
        with pytest.raises(ConfigError, match="no table to 'others'; it writes asked-totals"):
            tables["others"]
    finally:
        tables.close()


def test_tables_are_served_until_the_program_ends(odradek_broker: LocalBroker) -> None:
    options = {"kafka.bootstrap.servers": odradek_broker.address}
    make_compacted(options, "served-totals")
    with Producer(odradek_broker.address) as producer:
        producer.send("served-totals", b'{"n": 1}', key=b"ann")
    tables = QueryableTables(
        options, {"served-totals": QueryableTable(topic="served-totals", key="string", value="json")}
    )
    try:
        address = tables.serve("127.0.0.1", 0)
        with pytest.raises(ConfigError, match="are served at"):
            tables.serve("127.0.0.1", 0)
        other = QueryableTables(options, tables.tables)
        with pytest.raises(ConfigError, match="cannot listen"):
            other.serve("127.0.0.1", int(address.rpartition(":")[2]))
        response = asked_until_there(f"{address}/tables/served-totals/ann?freshness=brief")
        assert (response["key"], response["value"], response["freshness"]["lag"]) == ("ann", {"n": 1}, 0)
    finally:
        tables.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{address}/tables", timeout=5)
    with pytest.raises(ConfigError, match="writes no table"):
        QueryableTables(options, {}).serve("127.0.0.1", 0)


def asked_until_there(url: str) -> dict[str, Any]:
    """The answer, once the table is not restored any more."""
    while True:
        try:
            with urllib.request.urlopen(url, timeout=30) as response:
                reply: dict[str, Any] = json.load(response)
                return reply
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise


def test_a_topic_that_forgets_rows_is_named_in_a_warning(
    odradek_broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with Admin(odradek_broker.address) as admin:
        admin.create_topics([NewTopic("asked-deleted", 1, 1, configs={"cleanup.policy": "delete"})])
    make_compacted({"kafka.bootstrap.servers": odradek_broker.address}, "asked-deleted")
    assert "asked-deleted" in caplog.text
    assert "cleanup.policy=compact" in caplog.text
