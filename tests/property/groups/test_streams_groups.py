"""Streams groups under random histories: no active task has two users, no process has a task twice, and a group that is left
alone comes to rest with every task assigned once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.groups.streams.streams_world import COUNTING, StreamsClient, StreamsWorld

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
        self.clients: dict[str, StreamsClient] = {}
        self.counts = 4

    @rule(member_id=MEMBERS, process_id=PROCESSES)
    def join(self, member_id: str, process_id: str) -> None:
        """A member joins, or joins again after it has given up everything."""
        self.clients[member_id] = self.world.join(member_id, process_id, COUNTING)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), is_answer_lost=st.booleans())
    def beat(self, data: Any, is_answer_lost: bool) -> None:
        client = self.clients[data.draw(st.sampled_from(sorted(self.clients)))]
        before = client.epoch, set(client.active), set(client.standby)
        if self._beat_or_go(client) and is_answer_lost:
            # It has none of the tasks that the answer adds, and still uses those that the answer takes away.
            client.epoch, client.active, client.standby = before

    @precondition(lambda self: self.clients)
    @rule(rounds=st.integers(1, 4))
    def rest(self, rounds: int) -> None:
        """All members send heartbeats in turn: tasks and their copies move to where they belong."""
        for _ in range(rounds):
            for client in list(self.clients.values()):
                self._beat_or_go(client)
                self.no_task_has_two_users()
                self.no_process_has_a_task_twice()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        client = self.clients.pop(data.draw(st.sampled_from(sorted(self.clients))))
        if client.member_id in self.world.group.members:
            self.world.leave(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def vanish(self, data: Any) -> None:
        """A member dies without a word: it uses nothing any more, and its session ends."""
        del self.clients[data.draw(st.sampled_from(sorted(self.clients)))]
        for client in list(self.clients.values()):
            self._beat_or_go(client)
        self.world.wait(4_000)
        for client in list(self.clients.values()):
            self._beat_or_go(client)
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

    def _beat_or_go(self, client: StreamsClient) -> bool:
        """Returns whether the client is still a member."""
        try:
            self.world.beat(client)
        except KafkaError as error:
            if error.code not in _FENCED:
                raise
            del self.clients[client.member_id]
            return False
        return True

    @invariant()
    def no_task_has_two_users(self) -> None:
        used = Counter(task for client in getattr(self, "clients", {}).values() for task in client.active)
        assert set(used.values()) <= {1}, used

    @invariant()
    def no_process_has_a_task_twice(self) -> None:
        held = Counter(
            (client.process_id, task)
            for client in getattr(self, "clients", {}).values()
            for task in (*client.active, *client.standby)
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
        if not getattr(self, "clients", None):
            return
        self.world.wait(1_000)
        for _ in range(4 + 6 * len(self.clients)):
            for client in list(self.clients.values()):
                self._beat_or_go(client)
                self.no_task_has_two_users()
                self.no_process_has_a_task_twice()
            self.world.wait(1_000)
        if not self.clients:
            return
        active = Counter(task for client in self.clients.values() for task in client.active)
        expected = {TaskId(name, number) for name in ("0", "1") for number in range(self.counts)}
        assert active == Counter(expected)
        assert self.world.group.state_name == "Stable"


TestStreamsHistory = StreamsHistory.TestCase
TestStreamsHistory.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
