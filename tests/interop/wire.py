"""Bytes made by hand: frames, requests and batches as Kafka's protocol guide lays them out, or wrong on purpose.

Independent of the broker's own codec, so that the two cannot be wrong in the same way. Only non-flexible versions
are written here, which is all that these tests need.
"""

from __future__ import annotations

import socket
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import crc32c
from tests.interop import logins
from tests.kit.frames import framed, receive_frame

ANSWER_SECONDS_MAX = 20.0

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR = 0, 1, 2, 3, 10
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID = 18, 19, 20, 21, 22
OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS, ALTER_CONFIGS, CREATE_PARTITIONS = 23, 32, 33, 37
INCREMENTAL_ALTER_CONFIGS = 44


class Connection:
    """One socket to the server, logged in where that is asked for; a context manager."""

    def __init__(self, address: tuple[str, int], *, receive_buffer_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(ANSWER_SECONDS_MAX)
        self._correlation_id = 0
        lock = logins.lock_of("{}:{}".format(*address))
        try:
            self.socket.connect(address)
            if lock is not None:
                self.socket = lock.client_context().wrap_socket(self.socket, server_hostname=address[0])
                self._log_in()
        except (OSError, AssertionError):
            self.socket.close()
            raise

    def _log_in(self) -> None:
        assert self.call(SASL_HANDSHAKE, 1, string("PLAIN")).int16() == 0
        assert self.call(SASL_AUTHENTICATE, 0, bytes_(logins.plain_response())).int16() == 0

    @property
    def name(self) -> str:
        """How the server sees this connection: `host:port`."""
        return "{}:{}".format(*self.socket.getsockname())

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, api_key: int, version: int, body: bytes, *, client_id: str | None = "raw") -> int:
        """Send one request with header version 1; returns its correlation id."""
        self._correlation_id += 1
        self.send_raw(frame(api_key, version, self._correlation_id, body, client_id=client_id))
        return self._correlation_id

    def receive(self) -> tuple[int, Reader]:
        """The next response: correlation id and body."""
        body = Reader(receive_frame(self.socket))
        return body.int32(), body

    def call(self, api_key: int, version: int, body: bytes) -> Reader:
        """Send a request and return the body of its response."""
        sent = self.send(api_key, version, body)
        received, response = self.receive()
        assert received == sent
        return response

    def rest_until_closed(self) -> bytes:
        """Everything the server still sends until it closes; fails when it does not close."""
        parts = []
        while True:
            try:
                part = self.socket.recv(65536)
            except ConnectionResetError:
                break
            if not part:
                break
            parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def connections(
    address: tuple[str, int], count: int, *, receive_buffer_bytes: int | None = None
) -> Iterator[list[Connection]]:
    """So many, closed in the end whatever happens: a test that fails must not leave sockets to the next one."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(Connection(address, receive_buffer_bytes=receive_buffer_bytes))
            for _ in range(count)
        ]


class Reader:
    """Reads the fields of a response one after another."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def _take(self, layout: str) -> int:
        (value,) = struct.unpack_from(">" + layout, self.data, self.position)
        self.position += struct.calcsize(layout)
        return int(value)

    def int8(self) -> int:
        return self._take("b")

    def int16(self) -> int:
        return self._take("h")

    def int32(self) -> int:
        return self._take("i")

    def int64(self) -> int:
        return self._take("q")

    def string(self) -> str | None:
        return None if (size := self.int16()) < 0 else self._bytes(size).decode()

    def bytes_(self) -> bytes | None:
        return None if (size := self.int32()) < 0 else self._bytes(size)

    def _bytes(self, size: int) -> bytes:
        start, self.position = self.position, self.position + size
        assert self.position <= len(self.data)
        return self.data[start : self.position]

    @property
    def left(self) -> int:
        return len(self.data) - self.position


def int8(value: int) -> bytes:
    return struct.pack(">b", value)


def int16(value: int) -> bytes:
    return struct.pack(">h", value)


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def int64(value: int) -> bytes:
    return struct.pack(">q", value)


def string(value: str | None) -> bytes:
    if value is None:
        return int16(-1)
    data = value.encode()
    return int16(len(data)) + data


def bytes_(value: bytes | None) -> bytes:
    return int32(-1) if value is None else int32(len(value)) + value


def array(items: Iterable[bytes]) -> bytes:
    listed = list(items)
    return int32(len(listed)) + b"".join(listed)


def frame(
    api_key: int, version: int, correlation_id: int, body: bytes, *, client_id: str | None = "raw"
) -> bytes:
    """A whole request, size prefix included."""
    return framed(int16(api_key) + int16(version) + int32(correlation_id) + string(client_id) + body)


# -- requests


def produce_body(
    topic: str, batch: bytes | None, *, partition: int = 0, acks: int = -1, timeout_ms: int = 10_000
) -> bytes:
    """Produce v3 to v8, one partition."""
    data = array([int32(partition) + bytes_(batch)])
    return string(None) + int16(acks) + int32(timeout_ms) + array([string(topic) + data])


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    error_code: int
    base_offset: int
    message: str | None


