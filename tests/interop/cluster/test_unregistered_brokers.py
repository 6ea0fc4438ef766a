"""The admin client on brokers that do not return, and on what a user without rights may not do."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from tests.kit.waiting import eventually

from odradek import Admin, ErrorCode, KafkaError, NewTopic, TopicPartition
from odradek.cli.main import cli
from odradek.testing import Cluster, LocalBroker

_SECONDS = 60.0
_NEVER_ANYONE = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


def test_a_broker_that_is_down_is_forgotten_and_one_that_runs_is_not() -> None:
    settings = {"broker.session.timeout.ms": "2000"}
    with Cluster(brokers=2, settings=settings) as cluster, Admin(cluster.address) as admin:
        quorum = admin.describe_quorum()
        [leader], [follower] = quorum.voters, quorum.observers
        assert leader.replica_id == quorum.leader_id
        assert {leader.replica_id, follower.replica_id} == set(quorum.nodes) == {1, 2}
        with pytest.raises(KafkaError) as refused:
            admin.unregister_broker(follower.replica_id)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        cluster.broker(follower.replica_id).stop()
        eventually(
            lambda: {node.broker_id for node in admin.describe_cluster().brokers} == {leader.replica_id}
        )
        admin.create_topics([NewTopic("before", 1, 2)])  # a broker that is down is still one of the cluster
        admin.unregister_broker(follower.replica_id)
        with pytest.raises(KafkaError) as unknown:
            admin.unregister_broker(follower.replica_id)
        assert unknown.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
        with pytest.raises(KafkaError) as too_many:
            admin.create_topics([NewTopic("after", 1, 2)])
        assert too_many.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        assert admin.describe_quorum().observers == ()


def test_a_user_without_rights_changes_nothing() -> None:
    only = TopicPartition("t", 0)
    with LocalBroker(_NEVER_ANYONE) as broker, Admin(broker.address, default_api_timeout_ms=20_000) as admin:
        cluster, group = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
        for code, call in (
            (cluster, admin.describe_quorum),
            (cluster, lambda: admin.unregister_broker(7)),
            (group, lambda: admin.remove_group_members("g", ["a"])),
            (group, lambda: admin.alter_share_group_offsets("g", {only: 0})),
            (group, lambda: admin.delete_share_group_offsets("g", ["t"])),
        ):
            with pytest.raises(KafkaError) as refused:
                call()
            assert refused.value.code is code


def test_commands_show_the_quorum_and_forget_a_broker_that_is_down() -> None:
    def run(*words: str) -> Result:
        return CliRunner().invoke(cli, [*words, "--bootstrap", cluster.address], catch_exceptions=False)

    with Cluster(brokers=2, settings={"broker.session.timeout.ms": "2000"}) as cluster:
        quorum = json.loads(run("cluster", "quorum", "--json").stdout)
        leader, follower = quorum["replicas"]
        assert (leader["role"], leader["node"], leader["lag"]) == ("leader", quorum["leader"], 0)
        assert (follower["role"], follower["log_end_offset"] + follower["lag"]) == (
            "observer",
            quorum["high_watermark"],
        )
        assert all(replica["endpoints"] for replica in quorum["replicas"])
        table = run("cluster", "quorum").stdout.splitlines()
        assert (
            table[0]
            == f"leader {quorum['leader']}, epoch {quorum['epoch']}, high watermark {quorum['high_watermark']}"
        )
        assert [line.split()[1] for line in table[-2:]] == ["leader", "observer"]

        gone = str(follower["node"])
        with pytest.raises(KafkaError, match="INVALID_REQUEST"):
            run("cluster", "unregister", gone, "--yes")
        with Admin(cluster.address) as admin:
            cluster.broker(follower["node"]).stop()
            eventually(
                lambda: {node.broker_id for node in admin.describe_cluster().brokers} == {leader["node"]}
            )
        refused = CliRunner().invoke(cli, ["cluster", "unregister", gone, "-b", cluster.address], input="n\n")
        assert refused.exit_code == 1
        forgotten = json.loads(run("cluster", "unregister", gone, "--yes", "--json").stdout)
        assert forgotten == {"unregistered": follower["node"]}
        with pytest.raises(KafkaError, match="BROKER_ID_NOT_REGISTERED"):
            run("cluster", "unregister", gone, "--yes")
