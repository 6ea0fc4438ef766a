"""Checks of heartbeats, before anything is looked up."""

from __future__ import annotations

from uuid import UUID

from odradek.groups.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH
from odradek.groups.consumer.reconcile import Owned
from odradek.groups.modern.membership import invalid_request
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_MEMBER_CHOOSES_ID_SINCE_VERSION = 1


def check_request(
    request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: tuple[str, ...]
) -> None:
    """Raises INVALID_REQUEST, or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    needs_id = api_version >= _MEMBER_CHOOSES_ID_SINCE_VERSION or epoch > 0 or epoch == LEAVE_EPOCH
    if needs_id and not request.member_id:
        raise invalid_request("MemberId can't be empty.")
    if not request.group_id:
        raise invalid_request("GroupId can't be empty.")
    if request.instance_id == "":
        raise invalid_request("InstanceId can't be empty.")
    if request.rack_id == "":
        raise invalid_request("RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == LEAVE_FOR_A_WHILE_EPOCH:
        if request.instance_id is None:
            raise invalid_request("InstanceId can't be null.")
    elif epoch < LEAVE_FOR_A_WHILE_EPOCH:
        raise invalid_request(f"MemberEpoch {epoch} is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise invalid_request("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise invalid_request("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise invalid_request(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Returns whether the heartbeat is complete, as when a member joins and after errors: then the answer is, too."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None


def owned_of(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    """Returns the partitions that the member reports; None when it omits them, because nothing changed."""
    if request.topic_partitions is None:
        return None
    owned: dict[UUID, set[int]] = {}
    for partition in request.topic_partitions:
        owned.setdefault(partition.topic_id, set()).update(partition.partitions)
    return owned
