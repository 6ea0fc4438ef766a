"""What a consumer group (KIP-848) in simulation was seen to do, and whether that may be.

- A partition is used by one member at a time. A member that has not been answered for its session's length has stopped.
- What was committed and acknowledged is found again, unless something newer is. A commit that was sent for a partition after
  another member was given it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.groups.history import GroupHistory, SentCommit

from odradek.testing.sim.failures import ViolationError


@dataclass(slots=True)
class ConsumerGroupHistory(GroupHistory):
    """A partition's tenures count who had it, one after another; they stand in for the classic group's generations."""

    users: dict[int, str] = field(default_factory=dict)
    tenures: dict[int, tuple[int, str]] = field(default_factory=dict)
    leases: dict[str, float] = field(default_factory=dict)
    """Until when a member may believe what it heard last."""

    def renewed(self, member: str, until_s: float) -> None:
        self.leases[member] = until_s

    def takes(self, member: str, partition: int, now_s: float) -> int:
        """A member was assigned a partition; returns the tenure."""
        user = self.users.get(partition)
        if user not in (None, member) and self.leases.get(user or "", 0.0) > now_s:
            raise ViolationError(f"partition {partition} was given to {member} while {user} uses it")
        self.users[partition] = member
        tenure, holder = self.tenures.get(partition, (-1, ""))
        if holder != member:
            tenure += 1
            self.tenures[partition] = (tenure, member)
        return tenure

    def stops(self, member: str, partition: int) -> None:
        if self.users.get(partition) == member:
            del self.users[partition]

    def sends(self, partition: int, generation: int) -> SentCommit:
        """`generation`: the tenure that the member has, or believes to have; -1 without a membership."""
        self.newest_generation = self.tenures.get(partition, (-1, ""))[0]
        return GroupHistory.sends(self, partition, generation)

    def latest(self, partition: int) -> SentCommit | None:
        """Of the last tenure: an answer may reach its member long after another has the partition, and has committed."""
        acked = [commit for commit in self.commits.get(partition, ()) if commit.number_of_ack is not None]
        return max(acked, key=lambda place: (place.generation, place.number_of_ack or 0), default=None)
