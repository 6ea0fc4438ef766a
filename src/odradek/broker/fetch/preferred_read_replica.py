"""Which replica a consumer should read from (KIP-392): one in its own rack, if any is fit. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek.cluster.image import BrokerImage
from odradek.model.ids import BrokerId
from odradek.replication.partition import Partition

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The one `replica.selector.class`."""


def preferred_replica(
    partition: Partition, brokers: Iterable[BrokerImage], *, rack: str, fetch_offset: int
) -> BrokerId | None:
    """A follower in the consumer's rack that has the offset and is in sync; None when it should stay with this leader.

    One that lags would be chosen again and again, and the consumer would fall behind with it. Of several the one that has most.
    """
    followers = partition.leader().followers
    if not rack or not followers or partition.state is None:
        return None
    near = {broker.broker_id for broker in brokers if broker.rack == rack}
    if partition.state.leader in near:
        return None
    fit = [
        (follower.end_offset, -broker)
        for broker, follower in followers.items()
        if broker in near
        and broker in partition.state.isr
        and 0 <= follower.start_offset <= fetch_offset <= follower.end_offset
    ]
    return BrokerId(-max(fit)[1]) if fit else None
