"""What a share group (KIP-932) in simulation was seen to do, and whether that may be.

- What a member accepted or rejected, and the coordinator confirmed, is never given to anyone who asks after that.
- A record is delivered at most as often as the group's limit says. A delivery counts for good once it was given back, so after
  so many releases that were answered no one gets it any more.
- A record that no one accepted or rejected, and that cannot have been delivered often enough, is not done with.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from odradek.protocol.acknowledge_types import AcknowledgeType
from odradek.testing.sim.failures import ViolationError

_FOR_GOOD: Final = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)
Place = tuple[int, int]
"""(Partition, offset)."""


class Acknowledgement(NamedTuple):
    """A member's word about neighbouring offsets of a partition."""

    partition: int
    first_offset: int
    last_offset: int
    kind: AcknowledgeType

    def places(self) -> list[Place]:
        return [(self.partition, offset) for offset in range(self.first_offset, self.last_offset + 1)]


@dataclass(slots=True)
class ShareHistory:
    """Of one group. `now` counts the events: requests and answers are ordered by it."""

    delivery_count_max: int
    now: int = 0
    settled_at: dict[Place, int] = field(default_factory=dict)
    releases: dict[Place, list[int]] = field(default_factory=dict)
    """When each release that counts was answered."""
    tried: set[Place] = field(default_factory=set)
    """What someone said to accept or reject, whether or not that was answered."""
    deliveries: Counter[Place] = field(default_factory=Counter)
    unanswered: int = 0
    """Requests for records whose answer no one saw: each may have delivered anything."""

    def asks(self) -> int:
        """A request for records leaves now."""
        self.now += 1
        return self.now

    def delivered(self, place: Place, count: int, asked_at: int) -> None:
        if self.settled_at.get(place, asked_at) < asked_at:
            raise ViolationError(f"{_named(place)} is given away although it was done with")
        if not 1 <= count <= self.delivery_count_max:
            raise ViolationError(
                f"{_named(place)} is delivered for the {count}th time, {self.delivery_count_max} are the limit"
            )
        given_back = sum(at < asked_at for at in self.releases.get(place, ()))
        if given_back >= self.delivery_count_max or count <= given_back:
            raise ViolationError(f"{_named(place)} came back {given_back} times, and is delivered as {count}")
        self.deliveries[place] += 1

    def says(self, said: Acknowledgement) -> None:
        if said.kind in _FOR_GOOD:
            self.tried.update(said.places())

    def answered(self, said: Acknowledgement) -> None:
        """The broker took it in, and has it for good."""
        self.now += 1
        for place in said.places():
            if said.kind in _FOR_GOOD:
                self.settled_at.setdefault(place, self.now)
            elif said.kind is AcknowledgeType.RELEASE:
                self.releases.setdefault(place, []).append(self.now)

    def done_with(self, partition: int, end_offset: int) -> None:
        """The group says that it is done with everything below the offset."""
        for offset in range(end_offset):
            place = (partition, offset)
            if place in self.tried:
                continue
            if self.deliveries[place] + self.unanswered < self.delivery_count_max:
                raise ViolationError(
                    f"{_named(place)} is done with, but no one accepted or rejected it: "
                    f"it was delivered {self.deliveries[place]} times, and {self.unanswered} answers were lost"
                )


def _named(place: Place) -> str:
    return f"record {place[1]} of partition {place[0]}"
