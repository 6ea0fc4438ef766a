"""Classic groups: joining, rebalancing, static members, and every wrong generation, member and protocol."""

from typing import Any

from tests.differential.asker import Asker

from odradek.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.groups.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest
from odradek.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.groups.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.groups.list_groups import ListGroupsRequest
from odradek.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest

A, B = "-a", "-b"
STRANGER = "somebody else"


def script(peer: Asker) -> None:
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["gr-one", "gr-static", "gr-two", "gr-old"])
    peer.until(
        lambda response: not any(coordinator.error_code for coordinator in response.coordinators), find
    )
    peer.until(lambda reply: reply.error_code != 14, heartbeat("gr-one"))
    peer.until(lambda last_response: last_response.error_code != 16, heartbeat("gr-one"))
    _strangers(peer)
    _wrong_joins(peer)
    first = _one_member(peer)
    _two_members(peer, first)
    _static_members(peer)
    _old_versions(peer)
    _listing(peer)


def join(group: str, member: str = "", *, static: str | None = None, **more: Any) -> JoinGroupRequest:
    names = more.pop("protocols", ("range", "roundrobin"))
    protocols = [JoinGroupRequestProtocol(name=name, metadata=b"m") for name in names]
    values = {
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
    } | more
    return JoinGroupRequest(
        group_id=group, member_id=member, group_instance_id=static, protocols=protocols, **values
    )


def sync(
    group: str, generation: int = -1, member: str = "", *, static: str | None = None, **more: Any
) -> SyncGroupRequest:
    shares = [
        SyncGroupRequestAssignment(member_id=group_member, assignment=data)
        for group_member, data in more.pop("shares", {}).items()
    ]
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id=static,
        assignments=shares,
        **more,
    )


def heartbeat(
    group: str, generation: int = 0, member: str = "", *, static: str | None = None
) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member, group_instance_id=static
    )


def leave(group: str, *members: str, static: str | None = None) -> LeaveGroupRequest:
    leaving = [MemberIdentity(member_id=member, group_instance_id=static) for member in members]
    return LeaveGroupRequest(group_id=group, members=leaving)


def describe(*groups: str, **more: Any) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=list(groups), **more)


def _strangers(peer: Asker) -> None:
    peer.ask("describing what is not there", describe("gr-one"))
    peer.ask("describing what is not there, version 5", describe("gr-one"), 5)
    peer.ask("describing a group without a name", describe(""))
    peer.ask("a heartbeat for what is not there", heartbeat("gr-one", 1, STRANGER))
    peer.ask("a heartbeat for a group without a name", heartbeat("", 1, STRANGER))
    peer.ask("a sync with what is not there", sync("gr-one", 1, STRANGER))
    peer.ask("a sync with a group without a name", sync("", 1, STRANGER))
    peer.ask("leaving what is not there", leave("gr-one", STRANGER))
    peer.ask("leaving a group without a name", leave("", STRANGER))
    peer.ask("deleting what is not there", DeleteGroupsRequest(groups_names=["gr-one", ""]))


def _wrong_joins(peer: Asker) -> None:
    peer.ask("joining a group without a name", join(""))
    peer.ask("joining as a stranger", join("gr-wrong", STRANGER))
    peer.ask("a session too short", join("gr-wrong", session_timeout_ms=1))
    peer.ask("a session too long", join("gr-wrong", session_timeout_ms=100_000_000))
    peer.ask("no protocol", join("gr-wrong", protocols=()))
    peer.ask("no kind of protocol", join("gr-wrong", protocol_type=""))
    peer.ask("an empty static name", join("gr-wrong", static=""))
    peer.ask("what a refused join left behind", describe("gr-wrong"), only=_counting)


def _counting(response: Any) -> Any:
    """Members alone, since their ids are not known here."""
    group = response.groups[0]
    return response.replace(groups=[group.replace(members=[], protocol_data=str(len(group.members)))])


def _one_member(peer: Asker) -> str:
    member = peer.ask("a member id is required", join("gr-one"), line=A).member_id
    peer.ask("a heartbeat before it joined", heartbeat("gr-one", 0, member), line=A)
    peer.ask("joining alone", join("gr-one", member), line=A)
    peer.ask("joined alone", describe("gr-one"))
    peer.ask("a heartbeat before the sync", heartbeat("gr-one", 1, member), line=A)
    peer.ask("a sync as a stranger", sync("gr-one", 1, STRANGER))
    for generation in (0, 2):
        peer.ask(f"a sync in generation {generation}", sync("gr-one", generation, member), line=A)
    wrong = {"protocol_type": "connect", "protocol_name": "range"}
    peer.ask("a sync with another kind of protocol", sync("gr-one", 1, member, **wrong), line=A)
    wrong = {"protocol_type": "consumer", "protocol_name": "roundrobin"}
    peer.ask("a sync with another protocol", sync("gr-one", 1, member, **wrong), line=A)
    right = {
        "protocol_type": "consumer",
        "protocol_name": "range",
        "shares": {member: b"all", STRANGER: b"no"},
    }
    peer.ask("a sync", sync("gr-one", 1, member, **right), line=A)
    peer.ask("a sync once more", sync("gr-one", 1, member), line=A)
    peer.ask("stable", describe("gr-one"))
    peer.ask("stable, with what is allowed", describe("gr-one", include_authorized_operations=True))
    for generation in (0, 1, 2, -1):
        peer.ask(f"a heartbeat in generation {generation}", heartbeat("gr-one", generation, member), line=A)
    peer.ask("a heartbeat of a stranger", heartbeat("gr-one", 1, STRANGER))
    peer.ask(
        "a heartbeat with a static name that is unknown", heartbeat("gr-one", 1, member, static="st"), line=A
    )
    peer.ask("another kind of protocol", join("gr-one", protocol_type="connect"))
    peer.ask("other protocols", join("gr-one", protocols=("sticky",)))
    peer.ask("deleting a group in use", DeleteGroupsRequest(groups_names=["gr-one"]))
    return str(member)


