"""What the coordinators do in a second: rebalances of large groups, commits of offsets, transactions.

Groups and commits are asked for on plain connections with the requests that clients send, so that no client's own pace counts;
transactions by librdkafka's producer, one after another, each with one record and the offset that it stands for.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import confluent_kafka as ck

from benchmarks import load
from benchmarks.measures import Plan, Running
from benchmarks.samples import Better, Sample
from benchmarks.watch import cpu_seconds
from odradek.protocol import RequestHeader, api_by_name, decode_response, encode_request
from odradek.protocol.messages.groups.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.messages.groups.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest

REBALANCES: Final = 5
MEMBER_ID_REQUIRED: Final = 79
RETRIABLE: Final = frozenset({14, 15, 16})
COMMITTERS: Final = 16
TOPIC: Final = "coordination"
_ASSIGNMENT: Final = bytes(100)
_SUBSCRIPTION_BYTES: Final = 60
_SESSION_MS: Final = 45_000
_DEADLINE_SECONDS: Final = 60.0
_names = itertools.count()


def group_sizes(plan: Plan) -> Sequence[int]:
    return (10,) if plan.rounds == 1 else (10, 100, 500)


def rebalances(running: Running, plan: Plan, round_number: int, members: int) -> Iterator[Sample]:
    """All members join again at once: until the last has its assignment."""
    os.sync()
    before = cpu_seconds(running.node.pid)
    seconds = asyncio.run(_rebalances(running.node.bootstrap, members))
    spent = cpu_seconds(running.node.pid) - before
    figures: dict[str, tuple[float, Better]] = {
        "ms": (1000 * seconds / REBALANCES, "lower"),
        "broker CPU ms": (1000 * spent / REBALANCES, "lower"),
    }
    yield from running.samples("rebalance", f"{members} members", round_number, figures)


def commit_seconds(plan: Plan) -> float:
    """How long offsets are committed in a round."""
    return 1.0 if plan.rounds == 1 else 3.0


def commits(running: Running, plan: Plan, round_number: int) -> Iterator[Sample]:
    """16 connections commit one partition each, one request after another."""
    seconds = commit_seconds(plan)
    load.create_topic(running.node.bootstrap, TOPIC, COMMITTERS)
    try:
        os.sync()
        before = cpu_seconds(running.node.pid)
        count = asyncio.run(_commits(running.node.bootstrap, seconds))
        spent = cpu_seconds(running.node.pid) - before
    finally:
        load.delete_topic(running.node.bootstrap, TOPIC)
    figures: dict[str, tuple[float, Better]] = {
        "commits/s": (count / seconds, "higher"),
        "broker CPU s per 10,000": (10_000 * spent / count, "lower"),
    }
    yield from running.samples("offset commits", f"{COMMITTERS} connections", round_number, figures)


def group_reading(running: Running, plan: Plan, round_number: int) -> Iterator[Sample]:
    """One member of a group reads 1 KiB values and commits as it goes: from its assignment to its last record."""
    count = plan.counts[1024]
    load.create_topic(running.node.bootstrap, TOPIC, 4)
    try:
        load.run_producer(running.node.bootstrap, TOPIC, count=count, value_bytes=1024, acks="all")
        os.sync()
        before = cpu_seconds(running.node.pid)
        seconds = _read_as_member(running.node.bootstrap, count)
        spent = cpu_seconds(running.node.pid) - before
    finally:
        load.delete_topic(running.node.bootstrap, TOPIC)
    figures: dict[str, tuple[float, Better]] = {
        "MB/s": (count * 1024 / seconds / 1e6, "higher"),
        "broker CPU s per GB out": (spent / (count * 1024 / 1e9), "lower"),
    }
    yield from running.samples("consume in a group", "1 KiB", round_number, figures)


def _read_as_member(bootstrap: str, count: int) -> float:
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{next(_names)}",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
            "fetch.wait.max.ms": 10,
            "queued.min.messages": 1_000_000,
            **load.QUEUE_PAUSE,
        }
    )
    began: list[float] = []
    consumer.subscribe([TOPIC], on_assign=lambda *_: began.append(time.perf_counter()))
    read = 0
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while read < count:
        read += len(consumer.consume(10_000, 0.1))
        if time.monotonic() > deadline:
            raise RuntimeError(f"{read} records of {count} came in time")
    took = time.perf_counter() - began[0]
    consumer.close()
    return took


def transactions(running: Running, plan: Plan, round_number: int) -> Iterator[Sample]:
    """begin, one record, commit; one producer, no pause."""
    seconds = 1.0 if plan.rounds == 1 else 3.0
    load.create_topic(running.node.bootstrap, TOPIC, 1)
    try:
        os.sync()
        took = _transactions(running.node.bootstrap, seconds)
    finally:
        load.delete_topic(running.node.bootstrap, TOPIC)
    figures: dict[str, tuple[float, Better]] = {
        "transactions/s": (len(took) / sum(took), "higher"),
        "p50 ms": (1000 * sorted(took)[len(took) // 2], "lower"),
    }
    yield from running.samples("transactions", "one producer, one record each", round_number, figures)


def _transactions(bootstrap: str, seconds: float) -> list[float]:
    producer = ck.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"bench-{next(_names)}", "linger.ms": 0}
    )
    producer.init_transactions(_DEADLINE_SECONDS)
    took: list[float] = []
    ends = time.perf_counter() + seconds + 0.5
    while (began := time.perf_counter()) < ends:
        producer.begin_transaction()
        producer.produce(TOPIC, b"x" * 100)
        producer.commit_transaction(_DEADLINE_SECONDS)
        took.append(time.perf_counter() - began)
    return took[len(took) // 7 :]  # the first half second is a warm-up


class _Connection:
    """One request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._number = 0

    @classmethod
    async def open(cls, bootstrap: str) -> _Connection:
        host, _, port = bootstrap.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, name: str, version: int, request: Any) -> Any:
        self._number += 1
        api = api_by_name(name)
        header = RequestHeader(
            api_key=api.key, api_version=version, correlation_id=self._number, client_id="bench"
        )
        self._writer.write(encode_request(header, request))
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return decode_response(api.key, version, await self._reader.readexactly(size))[1]

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


