"""The plan of the next requests and their batches: the sender's decision, without I/O.

A request goes to one broker and carries at most one batch of a partition (the protocol's rule), the longest waiting
queue first, up to `max.request.size`. As many requests are planned as the broker may have under way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from odradek.client.producer.accumulator import Accumulator
from odradek.client.producer.delivery import ProducerBatch
from odradek.client.producer.partition_queue import PartitionQueue, SequenceNumbers
from odradek.client.transactions.core import ProducerId
from odradek.model.ids import TopicPartition

REQUEST_OVERHEAD_BYTES = 512
"""The bytes of a request without its batches, roughly: max.request.size is not exact in Kafka either."""


@dataclass(slots=True, kw_only=True)
class PlannedRequest:
    """The batches of one request to one broker."""

    broker: int
    batches: list[ProducerBatch] = field(default_factory=list)
    size_bytes: int = REQUEST_OVERHEAD_BYTES


@dataclass(slots=True, kw_only=True)
class ProducePlan:
    """The requests to send now, and what is missing to send more."""

    requests: list[PlannedRequest] = field(default_factory=list)
    leaderless: list[TopicPartition] = field(default_factory=list)
    """Partitions that have no known leader: ask for metadata."""
    producer_id_wanted: bool = False
    not_admitted: bool = False
    """Some partition is not part of the transaction yet."""
    retry_at: float | None = None
    """The time when the earliest pause ends, in seconds of the monotonic clock; None without a pause."""

    def pause_until(self, time: float) -> None:
        self.retry_at = time if self.retry_at is None else min(self.retry_at, time)


class ProducePlanner:
    """Plans against one accumulator. `leader_of`: the broker to send to; `capacity_of`: how many requests it can take."""

    def __init__(
        self,
        accumulator: Accumulator,
        *,
        leader_of: Callable[[TopicPartition], int | None],
        capacity_of: Callable[[int], int],
        idempotent: bool,
        request_bytes_max: int,
        admits: Callable[[TopicPartition], bool] | None = None,
    ) -> None:
        self._accumulator = accumulator
        self._leader_of = leader_of
        self._capacity_of = capacity_of
        self._idempotent = idempotent
        self._admits = admits
        """Tells whether a partition is part of the transaction; None without transactions."""
        self._request_bytes_max = request_bytes_max
        self.producer_id: ProducerId | None = None
        """Set once InitProducerId has answered."""

    def plan(self, now: float) -> ProducePlan:
        """*locked.* Takes the batches that it plans out of their queues: they count as in flight from now on."""
        plan = ProducePlan()
        capacities: dict[int, int] = {}
        candidates = self._candidates(plan, now)
        while candidates:
            open_requests: dict[int, PlannedRequest] = {}
            candidates = [
                (queue, broker)
                for queue, broker in candidates
                if self._place(queue, broker, open_requests, capacities, now)
            ]
            plan.requests.extend(open_requests.values())
        return plan

    def _candidates(self, plan: ProducePlan, now: float) -> list[tuple[PartitionQueue, int]]:
        candidates = []
        for queue in self._accumulator.ready:
            broker = self._leader_of(queue.topic_partition)
            if broker is None:
                plan.leaderless.append(queue.topic_partition)
            elif queue.not_before > now:
                plan.pause_until(queue.not_before)
            elif queue.may_send(broker, now):
                if self._admits is not None and not self._admits(queue.topic_partition):
                    plan.not_admitted = True
                elif self._numbered(queue):
                    candidates.append((queue, broker))
                else:
                    plan.producer_id_wanted = True
        return candidates

    def _numbered(self, queue: PartitionQueue) -> bool:
        """Returns False if batches of this queue need sequence numbers and cannot get them yet."""
        if not self._idempotent or queue.numbering is not None:
            return True
        identity = self.producer_id
        if identity is None or identity.producer_id == queue.refused_producer_id:
            self.producer_id = None
            return False
        queue.numbering = SequenceNumbers(
            producer_id=identity.producer_id, producer_epoch=identity.producer_epoch, next_sequence=0
        )
        return True

    def _place(
        self,
        queue: PartitionQueue,
        broker: int,
        open_requests: dict[int, PlannedRequest],
        capacities: dict[int, int],
        now: float,
    ) -> bool:
        """Put the queue's next batch into a request; True when it may have yet another one for the next request."""
        if not queue.waiting or not queue.may_send(broker, now):
            return False
        request = open_requests.get(broker)
        if request is None:
            if broker not in capacities:
                capacities[broker] = self._capacity_of(broker)
            if capacities[broker] <= 0:
                return False
            capacities[broker] -= 1
            request = open_requests[broker] = PlannedRequest(broker=broker)
        size_bytes = queue.next_size_bytes
        if request.batches and request.size_bytes + size_bytes > self._request_bytes_max:
            return True
        request.batches.append(self._accumulator.drain(queue, broker))
        request.size_bytes += size_bytes
        return queue.waiting
