"""What the handlers of group APIs share: who asks, and which partitions are meant by name or by id."""

from __future__ import annotations

from odradek.broker.context import Circumstances, Parts
from odradek.groups.kinds import Caller


def caller(circumstances: Circumstances) -> Caller:
    """The host as Java's InetAddress prints it, which is what tools expect to find."""
    return Caller(
        client_id=circumstances.client_id,
        client_host=f"/{circumstances.connection.peer_host}",
        api_version=circumstances.api_version,
    )


def has_partition(parts: Parts, topic: str, partition: int) -> bool:
    image = parts.image.topics.get(topic)
    return image is not None and 0 <= partition < len(image.partitions)
