"""Plans that move replicas between brokers, with what they cost, to be looked at before anything moves. Pure functions.

A plan is made in three steps: replicas leave the brokers to empty; partitions with two copies in one rack,
while another rack has none, are spread; then brokers with more replicas than others give some away, the
smallest first, until no two differ by more than one. In the end preferred leaders are evened out, which
copies nothing: it changes the order of replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from odradek.cluster.image import BrokerImage, ClusterImage
from odradek.cluster.placement import replacement_for
from odradek.cluster.reassignment import Reassignment
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The change of one partition, and how many bytes are copied for it over the network."""

    name: TopicPartition
    before: tuple[BrokerId, ...]
    after: tuple[BrokerId, ...]
    copied_bytes: int

    @property
    def reassignment(self) -> Reassignment:
        return Reassignment(topic=self.name.topic, partition=self.name.partition, replicas=self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancePlan:
    """A plan to balance the cluster: the moves, and how many replicas and preferred partitions each broker has before and
    after."""

    moves: tuple[Move, ...]
    replicas_before: Mapping[BrokerId, int]
    replicas_after: Mapping[BrokerId, int]
    preferred_before: Mapping[BrokerId, int]
    preferred_after: Mapping[BrokerId, int]

    @property
    def copied_bytes(self) -> int:
        return sum(move.copied_bytes for move in self.moves)


def plan(
    image: ClusterImage,
    sizes: Mapping[TopicPartition, int],
    *,
    drained: Collection[BrokerId] = (),
    spread: bool = True,
) -> BalancePlan:
    """Plans moves that empty the `drained` brokers, and, with `spread`, even out the others.

    `sizes` are bytes by partition; what is missing counts as empty. Brokers that leave or are cordoned get no replicas.
    INVALID_REPLICATION_FACTOR when a partition has more replicas than there are brokers left for it.
    """
    sheet = _Sheet(image, sizes, drained)
    sheet.empty(drained)
    if spread:
        sheet.spread_over_racks()
        sheet.even_out_replicas()
        sheet.even_out_leaders()
    return sheet.plan()


class _Sheet:
    """The assignment as it becomes while the plan is made."""

    def __init__(
        self, image: ClusterImage, sizes: Mapping[TopicPartition, int], drained: Collection[BrokerId]
    ) -> None:
        self._before = {
            TopicPartition(topic.name, index): partition.target
            for topic in image.topics.values()
            for index, partition in enumerate(topic.partitions)
        }
        self._after = {name: list(replicas) for name, replicas in self._before.items()}
        self._sizes = sizes
        self._racks = {broker.broker_id: broker.rack for broker in image.brokers}
        self._takers: list[BrokerImage] = [
            broker
            for broker in image.brokers
            if not (broker.is_leaving or broker.is_cordoned or broker.broker_id in drained)
        ]
        self._count = _replica_counts(self._before.values(), self._racks)
        self._partitions_of: dict[BrokerId, dict[TopicPartition, None]] = {}
        for name, replicas in self._before.items():
            for broker in replicas:
                self._partitions_of.setdefault(broker, {})[name] = None

    def empty(self, drained: Collection[BrokerId]) -> None:
        for broker in sorted(drained):
            for name in sorted(self._partitions_of.get(broker, ()), key=self._size, reverse=True):
                others = [broker_id for broker_id in self._after[name] if broker_id != broker]
                chosen = replacement_for(others, self._takers, self._racks, self._count)
                if chosen is None:
                    raise KafkaError(
                        ErrorCode.INVALID_REPLICATION_FACTOR,
                        f"{name} has {len(others) + 1} replica(s), and there is no other broker left to take the one of broker "
                        f"{broker}: add a broker, or lower the number of replicas first",
                    )
                self._move(name, broker, chosen)

    def spread_over_racks(self) -> None:
        racks = {broker.rack for broker in self._takers}
        if len(racks) < 2:
            return
        for name, replicas in self._after.items():
            used = Counter(self._racks.get(broker) for broker in replicas)
            crowded = [replica for replica in replicas if used[self._racks.get(replica)] > 1]
            if not crowded or not racks - used.keys():
                continue
            leaves = max(crowded, key=lambda replica: (replica != replicas[0], self._count[replica], replica))
            others = [replica for replica in replicas if replica != leaves]
            chosen = replacement_for(others, self._takers, self._racks, self._count)
            if chosen is not None and self._racks.get(chosen) not in used:
                self._move(name, leaves, chosen)

    def even_out_replicas(self) -> None:
        while self._give_one_away():
            pass

    def even_out_leaders(self) -> None:
        preferred = Counter(replicas[0] for replicas in self._after.values())
        for name in self._after:
            replicas = self._after[name]
            best = min(replicas, key=lambda replica: (preferred[replica], replicas.index(replica)))
            if preferred[replicas[0]] - preferred[best] > 1 and best in self._racks:
                preferred[replicas[0]] -= 1
                preferred[best] += 1
                replicas.remove(best)
                replicas.insert(0, best)

    def plan(self) -> BalancePlan:
        moves = []
        for name, before in self._before.items():
            after = tuple(self._after[name])
            if after != before:
                added = len(set(after) - set(before))
                moves.append(
                    Move(name=name, before=before, after=after, copied_bytes=added * self._size(name))
                )
        return BalancePlan(
            moves=tuple(moves),
            replicas_before=_replica_counts(self._before.values(), self._racks),
            replicas_after=_replica_counts(self._after.values(), self._racks),
            preferred_before=Counter(replicas[0] for replicas in self._before.values()),
            preferred_after=Counter(replicas[0] for replicas in self._after.values()),
        )

    def _give_one_away(self) -> bool:
        """Moves one replica from a broker that has many to one that has few; returns False when there is none to move."""
        takers = sorted(
            self._takers, key=lambda candidate: (self._count[candidate.broker_id], candidate.broker_id)
        )
        givers = sorted(
            (taker.broker_id for taker in self._takers),
            key=lambda broker_id: (-self._count[broker_id], broker_id),
        )
        for giver in givers:
            for taker in takers:
                if self._count[giver] - self._count[taker.broker_id] < 2:
                    break
                fitting = [
                    name
                    for name in self._partitions_of.get(giver, ())
                    if taker.broker_id not in self._after[name] and self._keeps_racks(name, giver, taker)
                ]
                if fitting:
                    self._move(min(fitting, key=lambda fit: (self._size(fit), fit)), giver, taker.broker_id)
                    return True
        return False

    def _keeps_racks(self, name: TopicPartition, giver: BrokerId, taker: BrokerImage) -> bool:
        others = [self._racks.get(broker_id) for broker_id in self._after[name] if broker_id != giver]
        return taker.rack == self._racks.get(giver) or taker.rack not in others

    def _move(self, name: TopicPartition, giver: BrokerId, taker: BrokerId) -> None:
        replicas = self._after[name]
        replicas[replicas.index(giver)] = taker
        self._count[giver] -= 1
        self._count[taker] += 1
        del self._partitions_of[giver][name]
        self._partitions_of.setdefault(taker, {})[name] = None

    def _size(self, name: TopicPartition) -> int:
        return self._sizes.get(name, 0)


def _replica_counts(
    assignments: Iterable[Iterable[BrokerId]], brokers: Iterable[BrokerId]
) -> Counter[BrokerId]:
    counts = Counter(dict.fromkeys(brokers, 0))
    for replicas in assignments:
        counts.update(replicas)
    return counts
