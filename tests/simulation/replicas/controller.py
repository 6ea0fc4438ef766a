"""A controller of one partition, as small as it can be: who lives, who leads, who is in sync.

It is what `cluster/` promises to leaders, without a registry: a change is made if it is based on the present state, and the
brokers whom it brings into the ISR live, as the incarnations that the leader saw.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from odradek.cluster.image import NO_LEADER, PartitionImage
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch
from odradek.replication.in_sync import IsrAnswer, IsrProposal

Version = tuple[PartitionImage, dict[BrokerId, int]]


class ModelController:
    """`versions`: every state there was, with the epochs of the brokers that lived then."""

    def __init__(self, replicas: tuple[BrokerId, ...]) -> None:
        self.live: dict[BrokerId, int] = {}
        self._last_epoch = 0
        for broker in replicas:
            self._last_epoch += 1
            self.live[broker] = self._last_epoch
        self.state = PartitionImage(
            leader=replicas[0], leader_epoch=LeaderEpoch(0), replicas=replicas, isr=replicas
        )
        self.versions: list[Version] = []
        self._publish()

    def _publish(self) -> None:
        self.versions.append((self.state, dict(self.live)))

    def _change(self, **fields: Any) -> None:
        self.state = replace(self.state, partition_epoch=self.state.partition_epoch + 1, **fields)

    def register(self, broker: BrokerId) -> int:
        """A new incarnation; the old one is fenced first, if that was not noticed yet."""
        if broker in self.live:
            self.fence(broker)
        self._last_epoch += 1
        self.live[broker] = self._last_epoch
        if self.state.leader == NO_LEADER and broker in self.state.isr:
            self._lead(broker)
        self._publish()
        return self._last_epoch

    def fence(self, broker: BrokerId) -> None:
        """The broker is gone, as far as anyone can tell. The last one in sync stays in the ISR: no one else may lead."""
        if self.live.pop(broker, None) is None:
            return
        others = tuple(broker_id for broker_id in self.state.isr if broker_id != broker)
        if others and broker in self.state.isr:
            self._change(isr=others)
        if self.state.leader == broker:
            self._lead(next((broker_id for broker_id in others if broker_id in self.live), NO_LEADER))
        self._publish()

    def elect(self, broker: BrokerId) -> None:
        """Let another one lead, though nothing is wrong."""
        if broker in self.live and broker in self.state.isr and self.state.leader != broker:
            self._lead(broker)
            self._publish()

    def _lead(self, broker: BrokerId) -> None:
        self._change(leader=broker, leader_epoch=LeaderEpoch(self.state.leader_epoch + 1))

    def alter(self, broker: BrokerId, broker_epoch: int, proposal: IsrProposal) -> IsrAnswer | KafkaError:
        state = self.state
        if self.live.get(broker) != broker_epoch:
            return KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        if proposal.leader_epoch != state.leader_epoch or state.leader != broker:
            return KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if proposal.partition_epoch != state.partition_epoch:
            return KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
        if any(not self._may_be_in_sync(member, epoch) for member, epoch in proposal.isr):
            return KafkaError(ErrorCode.INELIGIBLE_REPLICA)
        self._change(isr=tuple(group_member for group_member, _ in proposal.isr))
        self._publish()
        return IsrAnswer(
            leader=broker,
            leader_epoch=state.leader_epoch,
            isr=self.state.isr,
            partition_epoch=self.state.partition_epoch,
        )

    def _may_be_in_sync(self, broker: BrokerId, epoch: int) -> bool:
        return broker in self.live and epoch in (-1, self.live[broker])
