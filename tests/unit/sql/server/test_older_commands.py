"""Commands of an older version: one that is refused today is named in the log, and the others are applied."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.sql.running_server import sql_server

from odradek.client import Producer
from odradek.sql.server.command_log.commands import SqlCommand
from odradek.testing import LocalBroker

ID = "stream/`OLD`/create"
REFUSED = (
    "CREATE STREAM old (k STRING KEY, windowstart BIGINT)"
    " WITH (KAFKA_TOPIC='old', VALUE_FORMAT='JSON', PARTITIONS=1);"
)
ACCEPTED = "CREATE STREAM s (k STRING KEY, a INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);"


def test_a_command_that_is_refused_today_is_named_and_the_others_are_applied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalBroker() as broker:
        with sql_server(broker.address, "older", tmp_path):
            pass  # makes the topic of commands
        with Producer(broker.address) as producer:
            for command_id, statement in ((ID, REFUSED), ("stream/`S`/create", ACCEPTED)):
                command = SqlCommand(command_id=command_id, statement=statement)
                producer.send_and_wait(
                    "_odradek-sql-older-commands", command.to_bytes(), key=command_id.encode()
                )
        with sql_server(broker.address, "older", tmp_path) as client:
            listed = client.execute("SHOW STREAMS;")[0]["streams"]
    assert [stream["name"] for stream in listed] == ["S"]
    (record,) = [record for record in caplog.records if record.message.startswith("sql_command_refused")]
    assert record.odradek_values["command"] == ID
    assert "WINDOWSTART" in record.odradek_values["reason"]
