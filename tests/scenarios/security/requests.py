"""A sensible request of each API, in each version, about one topic, group, transactional id: for the matrix of access tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from tests.kit.requests import batch_of

from odradek.protocol import api_by_name
from odradek.protocol.schema import ArrayKind, StructKind

TOPIC, GROUP, TRANSACTIONAL_ID, USER = "orders", "readers", "payer", "User:alice"


class Names:
    """What requests are about. `topic_id` is set once the topic is made."""

    topic_id = UUID(int=0)
    new = "new-topic"
    """Of a topic that is not there."""


def _part(name: str, path: str, /, **values: Any) -> Any:
    """A struct of a request, by the path of its array."""
    cls: Any = api_by_name(name).request
    for part in path.split("."):
        kind = next(field for field in cls.FIELDS if field.name == part).kind
        kind = kind.element if isinstance(kind, ArrayKind) else kind
        assert isinstance(kind, StructKind)
        cls = kind.cls
    return cls(**values)


def _records(*, transactional: bool) -> bytearray:
    if transactional:
        return batch_of([b"v"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    return batch_of([b"v"])


def request_of(name: str, version: int, when: str = "") -> Any:
    """The request, such that a row of the table with this condition applies."""
    make = _MAKERS.get(name)
    cls: Any = api_by_name(name).request
    if make is not None:
        return make(cls, version, when)
    return cls(**_in_version(cls, version, _VALUES.get(name, {})))


def _in_version(cls: Any, version: int, values: dict[str, Any]) -> dict[str, Any]:
    return {
        field.name: values[field.name]
        for field in cls.FIELDS
        if field.name in values and version in field.versions
    }


def _produce(cls: Any, version: int, when: str) -> Any:
    transactional = when == "transactional batches"
    data = _part(
        "Produce", "topic_data.partition_data", index=0, records=_records(transactional=transactional)
    )
    topic = _part("Produce", "topic_data", **_topic(version, 13), partition_data=[data])
    return cls(
        acks=-1,
        timeout_ms=5000,
        topic_data=[topic],
        transactional_id=TRANSACTIONAL_ID if transactional else None,
    )


def _topic(version: int, since: int, field: str = "name") -> dict[str, Any]:
    return {"topic_id": Names.topic_id} if version >= since else {field: TOPIC}


def _fetch(cls: Any, version: int, when: str) -> Any:
    wanted = _part("Fetch", "topics.partitions", partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = _part("Fetch", "topics", **_topic(version, 13, "topic"), partitions=[wanted])
    replica: dict[str, Any] = {}
    if when == "by a replica":
        state = _part("Fetch", "replica_state", replica_id=9, replica_epoch=1)
        replica = {"replica_state": state} if version >= 15 else {"replica_id": 9}
    return cls(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[topic], **replica)


def _metadata(cls: Any, version: int, when: str) -> Any:
    if when == "all topics are asked for":
        return cls(topics=[] if version == 0 else None)
    by_id = when == "by id"
    name = Names.new if when == "would be created" else TOPIC
    topic = _part(
        "Metadata", "topics", **({"name": None, "topic_id": Names.topic_id} if by_id else {"name": name})
    )
    values = {"topics": [topic], "allow_auto_topic_creation": when == "would be created"}
    return cls(**_in_version(cls, version, values))


def _offset_commit(cls: Any, version: int, when: str) -> Any:
    partition = _part(
        "OffsetCommit", "topics.partitions", partition_index=0, committed_offset=1, committed_metadata=""
    )
    topic = _part("OffsetCommit", "topics", **_topic(version, 10), partitions=[partition])
    return cls(group_id=GROUP, generation_id_or_member_epoch=-1, topics=[topic])


def _txn_offset_commit(cls: Any, version: int, when: str) -> Any:
    partition = _part(
        "TxnOffsetCommit", "topics.partitions", partition_index=0, committed_offset=1, committed_metadata=""
    )
    topic = _part("TxnOffsetCommit", "topics", **_topic(version, 6), partitions=[partition])
    return cls(**_TRANSACTION, group_id=GROUP, topics=[topic])


def _offset_fetch(cls: Any, version: int, when: str) -> Any:
    if version < 8:
        return cls(group_id=GROUP, topics=[_part("OffsetFetch", "topics", name=TOPIC, partition_indexes=[0])])
    topic = _part("OffsetFetch", "groups.topics", **_topic(version, 10), partition_indexes=[0])
    return cls(groups=[_part("OffsetFetch", "groups", group_id=GROUP, topics=[topic])])


def _find_coordinator(cls: Any, version: int, when: str) -> Any:
    kind = int(when.partition("=")[2] or 0)
    key = {0: GROUP, 1: TRANSACTIONAL_ID, 2: f"{GROUP}:AAAAAAAAAAAAAAAAAAAABQ:0"}[kind]
    more = {"key_type": kind} if version >= 1 else {}
    return cls(coordinator_keys=[key], **more) if version >= 4 else cls(key=key, **more)


def _delete_topics(cls: Any, version: int, when: str) -> Any:
    if version < 6:
        return cls(topic_names=["absent"], timeout_ms=5000)
    if when == "by id":
        topic = _part("DeleteTopics", "topics", name=None, topic_id=Names.topic_id)
    else:
        topic = _part("DeleteTopics", "topics", name="absent")
    return cls(topics=[topic], timeout_ms=5000)


def _init_producer_id(cls: Any, version: int, when: str) -> Any:
    if when == "transactional_id=None":
        return cls(transactional_id=None, transaction_timeout_ms=1000)
    more = {"enable_2pc": True} if when == "enable_2pc=True" else {}
    return cls(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=1000, **more)


def _add_partitions(cls: Any, version: int, when: str) -> Any:
    if version < 4:
        topic = _part("AddPartitionsToTxn", "v3_and_below_topics", name=TOPIC, partitions=[0])
        return cls(
            v3_and_below_transactional_id=TRANSACTIONAL_ID,
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[topic],
        )
    topic = _part("AddPartitionsToTxn", "transactions.topics", name=TOPIC, partitions=[0])
    transaction = _part(
        "AddPartitionsToTxn",
        "transactions",
        transactional_id=TRANSACTIONAL_ID,
        producer_id=1,
        producer_epoch=0,
        topics=[topic],
    )
    return cls(transactions=[transaction])


def _configs(name: str) -> Callable[[Any, int, str], Any]:
    def make(cls: Any, version: int, when: str) -> Any:
        kind = int((when.partition("=")[2] or "2").partition("|")[0])
        resource = {2: TOPIC, 4: "1", 32: GROUP}[kind]
        return cls(resources=[_part(name, "resources", resource_type=kind, resource_name=resource)])

    return make


def _of(name: str, path: str, values: dict[str, Any], **more: Any) -> Any:
    return {path.partition(".")[0]: [_part(name, path, **values)], **more}


def _topics(name: str, **more: Any) -> dict[str, Any]:
    partitions = [_part(name, "topics.partitions", partition_index=0)]
    return _of(name, "topics", {"name": TOPIC, "partitions": partitions}, **more)


def _topic_partitions(cls: Any, version: int, when: str) -> Any:
    topics = [] if when else [_part("DescribeTopicPartitions", "topics", name=TOPIC)]
    return cls(topics=topics)


def _share_fetch(cls: Any, version: int, when: str) -> Any:
    partition = _part("ShareFetch", "topics.partitions", partition_index=0)
    topic = _part("ShareFetch", "topics", topic_id=Names.topic_id, partitions=[partition])
    values = {"group_id": GROUP, "member_id": "AAAAAAAAAAAAAAAAAAAABQ", "share_session_epoch": 0}
    return cls(**values, max_records=1, topics=[topic])


def _share_state(name: str) -> Callable[[Any, int, str], Any]:
    def make(cls: Any, version: int, when: str) -> Any:
        partition = _part(name, "topics.partitions", partition=0)
        return cls(
            group_id=GROUP, topics=[_part(name, "topics", topic_id=Names.topic_id, partitions=[partition])]
        )

    return make


_STATE_APIS = (
    "InitializeShareGroupState",
    "ReadShareGroupState",
    "WriteShareGroupState",
    "DeleteShareGroupState",
    "ReadShareGroupStateSummary",
)
_MAKERS: dict[str, Callable[[Any, int, str], Any]] = {
    "Produce": _produce,
    "Fetch": _fetch,
    "Metadata": _metadata,
    "OffsetCommit": _offset_commit,
    "OffsetFetch": _offset_fetch,
    "TxnOffsetCommit": _txn_offset_commit,
    "FindCoordinator": _find_coordinator,
    "DeleteTopics": _delete_topics,
    "InitProducerId": _init_producer_id,
    "AddPartitionsToTxn": _add_partitions,
    "DescribeConfigs": _configs("DescribeConfigs"),
    "AlterConfigs": _configs("AlterConfigs"),
    "IncrementalAlterConfigs": _configs("IncrementalAlterConfigs"),
    "DescribeTopicPartitions": _topic_partitions,
    "ShareFetch": _share_fetch,
    **{name: _share_state(name) for name in _STATE_APIS},
}

_MEMBER = {"group_id": GROUP, "member_id": "m"}
_SHARE_MEMBER = {"group_id": GROUP, "member_id": "AAAAAAAAAAAAAAAAAAAABQ", "member_epoch": 0}
_TRANSACTION = {"transactional_id": TRANSACTIONAL_ID, "producer_id": 1, "producer_epoch": 0}
_VALUES: dict[str, dict[str, Any]] = {
    "ListOffsets": _topics("ListOffsets", replica_id=-1),
    "JoinGroup": {
        **_MEMBER,
        "member_id": "",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 1000,
        "protocol_type": "consumer",
        "protocols": [_part("JoinGroup", "protocols", name="range", metadata=b"")],
    },
    "Heartbeat": {**_MEMBER, "generation_id": 1},
    "LeaveGroup": {**_MEMBER, "members": [_part("LeaveGroup", "members", member_id="m")]},
    "SyncGroup": {**_MEMBER, "generation_id": 1, "protocol_type": "consumer", "protocol_name": "range"},
    "DescribeGroups": {"groups": [GROUP]},
    "CreateTopics": _of(
        "CreateTopics",
        "topics",
        {"name": "new-topic", "num_partitions": 1, "replication_factor": 1},
        timeout_ms=5000,
        validate_only=True,
    ),
    "DeleteRecords": _of(
        "DeleteRecords",
        "topics",
        {
            "name": TOPIC,
            "partitions": [_part("DeleteRecords", "topics.partitions", partition_index=0, offset=0)],
        },
        timeout_ms=5000,
    ),
    "OffsetForLeaderEpoch": _of(
        "OffsetForLeaderEpoch",
        "topics",
        {
            "topic": TOPIC,
            "partitions": [
                _part(
                    "OffsetForLeaderEpoch",
                    "topics.partitions",
                    partition=0,
                    current_leader_epoch=-1,
                    leader_epoch=0,
                )
            ],
        },
    ),
    "AddOffsetsToTxn": {**_TRANSACTION, "group_id": GROUP},
    "EndTxn": {**_TRANSACTION, "committed": True},
    "WriteTxnMarkers": _of(
        "WriteTxnMarkers",
        "markers",
        {
            "producer_id": 7,
            "producer_epoch": 0,
            "transaction_result": False,
            "coordinator_epoch": 0,
            "topics": [_part("WriteTxnMarkers", "markers.topics", name="absent", partition_indexes=[0])],
        },
    ),
    "DescribeAcls": {
        "resource_type_filter": 1,
        "pattern_type_filter": 1,
        "operation": 1,
        "permission_type": 1,
    },
    "CreateAcls": _of(
        "CreateAcls",
        "creations",
        {
            "resource_type": 2,
            "resource_name": "",
            "principal": USER,
            "host": "*",
            "operation": 3,
            "permission_type": 3,
        },
    ),
    "DeleteAcls": _of(
        "DeleteAcls",
        "filters",
        {
            "resource_type_filter": 2,
            "resource_name_filter": "absent",
            "pattern_type_filter": 3,
            "operation": 1,
            "permission_type": 1,
        },
    ),
    "AlterReplicaLogDirs": _of(
        "AlterReplicaLogDirs",
        "dirs",
        {
            "path": "/nowhere",
            "topics": [_part("AlterReplicaLogDirs", "dirs.topics", name=TOPIC, partitions=[0])],
        },
    ),
    "DescribeLogDirs": {"topics": None},
    "CreatePartitions": _of(
        "CreatePartitions", "topics", {"name": TOPIC, "count": 1}, timeout_ms=5000, validate_only=True
    ),
    "DeleteGroups": {"groups_names": [GROUP]},
    "ElectLeaders": {
        "topic_partitions": [_part("ElectLeaders", "topic_partitions", topic=TOPIC, partitions=[0])],
        "timeout_ms": 5000,
    },
    "AlterPartitionReassignments": {
        "topics": [
            _part(
                "AlterPartitionReassignments",
                "topics",
                name=TOPIC,
                partitions=[
                    _part(
                        "AlterPartitionReassignments", "topics.partitions", partition_index=0, replicas=None
                    )
                ],
            )
        ]
    },
    "ListPartitionReassignments": {"topics": None},
    "OffsetDelete": {**_topics("OffsetDelete"), "group_id": GROUP},
    "DescribeClientQuotas": {"components": []},
    "AlterClientQuotas": _of(
        "AlterClientQuotas",
        "entries",
        {
            "entity": [_part("AlterClientQuotas", "entries.entity", entity_type="user", entity_name="u")],
            "ops": [],
        },
        validate_only=True,
    ),
    "DescribeUserScramCredentials": {"users": None},
    "AlterUserScramCredentials": {
        "deletions": [_part("AlterUserScramCredentials", "deletions", name="u", mechanism=1)]
    },
    "DescribeQuorum": _of(
        "DescribeQuorum",
        "topics",
        {
            "topic_name": "__cluster_metadata",
            "partitions": [_part("DescribeQuorum", "topics.partitions", partition_index=0)],
        },
    ),
    "UpdateFeatures": {"validate_only": True},
    "DescribeProducers": _of("DescribeProducers", "topics", {"name": TOPIC, "partition_indexes": [0]}),
    "UnregisterBroker": {"broker_id": 77},
    "UnregisterController": {"controller_id": 77},
    "AddRaftVoter": {"voter_id": 77},
    "RemoveRaftVoter": {"voter_id": 77},
    "DescribeTransactions": {"transactional_ids": [TRANSACTIONAL_ID]},
    "ConsumerGroupHeartbeat": {
        "group_id": "modern",
        "member_id": "AAAAAAAAAAAAAAAAAAAABQ",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": [TOPIC],
        "topic_partitions": [],
    },
    "ConsumerGroupDescribe": {"group_ids": [GROUP]},
    "ShareGroupHeartbeat": {**_SHARE_MEMBER, "group_id": "sharers", "subscribed_topic_names": [TOPIC]},
    "ShareGroupDescribe": {"group_ids": [GROUP]},
    "ShareAcknowledge": {"group_id": GROUP, "member_id": "AAAAAAAAAAAAAAAAAAAABQ", "share_session_epoch": 1},
    "StreamsGroupHeartbeat": {
        "group_id": "streamers",
        "member_id": "AAAAAAAAAAAAAAAAAAAABQ",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "process_id": "process",
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "topology": _part(
            "StreamsGroupHeartbeat",
            "topology",
            epoch=0,
            subtopologies=[
                _part(
                    "StreamsGroupHeartbeat",
                    "topology.subtopologies",
                    subtopology_id="0",
                    source_topics=[TOPIC],
                )
            ],
        ),
    },
    "StreamsGroupDescribe": {"group_ids": [GROUP]},
    "StreamsGroupTopologyDescriptionUpdate": {"group_id": GROUP, "member_id": "AAAAAAAAAAAAAAAAAAAABQ"},
    "DescribeShareGroupOffsets": _of(
        "DescribeShareGroupOffsets",
        "groups",
        {
            "group_id": GROUP,
            "topics": [_part("DescribeShareGroupOffsets", "groups.topics", topic_name=TOPIC, partitions=[0])],
        },
    ),
    "AlterShareGroupOffsets": {
        "group_id": GROUP,
        "topics": [
            _part(
                "AlterShareGroupOffsets",
                "topics",
                topic_name=TOPIC,
                partitions=[
                    _part("AlterShareGroupOffsets", "topics.partitions", partition_index=0, start_offset=0)
                ],
            )
        ],
    },
    "DeleteShareGroupOffsets": {
        "group_id": GROUP,
        "topics": [_part("DeleteShareGroupOffsets", "topics", topic_name=TOPIC)],
    },
    "ClusterSync": {"broker_id": 99, "max_wait_ms": 0},
    "AllocateProducerIds": {"broker_id": 99},
    "AlterPartition": {"broker_id": 99},
}
