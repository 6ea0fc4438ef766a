"""The messages of each admin call, and how their answers are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek.client.admin.calls import CallOutcome, Exchange
from odradek.client.admin.types import (
    Append,
    BrokerDescription,
    ClusterDescription,
    ClusterOperations,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    CreatedTopic,
    LogDirDescription,
    NewTopic,
    PartitionDescription,
    ReplicaLogDescription,
    ResourceType,
    Subtract,
    TopicDescription,
)
from odradek.client.network.metadata_snapshot import MetadataSnapshot
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.acls import AclOperation
from odradek.protocol.messages.configs.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from odradek.protocol.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.protocol.messages.data.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.metadata.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.protocol.messages.metadata.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from odradek.protocol.messages.topics.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.topics.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.messages.topics.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.protocol.messages.topics.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

_UNREPORTED: Final = -(2**31)
"""The bits of authorized operations where a broker does not report any."""
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_SOURCES: Final = {source.value: source for source in ConfigSource}
_TYPES: Final = {kind.value: kind for kind in ResourceType}


def _milliseconds(seconds: float) -> int:
    return max(1, min(int(seconds * 1000), 0x7FFF_FFFF))


def create_topics(wanted: dict[str, NewTopic], validate_only: bool, timeout_s: float) -> Exchange:
    request = CreateTopicsRequest(
        topics=[_creatable(topic) for topic in wanted.values()],
        timeout_ms=_milliseconds(timeout_s),
        validate_only=validate_only,
    )

    def read(response: CreateTopicsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for topic in response.topics:
            outcome.note(topic.name, topic.error_code, topic.error_message, _created(topic))
        return outcome

    return Exchange(request=request, answer=CreateTopicsResponse, read=read)


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
        for number, brokers in enumerate(topic.assignments or ())
    ]
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if assignments else topic.partitions,
        replication_factor=-1 if assignments else topic.replication_factor,
        assignments=assignments,
        configs=[CreatableTopicConfig(name=name, value=str(value)) for name, value in topic.configs.items()],
    )


def _created(topic: CreatableTopicResult) -> CreatedTopic:
    return CreatedTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        configs={config.name: config.value for config in topic.configs}
        if topic.configs is not None
        else None,
    )


def delete_topics(wanted: dict[str, None], timeout_s: float) -> Exchange:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in wanted],
        topic_names=list(wanted),
        timeout_ms=_milliseconds(timeout_s),
    )

    def read(topics_response: DeleteTopicsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for response in topics_response.responses:
            outcome.note(response.name, response.error_code, response.error_message)
        return _final(outcome, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    return Exchange(request=request, answer=DeleteTopicsResponse, read=read)


def create_partitions(wanted: dict[str, int], validate_only: bool, timeout_s: float) -> Exchange:
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name=name, count=total, assignments=None) for name, total in wanted.items()
        ],
        timeout_ms=_milliseconds(timeout_s),
        validate_only=validate_only,
    )

    def read(response: CreatePartitionsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for topic in response.results:
            outcome.note(topic.name, topic.error_code, topic.error_message)
        return _final(outcome, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    return Exchange(request=request, answer=CreatePartitionsResponse, read=read)


def describe_topics(names: list[str] | None, operations: bool = False) -> Exchange:
    request = MetadataRequest(
        topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=operations,
    )

    def read(metadata_response: MetadataResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for topic in metadata_response.topics:
            outcome.note(topic.name, topic.error_code, None, _topic(topic))
        return outcome

    return Exchange(request=request, answer=MetadataResponse, read=read)


def _topic(topic: MetadataResponseTopic) -> TopicDescription:
    return TopicDescription(
        name=topic.name or "",
        topic_id=topic.topic_id,
        internal=topic.is_internal,
        partitions=tuple(
            PartitionDescription(
                partition=partition.partition_index,
                leader=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replicas=tuple(partition.replica_nodes),
                isr=tuple(partition.isr_nodes),
                offline=tuple(partition.offline_replicas),
            )
            for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        ),
        authorized_operations=_operations_of(topic.topic_authorized_operations),
    )


def _operations_of(bits: int) -> ClusterOperations:
    """Returns the operations of a field of KIP-430; None where the broker does not report them."""
    if bits == _UNREPORTED:
        return None
    return frozenset(
        operation for operation in AclOperation if operation > AclOperation.ALL and bits >> operation & 1
    )


def describe_configs(wanted: Iterable[ConfigResource], documentation: bool, synonyms: bool) -> Exchange:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=config_resource.type,
                resource_name=config_resource.name,
                configuration_keys=None,
            )
            for config_resource in wanted
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )

    def read(response: DescribeConfigsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for described in response.results:
            entries = {config.name: _entry(config) for config in described.configs}
            resource = _resource(described.resource_type, described.resource_name)
            outcome.note(resource, described.error_code, described.error_message, entries)
        return _final(outcome, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    return Exchange(request=request, answer=DescribeConfigsResponse, read=read)


def _entry(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=entry.name,
        value=entry.value,
        source=_SOURCES.get(entry.config_source, ConfigSource.UNKNOWN),
        read_only=entry.read_only,
        sensitive=entry.is_sensitive,
        documentation=entry.documentation,
        synonyms=tuple(
            ConfigSynonym(
                name=synonym.name,
                value=synonym.value,
                source=_SOURCES.get(synonym.source, ConfigSource.UNKNOWN),
            )
            for synonym in entry.synonyms
        ),
    )


def _resource(kind: int, name: str) -> object:
    return ConfigResource(_TYPES[kind], name) if kind in _TYPES else f"resource {kind} {name}"


def alter_configs(wanted: dict[ConfigResource, dict[str, ConfigChange]], validate_only: bool) -> Exchange:
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                configs=[_alterable(name, change) for name, change in changes.items()],
            )
            for resource, changes in wanted.items()
        ],
        validate_only=validate_only,
    )

    def read(configs_response: IncrementalAlterConfigsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for response in configs_response.responses:
            outcome.note(
                _resource(response.resource_type, response.resource_name),
                response.error_code,
                response.error_message,
            )
        return _final(outcome, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    return Exchange(request=request, answer=IncrementalAlterConfigsResponse, read=read)


def _alterable(name: str, change: ConfigChange) -> AlterableConfig:
    if isinstance(change, Append):
        return AlterableConfig(name=name, config_operation=_APPEND, value=change.items)
    if isinstance(change, Subtract):
        return AlterableConfig(name=name, config_operation=_SUBTRACT, value=change.items)
    if change is None:
        return AlterableConfig(name=name, config_operation=_DELETE, value=None)
    return AlterableConfig(name=name, config_operation=_SET, value=str(change))


def delete_records(wanted: dict[TopicPartition, int], timeout_s: float) -> Exchange:
    topics: dict[str, DeleteRecordsTopic] = {}
    for tp, offset in wanted.items():
        topic = topics.setdefault(tp.topic, DeleteRecordsTopic(name=tp.topic, partitions=[]))
        topic.partitions.append(DeleteRecordsPartition(partition_index=tp.partition, offset=offset))
    request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=_milliseconds(timeout_s))

    def read(response: DeleteRecordsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for topic in response.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                outcome.note(tp, partition.error_code, None, partition.low_watermark)
        return outcome

    return Exchange(request=request, answer=DeleteRecordsResponse, read=read)


def describe_log_dirs(wanted: dict[int, None], timeout_s: float) -> Exchange:
    (broker,) = wanted

    def read(response: DescribeLogDirsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        outcome.note(
            broker, response.error_code, None, tuple(_log_dir(log_dir) for log_dir in response.results)
        )
        return outcome

    return Exchange(request=DescribeLogDirsRequest(topics=None), answer=DescribeLogDirsResponse, read=read)


def _log_dir(log_dir: DescribeLogDirsResult) -> LogDirDescription:
    code = ErrorCode.of(log_dir.error_code)
    return LogDirDescription(
        path=log_dir.log_dir,
        total_bytes=log_dir.total_bytes,
        usable_bytes=log_dir.usable_bytes,
        replicas={
            TopicPartition(topic.name, partition.partition_index): ReplicaLogDescription(
                size_bytes=partition.partition_size,
                offset_lag=partition.offset_lag,
                future=partition.is_future_key,
            )
            for topic in log_dir.topics
            for partition in topic.partitions
        },
        error=None if code is ErrorCode.NONE else code.meaning,
        condition=log_dir.condition,
    )


def cluster_of(image: MetadataSnapshot) -> ClusterDescription:
    """Returns the cluster as Metadata tells it: every broker answers that, also those without DescribeCluster."""
    return ClusterDescription(
        cluster_id=image.cluster_id,
        controller_id=image.controller,
        brokers=tuple(
            BrokerDescription(
                broker_id=broker, host=address.host, port=address.port, rack=image.racks.get(broker)
            )
            for broker, address in sorted(image.brokers.items())
        ),
    )


def cluster_operations() -> Exchange:
    """Asks what this client may do to the cluster (KIP-430). The result "operations" is None where brokers do
    not report it."""

    def read(response: DescribeClusterResponse) -> CallOutcome:
        if response.error_code:
            code = ErrorCode.of(response.error_code)
            raise KafkaError(code, response.error_message or code.meaning)
        operations = _operations_of(response.cluster_authorized_operations)
        return CallOutcome(results={"operations": operations}, errors={})

    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    return Exchange(request=request, answer=DescribeClusterResponse, read=read)


def operations_in(outcome: CallOutcome) -> ClusterOperations:
    """Returns the operations of the answer to `cluster_operations`."""
    operations: ClusterOperations = outcome.results["operations"]
    return operations


class _FinalError(KafkaError):
    """An error whose code is retriable in general, and not in this answer."""

    @property
    def retriable(self) -> bool:
        return False


def _final(outcome: CallOutcome, code: ErrorCode) -> CallOutcome:
    """The controller knows for sure which topics exist: here this code is no reason to try again."""
    errors = {
        subject: _FinalError(error.code, error.message) if error.code is code else error
        for subject, error in outcome.errors.items()
    }
    return CallOutcome(results=outcome.results, errors=errors)
