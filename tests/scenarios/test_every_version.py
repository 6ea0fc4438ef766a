"""Every API that the broker lists answers a sensible request in every version that it lists."""

import errno
import os
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from tests.kit.requests import fetch_request, produce_request

from odradek.broker.handlers import served_apis
from odradek.protocol import APIS
from odradek.protocol.messages.configs import (
    alter_configs,
    describe_configs,
    get_telemetry_subscriptions,
    incremental_alter_configs,
)
from odradek.protocol.messages.data import (
    delete_records,
    describe_producers,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
)
from odradek.protocol.messages.metadata import (
    api_versions,
    describe_cluster,
    describe_topic_partitions,
    find_coordinator,
    metadata,
)
from odradek.protocol.messages.topics import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_log_dirs,
)
from odradek.protocol.messages.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    write_txn_markers,
)
from odradek.runtime.real import PosixDisk

OLDEST_PRODUCE = 3


ELSEWHERE = {
    "SaslHandshake",
    "SaslAuthenticate",
    "AlterClientQuotas",
    "AlterPartitionReassignments",
    "AlterReplicaLogDirs",
    "AlterUserScramCredentials",
    "CreateDelegationToken",
    "DescribeDelegationToken",
    "ExpireDelegationToken",
    "RenewDelegationToken",
    "CreateAcls",
    "DeleteAcls",
    "DescribeAcls",
    "DescribeClientQuotas",
    "DescribeQuorum",
    "DescribeUserScramCredentials",
    "ElectLeaders",
    "ListConfigResources",
    "ListPartitionReassignments",
    "PushTelemetry",
    "UnregisterBroker",
    "UnregisterController",
    "AddRaftVoter",
    "RemoveRaftVoter",
    "UpdateFeatures",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "DescribeGroups",
    "ListGroups",
    "DeleteGroups",
    "OffsetCommit",
    "OffsetFetch",
    "OffsetDelete",
    "TxnOffsetCommit",
    "ShareGroupHeartbeat",
    "ShareGroupDescribe",
    "ShareFetch",
    "ShareAcknowledge",
    "DescribeShareGroupOffsets",
    "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
    "StreamsGroupHeartbeat",
    "StreamsGroupDescribe",
    "StreamsGroupTopologyDescriptionUpdate",
}
"""They need a login (`tests/security/test_logins.py`), a group, a transaction, or more than one broker: the tests in `groups/`,
`transactions/`, `administration/` and `cluster/` ask for each of their versions."""


def versions() -> Iterator[tuple[str, int]]:
    for served in (served_api for served_api in served_apis() if not APIS[served_api.api_key].internal):
        api = APIS[served.api_key]
        if api.name in ELSEWHERE:
            continue
        for version in api.offered(unstable=True):
            if api.name != "Produce" or version >= OLDEST_PRODUCE:
                yield api.name, version


def request_of(name: str, version: int, topic_id: UUID, batch: bytes) -> Any:
    """A request about the topic `t`, as a client of that version would fill it in."""
    makers = (
        _of_data(version, topic_id, batch)
        | _of_topics(version)
        | _of_the_cluster(version)
        | _of_transactions(version)
    )
    assert name in makers, f"no request of {name}: write one into `_of_data`, ..., or its name into ELSEWHERE"
    return makers[name]()


Makers = dict[str, Callable[[], Any]]
"""By the name of the API."""


def _of_data(version: int, topic_id: UUID, batch: bytes) -> Makers:
    return {
        "Produce": lambda: _produce(version, topic_id, batch),
        "Fetch": lambda: _fetch(version, topic_id),
        "ListOffsets": lambda: list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                list_offsets.ListOffsetsTopic(
                    name="t",
                    partitions=[list_offsets.ListOffsetsPartition(timestamp=-1)],
                )
            ],
        ),
        "DeleteRecords": lambda: delete_records.DeleteRecordsRequest(
            topics=[
                delete_records.DeleteRecordsTopic(
                    name="t", partitions=[delete_records.DeleteRecordsPartition(offset=0)]
                )
            ]
        ),
        "OffsetForLeaderEpoch": lambda: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            replica_id=-1 if version >= 3 else -2,
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    topic="t", partitions=[offset_for_leader_epoch.OffsetForLeaderPartition(leader_epoch=0)]
                )
            ],
        ),
    }


