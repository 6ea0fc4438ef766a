"""What all workloads of a simulated cluster share: where they run, and what the scenario asks of them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol, TypeVar

from tests.simulation.cluster.clients import ClusterContext
from tests.simulation.cluster.plan import ClusterPlan
from tests.simulation.ledger import Ledger

from odradek.model.ids import TopicPartition
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.world import Host

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Of one run."""

    seed: int
    plan: ClusterPlan
    torment_s: float
    """How long faults fall."""
    context: ClusterContext
    hosts: list[Host]
    """Where clients run."""
    is_calm: Callable[[], bool]
    """Whether the last fault has ended."""
    is_committed: Callable[[TopicPartition, int], bool]
    """Whether some broker had a high watermark above the offset."""

    @property
    def pause_s(self) -> float:
        """Between a producer's batches, so that it has enough to say till the last fault."""
        return max(0.2, 10.0 * self.torment_s / self.plan.record_count)

    def stream(self, name: str) -> Random:
        return stream(self.seed, name)

    def ledger(self, name: TopicPartition) -> Ledger:
        """Of a partition to which each acknowledged record is committed."""
        return Ledger(
            str(name),
            keeps_late_requests=True,
            is_committed=lambda offset: self.is_committed(name, offset),
        )

    async def somewhere(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a client on one of the hosts."""
        return await self.context.rng.choice(self.hosts).spawn(work)


class Work(Protocol):
    """A workload. Each promise that it sees broken raises `ViolationError`."""

    async def prepare(self) -> None:
        """Before any fault: make the topics."""

    async def run(self) -> None:
        """Until everything is done; that must be possible once all is calm."""

    def undone(self) -> list[str]:
        """What `run` still waits for, for people."""

    async def check(self) -> None:
        """All is calm: read everything, and compare it with what is known. May be called again."""
