"""Kafka's own command-line tools administer a broker with two data directories: quotas, settings, elections, moves, features.

The jars are those of the benchmark's peer; where no one has fetched them these tests are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.odradek_node import OdradekNode
from tests.interop.kafka_tools.tools import Tools
from tests.kit.waiting import eventually

from odradek.client import Admin
from odradek.client.admin.quotas import QuotaEntity
from odradek.model.ids import TopicPartition

TOOLS = "org.apache.kafka.tools"
CONFIG = "kafka-configs"

Java = Callable[..., str]


class TwoDirectories(OdradekNode):
    """`--data` names both."""

    @property
    def data_directory(self) -> Path:
        return Path(f"{self.directory}/a,{self.directory}/b")


@pytest.fixture(scope="module")
def node(server_kind: str) -> Iterator[OdradekNode]:
    if server_kind != "odradek":
        pytest.skip("Kafka's own tools are known to get on with Kafka")
    made = TwoDirectories().start()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def java(node: OdradekNode, tools: Tools) -> Java:
    """Runs one of Kafka's tools against the broker; returns what it printed."""

    def run(main_class: str, *arguments: str, fails: bool = False) -> str:
        main_class = tools.jars.config_command if main_class == CONFIG else main_class
        address = ("--bootstrap-server", node.bootstrap)
        is_last = main_class.endswith("ClusterTool")  # its subcommands take the address
        outcome = tools.run(main_class, *((*arguments, *address) if is_last else (*address, *arguments)))
        assert outcome.status == int(fails), outcome.terminal
        if fails:
            return outcome.terminal
        assert "rror" not in outcome.errors, outcome.errors
        return outcome.printed

    return run


@pytest.fixture
def admin(node: OdradekNode) -> Iterator[Admin]:
    with Admin(node.bootstrap) as made:
        yield made


def test_kafka_configs_sets_and_shows_quotas(java: Java, admin: Admin) -> None:
    whom = ("--entity-type", "users", "--entity-name", "u", "--entity-type", "clients", "--entity-default")
    java(CONFIG, "--alter", "--add-config", "producer_byte_rate=1000000,request_percentage=50.5", *whom)
    entity = QuotaEntity(user="u", client_id="")
    limits = {"producer_byte_rate": 1_000_000.0, "request_percentage": 50.5}
    assert admin.describe_quotas() == {entity: limits}
    said = java(CONFIG, "--describe", *whom)
    assert "user-principal 'u', the default client-id" in said
    assert "request_percentage=50.5" in said
    admin.alter_quotas({entity: dict.fromkeys(limits)})
    assert admin.describe_quotas() == {}


def test_kafka_configs_sets_and_shows_a_groups_settings(java: Java) -> None:
    group = ("--entity-type", "groups", "--entity-name", "g")
    java(CONFIG, "--alter", "--add-config", "consumer.session.timeout.ms=50000", *group)
    said = java(CONFIG, "--describe", *group)
    assert "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000" in said
    assert "DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000" in said


def test_kafka_configs_changes_brokers_and_loggers(java: Java) -> None:
    level = ("--add-config", "odradek.net=DEBUG", "--entity-type", "broker-loggers", "--entity-name", "1")
    java(CONFIG, "--alter", *level)
    java(
        CONFIG, "--alter", "--add-config", "log.roll.ms=77777", "--entity-type", "brokers", "--entity-default"
    )
    said = java(CONFIG, "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1")
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.roll.ms=77777" in said


def test_kafka_client_metrics_keeps_subscriptions(java: Java) -> None:
    command = f"{TOOLS}.ClientMetricsCommand"
    java(command, "--alter", "--name", "m", "--metrics", "a", "--interval", "5000")
    assert java(command, "--list").split() == ["m"]


def test_kafka_leader_election_finds_nothing_to_do(java: Java, admin: Admin) -> None:
    admin.create_topics(["elected"])
    command = (f"{TOOLS}.LeaderElectionCommand", "--election-type", "preferred")
    assert "already elected" in java(*command, "--topic", "elected", "--partition", "0")
    java(*command, "--all-topic-partitions")


