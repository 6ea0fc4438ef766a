"""What the partitions of one broker share: who it is in its cluster, and what serves them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.model.ids import BrokerId
from odradek.replication.in_sync import IsrProposal

if TYPE_CHECKING:
    from odradek.replication.partition import Partition


class Flushing(Protocol):
    """What makes appended records durable; `Flusher` in this room."""

    def request(self, partition: Partition) -> None: ...


class IsrProposals(Protocol):
    """What asks the controller; the answer comes to `Partition.isr_answered`."""

    def propose(self, partition: Partition, proposal: IsrProposal) -> None: ...


class ReplicationContext(NamedTuple):
    """This broker as a member of a cluster, which all of its partitions share."""

    broker_id: BrokerId
    lag_s_max: float
    """`replica.lag.time.max.ms`, in seconds."""
    proposals: IsrProposals
