"""A client that costs almost nothing: requests encoded once, on plain connections.

Of an answer only the error codes are read. A client library needs several times the CPU of the broker for a request of one
record, and would be what is measured.
"""

from __future__ import annotations

import resource
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Final

from odradek.protocol import RequestHeader, encode_request
from odradek.protocol.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest
from odradek.records import BatchBuilder, Codec

ACKS: Final = {"1": 1, "all": -1}
_PRODUCE, _PRODUCE_VERSION = 0, 7
_FETCH, _FETCH_VERSION = 1, 6
_API_VERSIONS: Final = 18
_SECONDS_MAX: Final = 300.0
_SILENCE_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.05
_RECEIVE_BYTES: Final = 1 << 16
_SPARE_DESCRIPTORS: Final = 500


class RefusedError(RuntimeError):
    """The broker answered a request with an error code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """An encoded request, and where in its answer the error codes stand, which must be 0."""

    data: bytes
    error_positions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """What a run of requests took."""

    requests: int
    seconds: float
    client_cpu_seconds: float


def batch(value_bytes: int, records: int = 1) -> bytes:
    """Returns a record batch of records whose values have this size."""
    builder = BatchBuilder(Codec.NONE)
    for _ in range(records):
        builder.append(int(time.time() * 1000), None, bytes(value_bytes), ())
    return bytes(builder.build())


def produce(topic: str, partitions: Sequence[int], records: bytes, acks: str) -> Frame:
    """Writes one batch to each of the partitions."""
    data = [PartitionProduceData(index=index, records=records) for index in partitions]
    request = ProduceRequest(
        acks=ACKS[acks], timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    # size, correlation id, topics, name, partitions; then index, error code, base offset, append time, start offset
    first = 4 + 4 + 4 + 2 + len(topic) + 4 + 4
    each_bytes = 4 + 2 + 8 + 8 + 8
    return Frame(
        data=_encoded(_PRODUCE, _PRODUCE_VERSION, request),
        error_positions=tuple(first + number * each_bytes for number in range(len(partitions))),
    )


def fetch(topic: str, partition: int, offset: int = 0) -> Frame:
    """Reads the one batch of a partition that has this offset (KIP-74: the first batch comes whole), and does not wait."""
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1)],
            )
        ],
    )
    # size, correlation id, throttle time, topics, name, partitions, index
    return Frame(
        data=_encoded(_FETCH, _FETCH_VERSION, request),
        error_positions=(4 + 4 + 4 + 4 + 2 + len(topic) + 4 + 4,),
    )


def _encoded(api: int, version: int, request: ProduceRequest | FetchRequest) -> bytes:
    return encode_request(RequestHeader(api, version, 1, "bench"), request)


_ACCEPTED_TOGETHER: Final = 25
"""Connections that are opened before the broker must have accepted them: half of its queue (`socket.listen.backlog.size`)."""


def allow_connections(count: int) -> None:
    """Raises this process's limit of descriptors, which brokers started later inherit. RuntimeError where it is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _SPARE_DESCRIPTORS
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise RuntimeError(
            f"{count} connections need {wanted} descriptors, and the limit is {hard}: raise ulimit -Hn"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


@contextmanager
def connected(bootstrap: str, count: int) -> Iterator[list[socket.socket]]:
    """Opens connections, and closes them at the end. The broker's queue must not run full: SYNs would be lost."""
    host, _, port = bootstrap.rpartition(":")
    sockets: list[socket.socket] = []
    try:
        for number in range(count):
            peer = socket.create_connection((host, int(port)), timeout=_SILENCE_SECONDS)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sockets.append(peer)
            if number % _ACCEPTED_TOGETHER == _ACCEPTED_TOGETHER - 1:
                _await_answer(peer)
        yield sockets
    finally:
        for peer in sockets:
            peer.close()


def drive(
    sockets: Sequence[socket.socket],
    frames: Sequence[Frame],
    *,
    in_flight: int,
    count: int | None = None,
    seconds: float | None = None,
) -> Driven:
    """Sends requests, one at a time on each connection and `in_flight` at a time in all, until `count` or for `seconds`.

    Connections and frames take turns. RefusedError at the first error code, RuntimeError after 30 silent seconds.
    """
    run = _Run(sockets, frames)
    before, started = time.process_time(), time.perf_counter()
    ends = started + (_SECONDS_MAX if seconds is None else seconds)
    limit = count if count is not None else -1
    for _ in range(min(in_flight, len(sockets), limit if limit >= 0 else len(sockets))):
        run.send()
    while run.waiting:
        run.receive()
        while run.waiting < in_flight and run.has_idle and run.sent != limit and time.perf_counter() < ends:
            run.send()
    if limit >= 0 and run.answered < limit:
        raise RuntimeError(f"{run.answered} requests of {limit} were answered within {_SECONDS_MAX:.0f} s")
    return Driven(
        requests=run.answered,
        seconds=time.perf_counter() - started,
        client_cpu_seconds=time.process_time() - before,
    )


def _await_answer(peer: socket.socket) -> None:
    """Asks for something small: connections that were opened before are accepted when the answer comes."""
    peer.sendall(encode_request(RequestHeader(_API_VERSIONS, 0, 1, "bench"), ApiVersionsRequest()))
    length = int.from_bytes(_received(peer, 4), "big")
    _received(peer, length)


def _received(peer: socket.socket, length: int) -> bytes:
    data = peer.recv(length, socket.MSG_WAITALL)
    if len(data) < length:
        raise RuntimeError("the broker closed a connection")
    return data


def until_accepted(bootstrap: str, frames: Sequence[Frame], *, seconds_max: float) -> None:
    """Sends all requests until none is refused: metadata name a leader a moment before it leads.

    RefusedError after `seconds_max`.
    """
    deadline = time.monotonic() + seconds_max
    while True:
        try:
            with connected(bootstrap, 1) as sockets:
                drive(sockets, frames, in_flight=1, count=len(frames))
        except RefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return


class _Run:
    """Connections that are idle, and those that wait for an answer."""

    def __init__(self, sockets: Sequence[socket.socket], frames: Sequence[Frame]) -> None:
        self._poll = select.epoll(len(sockets))
        self._by_descriptor = {peer.fileno(): peer for peer in sockets}
        for descriptor in self._by_descriptor:
            self._poll.register(descriptor, select.EPOLLIN)
        self._idle = deque(sockets)
        self._frames = cycle(frames)
        self._sent: dict[int, Frame] = {}
        self._partial: dict[int, bytes] = {}
        self.sent = self.answered = 0

    @property
    def waiting(self) -> int:
        return len(self._sent)

    @property
    def has_idle(self) -> bool:
        return bool(self._idle)

    def send(self) -> None:
        peer, frame = self._idle.popleft(), next(self._frames)
        peer.sendall(frame.data)
        self._sent[peer.fileno()] = frame
        self.sent += 1

    def receive(self) -> None:
        ready = self._poll.poll(_SILENCE_SECONDS)
        if not ready:
            raise RuntimeError(f"{self.waiting} requests got no answer within {_SILENCE_SECONDS:.0f} s")
        for descriptor, _ in ready:
            peer = self._by_descriptor[descriptor]
            data = self._partial.pop(descriptor, b"") + peer.recv(_RECEIVE_BYTES)
            if not data:
                raise RuntimeError("the broker closed a connection")
            if len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
                self._partial[descriptor] = data
                continue
            self._check(data, self._sent.pop(descriptor))
            self._idle.append(peer)
            self.answered += 1

    @staticmethod
    def _check(data: bytes, frame: Frame) -> None:
        for position in frame.error_positions:
            (code,) = struct.unpack_from(">h", data, position)
            if code:
                raise RefusedError(f"the broker answered a request with error {code}")
