"""Classic groups over the wire: every version, the deferred answers, a restart of the broker, what bad requests get."""

import asyncio
from typing import Any

import pytest

from odradek.broker.handlers.groups import join_group, sync_group
from odradek.broker.requests import dispatch
from odradek.broker.requests.context import ApiHandler
from odradek.protocol import api_by_name
from odradek.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.groups.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest
from odradek.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.groups.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.groups.list_groups import ListGroupsRequest
from odradek.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID = 79, 27, 22, 25
INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND = 24, 26, 68, 69
NOT_COORDINATOR, INCONSISTENT_GROUP_PROTOCOL = 16, 23


class Member:
    """A member of the group `g` that speaks chosen versions."""

    def __init__(self, wire: Any, version: int = 9, *, group: str = "g") -> None:
        self.wire = wire
        self.version = version
        self.group = group
        self.member_id = ""
        self.generation = -1

    def in_version(self, name: str) -> int:
        """JoinGroup has the most versions; the other APIs of the time are meant along with it."""
        return min(self.version, api_by_name(name).versions.max)

    def join_request(self, **changes: Any) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000 if self.version >= 1 else -1,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")],
        ).replace(**changes)

    def send_join(self, **changes: Any) -> None:
        self.wire.ask_later(self.join_request(**changes), self.version)

    async def joined(self) -> Any:
        response = await self.wire.response()
        self.member_id, self.generation = response.member_id, response.generation_id
        return response

    async def join(self, **changes: Any) -> Any:
        """Joins with a member id of its own, as clients from version 4 on get it first."""
        self.send_join(**changes)
        response = await self.joined()
        if response.error_code == MEMBER_ID_REQUIRED:
            self.send_join(**changes)
            response = await self.joined()
        return response

    def send_sync(self, assignments: dict[str, bytes] | None = None) -> None:
        version = self.in_version("SyncGroup")
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer" if version >= 5 else None,
            protocol_name="range" if version >= 5 else None,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
        )
        self.wire.ask_later(request, version)

    async def sync(self, assignments: dict[str, bytes] | None = None) -> Any:
        self.send_sync(assignments)
        return await self.wire.response()

    async def heartbeat(self) -> int:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        response = await self.wire.ask(request, self.in_version("Heartbeat"))
        return int(response.error_code)

    async def leave(self) -> Any:
        version = self.in_version("LeaveGroup")
        if version < 3:
            request = LeaveGroupRequest(group_id=self.group, member_id=self.member_id)
        else:
            members = [MemberIdentity(member_id=self.member_id)]
            request = LeaveGroupRequest(group_id=self.group, members=members)
        return await self.wire.ask(request, version)

    async def describe(self, version: int = 6) -> Any:
        response = await self.wire.ask(DescribeGroupsRequest(groups=[self.group]), version)
        return response.groups[0]


class Way:
    """The way that JoinGroup and SyncGroup take through the broker, and how often the short one served them."""

    def __init__(self, *, is_short: bool) -> None:
        self.is_short = is_short
        self.short_count = 0


