"""The current leader of a partition, for a client that asked the wrong broker: it need not fetch metadata first (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from odradek.broker.requests.context import BrokerContext, RequestContext
from odradek.cluster.image import BrokerImage, PartitionImage
from odradek.model.errors import ErrorCode
from odradek.model.ids import BrokerId

HINTED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A broker, as the client that asked reaches it."""

    broker_id: BrokerId
    host: str
    port: int
    rack: str | None


class LeaderHints:
    """The hints of one response."""

    def __init__(self, broker: BrokerContext, context: RequestContext) -> None:
        self._image = broker.image
        self._context = context
        self._leaders: dict[BrokerId, None] = {}

    def leader_of(self, topic: str, topic_id: UUID, index: int) -> PartitionImage | None:
        """Returns the partition, found by its topic's name or id; its leader will be among the `endpoints`."""
        topic_image = self._image.topics.get(topic) if topic else self._image.topics_by_id.get(topic_id)
        if topic_image is None or not 0 <= index < len(topic_image.partitions):
            return None
        partition = topic_image.partitions[index]
        self._leaders[partition.leader] = None
        return partition

    def endpoints(self) -> Iterator[Endpoint]:
        if not self._leaders:
            return
        for broker in self._image.brokers:
            if broker.broker_id in self._leaders and (address := self._address_of(broker)) is not None:
                yield Endpoint(broker_id=broker.broker_id, host=address[0], port=address[1], rack=broker.rack)

    def _address_of(self, broker: BrokerImage) -> tuple[str, int] | None:
        return self._context.address_of(broker)