def produce(connection: Connection, topic: str, batch: bytes | None, **more: int) -> Produced:
    """Produce v8 and what the server said about its one partition."""
    response = connection.call(PRODUCE, 8, produce_body(topic, batch, **more))
    assert (response.int32(), response.string(), response.int32()) == (1, topic, 1)
    response.int32()
    error_code, base_offset = response.int16(), response.int64()
    response.int64(), response.int64()
    for _ in range(response.int32()):
        response.int32(), response.string()
    message = response.string()
    response.int32()
    assert response.left == 0
    return Produced(error_code=error_code, base_offset=base_offset, message=message)


def fetch_body(
    topic: str, offset: int, *, partition: int = 0, max_bytes: int = 1 << 20, wait_ms: int = 0
) -> bytes:
    """Fetch v4, one partition."""
    head = int32(-1) + int32(wait_ms) + int32(1) + int32(max_bytes) + int8(0)
    return head + array([string(topic) + array([int32(partition) + int64(offset) + int32(max_bytes)])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    error_code: int
    high_watermark: int
    records: bytes


def read_fetch(body: Reader) -> Fetched:
    body.int32()
    assert body.int32() == 1
    body.string()
    assert body.int32() == 1
    body.int32()
    error_code, high_watermark = body.int16(), body.int64()
    body.int64()
    for _ in range(body.int32()):
        body.int64(), body.int64()
    return Fetched(error_code=error_code, high_watermark=high_watermark, records=body.bytes_() or b"")


def fetch(connection: Connection, topic: str, offset: int, **more: int) -> Fetched:
    return read_fetch(connection.call(FETCH, 4, fetch_body(topic, offset, **more)))


def metadata_body(topics: Sequence[str] | None, *, create: bool = False) -> bytes:
    """Metadata v4."""
    named = int32(-1) if topics is None else array(map(string, topics))
    return named + int8(create)


def list_offsets_body(topic: str, timestamp: int, *, partition: int = 0) -> bytes:
    """ListOffsets v1."""
    return int32(-1) + array([string(topic) + array([int32(partition) + int64(timestamp)])])


def is_led(connection: Connection, topic: str, partition: int) -> bool:
    """Whether the server answers for a partition, which Kafka does only some time after it was created."""
    response = connection.call(LIST_OFFSETS, 1, list_offsets_body(topic, -1, partition=partition))
    response.int32(), response.string(), response.int32(), response.int32()
    return response.int16() == 0


def create_topics_body(
    name: str, *, partitions: int = 1, copies: int = 1, settings: dict[str, str] | None = None
) -> bytes:
    """CreateTopics v2."""
    pairs = array(string(key) + string(value) for key, value in (settings or {}).items())
    topic = string(name) + int32(partitions) + int16(copies) + array([]) + pairs
    return array([topic]) + int32(10_000) + int8(0)


# -- record batches


def varint(value: int) -> bytes:
    """Zigzag varint, as records use it."""
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def record(value: bytes | None, *, offset_delta: int = 0, key: bytes | None = None) -> bytes:
    """One record with its length."""

    def sized(data: bytes | None) -> bytes:
        return varint(-1) if data is None else varint(len(data)) + data

    content = b"\0" + varint(0) + varint(offset_delta) + sized(key) + sized(value) + varint(0)
    return varint(len(content)) + content


def records(*values: bytes) -> bytes:
    """Records with offset deltas 0, 1, 2..."""
    return b"".join(record(value, offset_delta=number) for number, value in enumerate(values))


def batch(
    content: bytes,
    count: int,
    *,
    codec: int = 0,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    length: int | None = None,
    magic: int = 2,
    crc: int | None = None,
    base_offset: int = 0,
    timestamp_ms: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),  # id, epoch, base sequence
) -> bytes:
    """A v2 batch around `content` (records, compressed already); every named field can be made to lie."""
    stamp = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    last = count - 1 if last_offset_delta is None else last_offset_delta
    head = struct.pack(">hiqq", codec | attributes, last, stamp, stamp)
    checked = head + struct.pack(">qhii", *producer, count) + content
    sum_ = crc32c.crc32c(checked) if crc is None else crc
    size = 4 + 1 + 4 + len(checked) if length is None else length
    return struct.pack(">qiibI", base_offset, size, -1, magic, sum_) + checked


def values(data: bytes) -> list[bytes]:
    """The values in batches that hold one small uncompressed record each, as the tests here produce them."""
    results = []
    while data:
        size = 12 + struct.unpack_from(">i", data, 8)[0]
        content, data = data[61:size], data[size:]
        results.append(
            content[6:-1]
        )  # length, attributes, two deltas, null key, value length; at the end no headers
    return results


def message_set(value: bytes, *, magic: int) -> bytes:
    """One message of the formats before v2, with a right CRC-32."""
    stamp = int64(1_750_000_000_000) if magic == 1 else b""
    content = int8(magic) + int8(0) + stamp + bytes_(None) + bytes_(value)
    message = struct.pack(">I", zlib.crc32(content)) + content
    return int64(0) + int32(len(message)) + message
