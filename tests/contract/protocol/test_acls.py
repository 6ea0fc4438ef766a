"""The table of APIs asks for what Kafka asks for, by what its compiled handlers say (`tests/golden/protocol/*/acls.txt`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.protocol import APIS, Api
from odradek.protocol.acls import parse_acls

RECORDED = Path(__file__).parents[2] / "golden" / "protocol" / "kafka-4.4.0" / "acls.txt"
KAFKAS = {
    name: set(asked.split(", "))
    for name, asked in (line.split(": ") for line in RECORDED.read_text().splitlines())
}
NOT_REQUIRED = {
    "CreateTopics": {"DESCRIBE_CONFIGS TOPIC"},  # whether the answer shows the settings
    "DescribeCluster": {"ALTER CLUSTER"},  # asked of a KRaft controller
    "IncrementalAlterConfigs": {"CLUSTER_ACTION CLUSTER"},  # for loggers of a KRaft controller
    "StreamsGroupHeartbeat": {"CREATE CLUSTER", "CREATE TOPIC"},  # whether internal topics are created
    "Metadata": {"DESCRIBE CLUSTER"},  # whether the answer shows what may be done to the cluster
}
"""What Kafka's handlers ask for without refusing what Odradek serves."""
OURS = 10_000


@pytest.mark.parametrize("api", [api for api in APIS.values() if api.key < OURS], ids=lambda api: api.name)
def test_an_api_asks_for_what_kafkas_handler_asks_for(api: Api) -> None:
    asked = {
        f"{required.operation.name} {required.resource.name}" for group in api.acls for required in group
    }
    assert asked == KAFKAS.get(api.name, set()) - NOT_REQUIRED.get(api.name, set())


@pytest.mark.parametrize(
    "api",
    [api for api in APIS.values() if api.internal],
    ids=lambda api: api.name,
)
def test_what_only_brokers_ask_is_a_cluster_action(api: Api) -> None:
    assert api.acls == parse_acls("CLUSTER_ACTION CLUSTER")


def test_alternatives_and_what_is_asked_besides_are_distinguished() -> None:
    text = "CREATE CLUSTER | CREATE TOPIC, READ GROUP"
    named = [[f"{acl.operation.name} {acl.resource.name}" for acl in group] for group in parse_acls(text)]
    assert named == [["CREATE CLUSTER", "CREATE TOPIC"], ["READ GROUP"]]
    assert parse_acls("") == ()


def test_an_operation_that_kafka_does_not_have_is_our_mistake() -> None:
    with pytest.raises(KeyError):
        parse_acls("REED TOPIC")
