"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848): joining, reconciling, leaving, wrong epochs and members."""

from typing import Any
from uuid import UUID

from tests.differential.asker import Asker
from tests.differential.requests import make_topic, metadata
from tests.differential.scripts.committed_offsets import commit, fetch
from tests.differential.scripts.groups import heartbeat, join, leave, sync

from odradek.protocol import encode
from odradek.protocol.messages.groups.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.protocol.messages.groups.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from odradek.protocol.messages.groups.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from odradek.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.groups.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.groups.list_groups import ListGroupsRequest
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest

CLASSIC = "-classic"
"""The line of a member that waits for the others."""
FIRST, SECOND, STRANGER = "member-1", "member-2", "somebody else"


def script(peer: Asker) -> None:
    make_topic(peer, "cg-one", 2)
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["cg-one", "cg-regex"])
    peer.until(
        lambda response: not any(coordinator.error_code for coordinator in response.coordinators), find
    )
    peer.until(lambda reply: reply.error_code not in (14, 16), beat("cg-one", STRANGER, 1))
    topic_id = peer.quietly(metadata("cg-one")).topics[0].topic_id
    _wrong(peer)
    _two(peer, _alone(peer, topic_id))
    _static(peer)
    _regex(peer)
    _mixed(peer)


def beat(
    group: str, member: str, epoch: int, *topics: str, owned: list[TopicPartitions] | None = None, **more: Any
) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat; with epoch 0, all that a member has to say when it joins."""
    values: dict[str, Any] = {"topic_partitions": owned}
    if epoch == 0:
        values = {"subscribed_topic_names": list(topics), "rebalance_timeout_ms": 30_000}
        values["topic_partitions"] = owned or []
    return ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, **values | more
    )


def has_partitions(response: Any) -> bool:
    return bool(response.assignment and response.assignment.topic_partitions)


def describe(*groups: str, **more: Any) -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(group_ids=list(groups), **more)


def _wrong(peer: Asker) -> None:
    peer.ask("a group without a name", beat("", FIRST, 0, "cg-one"))
    peer.ask("a member without an id", beat("cg-none", "", 0, "cg-one"))
    peer.ask("a member without an id, version 0", beat("cg-v0", "", 0, "cg-one"), 0)
    peer.ask("an epoch that does not exist", beat("cg-none", FIRST, -3, "cg-one"))
    peer.ask("joining without a timeout", beat("cg-none", FIRST, 0, "cg-one", rebalance_timeout_ms=-1))
    peer.ask("joining without a subscription", beat("cg-none", FIRST, 0, subscribed_topic_names=None))
    peer.ask(
        "joining with partitions",
        beat("cg-none", FIRST, 0, "cg-one", owned=[TopicPartitions(topic_id=UUID(int=5), partitions=[0])]),
    )
    peer.ask("joining with an empty static name", beat("cg-none", FIRST, 0, "cg-one", instance_id=""))
    peer.ask("joining with an empty rack", beat("cg-none", FIRST, 0, "cg-one", rack_id=""))
    peer.ask("an unknown assignor", beat("cg-none", FIRST, 0, "cg-one", server_assignor="nonsense"))
    peer.ask("an empty assignor", beat("cg-none", FIRST, 0, "cg-one", server_assignor=""))
    peer.ask("a bad expression", beat("cg-none", FIRST, 0, subscribed_topic_regex="("))
    peer.ask("a static member that leaves without a name", beat("cg-none", FIRST, -2))
    peer.ask("a heartbeat of what is not there", beat("cg-none", FIRST, 1))
    peer.ask("leaving what is not there", beat("cg-none", FIRST, -1))
    peer.ask("describing what is not there", describe("cg-none", ""))
    peer.ask("describing nothing", describe())


def _alone(peer: Asker, topic_id: UUID) -> int:
    peer.ask("joining an unknown topic", beat("cg-lonely", FIRST, 0, "cg-no"))
    joined = peer.ask("joining", beat("cg-one", FIRST, 0, "cg-one"))
    peer.until(lambda response: response.groups[0].group_state != "Assigning", describe("cg-one"))
    peer.ask("described before it took its partitions", describe("cg-one"))
    epoch = joined.member_epoch
    both = [TopicPartitions(topic_id=topic_id, partitions=[0, 1])]
    peer.ask("taking its partitions", beat("cg-one", FIRST, epoch, owned=both))
    peer.ask("nothing new", beat("cg-one", FIRST, epoch))
    for version in (0, 1):
        peer.ask(f"described, version {version}", describe("cg-one"), version)
    peer.ask("described with what is allowed", describe("cg-one", include_authorized_operations=True))
    peer.ask("described as a classic group", DescribeGroupsRequest(groups=["cg-one"]))
    peer.ask("listed", ListGroupsRequest(types_filter=["consumer"]), only=_listed)
    peer.ask("joining again", beat("cg-one", FIRST, 0, "cg-one"))
    peer.ask("an epoch too high", beat("cg-one", FIRST, epoch + 1))
    peer.ask(
        "an epoch too low",
        beat("cg-one", FIRST, epoch - 1, owned=[]) if epoch > 1 else beat("cg-one", FIRST, epoch + 2),
    )
    peer.ask("a stranger's heartbeat", beat("cg-one", STRANGER, 1))
    peer.ask("a stranger leaves", beat("cg-one", STRANGER, -1))
    for number, who in ((epoch, FIRST), (epoch + 1, FIRST), (epoch, STRANGER), (-1, "")):
        commits = commit("cg-one", (0, 5), name="cg-one", generation=number, member=who)
        what = "no epoch" if number < 0 else f"epoch {number - epoch:+}"
        peer.ask(f"committing in {what} as {who or 'no member'}", commits, 9)
    for number, who in ((epoch, FIRST), (epoch + 1, FIRST), (epoch, STRANGER)):
        fetches = fetch("cg-one", 0, name="cg-one", member_id=who, member_epoch=number)
        peer.ask(f"fetching in epoch {number - epoch:+} as {who}", fetches, 9)
    peer.ask("joining as a classic member with another protocol", join("cg-one", protocol_type="connect"))
    peer.ask("deleting a group in use", DeleteGroupsRequest(groups_names=["cg-one"]))
    return int(epoch)


def _listed(response: Any) -> Any:
    return response.replace(groups=[group for group in response.groups if group.group_id == "cg-one"])


def _two(peer: Asker, epoch: int) -> None:
    peer.ask("a second joins", beat("cg-one", SECOND, 0, "cg-one"))
    asked = peer.until(lambda response: response.assignment is not None, beat("cg-one", FIRST, epoch))
    kept = asked.assignment.topic_partitions
    peer.ask("rebalancing", describe("cg-one"), only=_states)
    given = peer.ask("the first gives one up", beat("cg-one", FIRST, epoch, owned=kept))
    second = peer.until(has_partitions, beat("cg-one", SECOND, given.member_epoch, owned=[]))
    taken = second.assignment.topic_partitions
    peer.ask("the second takes it", beat("cg-one", SECOND, second.member_epoch, owned=taken))
    peer.ask("two are stable", describe("cg-one"))
    peer.ask("the second leaves", beat("cg-one", SECOND, -1))
    peer.ask("the second leaves again", beat("cg-one", SECOND, -1))
    peer.ask("the first leaves", beat("cg-one", FIRST, -1))
    peer.ask("empty", describe("cg-one"))
    peer.ask("deleted", DeleteGroupsRequest(groups_names=["cg-one"]))
    peer.ask("after it was deleted", describe("cg-one"))


def _states(response: Any) -> Any:
    group = response.groups[0]
    return response.replace(
        groups=[
            group.replace(
                members=[
                    member.replace(
                        assignment=type(member.assignment)(), target_assignment=type(member.assignment)()
                    )
                    for member in group.members
                ]
            )
        ]
    )


def _static(peer: Asker) -> None:
    first = peer.ask("a static member joins", beat("cg-static", FIRST, 0, "cg-one", instance_id="st"))
    peer.ask("its name is taken", beat("cg-static", SECOND, 0, "cg-one", instance_id="st"))
    peer.ask("a heartbeat without the name", beat("cg-static", FIRST, first.member_epoch))
    peer.ask(
        "a heartbeat with another's name", beat("cg-static", SECOND, first.member_epoch, instance_id="st")
    )
    peer.ask("it leaves for a while", beat("cg-static", FIRST, -2, instance_id="st"))
    peer.ask("the group without it", describe("cg-static"), only=_states)
    peer.ask("another takes its place", beat("cg-static", SECOND, 0, "cg-one", instance_id="st"))
    peer.ask("it leaves for good", beat("cg-static", SECOND, -1, instance_id="st"))


def _regex(peer: Asker) -> None:
    response = peer.ask(
        "joining by expression",
        beat("cg-regex", FIRST, 0, subscribed_topic_regex="cg-o.*"),
        only=_without_assignment,
    )
    if not has_partitions(response):
        response = peer.until(has_partitions, beat("cg-regex", FIRST, response.member_epoch))
    taken = response.assignment.topic_partitions
    peer.ask("taken by expression", beat("cg-regex", FIRST, response.member_epoch, owned=taken))
    peer.ask("described with an expression", describe("cg-regex"), only=_without_epochs)
    peer.ask(
        "an expression that is bad",
        beat("cg-regex", FIRST, response.member_epoch, subscribed_topic_regex="[a"),
    )
    peer.ask("leaving with an expression", beat("cg-regex", FIRST, -1))


def _without_assignment(response: Any) -> Any:
    """Whether the topics are known by then is up to the broker."""
    return response.replace(assignment=None, member_epoch=0)


def _without_epochs(response: Any) -> Any:
    """When an expression is resolved is up to the broker, and so is how many epochs that takes."""
    group = response.groups[0]
    members = [member.replace(member_epoch=0) for member in group.members]
    return response.replace(groups=[group.replace(group_epoch=0, assignment_epoch=0, members=members)])


def _classic_join(group: str, member: str = "") -> JoinGroupRequest:
    """Returns the JoinGroup of a consumer with the classic protocol, whose metadata both sides can read."""
    said = ConsumerProtocolSubscription(topics=["cg-one"])
    metadata_ = b"\0\0" + encode(said, 0)
    protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata_)]
    return join(group, member).replace(protocols=protocols)


def _mixed(peer: Asker) -> None:
    _classic_member_of_a_new_group(peer)
    _new_member_of_a_classic_group(peer)
    known = peer.quietly(join("cg-classic")).member_id
    peer.quietly(join("cg-classic", known, protocol_type="connect"))
    peer.ask("joining a group of another kind", beat("cg-classic", FIRST, 0, "cg-one"))
    peer.ask("describing a classic group", describe("cg-classic"))


def _classic_member_of_a_new_group(peer: Asker) -> None:
    joined = peer.ask("a group with one new member", beat("cg-mixed", FIRST, 0, "cg-one"))
    both = joined.assignment.topic_partitions
    peer.ask("it takes its partitions", beat("cg-mixed", FIRST, joined.member_epoch, owned=both))
    known = peer.quietly(_classic_join("cg-mixed"), line=CLASSIC).member_id
    peer.names.given[known] = "<the classic member>"  # Kafka makes ids of another form for such members
    joins = _classic_join("cg-mixed", known)
    old = peer.ask("a classic member joins", joins, line=CLASSIC, only=_without_generation)
    asked = peer.until(has_partitions, beat("cg-mixed", FIRST, joined.member_epoch))
    kept = asked.assignment.topic_partitions
    peer.ask("the new member gives one up", beat("cg-mixed", FIRST, joined.member_epoch, owned=kept))
    peer.ask("the classic member's sync", sync("cg-mixed", old.generation_id, known), line=CLASSIC)
    peer.ask("the classic member's heartbeat", heartbeat("cg-mixed", old.generation_id, known), line=CLASSIC)
    peer.ask("a mixed group", describe("cg-mixed"), only=_states)
    peer.ask("the classic member leaves", leave("cg-mixed", known), line=CLASSIC)
    peer.ask("the new member leaves", beat("cg-mixed", FIRST, -1))


def _without_generation(response: Any) -> Any:
    """A generation is the group's epoch, where it begins is the coordinator's affair."""
    return response.replace(generation_id=int(response.generation_id > 0))


def _new_member_of_a_classic_group(peer: Asker) -> None:
    known = peer.quietly(_classic_join("cg-turned"), line=CLASSIC).member_id
    peer.quietly(_classic_join("cg-turned", known), line=CLASSIC)
    assigned = ConsumerProtocolAssignment(
        assigned_partitions=[AssignedPartitions(topic="cg-one", partitions=[0, 1])]
    )
    share = b"\0\0" + encode(assigned, 0)
    peer.quietly(sync("cg-turned", 1, known, shares={known: share}), line=CLASSIC)
    joins = beat("cg-turned", FIRST, 0, "cg-one")
    peer.ask("a new member joins a classic group", joins, only=_without_assignment)
    turned = describe("cg-turned")
    peer.ask("the group has turned", turned, only=lambda response: _states(_without_epochs(response)))
    peer.ask(
        "the classic member's heartbeat in a group that turned",
        heartbeat("cg-turned", 1, known),
        line=CLASSIC,
    )
    peer.ask(
        "the classic member joins again",
        _classic_join("cg-turned", known),
        line=CLASSIC,
        only=_without_generation,
    )
    peer.ask("the new member leaves the group that turned", beat("cg-turned", FIRST, -1))
    peer.ask("the group has turned back", DescribeGroupsRequest(groups=["cg-turned"]), only=_without_bytes)
    peer.ask("the classic member leaves it", leave("cg-turned", known), line=CLASSIC)


def _without_bytes(response: Any) -> Any:
    group = response.groups[0]
    members = [member.replace(member_metadata=b"", member_assignment=b"") for member in group.members]
    return response.replace(groups=[group.replace(members=members)])
