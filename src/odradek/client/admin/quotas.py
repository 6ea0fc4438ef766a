"""Messages, and readers of their answers, for quotas, names of resources with settings, and moves between data directories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.client.admin.calls import CallOutcome, Exchange
from odradek.client.admin.types import ConfigResource, ResourceType
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.configs.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from odradek.protocol.messages.quotas.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.quotas.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from odradek.protocol.messages.topics.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)

_EXACT, _DEFAULT = 0, 1
QUOTA_MEANINGS: Final = {
    "producer_byte_rate": "bytes a second that may be produced",
    "consumer_byte_rate": "bytes a second that may be consumed",
    "request_percentage": "percent of a broker's time that requests may take",
    "controller_mutation_rate": "partitions a second that may be created and deleted",
    "connection_creation_rate": "connections a second from an address",
}
"""Each quota, and what it limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntity:
    """The entity of a quota: a user, a client id, both, or an address. "" is any other; None leaves it out."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def parts(self) -> dict[str, str]:
        """The parts of the entity that are set, by Kafka's names of their types."""
        named = {"user": self.user, "client-id": self.client_id, "ip": self.ip}
        return {kind: name for kind, name in named.items() if name is not None}

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name or '(any other)'}" for kind, name in self.parts.items()) or "anybody"


QuotaChanges = Mapping[QuotaEntity, Mapping[str, float | None]]


def describe_quotas(entity: QuotaEntity) -> Exchange:
    """Describes the quotas of the entity, and of entities that have these parts and more."""
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=_EXACT if name else _DEFAULT, match=name or None)
            for kind, name in entity.parts.items()
        ],
        strict=False,
    )

    def read(response: DescribeClientQuotasResponse) -> CallOutcome:
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code), response.error_message or str(entity))
        outcome = CallOutcome.none()
        for entry in response.entries or ():
            named = {part.entity_type.replace("-", "_"): part.entity_name or "" for part in entry.entity}
            outcome.results[QuotaEntity(**named)] = {
                value_data.key: value_data.value for value_data in entry.values
            }
        return outcome

    return Exchange(request=request, answer=DescribeClientQuotasResponse, read=read)


def alter_quotas(changes: QuotaChanges, validate_only: bool) -> Exchange:
    request = AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[
                    EntityData(entity_type=kind, entity_name=name or None)
                    for kind, name in entity.parts.items()
                ],
                ops=[
                    OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
                    for key, value in limits.items()
                ],
            )
            for entity, limits in changes.items()
        ],
        validate_only=validate_only,
    )

    def read(response: AlterClientQuotasResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for entity, entry in zip(changes, response.entries, strict=True):
            outcome.note(entity, entry.error_code, entry.error_message)
        return outcome

    return Exchange(request=request, answer=AlterClientQuotasResponse, read=read)


def list_config_resources(kinds: list[ResourceType]) -> Exchange:
    """Lists resources of these kinds, or of all. Version 0, all that brokers before Kafka 4.1 have, lists subscriptions to
    metrics and has no field for kinds: kinds are always named, so that an older broker cannot answer with less."""
    only_metrics = set(kinds) == {ResourceType.CLIENT_METRICS}
    listed = [] if only_metrics else [int(kind) for kind in kinds or ResourceType]
    request = ListConfigResourcesRequest(resource_types=listed)

    def read(response: ListConfigResourcesResponse) -> CallOutcome:
        if response.error_code:
            code = ErrorCode.of(response.error_code)
            raise KafkaError(code, code.meaning)
        known = {kind.value: kind for kind in ResourceType}
        config_resources = [
            ConfigResource(known[config_resource.resource_type], config_resource.resource_name)
            for config_resource in response.config_resources
            if config_resource.resource_type in known
        ]
        return CallOutcome(results=dict.fromkeys(config_resources), errors={})

    return Exchange(
        request=request, answer=ListConfigResourcesResponse, read=read, at_most=0 if only_metrics else None
    )


def move_replicas(wanted: Mapping[TopicPartition, str]) -> Exchange:
    """Moves replicas on one broker to the data directories at these paths."""
    by_path: dict[str, dict[str, list[int]]] = {}
    for tp, path in wanted.items():
        by_path.setdefault(path, {}).setdefault(tp.topic, []).append(tp.partition)
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=name, partitions=indexes) for name, indexes in topics.items()
                ],
            )
            for path, topics in by_path.items()
        ]
    )

    def read(response: AlterReplicaLogDirsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for topic in response.results:
            for partition in topic.partitions:
                outcome.note(
                    TopicPartition(topic.topic_name, partition.partition_index), partition.error_code, None
                )
        return outcome

    return Exchange(request=request, answer=AlterReplicaLogDirsResponse, read=read)
