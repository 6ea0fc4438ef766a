"""Keys of DOUBLE: a comparison finds both zeros equal, and each is a key of its own. NaN is one key, which nothing equals."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.sql.running_server import sql_server

from odradek.client import Consumer
from odradek.model.ids import TopicPartition
from odradek.testing import LocalBroker


@pytest.mark.parametrize("key_format", ["KAFKA", "JSON"])
def test_a_pull_query_by_zero_finds_both_zeros(tmp_path: Path, key_format: str) -> None:
    with LocalBroker() as broker, sql_server(broker.address, "zeros", tmp_path) as client:
        client.execute(
            "CREATE TABLE z (k DOUBLE PRIMARY KEY, v INT) WITH (KAFKA_TOPIC='z', VALUE_FORMAT='JSON', PARTITIONS=1,"
            f" KEY_FORMAT='{key_format}'); INSERT INTO z VALUES (0.0, 1); INSERT INTO z VALUES (-0e0, 2);"
            " INSERT INTO z VALUES (CAST('nan' AS DOUBLE), 3); INSERT INTO z VALUES (1.5, 4);"
        )

        def values(where: str) -> list[object]:
            with client.query(f"SELECT v FROM z WHERE {where};") as query:
                return sorted(value for (value,) in query)

        assert values("k = 0.0") == values("k = -0e0") == values("0 = k") == values("k IN (0, 7)") == [1, 2]
        assert values("k = 1.5") == [4]
        assert values("k <= 0") == [1, 2]
        assert values("k IS NOT NULL") == [1, 2, 3, 4]
        if key_format == "KAFKA":
            with Consumer(broker.address, auto_offset_reset="earliest", key_deserializer=None) as consumer:
                consumer.assign([TopicPartition("z", 0)])
                keys = [record.key.hex() for record in consumer.poll(10.0) if record.key is not None]
            assert keys == ["0000000000000000", "8000000000000000", "7ff8000000000000", "3ff8000000000000"]


def test_casts_in_values_are_those_of_queries(tmp_path: Path) -> None:
    with LocalBroker() as broker, sql_server(broker.address, "casts", tmp_path) as client:
        client.execute(
            "CREATE TABLE c (k BIGINT PRIMARY KEY, v STRING, n INT) WITH (KAFKA_TOPIC='c', VALUE_FORMAT='JSON',"
            " PARTITIONS=1); INSERT INTO c VALUES (-9223372036854775808, CAST(CAST('1.005' AS DECIMAL(4, 2)) AS STRING),"
            " CAST(CAST(2147483648 AS BIGINT) AS INT)); INSERT INTO c VALUES (1, CAST(CAST('2020-01-02' AS DATE) AS STRING),"
            " CAST(' 7 ' AS INT));"
        )
        with client.query("SELECT * FROM c;") as query:
            rows = sorted(query)
    assert rows == [[-(1 << 63), "1.01", -(1 << 31)], [1, "2020-01-02", 7]]
