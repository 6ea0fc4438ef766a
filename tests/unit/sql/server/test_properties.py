"""Properties of SET and of requests: default formats, and those of ksqlDB that change nothing here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.sql.running_server import sql_server

from odradek.sql.rest_client import RestClient, ServerRefusal
from odradek.testing import LocalBroker


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestClient]:
    with (
        LocalBroker() as broker,
        sql_server(broker.address, "tests", tmp_path_factory.mktemp("sql")) as client,
    ):
        yield client


def test_properties_of_ksqldb_are_taken_with_a_note(client: RestClient) -> None:
    given = {
        "ksql.streams.topology.optimization": "all",
        "ksql.query.pull.table.scan.enabled": "true",
        "consumer.max.poll.records": "5",
    }
    (types,) = client.execute("SHOW TYPES;", properties=given)
    assert [warning["message"] for warning in types["warnings"]] == [
        "ksql.query.pull.table.scan.enabled has no effect here.",
        "max.poll.records has no effect here.",
        "topology.optimization has no effect here.",
    ]
    with pytest.raises(
        ServerRefusal, match=r"topology.optimisation is no property .* Did you mean topology.optimization"
    ):
        client.execute("SHOW TYPES;", properties={"topology.optimisation": "all"})


def test_set_holds_for_what_follows_in_a_request(client: RestClient) -> None:
    formats = "SET 'ksql.persistence.default.format.{}'='{}';"
    made, described = client.execute(
        formats.format("value", "delimited")
        + "CREATE STREAM by_default (id STRING KEY, a INT, b INT) WITH (KAFKA_TOPIC='by_default', PARTITIONS=1);"
        + "UNSET 'ksql.persistence.default.format.value'; DESCRIBE by_default;"
    )
    assert made["commandStatus"]["status"] == "SUCCESS"
    assert described["sourceDescription"]["valueFormat"] == "DELIMITED"
    with pytest.raises(ServerRefusal, match="is missing the 'VALUE_FORMAT' property"):
        client.execute("CREATE STREAM no_default (a INT) WITH (KAFKA_TOPIC='no_default', PARTITIONS=1);")
    with pytest.raises(ServerRefusal, match=r"is one of AVRO, .* not 'x'"):
        client.execute(formats.format("key", "x"))
    client.execute("DROP STREAM by_default DELETE TOPIC;")
