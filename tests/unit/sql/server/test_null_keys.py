"""The key of a row that INSERT VALUES writes without values for its key columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.sql.running_server import sql_server

from odradek.client import Consumer
from odradek.model.ids import TopicPartition
from odradek.testing import LocalBroker


@pytest.mark.parametrize(
    ("key_format", "columns", "key"),
    [
        ("JSON", "a INT KEY, b STRING KEY", b'{"A":null,"B":null}'),
        ("DELIMITED", "a INT KEY, b STRING KEY", b","),
        ("JSON", "a INT KEY", None),
        ("KAFKA", "a INT KEY", None),
    ],
)
def test_a_row_whose_key_is_null_has_the_key_that_partition_by_makes_of_nulls(
    tmp_path: Path, key_format: str, columns: str, key: bytes | None
) -> None:
    with LocalBroker() as broker:
        with sql_server(broker.address, "keys", tmp_path) as client:
            client.execute(
                f"CREATE STREAM s ({columns}, v INT) WITH (KAFKA_TOPIC='s', KEY_FORMAT='{key_format}',"
                " VALUE_FORMAT='JSON', PARTITIONS=1); INSERT INTO s (v) VALUES (1);"
            )
        with Consumer(broker.address, auto_offset_reset="earliest", key_deserializer=None) as consumer:
            consumer.assign([TopicPartition("s", 0)])
            records = consumer.poll(10.0)
    assert [(record.key, record.value) for record in records] == [(key, b'{"V":1}')]
