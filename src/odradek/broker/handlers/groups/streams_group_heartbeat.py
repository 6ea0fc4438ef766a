"""StreamsGroupHeartbeat (88): be a member of a streams group, whose tasks the broker assigns (KIP-1071). Versions 0-1.

Nothing waits: whatever a member has to do or to wait for, it learns by its next heartbeat. Internal topics that the topology
needs are created on the side, if the member may create them. UNSUPPORTED_VERSION where `streams.version` is at 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek.broker.cluster.features import STREAMS_VERSION, level_of
from odradek.broker.handlers.group_requests import caller
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.cluster.image import INTERNAL_TOPICS
from odradek.groups.streams.heartbeats import StreamsHeartbeat
from odradek.groups.streams.topology import ELEMENTS_MAX, StatusCode, named_topics
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import check_topic_name
from odradek.protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from odradek.protocol.messages.groups.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Topology,
)

_NAMED_MAX: Final = 5


async def handle(
    broker: BrokerContext, context: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    if level_of(broker.image, STREAMS_VERSION) < 1:
        return StreamsGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        if request.topology is not None:
            _check_topics(context, request.topology)
        heartbeat = await broker.groups.streams_heartbeat(request, caller(context))
    except KafkaError as error:
        return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    response = heartbeat.response
    if heartbeat.missing_topics:
        response = _with_creation(broker, context, request.group_id, heartbeat)
    if context.api_version < 1:  # its field has 32 bits
        response = response.replace(
            acceptable_recovery_lag_legacy=min(response.acceptable_recovery_lag, 2**31 - 1)
        )
    return response


def _check_topics(context: RequestContext, topology: Topology) -> None:
    """Refuses names that no topic can have, Kafka's own topics, and topics that the client may not describe.

    STREAMS_INVALID_TOPOLOGY, TOPIC_AUTHORIZATION_FAILED."""
    if len(topology.subtopologies) > ELEMENTS_MAX:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"the topology has {len(topology.subtopologies)} subtopologies: {ELEMENTS_MAX} are the most",
        )
    names = sorted(named_topics(topology))
    if len(names) > ELEMENTS_MAX:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"the topology names {len(names)} topics: {ELEMENTS_MAX} are the most",
        )
    prohibited = [name for name in names if name in INTERNAL_TOPICS]
    if prohibited:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Use of Kafka internal topics {_named(prohibited)} in a Kafka Streams topology is prohibited.",
        )
    for name in names:
        try:
            check_topic_name(name)
        except KafkaError as error:
            raise KafkaError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY, f"Topic name {name!r} is not valid: {error.message}"
            ) from error
    access = context.access
    if access is not None:
        for name in names:
            if not access.may(AclOperation.DESCRIBE, AclResourceType.TOPIC, name):
                raise KafkaError(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    f"{context.principal} is not allowed to DESCRIBE a topic of the topology",
                )


def _with_creation(
    broker: BrokerContext, context: RequestContext, group_id: str, heartbeat: StreamsHeartbeat
) -> StreamsGroupHeartbeatResponse:
    """Begins to create missing topics; or responds with the topics that the client may not create."""
    refused = _not_creatable(context, (topic.name for topic in heartbeat.missing_topics))
    if not refused:
        broker.streams_topics.begin(group_id, heartbeat.missing_topics)
        return heartbeat.response
    detail = f"Unauthorized to CREATE on topics {_named(refused)}."
    return heartbeat.response.replace(
        status=[
            Status(status_code=status.status_code, status_detail=f"{status.status_detail}; {detail}")
            if status.status_code == StatusCode.MISSING_INTERNAL_TOPICS
            else status
            for status in heartbeat.response.status or ()
        ]
    )


def _not_creatable(context: RequestContext, names: Iterable[str]) -> list[str]:
    access = context.access
    if access is None or access.may_quietly(AclOperation.CREATE, AclResourceType.CLUSTER, CLUSTER_NAME):
        return []
    return sorted(name for name in names if not access.may(AclOperation.CREATE, AclResourceType.TOPIC, name))


def _named(names: list[str]) -> str:
    rest = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {rest} others" if rest > 0 else "")


SERVED = ApiHandler(88, handle)
