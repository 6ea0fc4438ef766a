"""What a streams group (KIP-1071) in simulation was seen to do, and whether that may be.

- A task is active in one member at a time. A member that has not been answered for its session's length has stopped.
- A process has a task once, in whatever role: its state is one directory.
- The epochs of a member never go back, whatever coordinator answers it.
- Offsets are judged as those of a consumer group, by the tenures of the tasks that read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.groups.consumer_group_history import ConsumerGroupHistory

from odradek.testing.sim.failures import ViolationError


@dataclass(slots=True)
class StreamsHistory(ConsumerGroupHistory):
    """Tasks are numbers here: those of the reading subtopology come first, and are its partitions."""

    copies: dict[tuple[str, int], str] = field(default_factory=dict)
    """Process and task -> the member that has it in any role."""
    epochs: dict[str, int] = field(default_factory=dict)
    """The newest epoch of each membership that was answered."""

    def in_epoch(self, member_id: str, epoch: int) -> None:
        """A member was answered with an epoch."""
        if epoch < self.epochs.get(member_id, 0):
            raise ViolationError(f"{member_id} was in epoch {self.epochs[member_id]} and is put into {epoch}")
        self.epochs[member_id] = epoch

    def ends(self, member_id: str) -> None:
        """A member will join again, or leave: its epochs begin again."""
        self.epochs.pop(member_id, None)

    def holds(self, member: str, process: str, task: int, now_s: float) -> None:
        """A member was assigned a task in any role."""
        holder = self.copies.get((process, task), member)
        if holder != member and self.leases.get(holder, 0.0) > now_s:
            raise ViolationError(
                f"task {task} was given to {member} while {holder} has it in the same process"
            )
        self.copies[process, task] = member

    def gives_back(self, member: str, process: str, task: int) -> None:
        if self.copies.get((process, task)) == member:
            del self.copies[process, task]
