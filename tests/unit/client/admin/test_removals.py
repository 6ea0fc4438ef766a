"""Removals of group members and of brokers: what is asked, and what a lost or odd answer means."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from odradek.client.admin.aio import AsyncAdmin
from odradek.client.admin.quorum import QuorumEndpoint
from odradek.client.network.errors import PartialFailureError
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.cluster import describe_quorum as quorum
from odradek.protocol.messages.cluster.unregister_broker import UnregisterBrokerResponse
from odradek.protocol.messages.groups.leave_group import LeaveGroupResponse, MemberResponse
from odradek.protocol.messages.metadata.find_coordinator import Coordinator, FindCoordinatorResponse

Within = Callable[[Awaitable[Any]], Awaitable[Any]]
QUICK: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1}
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.fixture
def coordinator(broker: Any) -> Any:
    """The scripted broker, which coordinates every group."""
    broker.on["FindCoordinator"] = lambda asked: FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=1, host="127.0.0.1", port=broker.port)
            for key in asked.message.coordinator_keys
        ]
    )
    return broker


def left(**codes: int) -> Callable[[Any], LeaveGroupResponse]:
    """Answers with an error code for each named member; brokers add the member id of a static member."""
    return lambda asked: LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id="added by the broker",
                group_instance_id=member.group_instance_id,
                error_code=codes.get(member.group_instance_id, 0),
            )
            for member in asked.message.members
        ]
    )


async def test_members_leave_in_one_request_with_the_reason(coordinator: Any, within: Within) -> None:
    coordinator.on["LeaveGroup"] = left()
    async with AsyncAdmin(coordinator.bootstrap, **QUICK) as admin:
        await within(admin.remove_group_members("g", ["a", "b", "a"], reason="r" * 300))
        await within(admin.remove_group_members("g", []))
    (request,) = coordinator.requests("LeaveGroup")
    assert request.group_id == "g"
    assert [(member.member_id, member.group_instance_id) for member in request.members] == [
        ("", "a"),
        ("", "b"),
    ]
    assert {member.reason for member in request.members} == {
        ("member was removed by an admin: " + "r" * 300)[:255]
    }


async def test_a_member_that_is_unknown_is_named_beside_those_that_left(
    coordinator: Any, within: Within
) -> None:
    coordinator.on["LeaveGroup"] = left(b=UNKNOWN)
    async with AsyncAdmin(coordinator.bootstrap, **QUICK) as admin:
        with pytest.raises(PartialFailureError, match="b: group 'g' has no such member") as caught:
            await within(admin.remove_group_members("g", ["a", "b"]))
    assert (list(caught.value.errors), list(caught.value.results)) == (["b"], ["a"])


async def test_a_member_whose_removal_was_not_answered_has_left(
    coordinator: Any, within: Within, hang_up: object
) -> None:
    coordinator.once["LeaveGroup"] = [lambda _: hang_up, left(a=UNKNOWN)]
    async with AsyncAdmin(coordinator.bootstrap, **QUICK) as admin:
        await within(admin.remove_group_members("g", ["a"]))
    assert len(coordinator.requests("LeaveGroup")) == 2


async def test_a_member_that_the_new_coordinator_does_not_know_was_never_there(
    coordinator: Any, within: Within
) -> None:
    coordinator.once["LeaveGroup"] = [
        lambda _: LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR),
        left(a=UNKNOWN),
    ]
    async with AsyncAdmin(coordinator.bootstrap, **QUICK) as admin:
        with pytest.raises(KafkaError) as caught:
            await within(admin.remove_group_members("g", ["a"]))
    assert caught.value.code is UNKNOWN


async def test_a_group_that_is_refused_as_a_whole_is_one_error(coordinator: Any, within: Within) -> None:
    refusal = LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    coordinator.on["LeaveGroup"] = lambda _: refusal
    async with AsyncAdmin(coordinator.bootstrap, **QUICK) as admin:
        with pytest.raises(KafkaError, match=r"^(?!remove_group_members failed).*'g'") as caught:
            await within(admin.remove_group_members("g", ["a", "b"]))
    assert caught.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


async def test_a_broker_that_a_lost_request_unregistered_is_unregistered(
    broker: Any, within: Within, hang_up: object
) -> None:
    unknown = UnregisterBrokerResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message="no 7")
    broker.once["UnregisterBroker"] = [lambda _: hang_up, lambda _: unknown, lambda _: unknown]
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        await within(admin.unregister_broker(7))
        with pytest.raises(KafkaError, match=r"BROKER_ID_NOT_REGISTERED: no 7$") as caught:
            await within(admin.unregister_broker(7))
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert [request.broker_id for request in broker.requests("UnregisterBroker")] == [7, 7, 7]


def quorum_of(*states: quorum.QuorumState, **more: Any) -> quorum.DescribeQuorumResponse:
    topic = quorum.QuorumTopic(topic_name="__cluster_metadata", partitions=list(states))
    return quorum.DescribeQuorumResponse(topics=[topic], **more)


async def test_a_quorum_has_a_leader_voters_observers_and_addresses(broker: Any, within: Within) -> None:
    directory = UUID(int=77)
    voter = quorum.ReplicaState(
        replica_id=3000,
        replica_directory_id=directory,
        log_end_offset=12,
        last_fetch_timestamp=5,
        last_caught_up_timestamp=4,
    )
    observer = quorum.ReplicaState(replica_id=1, log_end_offset=9)
    state = quorum.QuorumState(
        leader_id=3000, leader_epoch=6, high_watermark=11, current_voters=[voter], observers=[observer]
    )
    listener = quorum.Listener(name="CONTROLLER", host="c", port=9093)
    nodes = [quorum.Node(node_id=3000, listeners=[listener])]
    broker.on["DescribeQuorum"] = lambda _: quorum_of(state, nodes=nodes)
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        description = await within(admin.describe_quorum())
    assert (description.leader_id, description.leader_epoch, description.high_watermark) == (3000, 6, 11)
    (first,), (second,) = description.voters, description.observers
    assert (first.replica_id, first.directory_id, first.log_end_offset) == (3000, directory, 12)
    assert (first.last_fetch_ms, first.last_caught_up_ms) == (5, 4)
    assert (second.directory_id, second.last_fetch_ms, second.last_caught_up_ms) == (None, None, None)
    assert description.nodes == {3000: (QuorumEndpoint(listener="CONTROLLER", host="c", port=9093),)}
    (request,) = broker.requests("DescribeQuorum")
    assert [(topic.topic_name, topic.partitions[0].partition_index) for topic in request.topics] == [
        ("__cluster_metadata", 0)
    ]


@pytest.mark.parametrize(
    ("response", "code", "words"),
    [
        (
            quorum.DescribeQuorumResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "the quorum cannot be described",
        ),
        (
            quorum_of(quorum.QuorumState(error_code=ErrorCode.INVALID_REQUEST, error_message="not so")),
            ErrorCode.INVALID_REQUEST,
            r"INVALID_REQUEST: not so$",
        ),
        (quorum_of(), ErrorCode.UNKNOWN_SERVER_ERROR, "describes 0 quorums"),
        (
            quorum_of(quorum.QuorumState(), quorum.QuorumState()),
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "describes 2 quorums",
        ),
    ],
    ids=["refused", "of the partition", "missing", "twice"],
)
async def test_a_quorum_that_is_not_described_is_an_error(
    broker: Any, within: Within, response: Any, code: ErrorCode, words: str
) -> None:
    broker.on["DescribeQuorum"] = lambda _: response
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        with pytest.raises(KafkaError, match=words) as caught:
            await within(admin.describe_quorum(timeout_s=2))
    assert caught.value.code is code
