"""A server that starts from a snapshot answers as the one before it."""

from __future__ import annotations

from pathlib import Path

from tests.unit.sql.running_server import sql_server

from odradek.client import Admin
from odradek.model.ids import TopicPartition
from odradek.testing import LocalBroker

COMMANDS = TopicPartition("_odradek-sql-again-commands", 0)
SHOWN = "SHOW STREAMS; SHOW TABLES; SHOW TYPES; DESCRIBE kept; LIST FUNCTIONS;"


def test_a_server_that_starts_from_a_snapshot_answers_as_before(tmp_path: Path) -> None:
    churn = "".join(f"CREATE TYPE churn{number} AS INT; DROP TYPE churn{number};" for number in range(6))
    with LocalBroker() as broker:
        with sql_server(
            broker.address, "again", tmp_path, python_functions=True, commands_between_snapshots=4
        ) as client:
            client.execute(
                "CREATE TYPE address AS STRUCT<street STRING>;"
                "CREATE FUNCTION bump(a INT) RETURNS INT AS $$ a + 1 $$;"
                "CREATE STREAM kept (k STRING KEY, a INT, home address)"
                " WITH (KAFKA_TOPIC='kept', VALUE_FORMAT='JSON', PARTITIONS=1);"
                "CREATE TABLE t (k STRING PRIMARY KEY, a INT) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON', PARTITIONS=1);"
                + churn
            )
            before = client.execute(SHOWN)
        with Admin(broker.address) as admin:
            assert admin.list_offsets({COMMANDS: -2})[COMMANDS].offset > 0  # the first commands are deleted
        with sql_server(broker.address, "again", tmp_path / "other", python_functions=True) as client:
            assert client.execute(SHOWN) == before
            (answered,) = client.execute("ALTER STREAM kept ADD COLUMN b INT;")
            assert answered["commandStatus"]["status"] == "SUCCESS"