def _two_members(peer: Asker, first: str) -> None:
    second = peer.quietly(join("gr-one"), line=B).member_id
    peer.send(join("gr-one", second, protocols=("roundrobin",)), line=B)
    peer.until(lambda response: response.error_code == 27, heartbeat("gr-one", 1, first), line=A)
    peer.ask("a heartbeat while another joins", heartbeat("gr-one", 1, first), line=A)
    peer.ask("a sync while another joins", sync("gr-one", 1, first), line=A)
    peer.ask("rebalancing", describe("gr-one"))
    peer.ask("joining again", join("gr-one", first), line=A)
    peer.answered("joining as the second", line=B)
    peer.ask("two joined", describe("gr-one"))
    peer.send(sync("gr-one", 2, second), line=B)
    peer.ask("the leader's sync", sync("gr-one", 2, first, shares={first: b"1", second: b"2"}), line=A)
    peer.answered("the follower's sync", line=B)
    peer.ask("two are stable", describe("gr-one"))
    peer.ask(
        "the follower joins again and nothing changed",
        join("gr-one", second, protocols=("roundrobin",)),
        line=B,
    )
    peer.ask("one leaves, version 2", LeaveGroupRequest(group_id="gr-one", member_id=second), 2, line=B)
    peer.ask("one leaves again, version 2", LeaveGroupRequest(group_id="gr-one", member_id=second), 2, line=B)
    peer.ask("a heartbeat after one left", heartbeat("gr-one", 2, first), line=A)
    peer.ask("both leave, one is gone", leave("gr-one", first, second), line=A)
    peer.ask("empty", describe("gr-one"))
    peer.ask("deleting an empty group", DeleteGroupsRequest(groups_names=["gr-one"]))
    peer.ask("after it was deleted", describe("gr-one"))


def _static_members(peer: Asker) -> None:
    first = peer.ask("a static member joins", join("gr-static", static="st-1"), line=A).member_id
    peer.ask(
        "a static member's sync", sync("gr-static", 1, first, static="st-1", shares={first: b"all"}), line=A
    )
    peer.ask("a static group", describe("gr-static"))
    again = peer.ask("the same static name joins", join("gr-static", static="st-1"), line=B).member_id
    peer.ask("the old one's heartbeat", heartbeat("gr-static", 1, first, static="st-1"), line=A)
    peer.ask("the old one's sync", sync("gr-static", 1, first, static="st-1"), line=A)
    peer.ask("the old one joins", join("gr-static", first, static="st-1"), line=A)
    peer.ask("the old one leaves", leave("gr-static", first, static="st-1"), line=A)
    peer.ask("an unknown static name joins with an id", join("gr-static", STRANGER, static="st-2"), line=A)
    peer.ask("the new one's heartbeat", heartbeat("gr-static", 1, again, static="st-1"), line=B)
    peer.ask("the new one's heartbeat without its name", heartbeat("gr-static", 1, again), line=B)
    peer.ask("a static group, replaced", describe("gr-static"))
    peer.ask("an unknown static name leaves", leave("gr-static", "", static="st-9"))
    peer.ask("removed by its static name", leave("gr-static", "", static="st-1"))
    peer.ask("a static group, empty", describe("gr-static"))


def _old_versions(peer: Asker) -> None:
    for version in (0, 1, 2, 3, 4, 5, 6, 7, 8):
        group = f"gr-v{version}"
        if version in (0, 1, 2, 3):
            joined = peer.ask(f"joining, version {version}", join(group), version)
        else:
            known = peer.ask(f"asking for an id, version {version}", join(group), version).member_id
            joined = peer.ask(f"joining, version {version}", join(group, known), version)
        shares = {"shares": {joined.member_id: b"x"}}
        peer.ask(f"a sync, version {version}", sync(group, 1, joined.member_id, **shares), min(version, 4))
        peer.ask(f"a heartbeat, version {version}", heartbeat(group, 1, joined.member_id), min(version, 4))
        peer.ask(f"describing, version {version}", describe(group), min(version, 6))
        leaving = leave(group, joined.member_id)
        if version < 3:
            leaving = LeaveGroupRequest(group_id=group, member_id=joined.member_id)
        peer.ask(f"leaving, version {min(version, 5)} of {version}", leaving, min(version, 5))


def _listing(peer: Asker) -> None:
    def mine(response: Any) -> Any:
        return response.replace(
            groups=[group for group in response.groups if group.group_id.startswith("gr-")]
        )

    for version in (0, 1, 2, 3, 4, 5):
        peer.ask(f"listing, version {version}", ListGroupsRequest(), version, only=mine)
    for state in ("Empty", "empty", "Stable", "Nonsense"):
        peer.ask(f"listing those that are {state}", ListGroupsRequest(states_filter=[state]), only=mine)
    for kind in ("classic", "Classic", "consumer", "share", "nonsense"):
        peer.ask(f"listing those of type {kind}", ListGroupsRequest(types_filter=[kind]), only=mine)
    names = [f"gr-v{version}" for version in range(9)]
    for version in (0, 1, 2):
        wanted = DeleteGroupsRequest(groups_names=[*names[version * 3 : version * 3 + 3], "gr-none"])
        peer.ask(f"deleting many, version {version}", wanted, version)
    peer.ask("listing what is left", ListGroupsRequest(), only=mine)
