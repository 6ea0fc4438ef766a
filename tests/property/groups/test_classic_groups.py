"""Whatever members do, no partition has two owners in a generation, the group settles, and its log tells all that counts."""

from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.groups.group_bench import GroupBench

from odradek.groups.classic.group import ClassicGroup
from odradek.groups.classic.operations import heartbeat, join, leave, sync
from odradek.groups.shard.kinds import Caller
from odradek.groups.shard.settings import GroupSettings
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest
from odradek.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.groups.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

PARTITIONS = 5
MEMBERS = 5
SESSION_MS = 10_000
REBALANCE_MS = 15_000
HEARTBEAT_MS = 3_000


class Member:
    """A member as clients are written; `alive` is all that is not decided by the protocol."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.name = f"c{number}"
        self.version = 3 + number % 3  # some are given an id first
        self.instance_id = f"i{number}" if number % 2 and self.version == 5 else None
        self.alive = False
        self.requests = 0
        self.reset()

    def reset(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.waits_for: str | None = None
        self.owned: set[int] | None = None

    def join(self) -> None:
        self.owned = None
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        caller = Caller(client_id=self.name, client_host="/h", api_version=self.version)
        self._ask(partial(join, request=request, caller=caller))

    def sync(self, members: list[str]) -> None:
        assignments = [
            SyncGroupRequestAssignment(
                member_id=member_id, assignment=bytes(range(place, PARTITIONS, len(members)))
            )
            for place, member_id in enumerate(members)
        ]
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=assignments,
        )
        caller = Caller(client_id=self.name, client_host="/h", api_version=5)
        self._ask(partial(sync, request=request, caller=caller))

    def _ask(self, operation: Any) -> None:
        self.requests += 1
        self.waits_for = f"{self.name}.{self.requests}"
        ticket = self.world.bench.ticket(self.waits_for)
        self.world.bench.execute(partial(operation, ticket=ticket))

    def answered(self, response: Any) -> None:
        self.waits_for = None
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif code is not ErrorCode.NONE:
            self.failed(code)
        elif hasattr(response, "generation_id"):
            self.member_id, self.generation = response.member_id, response.generation_id
            leads = response.leader == self.member_id
            self.sync([member.member_id for member in response.members] if leads else [])
        else:
            self.owned = set(response.assignment)
            self.world.owns(self)

    def failed(self, code: ErrorCode) -> None:
        self.owned = None
        self.generation = -1
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""

    def go_on(self) -> None:
        """What it does when it is its turn and it waits for nothing."""
        if self.owned is None:
            self.join()
            return
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        response = self.world.bench.execute(partial(heartbeat, request=request))
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
        elif response.error_code != ErrorCode.NONE:
            self.failed(ErrorCode.of(response.error_code))

    def leave(self) -> None:
        request = LeaveGroupRequest(
            group_id="g",
            members=[MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)],
        )
        if "g" in self.world.bench.machine.groups and self.member_id:
            self.world.bench.execute(partial(leave, request=request))


class World:
    def __init__(self) -> None:
        self.bench = GroupBench(GroupSettings(initial_rebalance_delay_ms=1_000))
        self.members = [Member(self, number) for number in range(MEMBERS)]
        self.owners: dict[tuple[int, int], str] = {}

    def owns(self, member: Member) -> None:
        assert member.owned is not None
        for partition in member.owned:
            owner = self.owners.setdefault((member.generation, partition), member.name)
            assert owner == member.name, f"{partition} has two owners in generation {member.generation}"

    def settle(self) -> None:
        """Hand out the answers that are there; what members do then brings more."""
        while self.bench.answers:
            answers = dict(self.bench.answers)
            self.bench.answers.clear()
            for name, response in answers.items():
                member = self.members[int(name.split(".")[0][1:])]
                if member.alive and member.waits_for == name:
                    member.answered(response)

    def act(self, member: Member, action: str) -> None:
        if action == "die":
            member.alive = False
            member.reset()
        elif action == "leave":
            if member.alive:
                member.leave()
            member.alive = False
            member.reset()
        elif action == "start":
            member.alive = True
        elif action == "restart":
            for ticket in self.bench.restart():
                waiting = repr(ticket)[1:-1]
                for made_member in self.members:
                    if made_member.waits_for == waiting:
                        made_member.waits_for = None
                        made_member.owned = None
        elif member.alive and member.waits_for is None:
            member.go_on()
        self.settle()

    def pass_time(self, milliseconds: int) -> None:
        self.bench.advance(milliseconds)
        self.settle()

    def quiet_down(self) -> None:
        """No one comes, no one goes: everyone alive does its duty."""
        for _ in range(30):
            for member in self.members:
                self.act(member, "go on")
            self.pass_time(HEARTBEAT_MS)

    def check_settled(self) -> None:
        alive = [member for member in self.members if member.alive]
        assert len({member.generation for member in alive}) <= 1
        owned = sorted(partition for member in alive for partition in member.owned or ())
        assert owned == (list(range(PARTITIONS)) if alive else [])

    def check_log(self) -> None:
        """A machine made from the log has what this one has."""
        before = replicated(self.bench)
        other = GroupBench()
        other.written = self.bench.written
        other.restart()
        assert replicated(other) == before


def replicated(bench: GroupBench) -> dict[str, Any]:
    return {
        group.group_id: group.stored
        for group in bench.machine.groups.values()
        if isinstance(group, ClassicGroup) and group.stored is not None
    }


STEPS = st.lists(
    st.tuples(
        st.integers(0, MEMBERS - 1),
        st.sampled_from(["start", "start", "go on", "go on", "go on", "go on", "die", "leave", "restart"]),
        st.sampled_from([0, 0, 100, 1_000, 3_000, 11_000, 16_000]),
    ),
    max_size=80,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_no_partition_has_two_owners_and_the_group_settles(steps: list[tuple[int, str, int]]) -> None:
    world = World()
    for number, action, pause_ms in steps:
        world.act(world.members[number], action)
        world.pass_time(pause_ms)
    world.quiet_down()
    world.check_settled()
    world.check_log()


def test_a_storm_of_members_settles_in_one_rebalance_for_each_wave() -> None:
    """300 members come within a second, then 100 die at once: two generations, and every partition is owned."""
    world = World()
    world.members = [Member(world, number) for number in range(300)]
    for member in world.members:
        world.act(member, "start")
        world.act(member, "go on")
        if member.member_id:
            world.act(member, "go on")
        world.pass_time(3)
    world.quiet_down()
    world.check_settled()
    assert {member.generation for member in world.members} == {1}
    for member in world.members[100:200]:
        world.act(member, "die")
    world.quiet_down()
    world.check_settled()
    assert {member.generation for member in world.members if member.alive} == {2}