def _of_topics(version: int) -> Makers:
    return {
        "CreateTopics": lambda: create_topics.CreateTopicsRequest(
            topics=[
                create_topics.CreatableTopic(name=f"new{version}", num_partitions=1, replication_factor=1)
            ]
        ),
        "DeleteTopics": lambda: delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name="gone")] if version >= 6 else [],
            topic_names=["gone"] if version < 6 else [],
        ),
        "CreatePartitions": lambda: create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name="t", count=2, assignments=None)]
        ),
        "DescribeTopicPartitions": describe_topic_partitions.DescribeTopicPartitionsRequest,
        "DescribeProducers": lambda: describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name="t", partition_indexes=[0])]
        ),
        "DescribeConfigs": lambda: describe_configs.DescribeConfigsRequest(
            resources=[
                describe_configs.DescribeConfigsResource(
                    resource_type=2, resource_name="t", configuration_keys=None
                )
            ],
            include_synonyms=True,
        ),
        "AlterConfigs": lambda: alter_configs.AlterConfigsRequest(
            resources=[alter_configs.AlterConfigsResource(resource_type=2, resource_name="t")]
        ),
        "IncrementalAlterConfigs": lambda: incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[incremental_alter_configs.AlterConfigsResource(resource_type=2, resource_name="t")]
        ),
    }


def _of_the_cluster(version: int) -> Makers:
    return {
        "ApiVersions": lambda: api_versions.ApiVersionsRequest(
            client_software_name="c" if version >= 3 else "",
            client_software_version="1" if version >= 3 else "",
        ),
        "Metadata": lambda: metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t")]),
        "DescribeCluster": describe_cluster.DescribeClusterRequest,
        "GetTelemetrySubscriptions": get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest,
        "DescribeLogDirs": lambda: describe_log_dirs.DescribeLogDirsRequest(topics=None),
        "FindCoordinator": lambda: find_coordinator.FindCoordinatorRequest(
            key="g" if version < 4 else "", coordinator_keys=["g"] if version >= 4 else []
        ),
    }


def _of_transactions(version: int) -> Makers:
    return {
        "InitProducerId": lambda: init_producer_id.InitProducerIdRequest(transactional_id=None),
        "AddPartitionsToTxn": lambda: _add_partitions(version),
        "AddOffsetsToTxn": lambda: add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id="x", producer_id=1, producer_epoch=0, group_id="g"
        ),
        "EndTxn": lambda: end_txn.EndTxnRequest(
            transactional_id="x", producer_id=1, producer_epoch=0, committed=True
        ),
        "WriteTxnMarkers": lambda: write_txn_markers.WriteTxnMarkersRequest(
            markers=[
                write_txn_markers.WritableTxnMarker(
                    producer_id=1,
                    producer_epoch=0,
                    transaction_result=True,
                    topics=[write_txn_markers.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
                )
            ]
        ),
        "DescribeTransactions": lambda: describe_transactions.DescribeTransactionsRequest(
            transactional_ids=["x"]
        ),
        "ListTransactions": list_transactions.ListTransactionsRequest,
    }


def _add_partitions(version: int) -> Any:
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(name="t", partitions=[0])]
    if version < 4:
        return add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics,
        )
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        transactions=[
            add_partitions_to_txn.AddPartitionsToTxnTransaction(
                transactional_id="x", producer_id=1, producer_epoch=0, verify_only=True, topics=topics
            )
        ]
    )


def _produce(version: int, topic_id: UUID, batch: bytes) -> Any:
    return produce_request(topic_id if version >= 13 else "t", batch)


def _fetch(version: int, topic_id: UUID) -> Any:
    topic = topic_id if version >= 13 else "t"
    fields = {"session_epoch": 0} if version >= 7 else {}
    return fetch_request(topic, 0, partition_max_bytes=1000, **fields)


def error_codes(message: Any) -> set[int]:
    """Every error code anywhere inside a response."""
    results: set[int] = set()
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name in ("error_code", "partition_error_code"):
            results.add(int(value))
        elif isinstance(value, list):
            for element in value:
                if hasattr(element, "FIELDS"):
                    results |= error_codes(element)
    return results


NO_COORDINATOR = {
    "AddPartitionsToTxn": 16,
    "AddOffsetsToTxn": 16,
    "EndTxn": 16,
    "DescribeTransactions": 16,
}
"""Answers of a broker that no one has asked for a coordinator yet."""


@pytest.mark.parametrize(("name", "version"), list(versions()))
async def test_it_answers(wire: Any, make_batch: Any, name: str, version: int) -> None:
    topic = await wire.create("t")
    await wire.create("gone")
    await wire.produce("t", [b"x"])
    response = await wire.ask(request_of(name, version, topic.topic_id, bytes(make_batch([b"y"]))), version)
    assert error_codes(response) <= {0, NO_COORDINATOR.get(name, 0)}


NAMES = sorted({name for name, _ in versions()})
WITHOUT_TOPIC = {
    "ApiVersions",
    "FindCoordinator",
    "CreateTopics",
    "InitProducerId",
    "DescribeLogDirs",
    "DescribeCluster",
    "GetTelemetrySubscriptions",
    "ListTransactions",
}


def versions_of(name: str) -> list[int]:
    return [version for api, version in versions() if api == name]


