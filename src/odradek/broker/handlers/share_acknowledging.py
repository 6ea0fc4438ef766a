"""Acknowledgements of records by members of share groups, from ShareAcknowledge and ShareFetch."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from odradek.broker.cluster.features import SHARE_VERSION, level_of
from odradek.broker.requests.access import Access
from odradek.broker.requests.context import BrokerContext
from odradek.broker.sessions.share_sessions import CLOSING, ShareSession, ShareSessionKey
from odradek.groups.share.heartbeats import check_member_id
from odradek.groups.share.partition import RECORD_LOCKS_MAX, AcknowledgedRange
from odradek.groups.share.state_formats import SharePartitionKey
from odradek.model.errors import ErrorCode, KafkaError
from odradek.net.connection import Connection
from odradek.protocol.acknowledge_types import AcknowledgeType
from odradek.protocol.acls import AclOperation, AclResourceType

ReadPartition = tuple[UUID, int]


class AcknowledgementRequest(Protocol):
    """A batch of either request."""

    @property
    def first_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    @property
    def acknowledge_types(self) -> list[int]: ...


class AcknowledgementOutcome(NamedTuple):
    code: ErrorCode
    message: str | None = None


class AcknowledgementTask(NamedTuple):
    """The fields of both requests that belong to their session."""

    group_id: str | None
    member_id: str | None
    epoch: int


def member_of(broker: BrokerContext, requested: AcknowledgementTask) -> ShareSessionKey:
    """Returns the member. Raises INVALID_REQUEST, or UNSUPPORTED_VERSION where the feature is off."""
    if level_of(broker.image, SHARE_VERSION) < 1:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "share groups are off: set the feature share.version to 1"
        )
    if not requested.group_id or not requested.member_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the request needs a group id and a member id")
    check_member_id(requested.member_id)
    return ShareSessionKey(requested.group_id, requested.member_id)


def session_of(
    broker: BrokerContext, key: ShareSessionKey, epoch: int, connection: Connection
) -> ShareSession:
    """Returns the session that this request continues or closes. SHARE_SESSION_NOT_FOUND,
    INVALID_SHARE_SESSION_EPOCH."""
    session = broker.shares.sessions.find(key)
    if epoch != CLOSING:
        session.advance(epoch)
    if session.connection is not connection:
        broker.shares.sessions.move(session, connection)
        _end_with(broker, connection)
    return session


async def open_session(broker: BrokerContext, key: ShareSessionKey, connection: Connection) -> ShareSession:
    """Returns a new session; what the member had acquired in an earlier one comes back. SHARE_SESSION_LIMIT_REACHED."""
    shares = broker.shares
    if shares.sessions.has(key) or shares.is_leaving(key):
        await close_session(broker, key)
    session = shares.sessions.open(key, connection, broker.config.group.share.max_share_sessions)
    _end_with(broker, connection)
    return session


def _end_with(broker: BrokerContext, connection: Connection) -> None:
    """Ends the share sessions of a connection when it is lost."""
    connection.on_lost[broker.shares] = lambda: _connection_lost(broker, connection)


async def close_session(broker: BrokerContext, key: ShareSessionKey) -> None:
    broker.shares.sessions.close(key)
    released = broker.shares.release(key.group_id, key.member_id)
    broker.shares.drop_unread(key.group_id)
    await settled(released)


def _connection_lost(broker: BrokerContext, connection: Connection) -> None:
    shares = broker.shares
    keys = shares.sessions.of_connection(connection)
    for key in keys:
        shares.sessions.close(key)
    shares.release_behind(keys, broker.turns)


async def acknowledge(
    broker: BrokerContext,
    key: ShareSessionKey,
    acknowledgements: Sequence[tuple[ReadPartition, Sequence[AcknowledgementRequest]]],
    *,
    renews: bool,
    access: Access | None = None,
) -> dict[ReadPartition, AcknowledgementOutcome]:
    """Returns the outcomes by partition. All acknowledgements are applied before any is waited for."""
    verdicts: dict[ReadPartition, AcknowledgementOutcome] = {}
    waiting: list[tuple[ReadPartition, Awaitable[None]]] = []
    turn = broker.turns.begin()
    for read_partition, batches in acknowledgements:
        await turn.step()
        try:
            check_readable(broker, access, read_partition)
            _check_count(batches)
            live = await broker.shares.get(SharePartitionKey(key.group_id, *read_partition))
            _check_types(batches, renews=renews and live.settings.renews)
            ranges = [
                AcknowledgedRange(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                for batch in batches
            ]
            stored = live.acknowledge(key.member_id, ranges)
            verdicts[read_partition] = AcknowledgementOutcome(ErrorCode.NONE)
            if stored is not None:
                waiting.append((read_partition, stored))
        except KafkaError as error:
            verdicts[read_partition] = AcknowledgementOutcome(error.code, error.message)
    for read_partition, written in waiting:
        try:
            await written
        except KafkaError as error:
            verdicts[read_partition] = AcknowledgementOutcome(error.code, error.message)
    return verdicts


def check_readable(broker: BrokerContext, access: Access | None, read_partition: ReadPartition) -> None:
    """Raises TOPIC_AUTHORIZATION_FAILED. Called each time: access may end while a session lasts."""
    topic = None if access is None else broker.image.topics_by_id.get(read_partition[0])
    if access is None or topic is None:
        return  # the caller reports an unknown topic
    if not access.may(AclOperation.READ, AclResourceType.TOPIC, topic.name):
        raise KafkaError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"topic {topic.name!r} may not be read: the client needs READ on it",
        )


def _check_count(batches: Sequence[AcknowledgementRequest]) -> None:
    """Checks the count of the batches, which are applied together or not at all, so in one step."""
    if len(batches) > RECORD_LOCKS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{len(batches)} acknowledgement batches for one partition: no member has more than {RECORD_LOCKS_MAX} records of "
            "it at once, so acknowledge fewer in a request",
        )


def _check_types(batches: Sequence[AcknowledgementRequest], *, renews: bool) -> None:
    for batch in batches:
        if not batch.acknowledge_types:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an acknowledgement needs a type")
        if AcknowledgeType.RENEW in batch.acknowledge_types and not renews:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "acknowledgement type 4 (renew) needs a request with is_renew_ack, and a group that may renew",
            )


async def settled(stored: Sequence[Awaitable[None]]) -> None:
    """Wait for all; what was refused is loaded again, so no one needs to know of it."""
    for outcome in stored:
        try:
            await outcome
        except KafkaError:
            continue


def lock_ms(broker: BrokerContext, group_id: str) -> int:
    return broker.shares.settings(group_id).limits.lock_ms