def where(admin: Admin, topic: str) -> tuple[str, str]:
    """The directory that holds the topic's first partition, and the other one."""
    partition = TopicPartition(topic, 0)
    ((_, directories),) = admin.describe_log_dirs().items()
    here = next(
        directory.path
        for directory in directories
        if partition in directory.replicas and not directory.replicas[partition].future
    )
    return here, next(directory.path for directory in directories if directory.path != here)


def test_kafka_reassign_partitions_moves_a_replica_between_directories(
    java: Java, admin: Admin, tmp_path: Path
) -> None:
    admin.create_topics(["moved"])
    _, other = where(admin, "moved")
    plan = {"topic": "moved", "partition": 0, "replicas": [1], "log_dirs": [other]}
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"version": 1, "partitions": [plan]}))
    command = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    said = java(command, "--execute", "--reassignment-json-file", str(file))
    assert "Successfully started partition reassignment for moved-0" in said
    assert f"Successfully started moving log directory to {other}" in said
    eventually(lambda: where(admin, "moved")[0] == other, "the replica in the other directory")
    said = java(command, "--verify", "--reassignment-json-file", str(file))
    assert "Reassignment of partition moved-0 is completed." in said
    assert "Reassignment of replica moved-0-1 completed successfully." in said
    assert "No partition reassignments found" in java(command, "--list")


def test_kafka_log_dirs_shows_both_directories(java: Java, admin: Admin) -> None:
    admin.create_topics(["shown"])
    said = java(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", "shown")
    document: dict[str, Any] = json.loads(said.splitlines()[-1])
    directories = document["brokers"][0]["logDirs"]
    assert len(directories) == 2
    assert [entry["partition"] for directory in directories for entry in directory["partitions"]] == [
        "shown-0"
    ]


def test_kafka_features_shows_and_changes_levels(java: Java, admin: Admin) -> None:
    command = f"{TOOLS}.FeatureCommand"
    lines = {line.split()[1]: line for line in java(command, "describe").splitlines()}
    assert "FinalizedVersionLevel: 2" in lines["transaction.version"]
    assert "FinalizedVersionLevel: 4.4-IV2" in lines["metadata.version"]
    assert "was downgraded to 1" in java(command, "downgrade", "--feature", "transaction.version=1")
    said = java(command, "upgrade", "--release-version", "4.4")
    assert "transaction.version was upgraded to 2" in said
    assert "metadata.version was upgraded to 33" in said
    assert {name: feature.finalized for name, feature in admin.describe_features().items()} == {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "kraft.version": 1,
        "metadata.version": 33,
        "share.version": 2,
        "streams.version": 1,
        "transaction.version": 2,
    }
    admin.update_features({"kraft.version": 0})


def test_kafka_metadata_quorum_cannot_remove_the_only_voter(java: Java) -> None:
    said = java(
        f"{TOOLS}.MetadataQuorumCommand",
        "remove-controller",
        *("--controller-id", "1", "--controller-directory-id", "AAAAAAAAAAAAAAAAAAAAAQ"),
        fails=True,
    )
    assert "Cluster doesn't support removing voter because the kraft.version feature is 0" in said


def test_kafka_cluster_lists_the_broker_and_finds_no_controller_to_unregister(
    java: Java, admin: Admin
) -> None:
    command = f"{TOOLS}.ClusterTool"
    assert java(command, "cluster-id").split() == ["Cluster", "ID:", admin.describe_cluster().cluster_id]
    heading, row = [line.split() for line in java(command, "list-endpoints").splitlines() if line.strip()]
    assert dict(zip(heading, row, strict=True)) == {
        "ID": "1",
        "HOST": "127.0.0.1",
        "PORT": str(admin.describe_cluster().brokers[0].port),
        "RACK": "null",
        "STATE": "unfenced",
        "ENDPOINT_TYPE": "broker",
    }
    said = java(command, "unregister-controller", "--id", "7", fails=True)
    assert "Controller ID 7 is not currently registered" in said


def test_kafka_metadata_quorum_sees_a_leader(java: Java) -> None:
    said = java(f"{TOOLS}.MetadataQuorumCommand", "describe", "--status")
    words = dict(line.split(":", 1) for line in said.splitlines() if ":" in line)
    assert words["LeaderId"].strip() == "1"
    assert words["CurrentObservers"].strip() == "[]"
