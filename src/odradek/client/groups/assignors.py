"""Who reads what: the assignors of the classic protocol. The leader of a group runs one of them over everybody's
subscriptions. No I/O, and no order but that of the arguments: two leaders come to the same result.

- range: topic by topic, neighbouring partitions to each member; equal partitions of two topics meet at one member
- roundrobin: all partitions in a row, dealt out in turn
- sticky: as even as it can be, and as little moved as that allows; everybody gives up everything first
- cooperative-sticky: the same, but nobody gives up what they keep: what changes hands stays without a reader for one
  round, until its old owner has let go of it (KIP-429)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.client.groups.member_bytes import (
    MemberSubscription,
    read_generation,
    read_sticky_data,
    write_generation,
    write_sticky_data,
)
from odradek.client.groups.values import Partitions
from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member as its leader sees it."""

    member_id: str
    group_instance_id: str | None = None
    told: MemberSubscription


Members = Mapping[str, GroupMember]
"""By member id."""
PartitionCounts = Mapping[str, int]
"""Of topics that exist; others have no readers."""
GroupAssignment = dict[str, list[TopicPartition]]
"""By member id; everybody is in it."""
_OwnedOf = Callable[[MemberSubscription], tuple[Partitions, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignor:
    """One of them. `user_data(owned, generation)` goes into the member's own subscription."""

    name: str
    assign: Callable[[Members, PartitionCounts], GroupAssignment]
    user_data: Callable[[Partitions, int], bytes | None]
    cooperative: bool = False


def assign_range(members: Members, counts: PartitionCounts) -> GroupAssignment:
    assignment: GroupAssignment = {member_id: [] for member_id in members}
    for topic, readers in _readers(members, counts).items():
        share, extra = divmod(counts[topic], len(readers))
        start = 0
        for index, member_id in enumerate(readers):
            stop = start + share + (1 if index < extra else 0)
            assignment[member_id] += [TopicPartition(topic, number) for number in range(start, stop)]
            start = stop
    return assignment


def assign_roundrobin(members: Members, counts: PartitionCounts) -> GroupAssignment:
    assignment: GroupAssignment = {member_id: [] for member_id in members}
    ordered = _in_order(members)
    turn = 0
    readers = _readers(members, counts)
    for topic in sorted(readers):
        eligible = set(readers[topic])
        for number in range(counts[topic]):
            while ordered[turn % len(ordered)] not in eligible:
                turn += 1
            assignment[ordered[turn % len(ordered)]].append(TopicPartition(topic, number))
            turn += 1
    return assignment


def assign_sticky(members: Members, counts: PartitionCounts) -> GroupAssignment:
    return _Stickiness(members, counts, _owned_by_user_data).assignment


def assign_cooperatively(members: Members, counts: PartitionCounts) -> GroupAssignment:
    """Without what somebody else still has: that follows in the next round."""
    stickiness = _Stickiness(members, counts, _owned_by_fields)
    holders = {
        tp: member_id for member_id, member in members.items() for tp in _owned_by_fields(member.told)[0]
    }
    claimed = stickiness.owners
    return {
        member_id: [tp for tp in partitions if claimed.get(tp, holders.get(tp, member_id)) == member_id]
        for member_id, partitions in stickiness.assignment.items()
    }


class _Stickiness:
    """Keep what is valid, deal out what nobody has, then move one by one while that makes the shares more even."""

    def __init__(self, members: Members, counts: PartitionCounts, owned_of: _OwnedOf) -> None:
        self._readers = _readers(members, counts)
        self._counts = counts
        self.assignment: GroupAssignment = {member_id: [] for member_id in _in_order(members)}
        self.owners = self._valid_owners(members, owned_of)
        """Who had what, by the newest generation that claims it."""
        for tp, member_id in self.owners.items():
            self.assignment[member_id].append(tp)
        self._deal_out()
        self._even_out()
        for partitions in self.assignment.values():
            partitions.sort()

    def _valid_owners(self, members: Members, owned_of: _OwnedOf) -> dict[TopicPartition, str]:
        owners: dict[TopicPartition, str] = {}
        generations: dict[TopicPartition, int] = {}
        twice: set[TopicPartition] = set()
        for member_id in _in_order(members):
            owned, generation = owned_of(members[member_id].told)
            for tp in owned:
                known = generations.get(tp)
                if known is not None and generation < known:
                    continue
                if known == generation:  # two say so: neither is believed
                    twice.add(tp)
                    continue
                twice.discard(tp)
                generations[tp] = generation
                owners[tp] = member_id
        return {
            tp: member_id
            for tp, member_id in sorted(owners.items())
            if tp not in twice
            and 0 <= tp.partition < self._counts.get(tp.topic, 0)
            and member_id in self._readers.get(tp.topic, ())
        }

    def _deal_out(self) -> None:
        """Partitions with the fewest possible readers first, each to whoever has least."""
        free = [
            TopicPartition(topic, number)
            for topic in sorted(self._readers, key=lambda topic: (len(self._readers[topic]), topic))
            for number in range(self._counts[topic])
            if TopicPartition(topic, number) not in self.owners
        ]
        for tp in free:
            least = min(self._readers[tp.topic], key=lambda member_id: len(self.assignment[member_id]))
            self.assignment[least].append(tp)

    def _even_out(self) -> None:
        """One by one from who has most and may give. Each move lowers the sum of squares: it ends."""
        while any(self._give_one(giver) for giver in self._by_load()):
            pass

    def _by_load(self) -> list[str]:
        return sorted(self.assignment, key=lambda member_id: -len(self.assignment[member_id]))

    def _give_one(self, giver: str) -> bool:
        """To whoever has least, and at least two fewer; what the giver did not have before goes first."""
        held = self.assignment[giver]
        for tp in sorted(held, key=lambda tp: (self.owners.get(tp) == giver, tp)):
            least = min(self._readers[tp.topic], key=lambda member_id: len(self.assignment[member_id]))
            if len(self.assignment[least]) + 1 < len(held):
                held.remove(tp)
                self.assignment[least].append(tp)
                return True
        return False


def _owned_by_user_data(told: MemberSubscription) -> tuple[Partitions, int]:
    return read_sticky_data(told.user_data)


def _owned_by_fields(told: MemberSubscription) -> tuple[Partitions, int]:
    generation = told.generation if told.version >= 2 else read_generation(told.user_data)
    return told.owned, generation


def _in_order(members: Members) -> list[str]:
    """Static members first, by instance id, then the others by member id: an order that outlives restarts."""

    def place(member: GroupMember) -> tuple[bool, str, str]:
        return (member.group_instance_id is None, member.group_instance_id or "", member.member_id)

    return [member.member_id for member in sorted(members.values(), key=place)]


def _readers(members: Members, counts: PartitionCounts) -> dict[str, list[str]]:
    """Topic by topic, who may read it, in order. Only topics with partitions and readers."""
    readers: dict[str, list[str]] = {}
    for member_id in _in_order(members):
        for topic in dict.fromkeys(members[member_id].told.topics):
            if counts.get(topic, 0) > 0:
                readers.setdefault(topic, []).append(member_id)
    return readers


def _no_user_data(owned: Partitions, generation: int) -> bytes | None:
    return None


_ALL: Final = (
    Assignor(name="range", assign=assign_range, user_data=_no_user_data),
    Assignor(name="roundrobin", assign=assign_roundrobin, user_data=_no_user_data),
    Assignor(name="sticky", assign=assign_sticky, user_data=write_sticky_data),
    Assignor(
        name="cooperative-sticky",
        assign=assign_cooperatively,
        user_data=lambda owned, generation: write_generation(generation),
        cooperative=True,
    ),
)
ASSIGNORS: Final[Mapping[str, Assignor]] = {each.name: each for each in _ALL}
_JAVA_NAMES: Final[Mapping[str, str]] = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


def assignors_of(setting: str) -> tuple[Assignor, ...]:
    """From partition.assignment.strategy: names separated by commas, short ones or Kafka's class names."""
    chosen: dict[str, Assignor] = {}
    for word in filter(None, (part.strip() for part in setting.split(","))):
        name = _JAVA_NAMES.get(word.rpartition(".")[2], word)
        if name not in ASSIGNORS:
            raise ConfigError(
                f"partition.assignment.strategy={setting!r} is not allowed: expected any of {', '.join(ASSIGNORS)}"
            )
        chosen[name] = ASSIGNORS[name]
    if not chosen:
        raise ConfigError("partition.assignment.strategy names no assignor")
    return tuple(chosen.values())
