"""What the handlers of group APIs share: who asks, and which partitions are meant by name or by id."""

from __future__ import annotations

import asyncio

from odradek.broker.context import Circumstances, Parts
from odradek.groups.kinds import Caller
from odradek.groups.offsets.committing import CommitRequest
from odradek.groups.offsets.table import Place
from odradek.model.errors import ErrorCode, KafkaError


def caller(circumstances: Circumstances) -> Caller:
    """The host as Java's InetAddress prints it, which is what tools expect to find."""
    return Caller(
        client_id=circumstances.client_id,
        client_host=f"/{circumstances.connection.peer_host}",
        api_version=circumstances.api_version,
    )


async def commit_in_time(parts: Parts, request: CommitRequest) -> dict[Place, ErrorCode]:
    """The verdicts on a commit. COORDINATOR_NOT_AVAILABLE when it is not durable in time: it may become so later, and to
    commit the same again does no harm.
    """
    timeout_ms = parts.config.offsets_commit_timeout_ms
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await parts.groups.commit(request)
    except TimeoutError:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"offsets of group {request.group_id!r} were not durable within offsets.commit.timeout.ms={timeout_ms}",
        ) from None


def has_partition(parts: Parts, topic: str, partition: int) -> bool:
    image = parts.image.topics.get(topic)
    return image is not None and 0 <= partition < len(image.partitions)
