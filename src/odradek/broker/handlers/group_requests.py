"""Shared parts of the group APIs' handlers: the client, and the partitions that requests name or give by id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from odradek.broker.requests.access import Access
from odradek.broker.requests.context import BrokerContext, RequestContext
from odradek.groups.offsets.committing import CommitRecords, CommitRequest
from odradek.groups.service import commit_refusal
from odradek.groups.shard.kinds import Caller
from odradek.groups.shard.offset_table import PartitionName
from odradek.model.errors import ErrorCode, KafkaError
from odradek.net.connection import Connection
from odradek.net.replies import Chunks, HeldReply
from odradek.protocol import RequestHeader
from odradek.protocol.acls import AclOperation, AclResourceType
from odradek.runtime.prompt import PromptFuture
from odradek.runtime.turns import Turn
from odradek.shards import WaitingRequest

R = TypeVar("R")

OFFSETS_AT_ONCE: Final = 500
"""The offsets that one operation of a coordinator reads or deletes, or makes records of. It writes all of a commit."""


def caller(context: RequestContext) -> Caller:
    """Returns the host as Java's InetAddress prints it, which is what tools expect to find."""
    may_describe = None if context.access is None else partial(_is_there_for, context.access)
    host = f"/{context.connection.peer_host}"
    # Half the price of `Caller(...)`, which is a function of Python: each member of a group that rebalances comes here twice.
    return tuple.__new__(Caller, (context.client_id, host, context.api_version, may_describe))


def plain_caller(connection: Connection, header: RequestHeader) -> Caller:
    """Returns what `caller` does, for a short way: where it is taken there is no authorizer."""
    host = f"/{connection.peer_host}"
    return tuple.__new__(Caller, (header.client_id or "", host, header.api_version, None))


class AnswerTicket(PromptFuture[Chunks | None], WaitingRequest[R]):
    """A request whose response becomes bytes as it comes: a future of these bytes. Members of a group ask all at once when it
    rebalances, and commits are the most frequent thing that coordinators do: a future of the response, too, would be dear."""

    __slots__ = ("_encode", "_refused")

    def __init__(self, encode: Callable[[R], Chunks | HeldReply], refused: Callable[[KafkaError], R]) -> None:
        super().__init__()
        self._encode = encode
        self._refused = refused

    @property
    def reply(self) -> Chunks | PromptFuture[Chunks | None]:
        """The bytes if they are there, which need no place among the answers that come later; else the future."""
        if not self.done() or self.cancelled() or self.exception() is not None:
            return self
        return self.result() or self

    def cancel(self) -> bool:
        is_given_up = super().cancel()
        if is_given_up:  # the machine may keep the ticket for long: it must not keep the connection, too
            del self._encode, self._refused
        return is_given_up

    def answer(self, response: R) -> None:
        if self.done():
            return
        try:
            encoded = self._encode(response)
        except Exception as error:  # noqa: BLE001 - the connection waits for this: it must learn of any end
            self.set_exception(error)
            return
        if isinstance(encoded, HeldReply):
            self.follow(asyncio.ensure_future(encoded.chunks))
        else:
            self.set_result(encoded)

    def refuse(self, error: KafkaError) -> None:
        if not self.done():
            self.answer(self._refused(error))


def _is_there_for(access: Access, topic: str) -> bool:
    return access.may_quietly(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic)


Verdicts = dict[PartitionName, ErrorCode]


def refused_commits(request: CommitRequest, error: KafkaError) -> Verdicts:
    """Returns the verdicts when all of a commit is refused."""
    return dict.fromkeys((commit.partition_name for commit in request.commits), commit_refusal(error).code)


def commit_for(broker: BrokerContext, request: CommitRequest, waiting: WaitingRequest[Verdicts]) -> None:
    """Does what `commit_then` does, for a request that waits."""
    try:
        broker.groups.commit_for(request, waiting)
    except KafkaError as error:
        waiting.refuse(error)


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
