"""Fetch (1): read batches from partitions, waiting for them when asked to.

Versions 4-18: fetch sessions from v7 (KIP-227, `broker/sessions/fetch_sessions.py`), divergence detection from v12 (KIP-595),
topic ids from v13. The first partition with data gives at least one whole batch, however large; the rest stays within the
request's and the broker's limits. `broker/fetch/reading.py` reads, `broker/fetch/delayed_fetch.py` waits.

Consumers see records below the high watermark only. While clients leave most of `queued.max.response.bytes`
unread, fetches that must be read into memory return little; soon those clients lose their connections. With
isolation_level 1 (read_committed) reads stop at the last stable offset, long polls wait for it to move, and
the response names the aborted transactions whose records are among those it holds: clients leave them out.
With a `replica.selector.class` a leader sends consumers to a follower in their rack (KIP-392).

Followers are brokers of the cluster. From v15 on they send the epoch of their registration (KIP-903); an id
and epoch that the cluster does not know are refused. So a client that claims to be a replica reads nothing
that clients may not see (CVE-2018-1288).
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from odradek.broker.fetch import lone_partition
from odradek.broker.fetch.delayed_fetch import ConsumerWaiting, FollowerWaiting
from odradek.broker.fetch.reading import (
    FetchingBroker,
    FetchReader,
    Result,
    failed,
    fetching_broker,
    session_owner,
)
from odradek.broker.handlers.current_leader import HINTED, LeaderHints
from odradek.broker.requests.context import ApiHandler, BrokerContext, HeldResponse, RequestContext
from odradek.broker.sessions.fetch_sessions import (
    FINAL_EPOCH,
    SESSION_PARTITIONS_MAX,
    FetchSession,
    PartitionKey,
    RequestedPartition,
    SentPartition,
    SessionFetchPlan,
    identified,
    named,
)
from odradek.broker.sessions.unchanged_partitions import UnchangedPartitions
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import Offset
from odradek.protocol.messages.data.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from odradek.replication.partition import Partition
from odradek.runtime.turns import Turn

_SINCE_SESSIONS: Final = 7
_SINCE_TOPIC_IDS: Final = 13
_SINCE_REPLICA_STATE: Final = 15
_SINCE_HINTS: Final = 16
_Topics = dict[tuple[str, UUID], FetchableTopicResponse]
_FEW_PARTITIONS: Final = 200
"""Fetches of more are planned, read and answered in turns."""


def handle(
    broker: BrokerContext, context: RequestContext, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse] | HeldResponse:
    try:
        follower = _follower(broker, context, request)
        if _names_many(request):
            return HeldResponse(_plan_many(broker, context, request, follower))
        by_id = context.api_version >= _SINCE_TOPIC_IDS
        wanted = [
            _wanted(topic, partition, by_id) for topic in request.topics for partition in topic.partitions
        ]
        plan = _plan(broker, context, request, follower, wanted)
    except KafkaError as error:
        return _refused(context, request, error)
    if len(plan.wanted) > _FEW_PARTITIONS:
        return HeldResponse(_fetch_many(broker, context, request, follower, plan))
    reading = FetchReader(broker, context, request, plan.wanted, follower)
    results = reading.read()
    if reading.cold:
        return _bring_first(broker, context, request, plan, reading)
    return _answer(broker, context, request, plan, reading, results)


async def _bring_first(
    broker: BrokerContext,
    context: RequestContext,
    request: FetchRequest,
    plan: SessionFetchPlan,
    reading: FetchReader,
) -> FetchResponse:
    """Some of it is on the disk alone: another thread waits for that, and others are served meanwhile."""
    results = await _brought(broker, reading)
    response = _answer(broker, context, request, plan, reading, results)
    return response if isinstance(response, FetchResponse) else await response


async def _brought(broker: BrokerContext, reading: FetchReader) -> list[Result]:
    results: list[Result] = []
    while reading.cold:
        await broker.runtime.offload.run(reading.bring)
        results = reading.read()
    return results


def _answer(
    broker: BrokerContext,
    context: RequestContext,
    request: FetchRequest,
    plan: SessionFetchPlan,
    reading: FetchReader,
    results: list[Result],
) -> FetchResponse | Awaitable[FetchResponse]:
    follower = reading.follower

    def answer() -> FetchResponse | Coroutine[object, None, FetchResponse]:
        return _read_again(broker, context, plan, reading)

    if not _waits(request, plan, reading):
        return _response(broker, context, plan, results, reading)
    wait_s = request.max_wait_ms / 1000
    missing_bytes = request.min_bytes - reading.found_bytes
    if follower is not None:
        return _follower_waits(broker, context, plan, reading, results, wait_s, missing_bytes)
    return ConsumerWaiting(
        reading.partitions,
        answer,
        wait_s=wait_s,
        missing_bytes=missing_bytes,
        committed_only=reading.committed_only,
    ).response


def _read_again(
    broker: BrokerContext,
    context: RequestContext,
    plan: SessionFetchPlan,
    reading: FetchReader,
    wanted: Sequence[RequestedPartition] | None = None,
) -> FetchResponse | Coroutine[object, None, FetchResponse]:
    """Reads and answers after a wait. Records that were in memory when it began may be only on the disk now."""
    reading.prepare_retry()
    results = reading.read(wanted)
    if reading.cold:
        return _bring_and_answer(broker, context, plan, reading)
    return _response(broker, context, plan, results, reading)


async def _bring_and_answer(
    broker: BrokerContext, context: RequestContext, plan: SessionFetchPlan, reading: FetchReader
) -> FetchResponse:
    results = await _brought(broker, reading)
    return _response(broker, context, plan, results, reading)


def _waits(request: FetchRequest, plan: SessionFetchPlan, reading: FetchReader) -> bool:
    may_wait = request.max_wait_ms > 0 and (bool(plan.wanted) or plan.session is not None)
    return may_wait and reading.found_bytes < request.min_bytes and not reading.has_news


# -- fetches of many partitions: the same, in turns


def _names_many(request: FetchRequest) -> bool:
    if len(request.topics) > _FEW_PARTITIONS or len(request.forgotten_topics_data) > _FEW_PARTITIONS:
        return True
    for topic in request.topics:  # noqa: SIM110 - any() would cost each fetch a generator
        if len(topic.partitions) > _FEW_PARTITIONS:
            return True
    return False


async def _plan_many(
    broker: BrokerContext,
    context: RequestContext,
    request: FetchRequest,
    follower: FetchingBroker | None,
) -> FetchResponse:
    turn = broker.turns.begin()
    by_id = context.api_version >= _SINCE_TOPIC_IDS
    wanted = []
    for topic in request.topics:
        for partition in topic.partitions:
            await turn.step()
            wanted.append(_wanted(topic, partition, by_id))
    if follower is None and len(wanted) > SESSION_PARTITIONS_MAX:
        if request.session_epoch > 0:
            error = KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "a session may not have that number of partitions"
            )
            return _refused(context, request, error)
        request = request.replace(session_epoch=FINAL_EPOCH)  # without a session, as the response may say
    try:
        plan = _plan(broker, context, request, follower, wanted)
    except KafkaError as error:
        return _refused(context, request, error)
    return await _fetch_many(broker, context, request, follower, plan)


async def _fetch_many(
    broker: BrokerContext,
    context: RequestContext,
    request: FetchRequest,
    follower: FetchingBroker | None,
    plan: SessionFetchPlan,
) -> FetchResponse:
    turn = broker.turns.begin()
    reading = FetchReader(broker, context, request, plan.wanted, follower)
    results = await _read_many(broker, turn, reading)
    if _waits(request, plan, reading):
        wait_s = request.max_wait_ms / 1000
        missing_bytes = request.min_bytes - reading.found_bytes
        if follower is not None:
            return await _follower_waits(broker, context, plan, reading, results, wait_s, missing_bytes)
        await ConsumerWaiting(
            reading.partitions,
            FetchResponse,  # what it answers does not matter: there is too much to read for the request that brings the news
            wait_s=wait_s,
            missing_bytes=missing_bytes,
            committed_only=reading.committed_only,
        ).response
        results = await _read_many(broker, turn, reading)
    reading.trace()
    remaining = []
    for reading_result in results:
        await turn.step()
        if plan.session is None or plan.session.changed(_sent(reading_result)) or not plan.incremental:
            remaining.append(reading_result)
    hints = _hints(broker, context)
    topics: _Topics = {}
    for reading_result in remaining:
        await turn.step()
        _count(broker, reading_result, by_follower=follower is not None)
        _add(topics, reading_result, hints)
    response = FetchResponse(session_id=plan.session_id, responses=list(topics.values()))
    return response if hints is None else _with_endpoints(response, hints)


async def _read_many(broker: BrokerContext, turn: Turn, reading: FetchReader) -> list[Result]:
    reading.prepare_retry()
    results = await turn.drive(reading.read_steps())
    while reading.cold:
        await broker.runtime.offload.run(reading.bring)
        results = await turn.drive(reading.read_steps())
    return results


def _follower_waits(
    broker: BrokerContext,
    context: RequestContext,
    plan: SessionFetchPlan,
    reading: FetchReader,
    results: list[Result],
    wait_s: float,
    missing_bytes: int,
) -> Awaitable[FetchResponse]:
    session = plan.session
    resting = None if session is None or not plan.incremental else _rest(session, reading)

    def answer() -> FetchResponse | Coroutine[object, None, FetchResponse]:
        wanted = None if session is None or resting is None else session.wanted()
        return _read_again(broker, context, plan, reading, wanted)

    def nothing() -> FetchResponse:
        return _response(broker, context, plan, () if plan.incremental else results, reading)

    waiting = FollowerWaiting(
        _known_high_watermarks(reading, plan),
        answer,
        nothing=nothing,
        wait_s=wait_s,
        missing_bytes=missing_bytes,
        resting=resting,
        has_news=session is not None
        and any(
            session.lags_in_start(wanted, partition.start_offset)
            for partition, wanted in reading.partitions.items()
        ),
    )
    on_next = context.connection.on_next
    on_next[waiting] = waiting.hurry
    waiting.response.add_done_callback(lambda _: on_next.pop(waiting, None))
    return waiting.response


def _rest(session: FetchSession, reading: FetchReader) -> UnchangedPartitions[PartitionKey]:
    """Let those partitions rest of which the follower knows all there is."""
    resting = session.resting
    if resting is None:
        resting = session.resting = UnchangedPartitions(session)
    for partition, wanted in list(reading.partitions.items()):
        has_everything = wanted.fetch_offset >= partition.log.end_offset
        if has_everything and not session.is_news(
            wanted.key, partition.high_watermark, partition.start_offset
        ):
            del reading.partitions[partition]
            resting.rest(partition, wanted.key)
    return resting


def _known_high_watermarks(reading: FetchReader, plan: SessionFetchPlan) -> dict[Partition, Offset]:
    """Returns the high watermarks that the follower named, or has learned since."""
    session = plan.session
    return {
        partition: Offset(
            max(wanted.high_watermark, -1 if session is None else session.sent_high_watermark(wanted.key))
        )
        for partition, wanted in reading.partitions.items()
    }


def _refused(context: RequestContext, request: FetchRequest, error: KafkaError) -> FetchResponse:
    """Returns an error of the whole request, which before version 7 has no place but in its partitions."""
    if context.api_version >= _SINCE_SESSIONS:
        return FetchResponse(error_code=error.code)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[failed(partition.partition, error) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


# -- what is asked, and by whom


def _follower(broker: BrokerContext, context: RequestContext, request: FetchRequest) -> FetchingBroker | None:
    """Returns the broker that fetches; None for a client."""
    state = request.replica_state
    has_replica_state = context.api_version >= _SINCE_REPLICA_STATE
    replica_id = state.replica_id if has_replica_state else request.replica_id
    if replica_id < 0:
        return None
    if not has_replica_state or state.replica_epoch < 0 or replica_id == broker.config.server.node_id:
        raise KafkaError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "only another broker of this cluster, which names its epoch, may fetch as a replica",
        )
    return fetching_broker(broker, replica_id, state.replica_epoch)


def _wanted(topic: FetchTopic, partition: FetchPartition, by_id: bool) -> RequestedPartition:
    return RequestedPartition(
        key=identified(topic.topic_id, partition.partition)
        if by_id
        else named(topic.topic, partition.partition),
        fetch_offset=partition.fetch_offset,
        max_bytes=partition.partition_max_bytes,
        current_leader_epoch=partition.current_leader_epoch,
        last_fetched_epoch=partition.last_fetched_epoch,
        log_start_offset=partition.log_start_offset,
        high_watermark=partition.high_watermark,
    )


def _plan(
    broker: BrokerContext,
    context: RequestContext,
    request: FetchRequest,
    follower: FetchingBroker | None,
    wanted: list[RequestedPartition],
) -> SessionFetchPlan:
    by_id = context.api_version >= _SINCE_TOPIC_IDS
    forgotten = [
        identified(topic.topic_id, number) if by_id else named(topic.topic, number)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    ]
    owner = context.principal
    if follower is not None:
        owner = session_owner(follower)
    return broker.fetch_sessions.plan(
        session_id=request.session_id,
        epoch=request.session_epoch,
        wanted=wanted,
        forgotten=forgotten,
        uses_topic_ids=by_id,
        owner=owner,
        now=broker.runtime.clock.monotonic(),
        is_follower=follower is not None,
    )


# -- answering


def _response(
    broker: BrokerContext,
    context: RequestContext,
    plan: SessionFetchPlan,
    results: Iterable[Result],
    reading: FetchReader,
) -> FetchResponse:
    reading.trace()
    by_follower = reading.follower is not None
    session = plan.session
    if session is not None:
        remaining = [
            partition_result
            for partition_result in results
            if session.changed(_sent(partition_result)) or not plan.incremental
        ]
    else:
        remaining = list(results)
    hints = _hints(broker, context)
    topics: _Topics = {}
    for partition_result in remaining:
        _count(broker, partition_result, by_follower=by_follower)
        _add(topics, partition_result, hints)
    response = FetchResponse(session_id=plan.session_id, responses=list(topics.values()))
    return response if hints is None else _with_endpoints(response, hints)


def _hints(broker: BrokerContext, context: RequestContext) -> LeaderHints | None:
    return LeaderHints(broker, context) if context.api_version >= _SINCE_HINTS else None


def _count(broker: BrokerContext, partition_result: Result, *, by_follower: bool) -> None:
    key, data = partition_result.key, partition_result.data
    image = broker.image
    known = image.topics.get(key.topic) if key.topic else image.topics_by_id.get(key.topic_id)
    if known is not None:
        size_bytes = len(data.records) if data.records is not None else 0
        failed = data.error_code != ErrorCode.NONE
        broker.traffic.of(known.name).fetched(size_bytes, by_follower=by_follower, failed=failed)


def _add(topics: _Topics, partition_result: Result, hints: LeaderHints | None) -> None:
    key = partition_result.key
    topic = topics.get((key.topic, key.topic_id))
    if topic is None:
        topic = FetchableTopicResponse(topic=key.topic, topic_id=key.topic_id, partitions=[])
        topics[key.topic, key.topic_id] = topic
    topic.partitions.append(_hinted(partition_result, hints))


def _hinted(partition_result: Result, hints: LeaderHints | None) -> PartitionData:
    data, key = partition_result.data, partition_result.key
    if hints is None or data.error_code not in HINTED:
        return data
    known = hints.leader_of(key.topic, key.topic_id, key.partition)
    if known is None:
        return data
    leader = LeaderIdAndEpoch(leader_id=known.leader, leader_epoch=known.leader_epoch)
    return data.replace(current_leader=leader)


def _with_endpoints(response: FetchResponse, hints: LeaderHints) -> FetchResponse:
    endpoints = [
        NodeEndpoint(node_id=endpoint.broker_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack)
        for endpoint in hints.endpoints()
    ]
    return response.replace(node_endpoints=endpoints) if endpoints else response


def _sent(partition_result: Result) -> SentPartition:
    return SentPartition(
        key=partition_result.key,
        high_watermark=partition_result.data.high_watermark,
        log_start_offset=partition_result.data.log_start_offset,
        has_records=partition_result.has_records,
        has_news=partition_result.has_news,
    )


SERVED = ApiHandler(1, handle, holds=True, short=partial(lone_partition.serve, read_again=_read_again))
