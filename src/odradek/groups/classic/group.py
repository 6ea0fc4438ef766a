"""A classic group: its state in the log (`stored`), and its soft state (everything else).

The log holds a group as it was when its last generation became stable, or empty. What happens between two such moments
(members that join, generations that were formed and never assigned) is soft: after a restart the group is in its last stable
generation, and members that know of a later one must join again. That is safe because no one was given partitions in
it: an assignment leaves only once its record is durable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from odradek.groups.classic.member import CONSUMER_PROTOCOL_TYPE, ClassicGroupMember, Protocols, topics_of
from odradek.groups.classic.states import FOLLOWS, ClassicGroupState
from odradek.groups.classic.timers import join_of, session_of
from odradek.groups.shard.deadlines import Deadlines
from odradek.groups.shard.formats import GroupMetadataValue, MemberMetadata, group_key, group_value, read
from odradek.groups.shard.kinds import CheckPartition, Committer, GroupKind
from odradek.model.errors import ErrorCode, KafkaError
from odradek.shards import Moment, NewRecord, Ticket

NO_EXPIRY = None


class ClassicGroup:
    """A group of the classic protocol. Only this sub-package changes it. `members` are in the order in which they joined."""

    __slots__ = (
        "_awaited",
        "_deadlines",
        "_written",
        "delay_left_ms",
        "generation",
        "group_id",
        "kind",
        "leader_id",
        "members",
        "metadata_bytes",
        "newcomers",
        "pending_joins",
        "pending_syncs",
        "protocol_name",
        "protocol_type",
        "rebalances_first",
        "state",
        "state_since_ms",
        "statics",
        "stored",
        "subscribed_topics",
        "support",
    )

    def __init__(self, group_id: str, deadlines: Deadlines) -> None:
        self.group_id = group_id
        self.kind = GroupKind.CLASSIC
        self._deadlines = deadlines
        self.stored: GroupMetadataValue | None = None
        self.state = ClassicGroupState.EMPTY
        self.state_since_ms = -1
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        self.statics: dict[str, str] = {}
        """Instance id -> member id."""
        self.pending_joins: dict[str, None] = {}
        """Member ids that were given out and have yet to join (KIP-394)."""
        self.pending_syncs: dict[str, None] = {}
        """Members of the generation who have yet to ask for their assignment."""
        self.rebalances_first = False
        """The rebalance under way began when the group was empty, so it waits for more members."""
        self.newcomers = False
        """Members joined since the first rebalance was last put off."""
        self.delay_left_ms = 0
        self.subscribed_topics: frozenset[str] | None = None
        self.support: Counter[str] = Counter()
        """How many members know each protocol."""
        self.metadata_bytes = 0
        """The bytes of the metadata of all members, for all their protocols."""
        self._written: tuple[bytes | None, GroupMetadataValue] | None = None
        """The bytes and the value of a record that has yet to be replayed."""
        self._awaited: ClassicGroupMember | None = None
        """A member that had not joined at the last search: a large group is not searched again for each member that joins."""

    # -- what the machine asks of every kind

    @property
    def next_generation(self) -> int:
        """The generation id that a completed rebalance begins."""
        return self.generation + 1

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY and not self.pending_joins

    @property
    def is_unstored(self) -> bool:
        """Whether the group has no members and no record (but it may have offsets)."""
        return self.stored is None and not self.members and not self.pending_joins

    def check_commit(self, committer: Committer) -> CheckPartition | None:
        generation, is_transactional = committer.generation, committer.is_transactional
        if generation < 0 and self.state is ClassicGroupState.EMPTY:
            return None
        if generation >= 0 or committer.member_id or committer.instance_id is not None:
            self.check_member(committer.member_id, committer.instance_id)
            if generation != self.generation:
                raise KafkaError(
                    ErrorCode.ILLEGAL_GENERATION,
                    f"group {self.group_id!r} is in generation {self.generation}, the commit says {generation}",
                )
        elif not is_transactional and self.state is not ClassicGroupState.EMPTY:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {self.group_id!r} has members, so only they may commit: give member id and generation",
            )
        if not is_transactional and self.state is ClassicGroupState.COMPLETING:
            raise KafkaError(
                ErrorCode.REBALANCE_IN_PROGRESS, f"group {self.group_id!r} has yet to assign its partitions"
            )
        return None

    def committed(self, committer: Committer, now: Moment) -> None:
        member = self.members.get(committer.member_id)
        if member is not None and self.state in (ClassicGroupState.STABLE, ClassicGroupState.PREPARING):
            self.keep_alive(member, now)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        return

    def check_offset_delete(self) -> None:
        if self.state is not ClassicGroupState.EMPTY and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP,
                f"group {self.group_id!r} has members of type {self.protocol_type!r}: it is not known what they read",
            )

    def check_delete(self) -> None:
        if self.state is not ClassicGroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {self.group_id!r} has members")

    def is_subscribed(self, topic: str) -> bool:
        """Returns whether a member may subscribe to the topic: unreadable subscriptions may be to anything."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    def offset_expiry_base_ms(self, commit_timestamp_ms: int) -> int | None:
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.state is ClassicGroupState.EMPTY:
            return commit_timestamp_ms if self.state_since_ms < 0 else self.state_since_ms
        knows_topics = self.protocol_type == CONSUMER_PROTOCOL_TYPE and self.subscribed_topics is not None
        return commit_timestamp_ms if knows_topics and self.state is ClassicGroupState.STABLE else NO_EXPIRY

    def tombstones(self) -> Iterable[NewRecord]:
        yield NewRecord(group_key(self.group_id), None)

    def loaded(self, now: Moment) -> None:
        for member in self.members.values():
            self.keep_alive(member, now)
        if self.members:
            self._deadlines.set(join_of(self.group_id), now.monotonic_ms)  # is it larger than allowed by now?

    def waiting(self) -> Iterator[Ticket[object]]:
        for member in self.members.values():
            yield from (ticket for ticket in (member.joining, member.syncing) if ticket is not None)

    # -- the log's side

    def replay(self, value: GroupMetadataValue) -> None:
        """Sets the group to a record's state. Requests that wait, and members' other protocols, stay."""
        self.stored = value
        self.state = ClassicGroupState.STABLE if value.members else ClassicGroupState.EMPTY
        self.state_since_ms = value.current_state_timestamp
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        self.leader_id = value.leader
        before, self.members, self.statics = self.members, {}, {}
        for stored in value.members:
            member = before.get(stored.member_id)
            if member is None:
                member = _member_of(stored, value.protocol)
            member.assignment = stored.assignment
            self.members[member.member_id] = member
            if member.instance_id is not None:
                self.statics[member.instance_id] = member.member_id
        self.support = Counter(name for member in self.members.values() for name, _ in member.protocols)
        self.metadata_bytes = sum(_weight(member.protocols) for member in self.members.values())
        self.learn_topics()

    def record(self, now: Moment, *, generation: int | None = None) -> NewRecord:
        """Returns the group as it is, or with another generation."""
        return self.record_of(self.value(now, generation=generation))

    def record_of(self, value: GroupMetadataValue) -> NewRecord:
        return NewRecord(group_key(self.group_id), group_value(value))

    def will_replay(self, record: NewRecord, value: GroupMetadataValue) -> None:
        """Notes the value of a record that is about to be written: its bytes need not be read to replay it."""
        self._written = (record.value, value)

    def read_value(self, data: bytes) -> GroupMetadataValue:
        """Returns the value in a record. Raises as `formats.read`."""
        written, self._written = self._written, None
        if written is not None and written[0] is data:
            return written[1]
        return read(GroupMetadataValue, data)

    def value(
        self, now: Moment, *, generation: int | None = None, assignments: dict[str, bytes] | None = None
    ) -> GroupMetadataValue:
        """Returns the group as it is, with another generation or other assignments."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation if generation is None else generation,
            protocol=self.protocol_name if self.members else None,
            leader=self.leader_id if self.members else None,
            current_state_timestamp=now.wall_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol_name),
                    assignment=member.assignment
                    if assignments is None
                    else assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ],
        )

    # -- states

    def transition(self, state: ClassicGroupState, now: Moment) -> None:
        assert self.state in FOLLOWS[state], f"{self.state} -> {state}"
        self.state = state
        self.state_since_ms = now.wall_ms

    def learn_topics(self) -> None:
        """Reads the subscribed topics from the metadata of the chosen protocol. Without members there are none."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            self.subscribed_topics = None
        elif not self.members:
            self.subscribed_topics = frozenset()
        else:
            self.subscribed_topics = topics_of(
                member.metadata(self.protocol_name) for member in self.members.values()
            )

    # -- members

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another member has taken over the instance id (KIP-345)."""
        if instance_id is not None:
            holder = self.statics.get(instance_id)
            if holder is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"group {self.group_id!r} has no member with instance id {instance_id!r}",
                )
            if holder != member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"instance id {instance_id!r} of group {self.group_id!r} belongs to member {holder!r} now",
                )
        if member_id not in self.members:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {self.group_id!r} has no member {member_id!r}: join again",
            )

    def add(self, member: ClassicGroupMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self.support.update(name for name, _ in member.protocols)
        self.metadata_bytes += _weight(member.protocols)
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        self.pending_joins.pop(member.member_id, None)

    def update(
        self, member: ClassicGroupMember, protocols: Protocols, rebalance_ms: int, session_ms: int
    ) -> None:
        if [name for name, _ in protocols] == [name for name, _ in member.protocols]:
            self.metadata_bytes += _weight(protocols) - _weight(member.protocols)
        else:
            self._unsupport(member)
            self.support.update(name for name, _ in protocols)
            self.metadata_bytes += _weight(protocols)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_ms
        member.session_timeout_ms = session_ms

    def remove(self, member_id: str) -> None:
        """Removes a member, or a member id that never joined. The caller must answer its tickets."""
        self._deadlines.cancel(session_of(self.group_id, member_id))
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._unsupport(member)
        if member.instance_id is not None:
            self.statics.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def rename(self, member: ClassicGroupMember, member_id: str) -> None:
        """Gives the place of a static member that came back to another member id."""
        self._deadlines.cancel(session_of(self.group_id, member.member_id))
        self.pending_syncs.pop(member.member_id, None)
        self.members = {
            (member_id if key == member.member_id else key): kept for key, kept in self.members.items()
        }
        if self.leader_id == member.member_id:
            self.leader_id = member_id
        member.member_id = member_id
        assert member.instance_id is not None
        self.statics[member.instance_id] = member_id

    def keep_alive(self, member: ClassicGroupMember, now: Moment, *, timeout_ms: int | None = None) -> None:
        """Begins the member's session again."""
        timeout = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self._deadlines.set(session_of(self.group_id, member.member_id), now.monotonic_ms + timeout)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The most patient member's."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def joining_count(self) -> int:
        return sum(member.joining is not None for member in self.members.values())

    @property
    def all_joined(self) -> bool:
        if self.pending_joins:
            return False
        awaited = self._awaited
        if (
            awaited is None
            or awaited.joining is not None
            or self.members.get(awaited.member_id) is not awaited
        ):
            last_first = reversed(self.members.values())
            awaited = self._awaited = next((member for member in last_first if member.joining is None), None)
        return awaited is None

    # -- protocols

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Returns whether a member of this type and with one of these protocols can be in the group."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        count = len(self.members)
        return protocol_type == self.protocol_type and any(self.support[name] == count for name in names)

    def _unsupport(self, member: ClassicGroupMember) -> None:
        self.metadata_bytes -= _weight(member.protocols)
        for name, _ in member.protocols:
            self.support[name] -= 1
            if not self.support[name]:
                del self.support[name]

    def choose_protocol(self) -> str:
        """Returns the protocol that most members prefer among those that all of them know."""
        count = len(self.members)
        candidates = {name for name, supporters in self.support.items() if supporters == count}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]


def _weight(protocols: Protocols) -> int:
    return sum([len(metadata) for _, metadata in protocols])


def _member_of(stored: MemberMetadata, protocol: str | None) -> ClassicGroupMember:
    return ClassicGroupMember(
        member_id=stored.member_id,
        instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=stored.rebalance_timeout,
        session_timeout_ms=stored.session_timeout,
        protocols=((protocol, stored.subscription),) if protocol is not None else (),
    )
