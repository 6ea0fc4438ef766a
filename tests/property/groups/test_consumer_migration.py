"""Members of both protocols in one group, coming and going, over restarts of the coordinator (KIP-848's migration).

The group changes its protocol under them as often as it likes: no partition is ever used by two, and in the end all are used.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.groups.consumer_script import ConsumerBench

from odradek.groups.classic.operations import heartbeat, join, leave, sync
from odradek.groups.consumer.consumer_protocol import assignment_bytes, read_assignment
from odradek.groups.shard.kinds import Caller
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol import encode
from odradek.protocol.messages.groups.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from odradek.protocol.messages.groups.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest
from odradek.protocol.messages.groups.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.messages.groups.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.groups.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

GROUP, TOPIC, COUNT = "g", "t", 4
SUBSCRIPTION = b"\0\0" + encode(ConsumerProtocolSubscription(topics=[TOPIC]), 0)
CALLER = Caller(client_id="c", client_host="/h", api_version=3)
ROUNDS_MAX = 60
"""Of a second each: longer than the session of a member that went before it knew its id."""


class NewMember:
    """A member of the consumer protocol: it gives partitions back, then says so."""

    def __init__(self, bench: ConsumerBench, name: str) -> None:
        self.bench = bench
        self.name = name
        self.epoch = 0
        self.uses: set[int] = set()

    def act(self) -> None:
        owned = [TopicPartitions(topic_id=UUID(int=1), partitions=sorted(self.uses))] if self.uses else []
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.name,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=owned,
        )
        try:
            response = self.bench.heartbeat(request)
        except KafkaError as error:
            assert error.code in (  # noqa: PT017
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.GROUP_ID_NOT_FOUND,
            ), error
            self.epoch, self.uses = 0, set()
            return
        self.epoch = response.member_epoch
        assert response.assignment is not None
        self.uses = {n for partition in response.assignment.topic_partitions for n in partition.partitions}

    def leave(self) -> None:
        self.uses = set()
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=self.name, member_epoch=-1)
        try:
            self.bench.heartbeat(request)
        except KafkaError:
            pass


class OldMember:
    """An eager member of the classic protocol: it gives everything back before it joins again."""

    def __init__(self, bench: ConsumerBench, name: str) -> None:
        self.bench = bench
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.uses: set[int] = set()
        self.waits_for: str | None = None
        self.attempts = 0

    def act(self) -> None:
        if self.waits_for is not None:
            answered = self.bench.answers.pop(self.waits_for, None)
            if answered is not None:
                self.waits_for = None
                self._answered(answered)
        elif self.generation < 0:
            self._join()
        else:
            request = HeartbeatRequest(
                group_id=GROUP, generation_id=self.generation, member_id=self.member_id
            )
            self._must_begin_again(self.bench.execute(partial(heartbeat, request=request)).error_code)

    def leave(self) -> None:
        self.uses = set()
        request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=self.member_id)])
        self.bench.execute(partial(leave, request=request))

    def coordinator_is_new(self) -> None:
        """Its request was refused with the old one."""
        if self.waits_for is not None:
            self.bench.answers.pop(self.waits_for, None)
            self.waits_for = None
            self.generation = -1

    def _ticket(self) -> Any:
        self.attempts += 1
        self.waits_for = f"{self.name}-{self.attempts}"
        return self.bench.ticket(self.waits_for)

    def _join(self) -> None:
        self.uses = set()
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=5_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )
        self.bench.execute(partial(join, request=request, caller=CALLER, ticket=self._ticket()))
        self.act()

    def _answered(self, reply: Any) -> None:
        if self._must_begin_again(reply.error_code):
            return
        if isinstance(reply, JoinGroupResponse):
            self.member_id, self.generation = reply.member_id, reply.generation_id
            ids = [member.member_id for member in reply.members]
            self._sync(ids)
        elif isinstance(reply, SyncGroupResponse):
            parts = read_assignment(bytes(reply.assignment)).assigned_partitions
            self.uses = {n for assigned_partitions in parts for n in assigned_partitions.partitions}

    def _sync(self, ids: list[str]) -> None:
        topics = self.bench.changing
        shares = {member_id: range(place, COUNT, len(ids)) for place, member_id in enumerate(ids)}
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=partition,
                    assignment=assignment_bytes({UUID(int=1): share}, topics, SUBSCRIPTION),
                )
                for partition, share in shares.items()
            ],
        )
        self.bench.execute(partial(sync, request=request, caller=CALLER, ticket=self._ticket()))
        self.act()

    def _must_begin_again(self, code: int) -> bool:
        if code == ErrorCode.NONE:
            return False
        assert code in (
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ), ErrorCode.of(code)
        if code != ErrorCode.REBALANCE_IN_PROGRESS:
            self.uses = set()
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.generation = -1
        return True


class Story:
    def __init__(self) -> None:
        self.bench = ConsumerBench(assignment_interval_ms=0)
        self.bench.changing.set(TOPIC, COUNT)
        self.members: list[NewMember | OldMember] = []
        self.made = 0

    def do(self, what: str, number: int) -> None:
        if what in ("new", "old") and len(self.members) < 4:
            self.made += 1
            kind = NewMember if what == "new" else OldMember
            self.members.append(kind(self.bench, f"m{self.made}"))
        elif what == "leave" and self.members:
            self.members.pop(number % len(self.members)).leave()
        elif what == "act" and self.members:
            self.members[number % len(self.members)].act()
        elif what == "time":
            self.bench.advance(500)
        elif what == "restart":
            self.bench.restart()
            for member in self.members:
                if isinstance(member, OldMember):
                    member.coordinator_is_new()
        self.check()

    def check(self) -> None:
        used = [partition for member in self.members for partition in member.uses]
        assert len(used) == len(set(used)), [(member.name, member.uses) for member in self.members]

    def settle(self) -> None:
        for _ in range(ROUNDS_MAX):
            for member in self.members:
                member.act()
                self.check()
            self.bench.advance(1000)
            if sorted(partition for member in self.members for partition in member.uses) == list(
                range(COUNT)
            ):
                return
        assert not self.members, [(member.name, member.uses) for member in self.members]


steps = st.lists(
    st.tuples(
        st.sampled_from(["new", "old", "leave", "act", "act", "act", "act", "time", "restart"]),
        st.integers(0, 3),
    ),
    min_size=8,
    max_size=50,
)


@settings(max_examples=120, deadline=None)
@given(steps=steps)
def test_both_protocols_share_a_group_while_it_changes_under_them(steps: list[tuple[str, int]]) -> None:
    story = Story()
    for what, number in steps:
        story.do(what, number)
    story.settle()
