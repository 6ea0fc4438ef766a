"""Shared parts of the group APIs' handlers: the client, and the partitions that requests name or give by id."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from odradek.broker.requests.access import Access
from odradek.broker.requests.context import BrokerContext, RequestContext
from odradek.groups.offsets.committing import CommitRecords, CommitRequest
from odradek.groups.service import commit_refusal
from odradek.groups.shard.kinds import Caller
from odradek.groups.shard.offset_table import PartitionName
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.acls import AclOperation, AclResourceType
from odradek.runtime.prompt import PromptFuture
from odradek.runtime.turns import Turn

OFFSETS_AT_ONCE: Final = 500
"""The offsets that one operation of a coordinator reads or deletes, or makes records of. It writes all of a commit."""


def caller(context: RequestContext) -> Caller:
    """Returns the host as Java's InetAddress prints it, which is what tools expect to find."""
    return Caller(
        client_id=context.client_id,
        client_host=f"/{context.connection.peer_host}",
        api_version=context.api_version,
        may_describe=None if context.access is None else partial(_is_there_for, context.access),
    )


def _is_there_for(access: Access, topic: str) -> bool:
    return access.may_quietly(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic)


Verdicts = dict[PartitionName, ErrorCode]


def commit_then(
    broker: BrokerContext,
    request: CommitRequest,
    settle: Callable[[Verdicts | KafkaError], None],
    prepared: CommitRecords | None = None,
) -> None:
    """Begin a commit, and answer once, with its verdicts or with what refused all of it. No coroutine and no task: commits are
    the most frequent thing that coordinators do.

    COORDINATOR_NOT_AVAILABLE when it is not durable in time: it may become so later, and to commit the same again does no harm.
    """
    try:
        verdicts = broker.groups.commit(request, prepared)
    except KafkaError as error:
        settle(error)
        return
    verdicts.add_done_callback(lambda done: settle(_outcome(done)))


async def commit_in_time(
    broker: BrokerContext, request: CommitRequest, prepared: CommitRecords | None = None
) -> Verdicts:
    """Commits offsets, and returns the outcome for each partition; see `commit_then`. Nothing is awaited before the shard
    has decided."""
    outcome: PromptFuture[Verdicts | KafkaError] = PromptFuture()

    def answer(verdicts: Verdicts | KafkaError) -> None:
        if not outcome.done():
            outcome.set_result(verdicts)

    commit_then(broker, request, answer, prepared)
    written = await outcome
    if isinstance(written, KafkaError):
        raise written
    return written


async def commit_records(broker: BrokerContext, turn: Turn, request: CommitRequest) -> CommitRecords | None:
    """Returns the records of a commit of many offsets, made in turns; None for few, which are made when they are decided."""
    if len(request.commits) <= OFFSETS_AT_ONCE:
        return None
    prepared = CommitRecords()
    now_ms = broker.runtime.clock.wall_ms()
    for commit in request.commits:
        await turn.step()
        prepared.add(request, commit, now_ms, broker.config.offsets.metadata_max_bytes)
    return prepared


def _outcome(verdicts: PromptFuture[Verdicts]) -> Verdicts | KafkaError:
    error = verdicts.exception()
    if error is None:
        return verdicts.result()
    if not isinstance(error, KafkaError):
        raise error
    return commit_refusal(error)


def has_partition(broker: BrokerContext, topic: str, partition: int) -> bool:
    image = broker.image.topics.get(topic)
    return image is not None and 0 <= partition < len(image.partitions)