@pytest.fixture(params=["short", "general"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Way:
    taken = Way(is_short=request.param == "short")
    for module in (join_group, sync_group):
        served: ApiHandler = module.SERVED

        def short(*arguments: Any, _served: ApiHandler = served) -> Any:
            assert _served.short is not None
            reply = _served.short(*arguments)
            taken.short_count += reply is not None
            return reply

        handler = ApiHandler(served.api_key, served.handle, short=short if taken.is_short else None)
        monkeypatch.setattr(module, "SERVED", handler)
    return taken


@pytest.fixture
async def groups(scene: Any, way: Way) -> Any:
    """A broker whose groups do not wait for more members."""
    await scene.start(group_initial_rebalance_delay_ms="0", offsets_topic_num_partitions="3")
    await (await scene.connect()).find_coordinator()
    return scene


async def two_members(scene: Any, version: int = 9) -> tuple[Member, Member]:
    """A stable group of two; the first leads."""
    first = Member(await scene.connect(), version)
    second = Member(await scene.connect(), version)
    assert (await first.join()).error_code == 0
    await first.sync({first.member_id: b"all"})
    if version >= 4:
        second.send_join()
        await second.joined()
    second.send_join()
    while await first.heartbeat() != REBALANCE_IN_PROGRESS:
        pass
    first.send_join()
    response = await first.joined()
    assert (await second.joined()).leader == response.leader == first.member_id
    second.send_sync()
    assigned = await first.sync({first.member_id: b"left", second.member_id: b"right"})
    assert (assigned.assignment, (await second.wire.response()).assignment) == (b"left", b"right")
    return first, second


@pytest.mark.parametrize("version", range(10))
async def test_a_group_forms_rebalances_and_ends_in_every_version(groups: Any, version: int) -> None:
    first, second = await two_members(groups, version)
    assert (first.generation, second.generation) == (2, 2)
    left = await second.leave()
    assert [left.error_code, *(member.error_code for member in left.members)] == (
        [0] if first.in_version("LeaveGroup") < 3 else [0, 0]
    )
    assert await first.heartbeat() == REBALANCE_IN_PROGRESS
    assert (await first.join()).generation_id == 3
    assert (await first.sync({first.member_id: b"all"})).assignment == b"all"
    assert (await first.leave()).error_code == 0
    assert (await first.describe()).group_state == "Empty"


@pytest.mark.parametrize("version", range(7))
async def test_a_group_is_described_in_every_version(groups: Any, version: int) -> None:
    first, second = await two_members(groups)
    group = await first.describe(version)
    assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data) == (
        0,
        "Stable",
        "consumer",
        "range",
    )
    assert {member.member_id: member.member_assignment for member in group.members} == {
        first.member_id: b"left",
        second.member_id: b"right",
    }
    assert {(member.client_id, member.client_host) for member in group.members} == {("test", "/127.0.0.1")}
    unknown = await Member(first.wire, group="nowhere").describe(version)
    assert unknown.group_state == "Dead"
    assert unknown.error_code == (GROUP_ID_NOT_FOUND if version >= 6 else 0)
    assert bool(unknown.error_message) == (version >= 6)


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_listed_in_every_version(groups: Any, version: int) -> None:
    first, _ = await two_members(groups)
    response = await first.wire.ask(ListGroupsRequest(), version)
    (listed,) = response.groups
    assert (listed.group_id, listed.protocol_type) == ("g", "consumer")
    assert listed.group_state == ("Stable" if version >= 4 else "")
    assert listed.group_type == ("classic" if version >= 5 else "")


async def test_a_list_of_groups_is_filtered_by_state_and_type(groups: Any) -> None:
    first, _ = await two_members(groups)

    async def found(**filters: list[str]) -> list[str]:
        response = await first.wire.ask(ListGroupsRequest(**filters), 5)
        return [group.group_id for group in response.groups]

    assert await found(states_filter=["stable", "Empty"]) == ["g"]
    assert await found(states_filter=["Empty"]) == []
    assert await found(types_filter=["Classic"]) == ["g"]
    assert await found(types_filter=["consumer"]) == []


@pytest.mark.parametrize("version", range(4))
async def test_a_group_is_deleted_in_every_version_once_it_is_empty(groups: Any, version: int) -> None:
    first, second = await two_members(groups)

    async def delete() -> list[tuple[str, int]]:
        request = DeleteGroupsRequest(groups_names=["g", "nowhere"])
        response = await first.wire.ask(request, version)
        messages = {entry.group_id for entry in response.results if entry.error_message}
        assert messages == (
            {entry.group_id for entry in response.results if entry.error_code and version >= 3}
        )
        return [(entry.group_id, entry.error_code) for entry in response.results]

    assert await delete() == [("g", NON_EMPTY_GROUP), ("nowhere", GROUP_ID_NOT_FOUND)]
    await first.leave()
    await second.leave()
    assert await delete() == [("g", 0), ("nowhere", GROUP_ID_NOT_FOUND)]
    assert (await first.describe()).error_code == GROUP_ID_NOT_FOUND


async def test_a_followers_sync_is_answered_only_after_the_leaders(groups: Any) -> None:
    first, second = await two_members(groups)
    second.send_join(
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\1\0\1t\0\0\0\0")]
    )
    while await first.heartbeat() != REBALANCE_IN_PROGRESS:
        pass
    await first.join()
    await second.joined()
    second.send_sync()
    waiting = asyncio.ensure_future(second.wire.response())
    assert await first.heartbeat() == 0
    assert not waiting.done()
    await first.sync({second.member_id: b"everything"})
    assert (await waiting).assignment == b"everything"


async def test_members_carry_on_across_a_restart_of_the_broker(groups: Any) -> None:
    first, second = await two_members(groups)
    await groups.stop()
    await groups.start(group_initial_rebalance_delay_ms="0")
    for member in (first, second):
        member.wire = await groups.connect()
    await first.wire.find_coordinator()
    assert [await first.heartbeat(), await second.heartbeat()] == [0, 0]
    assert (await second.sync()).assignment == b"right"
    await second.leave()
    assert await first.heartbeat() == REBALANCE_IN_PROGRESS
    assert (await first.join()).generation_id == 3


async def test_waiters_for_the_group_hear_when_the_broker_stops(groups: Any) -> None:
    first, second = await two_members(groups)
    second.send_join(
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\1\0\1t\0\0\0\0")]
    )
    while await first.heartbeat() != REBALANCE_IN_PROGRESS:
        pass
    assert groups.broker is not None
    stopping = asyncio.ensure_future(groups.broker.stop())
    assert (await second.joined()).error_code == NOT_COORDINATOR
    await stopping


async def test_a_member_that_dies_hands_its_partitions_on(scene: Any) -> None:
    await scene.start(group_initial_rebalance_delay_ms="0", group_min_session_timeout_ms="1")
    await (await scene.connect()).find_coordinator()
    first, second = Member(await scene.connect()), Member(await scene.connect())
    await first.join()
    await first.sync({first.member_id: b"all"})
    second.send_join(session_timeout_ms=400)
    await second.joined()
    second.send_join(session_timeout_ms=400)
    while await first.heartbeat() != REBALANCE_IN_PROGRESS:
        pass
    await first.join()
    await second.joined()
    second.send_sync()
    await first.sync({first.member_id: b"left", second.member_id: b"right"})
    await second.wire.response()
    while await first.heartbeat() != REBALANCE_IN_PROGRESS:
        await asyncio.sleep(0.01)
    response = await first.join()
    assert [member.member_id for member in response.members] == [first.member_id]
    assert await second.heartbeat() == UNKNOWN_MEMBER_ID


async def test_the_leave_of_several_members_answers_for_each(groups: Any) -> None:
    first, second = await two_members(groups)
    members = [MemberIdentity(member_id=member_id) for member_id in (second.member_id, "unknown")]
    response = await first.wire.ask(LeaveGroupRequest(group_id="g", members=members), 5)
    assert [member.error_code for member in response.members] == [0, UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("version", range(10))
async def test_what_bad_joins_get(groups: Any, version: int) -> None:
    member = Member(await groups.connect(), version)

    async def code(**changes: Any) -> int:
        member.send_join(**changes)
        return int((await member.wire.response()).error_code)

    assert await code(group_id="") == INVALID_GROUP_ID
    assert await code(session_timeout_ms=1) == INVALID_SESSION_TIMEOUT
    assert await code(member_id="somebody") == UNKNOWN_MEMBER_ID
    assert await code(protocols=[]) == INCONSISTENT_GROUP_PROTOCOL
    assert await code(protocol_type="") == INCONSISTENT_GROUP_PROTOCOL
    listed = await member.wire.ask(ListGroupsRequest(), 5)
    assert listed.groups == []


async def test_requests_of_strangers_change_nothing(groups: Any) -> None:
    first, second = await two_members(groups)
    stranger = Member(await groups.connect())
    stranger.member_id, stranger.generation = "unknown", 2
    assert await stranger.heartbeat() == UNKNOWN_MEMBER_ID
    assert (await stranger.sync({"unknown": b"mine"})).error_code == UNKNOWN_MEMBER_ID
    stranger.member_id, stranger.generation = second.member_id, 1
    assert await stranger.heartbeat() == ILLEGAL_GENERATION
    assert (await stranger.sync()).error_code == ILLEGAL_GENERATION
    assert (await stranger.describe()).group_state == "Stable"
    assert await first.heartbeat() == 0


async def test_sync_group_must_name_the_protocol_from_version_5_on(groups: Any) -> None:
    first, _ = await two_members(groups)
    request = SyncGroupRequest(group_id="g", generation_id=2, member_id=first.member_id)
    assert (await first.wire.ask(request, 5)).error_code == INCONSISTENT_GROUP_PROTOCOL
    wrong = request.replace(protocol_type="consumer", protocol_name="sticky")
    assert (await first.wire.ask(wrong, 5)).error_code == INCONSISTENT_GROUP_PROTOCOL


async def test_members_that_join_and_sync_take_the_short_way(groups: Any, way: Way) -> None:
    await two_members(groups)
    joins, syncs = 5, 3  # of which two joins are answered with a member id
    assert way.short_count == (joins + syncs if way.is_short else 0)


async def test_a_leader_gets_a_long_list_of_members_in_steps(
    groups: Any, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await two_members(groups)
    monkeypatch.setattr(dispatch, "FEW_ELEMENTS", 1)
    first.send_join()
    while await second.heartbeat() != REBALANCE_IN_PROGRESS:
        pass
    second.send_join()
    leading, following = await first.joined(), await second.joined()
    assert [member.member_id for member in leading.members] == [first.member_id, second.member_id]
    assert (leading.error_code, following.error_code, following.members) == (0, 0, [])
    assert way.short_count > 0 or not way.is_short


async def test_a_member_that_leaves_its_connection_while_it_waits_harms_no_other(groups: Any) -> None:
    first, second = await two_members(groups)
    first.send_join()
    while await second.heartbeat() != REBALANCE_IN_PROGRESS:
        pass
    first.wire.abandon()
    groups.forget(first.wire)
    second.send_join()
    joined = await second.joined()
    assert (joined.error_code, joined.generation_id) == (0, 3)
    first.wire = await groups.connect()
    first.send_join()
    again = await first.joined()  # the generation that was formed with it
    assert (again.error_code, again.generation_id, len(again.members)) == (0, 3, 2)
    second.send_sync()
    await first.sync({second.member_id: b"right"})
    assert (await second.wire.response()).assignment == b"right"