class _Member(asyncio.Protocol):
    """A member of a classic group, without heartbeats: a run is shorter than its session. Only the numbers in its requests
    change: encoding and decoding each would take longer than the broker does, and measure the client."""

    def __init__(self, group: str, member_id: str) -> None:
        self.member_id = member_id
        self._group = group
        self._join = bytearray(
            _frame(
                "JoinGroup",
                _JOIN_VERSION,
                _join_request(group, member_id),
            )
        )
        self._sync = bytearray()
        least = _frame("SyncGroup", _SYNC_VERSION, SyncGroupRequest(group_id=group))
        self._generation_position = len(least) - _AFTER_GROUP_BYTES
        self._joins = 0
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answered: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if len(received) < _SIZE_BYTES or len(received) < _SIZE_BYTES + int.from_bytes(received[:4], "big"):
            return
        response, self._received = bytes(received[_SIZE_BYTES:]), bytearray()
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(response)

    def connection_lost(self, error: Exception | None) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error or ConnectionError("the broker closed the connection"))

    async def ask(self, frame: bytes | bytearray) -> bytes:
        assert self._transport is not None
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        return await self._answered

    async def form(self) -> None:
        """Joins for the first time, and makes the request that asks for an assignment in later generations."""
        response = await self._joined()
        joined = decode_response(api_by_name("JoinGroup").key, _JOIN_VERSION, response)[1]
        assert isinstance(joined, JoinGroupResponse)
        assignments = [
            SyncGroupRequestAssignment(member_id=member.member_id, assignment=_ASSIGNMENT)
            for member in joined.members
        ]
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            assignments=assignments,
        )
        self._sync = bytearray(_frame("SyncGroup", _SYNC_VERSION, request))
        await self._synced(response)

    async def rejoin(self) -> None:
        await self._synced(await self._joined())

    async def _joined(self) -> bytes:
        self._joins += 1  # a member that tells nothing new, and does not lead, would start no rebalance
        self._join[-4:] = self._joins.to_bytes(4, "big")  # the end of its metadata, which ends the request
        response = await self.ask(self._join)
        _check("JoinGroup", response)
        return response

    async def _synced(self, joined: bytes) -> None:
        generation = joined[_CODE_POSITION + 2 : _CODE_POSITION + 6]
        self._sync[self._generation_position : self._generation_position + 4] = generation
        _check("SyncGroup", await self.ask(self._sync))

    async def leave(self) -> None:
        identity = MemberIdentity(member_id=self.member_id)
        request = LeaveGroupRequest(group_id=self._group, members=[identity])
        await self.ask(_frame("LeaveGroup", 3, request))
        assert self._transport is not None
        self._transport.close()


_JOIN_VERSION: Final = 5
_SYNC_VERSION: Final = 3
_SIZE_BYTES: Final = 4
_CODE_POSITION: Final = 8
"""The error code in answers to JoinGroup and SyncGroup: behind the correlation id and the throttle time."""
_AFTER_GROUP_BYTES: Final = 4 + 2 + 2 + 4
"""The bytes behind the group's name in a SyncGroup request without a member: generation, member, instance, assignments."""


def _check(api: str, response: bytes) -> None:
    if code := int.from_bytes(response[_CODE_POSITION : _CODE_POSITION + 2], "big"):
        raise RuntimeError(f"{api} answered {code}")


def _join_request(group: str, member_id: str) -> JoinGroupRequest:
    protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(_SUBSCRIPTION_BYTES))
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=_SESSION_MS,
        rebalance_timeout_ms=_SESSION_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