@pytest.mark.parametrize("name", NAMES)
async def test_it_says_what_is_missing(scene: Any, make_batch: Any, name: str) -> None:
    await scene.start(auto_create_topics_enable="false")
    wire = await scene.connect()
    for version in versions_of(name):
        request = request_of(name, version, UUID(int=77), bytes(make_batch([b"y"])))
        if name == "DescribeTopicPartitions":
            request.topics.append(describe_topic_partitions.TopicRequest(name="t"))
        codes = error_codes(await wire.ask(request, version)) - {0}
        if name in NO_COORDINATOR and name != "AddPartitionsToTxn":
            assert codes == {NO_COORDINATOR[name]}
        elif name in WITHOUT_TOPIC:
            assert not codes
        else:
            assert codes, (
                "a topic that is not there is an error; an API without topics goes into WITHOUT_TOPIC"
            )
            assert codes <= {3, 100}


OFFLINE = {
    "Metadata": 5,
    "DescribeTopicPartitions": 5,
    "Produce": 56,
    "Fetch": 56,
    "ListOffsets": 56,
    "DescribeProducers": 56,
    "DeleteRecords": 56,
    "OffsetForLeaderEpoch": 56,
}


@pytest.mark.parametrize("name", sorted(OFFLINE))
async def test_it_answers_about_a_partition_that_is_offline(
    scene: Any, make_batch: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    await scene.start()
    wire = await scene.connect()
    with monkeypatch.context() as patch:
        patch.setattr(PosixDisk, "make_directory", no_space)
        topic = await wire.create("t")
    for version in versions_of(name):
        request = request_of(name, version, topic.topic_id, bytes(make_batch([b"y"])))
        assert error_codes(await wire.ask(request, version)) - {0} == {OFFLINE[name]}


def no_space(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


LONG = "x" * 32_767
WITH_A_NAME: dict[str, Any] = {
    "Metadata": lambda: metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=LONG)]),
    "CreateTopics": lambda: create_topics.CreateTopicsRequest(
        topics=[create_topics.CreatableTopic(name=LONG, num_partitions=1, replication_factor=1)] * 2
    ),
    "CreatePartitions": lambda: create_partitions.CreatePartitionsRequest(
        topics=[create_partitions.CreatePartitionsTopic(name=LONG, count=2, assignments=None)]
    ),
    "DescribeConfigs": lambda: describe_configs.DescribeConfigsRequest(
        resources=[describe_configs.DescribeConfigsResource(resource_type=2, resource_name=LONG)]
    ),
    "AlterConfigs": lambda: alter_configs.AlterConfigsRequest(
        resources=[alter_configs.AlterConfigsResource(resource_type=2, resource_name=LONG)]
    ),
    "IncrementalAlterConfigs": lambda: incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[incremental_alter_configs.AlterConfigsResource(resource_type=2, resource_name=LONG)]
    ),
}


@pytest.mark.parametrize("name", sorted(WITH_A_NAME))
async def test_a_name_as_long_as_the_wire_allows_is_refused_in_words(wire: Any, name: str) -> None:
    for version in versions_of(name):
        assert error_codes(await wire.ask(WITH_A_NAME[name](), version)) - {0}


async def test_fetching_as_a_replica_is_refused(wire: Any) -> None:
    topic = await wire.create("t")
    for version in versions_of("Fetch"):
        request = _fetch(version, topic.topic_id)
        if version >= 15:
            request = request.replace(replica_state=fetch.ReplicaState(replica_id=1))
        else:
            request = request.replace(replica_id=1)
        assert error_codes(await wire.ask(request, version)) - {0} == {31}


async def test_a_topic_id_that_is_unknown_or_too_early_is_refused(wire: Any) -> None:
    topics = [metadata.MetadataRequestTopic(name=None, topic_id=UUID(int=5))]
    for version, code in ((10, 42), (11, 42), (12, 100), (13, 100)):
        response = await wire.ask(metadata.MetadataRequest(topics=topics), version)
        assert error_codes(response) - {0} == {code}


async def test_only_brokers_are_described(wire: Any) -> None:
    for version in (1, 2):
        for kind, code in ((1, 0), (2, 114), (0, 115), (9, 115)):
            request = describe_cluster.DescribeClusterRequest(endpoint_type=kind)
            assert (await wire.ask(request, version)).error_code == code


async def test_special_timestamps_are_answered_or_refused(wire: Any) -> None:
    await wire.create("t")
    await wire.produce("t", [b"x"])
    timestamps = range(-8, 1)
    since = {-3: 7, -4: 8, -5: 9, -6: 11}

    async def is_answered(timestamp: int, version: int) -> bool:
        wanted = list_offsets.ListOffsetsPartition(timestamp=timestamp)
        topic = list_offsets.ListOffsetsTopic(name="t", partitions=[wanted])
        request = list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])
        return not (await wire.ask(request, version)).topics[0].partitions[0].error_code

    for version in versions_of("ListOffsets"):
        answered = {timestamp for timestamp in timestamps if await is_answered(timestamp, version)}
        assert answered == {
            timestamp for timestamp in timestamps if timestamp >= -6 and version >= since.get(timestamp, 0)
        }
