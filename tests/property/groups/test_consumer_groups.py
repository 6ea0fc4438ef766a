"""Consumer groups under random members: joins, losses of answers, deaths, time, restarts, topics that change.

Whatever happens: no partition is used by two members at once; once everyone is left in peace every partition of a subscribed
topic has exactly one member; and the log alone tells all that the coordinator knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.groups.consumer_script import ConsumerBench

from odradek.groups.consumer.group import ConsumerGroup
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

GROUP = "g"
TOPICS = ("t", "u", "v")
REBALANCE_MS = 30_000
SESSION_MS = 45_000

REFUSALS = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNRELEASED_INSTANCE_ID,
)
"""What a member of good conduct may meet; it then begins again."""

heartbeats = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from([True, True, True, False]), st.booleans()),
    min_size=1,
    max_size=8,
)
"""Who, whether the answer arrives, and whether the member comes to act upon it."""
subscriptions = st.sets(st.sampled_from(TOPICS)).map(sorted)


@dataclass
class Member:
    """A member as a correct client behaves: it uses what it was assigned, and stops before it says that it has stopped."""

    member_id: str
    topics: list[str]
    regex: str | None = None
    instance_id: str | None = None
    epoch: int = 0
    assigned: set[tuple[UUID, int]] = field(default_factory=set)
    """What it was assigned last."""
    uses: set[tuple[UUID, int]] = field(default_factory=set)
    must_say_all: bool = True
    silent_since_ms: int = 0
    """When it last had an answer."""
    late_since_ms: int = 0
    """When, at the earliest, the coordinator may have begun to wait for what it has still to give back."""

    def request(self) -> ConsumerGroupHeartbeatRequest:
        joining = self.epoch == 0
        owned: dict[UUID, list[int]] = {}
        for topic, partition in sorted(self.uses):
            owned.setdefault(topic, []).append(partition)
        full = self.must_say_all or joining
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if full else -1,
            subscribed_topic_names=self.topics if full else None,
            subscribed_topic_regex=self.regex if full else None,
            topic_partitions=[
                TopicPartitions(topic_id=key, partitions=value) for key, value in owned.items()
            ],
        )

    def take(self, response: ConsumerGroupHeartbeatResponse, now_ms: int) -> None:
        if self.uses <= self.assigned:
            self.late_since_ms = self.silent_since_ms
        self.silent_since_ms = now_ms
        self.epoch = response.member_epoch
        self.must_say_all = False
        if response.assignment is not None:
            self.assigned = {
                (partition.topic_id, n)
                for partition in response.assignment.topic_partitions
                for n in partition.partitions
            }

    def act(self) -> None:
        """Give up what is not its any more, then take what is: that may take a while, and heartbeats go on."""
        self.uses = set(self.assigned)

    def drop_all(self) -> None:
        self.epoch = 0
        self.assigned = set()
        self.uses = set()
        self.must_say_all = True


class Groups(RuleBasedStateMachine):
    @initialize(interval_ms=st.sampled_from([0, 1000]), count=st.integers(1, 4), topics=subscriptions)
    def begin(self, interval_ms: int, count: int, topics: list[str]) -> None:
        self.bench = ConsumerBench(assignment_interval_ms=interval_ms, session_timeout_ms=SESSION_MS)
        self.members: dict[str, Member] = {}
        self.made = 0
        for name in TOPICS[:2]:
            self.bench.changing.set(name, 3)
        for _ in range(count):
            self._come(["t", *topics], None, static=False)

    # -- members

    @precondition(lambda self: len(self.members) < 5)
    @rule(topics=subscriptions, regex=st.sampled_from([None, None, "t|u", "[uv]"]), static=st.booleans())
    def a_member_comes(self, topics: list[str], regex: str | None, static: bool) -> None:
        self._come(topics, regex, static=static)

    @precondition(lambda self: self.members)
    @rule(beats=heartbeats)
    def heartbeats(self, beats: list[tuple[int, bool, bool]]) -> None:
        for number, answer_arrives, acts in beats:
            name = sorted(self.members)[number % len(self.members)]
            self._beat(name, answer_arrives, acts)
            self.no_partition_is_used_twice()

    @precondition(lambda self: self.members)
    @rule(milliseconds=st.sampled_from([500, 5000]), acts=st.booleans())
    def all_is_well_for_a_while(self, milliseconds: int, acts: bool) -> None:
        for name in sorted(self.members):
            self._beat(name, answer_arrives=True, acts=acts)
        self.bench.advance(milliseconds)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), topics=subscriptions)
    def a_member_subscribes_otherwise(self, data: st.DataObject, topics: list[str]) -> None:
        member = self.members[data.draw(st.sampled_from(sorted(self.members)))]
        member.topics = topics
        member.must_say_all = True

    @precondition(lambda self: self.members)
    @rule(data=st.data(), for_a_while=st.booleans())
    def a_member_leaves(self, data: st.DataObject, for_a_while: bool) -> None:
        member = self.members[data.draw(st.sampled_from(sorted(self.members)))]
        is_static = member.instance_id is not None
        member.uses = set()
        epoch = -2 if for_a_while and is_static else -1
        try:
            self.bench.heartbeat(
                ConsumerGroupHeartbeatRequest(
                    group_id=GROUP,
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    member_epoch=epoch,
                )
            )
        except KafkaError:
            pass
        del self.members[member.member_id]
        if epoch == -2:
            self.made += 1
            again = Member(
                member_id=f"m{self.made}",
                topics=member.topics,
                regex=member.regex,
                instance_id=member.instance_id,
                silent_since_ms=self.bench.now_ms,
            )
            self.members[again.member_id] = again

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def a_member_dies(self, data: st.DataObject) -> None:
        del self.members[data.draw(st.sampled_from(sorted(self.members)))]

    # -- the world

    @rule(milliseconds=st.sampled_from([100, 1000, 5000, 20_000]))
    def time_passes(self, milliseconds: int) -> None:
        """A member that cannot reach the coordinator for so long gives up what it has before its session ends."""
        self.bench.advance(milliseconds)
        for member in self.members.values():
            if self.bench.now_ms - member.silent_since_ms >= min(SESSION_MS, REBALANCE_MS):
                member.drop_all()
            elif self.bench.now_ms - member.late_since_ms >= REBALANCE_MS:
                member.uses &= member.assigned

    @rule()
    def the_coordinator_restarts(self) -> None:
        self.bench.restart()

    @rule(name=st.sampled_from(TOPICS), count=st.integers(1, 5))
    def a_topic_is_made_or_grows(self, name: str, count: int) -> None:
        changing = self.bench.changing
        changing.set(name, max(count, changing.partition_count(name)))

    @rule(name=st.sampled_from(TOPICS))
    def a_topic_goes(self, name: str) -> None:
        if self.bench.changing.topic_id(name) is not None:
            self.bench.changing.drop(name)

    # -- what always holds

    @invariant()
    def no_partition_is_used_twice(self) -> None:
        used: dict[tuple[UUID, int], str] = {}
        for member in self.members.values():
            for pair in member.uses:
                assert pair not in used, (pair, used[pair], member.member_id)
                used[pair] = member.member_id

    @invariant()
    def the_log_tells_all(self) -> None:
        group = self.bench.machine.groups.get(GROUP)
        again = self.bench._machine().groups.get(GROUP)
        assert (group is None) == (again is None)
        if isinstance(group, ConsumerGroup) and isinstance(again, ConsumerGroup):
            for name in ("epoch", "metadata_hash", "assignment_epoch", "assignment_ms"):
                assert getattr(group, name) == getattr(again, name)
            for name in ("members", "statics", "targets", "regexes", "owners"):
                assert getattr(group, name) == getattr(again, name), name

    @invariant()
    def partitions_belong_to_whom_the_members_say(self) -> None:
        group = self.bench.machine.groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            owned = {
                (topic, partition): member_id
                for member_id, member in group.members.items()
                for holding in (member.current.assigned, member.current.revoking)
                for topic, partitions in holding.items()
                for partition in partitions
            }
            assert owned == group.owners

    def teardown(self) -> None:
        """Left in peace, the group comes to rest with everything assigned."""
        if not hasattr(self, "bench"):
            return
        for _ in range(12):
            for name in sorted(self.members):
                self._beat(name, answer_arrives=True, acts=True)
                self.no_partition_is_used_twice()
            self.bench.advance(10_000)
        group = self.bench.machine.groups.get(GROUP)
        if not self.members:
            assert group is None or group.is_empty
            return
        assert isinstance(group, ConsumerGroup)
        assert group.state_name == "Stable"
        names = set()
        for member in self.members.values():
            names |= set(member.topics)
            names |= set(self._named(member.regex))
        wanted = sorted(
            (topic_id, partition)
            for name in names
            if (topic_id := self.bench.changing.topic_id(name)) is not None
            for partition in range(self.bench.changing.partition_count(name))
        )
        assert sorted(pair for member in self.members.values() for pair in member.uses) == wanted

    def _come(self, topics: list[str], regex: str | None, *, static: bool) -> None:
        self.made += 1
        name = f"m{self.made}"
        self.members[name] = Member(
            member_id=name,
            topics=topics,
            regex=regex,
            instance_id=f"i{self.made}" if static else None,
            silent_since_ms=self.bench.now_ms,
        )

    def _named(self, regex: str | None) -> set[str]:
        return {"t|u": {"t", "u"}, "[uv]": {"u", "v"}}.get(regex or "", set())

    def _beat(self, name: str, answer_arrives: bool, acts: bool) -> None:
        member = self.members[name]
        try:
            response = self.bench.heartbeat(member.request())
        except KafkaError as error:
            if not answer_arrives:
                member.must_say_all = True
                return
            if error.code not in REFUSALS:
                raise
            member.drop_all()
            return
        if answer_arrives:
            member.take(response, self.bench.now_ms)
            if acts:
                member.act()
        else:
            member.must_say_all = True


Groups.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestConsumerGroups = Groups.TestCase