async def _member(bootstrap: str, group: str) -> _Member:
    """Returns a member with an id, which has yet to join."""
    connection = await _Connection.open(bootstrap)
    request = _join_request(group, "")
    while (given := await connection.ask("JoinGroup", _JOIN_VERSION, request)).error_code in RETRIABLE:
        await asyncio.sleep(0.1)
    if given.error_code != MEMBER_ID_REQUIRED:
        raise RuntimeError(f"JoinGroup answered {given.error_code}")
    await connection.close()
    member = _Member(group, given.member_id)
    host, _, port = bootstrap.rpartition(":")
    await asyncio.get_running_loop().create_connection(lambda: member, host, int(port))
    return member


async def _rebalances(bootstrap: str, count: int) -> float:
    group = f"bench-{next(_names)}"
    connection = await _Connection.open(bootstrap)
    await _coordinated(connection, group)
    await connection.close()
    members = [await _member(bootstrap, group) for _ in range(count)]
    async with asyncio.timeout(_DEADLINE_SECONDS):
        await asyncio.gather(*(member.form() for member in members))
        began = time.perf_counter()
        for _ in range(REBALANCES):
            await asyncio.gather(*(member.rejoin() for member in members))
        took = time.perf_counter() - began
        for member in members:
            await member.leave()
    return took


async def _coordinated(connection: _Connection, group: str) -> None:
    """Wait until the group has a coordinator that is ready: the first one of all has its topic made."""
    async with asyncio.timeout(_DEADLINE_SECONDS):
        request = FindCoordinatorRequest(key=group)
        while (await connection.ask("FindCoordinator", 2, request)).error_code:
            await asyncio.sleep(0.1)


async def _commits(bootstrap: str, seconds: float) -> int:
    group = f"bench-{next(_names)}"
    connection = await _Connection.open(bootstrap)
    await _coordinated(connection, group)
    while await _commit(connection, group) in RETRIABLE:
        await asyncio.sleep(0.1)
    await connection.close()
    host, _, port = bootstrap.rpartition(":")
    loop = asyncio.get_running_loop()
    ends = time.perf_counter() + seconds
    committers = [_Committer(group, partition, ends) for partition in range(COMMITTERS)]
    for committer in committers:
        await loop.create_connection(lambda committer=committer: committer, host, int(port))  # type: ignore[misc]
    return sum(await asyncio.gather(*(committer.done for committer in committers)))


class _Committer(asyncio.Protocol):
    """Commits one partition again and again. Only the numbers in its request change: encoding and decoding each would take
    longer than the broker does, and measure the client."""

    def __init__(self, group: str, partition: int, ends: float) -> None:
        self._request = bytearray(_frame("OffsetCommit", _COMMIT_VERSION, _commit_request(group, partition)))
        self._ends = ends
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._count = 0
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        response = self._received = self._received + data
        if len(response) < _SIZE_BYTES or len(response) < _SIZE_BYTES + int.from_bytes(
            response[:_SIZE_BYTES], "big"
        ):
            return
        self._received = b""
        if (code := int.from_bytes(response[-2:], "big")) and not self.done.done():
            self.done.set_exception(RuntimeError(f"OffsetCommit answered {code}"))
        self._count += 1
        assert self._transport is not None
        if self.done.done() or time.perf_counter() >= self._ends:
            self._transport.close()
            return
        self._request[_CORRELATION_POSITION : _CORRELATION_POSITION + 4] = self._count.to_bytes(4, "big")
        self._request[_OFFSET_POSITION : _OFFSET_POSITION + 8] = self._count.to_bytes(8, "big")
        self._transport.write(self._request)

    def connection_lost(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if error is not None or time.perf_counter() < self._ends:
            self.done.set_exception(error or ConnectionError("the broker closed the connection"))
        else:
            self.done.set_result(self._count)


_COMMIT_VERSION: Final = 7
_CORRELATION_POSITION: Final = 8
_OFFSET_POSITION: Final = -14
"""Behind the offset there are a leader epoch and the length of the metadata, which is empty."""


def _commit_request(group: str, partition: int) -> OffsetCommitRequest:
    item = OffsetCommitRequestPartition(partition_index=partition, committed_offset=0, committed_metadata="")
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[item])
    return OffsetCommitRequest(group_id=group, topics=[topic])


def _frame(name: str, version: int, request: Any) -> bytes:
    key = api_by_name(name).key
    header = RequestHeader(api_key=key, api_version=version, correlation_id=0, client_id="bench")
    return encode_request(header, request)


async def _commit(connection: _Connection, group: str) -> int:
    answer = await connection.ask("OffsetCommit", _COMMIT_VERSION, _commit_request(group, 0))
    return int(answer.topics[0].partitions[0].error_code)
