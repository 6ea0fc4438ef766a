"""Streams groups under random histories: no active task has two users, no process has a task twice, and a group that is left
alone comes to rest with every task assigned once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.groups.streams.streams_world import COUNTING, SimulatedMember, StreamsWorld

from odradek.groups.streams.tasks import TaskId, TaskRole
from odradek.model.errors import ErrorCode, KafkaError

MEMBERS = st.sampled_from("abcdef")
PROCESSES = st.sampled_from(["p", "q", "r"])
_FENCED = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND}


class StreamsHistory(RuleBasedStateMachine):
    """Members that obey: they use what their last answer says, until they hear that they are out."""

    @initialize(standby=st.integers(0, 2), delay_ms=st.sampled_from([0, 1_000]))
    def begin(self, standby: int, delay_ms: int) -> None:
        self.world = StreamsWorld(
            session_timeout_ms=5_000, standby_replicas=standby, initial_rebalance_delay_ms=delay_ms
        )
        self.members: dict[str, SimulatedMember] = {}
        self.counts = 4

    @rule(member_id=MEMBERS, process_id=PROCESSES)
    def join(self, member_id: str, process_id: str) -> None:
        """A member joins, or joins again after it has given up everything."""
        self.members[member_id] = self.world.join(member_id, process_id, COUNTING)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), is_answer_lost=st.booleans())
    def beat(self, data: Any, is_answer_lost: bool) -> None:
        member = self.members[data.draw(st.sampled_from(sorted(self.members)))]
        before = member.epoch, set(member.active), set(member.standby)
        if self._beat_or_go(member) and is_answer_lost:
            # It has none of the tasks that the answer adds, and still uses those that the answer takes away.
            member.epoch, member.active, member.standby = before

    @precondition(lambda self: self.members)
    @rule(rounds=st.integers(1, 4))
    def rest(self, rounds: int) -> None:
        """All members send heartbeats in turn: tasks and their copies move to where they belong."""
        for _ in range(rounds):
            for member in list(self.members.values()):
                self._beat_or_go(member)
                self.no_task_has_two_users()
                self.no_process_has_a_task_twice()

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        member = self.members.pop(data.draw(st.sampled_from(sorted(self.members))))
        if member.member_id in self.world.group.members:
            self.world.leave(member)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def vanish(self, data: Any) -> None:
        """A member dies without a word: it uses nothing any more, and its session ends."""
        del self.members[data.draw(st.sampled_from(sorted(self.members)))]
        for member in list(self.members.values()):
            self._beat_or_go(member)
        self.world.wait(4_000)
        for member in list(self.members.values()):
            self._beat_or_go(member)
        self.world.wait(1_500)

    @rule(count=st.integers(1, 6))
    def resize(self, count: int) -> None:
        """The topics are made again with another number of partitions."""
        for name in ("in", "repart", "log"):
            self.world.topics.create(name, count)
        self.counts = count

    @rule()
    def restart(self) -> None:
        self.world.restart()

    def _beat_or_go(self, member: SimulatedMember) -> bool:
        """Returns whether the member is still in the group."""
        try:
            self.world.beat(member)
        except KafkaError as error:
            if error.code not in _FENCED:
                raise
            del self.members[member.member_id]
            return False
        return True

    @invariant()
    def no_task_has_two_users(self) -> None:
        used = Counter(task for member in getattr(self, "members", {}).values() for task in member.active)
        assert set(used.values()) <= {1}, used

    @invariant()
    def no_process_has_a_task_twice(self) -> None:
        held = Counter(
            (member.process_id, task)
            for member in getattr(self, "members", {}).values()
            for task in (*member.active, *member.standby)
        )
        assert set(held.values()) <= {1}, held

    @invariant()
    def tables_say_what_members_have(self) -> None:
        if not hasattr(self, "world") or "g" not in self.world.machine.groups:
            return
        group = self.world.group
        owners = {
            task: member.member_id
            for member in group.members.values()
            for task in member.current.held(TaskRole.ACTIVE)
        }
        assert group.owners == owners
        copies = {
            (task, member.profile.process_id)
            for member in group.members.values()
            for role in (TaskRole.STANDBY, TaskRole.WARMUP)
            for task in member.current.held(role)
        }
        assert set(group.copies) == copies

    def teardown(self) -> None:
        if not getattr(self, "members", None):
            return
        self.world.wait(1_000)
        for _ in range(4 + 6 * len(self.members)):
            for member in list(self.members.values()):
                self._beat_or_go(member)
                self.no_task_has_two_users()
                self.no_process_has_a_task_twice()
            self.world.wait(1_000)
        if not self.members:
            return
        active = Counter(task for member in self.members.values() for task in member.active)
        expected = {TaskId(name, number) for name in ("0", "1") for number in range(self.counts)}
        assert active == Counter(expected)
        assert self.world.group.state_name == "Stable"


TestStreamsHistory = StreamsHistory.TestCase
TestStreamsHistory.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
