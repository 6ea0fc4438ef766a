"""One connection to a broker: messages of the schemas, or bytes as they are.

`BlockingWire` is for threads, `Wire` for tasks of an event loop. `ask` sends and waits; `ask_later` and `response` pipeline;
`send` and `receive` pass bytes through.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, Unpack

from tests.kit.frames import read_frame, receive_frame
from tests.kit.requests import ProducerFields, batch_of, fetch_request, produce_request
from tests.kit.waiting import until

from odradek.model.errors import ErrorCode
from odradek.protocol import Message, RequestHeader, api_of, decode_response, encode_request
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.topics.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.records import decode_batch, split_batches

ANSWER_SECONDS: Final = 60.0
"""How long a connection waits for a response, unless the test says otherwise, or for its end."""


def parse_address(text: str) -> tuple[str, int]:
    """HOST:PORT; the first, where there are several."""
    host, _, port = text.split(",")[0].rpartition(":")
    return host, int(port)


def request_frame(
    message: Message, version: int, correlation_id: int = 1, *, client_id: str = "hostile"
) -> bytes:
    """A whole request, its size in front."""
    header = RequestHeader(api_of(message).key, version, correlation_id, client_id)
    return encode_request(header, message)


class _Pipeline:
    """The requests of one connection that wait for their responses, which come in the same order."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._correlation_id = 0
        self._waiting: deque[tuple[int, int, int]] = deque()

    def frame_of(self, message: Message, version: int | None) -> bytes:
        """Returns the frame of the next request, in the newest version that is offered without another."""
        api = api_of(message)
        asked = api.latest_stable if version is None else version
        self._correlation_id += 1
        self._waiting.append((api.key, asked, self._correlation_id))
        return request_frame(message, asked, self._correlation_id, client_id=self._client_id)

    def response_in(self, frame: bytes) -> Any:
        """Returns the response to the oldest request. Raises ConnectionError if the frame answers another one."""
        api_key, version, expected = self._waiting.popleft()
        correlation_id, response = decode_response(api_key, version, frame)
        if correlation_id != expected:
            raise ConnectionError(f"answer {correlation_id} to request {expected}")
        return response

    def expect_no_response(self) -> None:
        self._waiting.pop()


class BlockingWire:
    """A connection that blocks the thread; a context manager.

    Raises ConnectionError when the broker closes, TimeoutError when it is silent for too long.
    """

    def __init__(
        self,
        address: tuple[str, int],
        *,
        timeout_s: float = ANSWER_SECONDS,
        client_id: str = "hostile",
        receive_buffer_bytes: int | None = None,
    ) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pipeline = _Pipeline(client_id)
        try:
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise

    def ask(self, message: Message, version: int | None = None) -> Any:
        """Returns the response to one request, in the newest version that is offered without another."""
        self.ask_later(message, version)
        return self.response()

    def ask_later(self, message: Message, version: int | None = None) -> None:
        """Sends a request; `response` returns the responses in the same order."""
        self.send(self._pipeline.frame_of(message, version))

    def response(self) -> Any:
        return self._pipeline.response_in(self.receive())

    def expect_no_response(self) -> None:
        """Expects no response to the last request: it was a produce request with acks=0."""
        self._pipeline.expect_no_response()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """Returns the next frame, without its size."""
        return receive_frame(self.socket)

    def is_closed_within(self, seconds: float) -> bool:
        """Returns whether the broker hangs up in time; what it sends before is read and dropped."""
        self.socket.settimeout(seconds)
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True

    def abandon(self) -> None:
        """Leave with a reset: nothing waits for what was under way."""
        with suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Wire:
    """A connection of a task. Its last methods are the calls that most tests of a broker need."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._pipeline = _Pipeline("test")

    @classmethod
    async def connect(cls, port: int, tls: ssl.SSLContext | None = None) -> Self:
        """Connects to this machine, over TLS to the name `localhost`."""
        name = None if tls is None else "localhost"
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name))

    async def ask(self, message: Message, version: int | None = None) -> Any:
        """Returns the response to one request, in the newest version that is offered without another."""
        self.ask_later(message, version)
        return await self.response()

    def ask_later(self, message: Message, version: int | None = None) -> None:
        """Sends a request; `response` returns the responses in the same order."""
        self.send(self._pipeline.frame_of(message, version))

    async def response(self) -> Any:
        return self._pipeline.response_in(await self.receive())

    def expect_no_response(self) -> None:
        """Expects no response to the last request: it was a produce request with acks=0."""
        self._pipeline.expect_no_response()

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def receive(self) -> bytes:
        """Returns the next frame, without its size."""
        return await read_frame(self._reader, seconds=ANSWER_SECONDS)

    async def closed_by_broker(self) -> bool:
        """Returns whether the broker closes before it sends anything more."""
        async with asyncio.timeout(ANSWER_SECONDS):
            return await self._reader.read() == b""

    @property
    def has_arrived(self) -> bool:
        """Returns whether bytes are there that no one received."""
        return bool(self._reader._buffer)  # type: ignore[attr-defined]  # asyncio has no public way to look

    def about(self, name: str) -> Any:
        """Returns what the transport knows: `ssl_object`, `cipher`."""
        return self._writer.get_extra_info(name)

    def stop_reading(self) -> None:
        """Leaves what comes in the socket, until `read_again`."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    def read_again(self) -> None:
        self._writer.transport.resume_reading()  # type: ignore[attr-defined]

    def abandon(self) -> None:
        """Closes at once: what was not sent yet is dropped."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """The socket is closed when this returns, also after a reset: the loop may end right after it."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    # -- the calls that most tests need

    async def find_coordinator(self, group: str = "g") -> None:
        """Returns when the broker has loaded the group's partition of __consumer_offsets.

        Clients try again on COORDINATOR_LOAD_IN_PROGRESS; a test that is not about this waits here.
        """
        response = await self.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4)
        assert response.coordinators[0].error_code == 0
        probe = HeartbeatRequest(group_id=group, generation_id=1, member_id="unknown")

        async def is_loaded() -> bool:
            return bool((await self.ask(probe, 4)).error_code == ErrorCode.UNKNOWN_MEMBER_ID)

        await until(is_loaded)  # type: ignore[arg-type]  # it solves `T | Awaitable[T]` to nothing

    async def create(self, topic: str, partitions: int = 1, **configs: str) -> Any:
        """A topic; settings with underscores for dots. Returns its result."""
        settings = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ]
        created = CreatableTopic(
            name=topic, num_partitions=partitions, replication_factor=1, configs=settings
        )
        return (await self.ask(CreateTopicsRequest(topics=[created], timeout_ms=5000), 7)).topics[0]

    async def produce(
        self,
        topic: str,
        values: list[bytes],
        *,
        partition: int = 0,
        acks: int = -1,
        **producer: Unpack[ProducerFields],
    ) -> Any:
        """One batch; returns the partition's response."""
        request = produce_request(topic, batch_of(values, **producer), partition=partition, acks=acks)
        return (await self.ask(request, 9)).responses[0].partition_responses[0]

    async def fetch(self, topic: str, offset: int, *, partition: int = 0, **options: int) -> Any:
        """Fetches without a session; returns the partition's data."""
        response = await self.ask(fetch_request(topic, offset, partition=partition, **options), 11)
        return response.responses[0].partitions[0]

    async def values(self, topic: str, offset: int = 0, *, partition: int = 0) -> list[bytes | None]:
        """All values from an offset to the high watermark."""
        records: list[bytes | None] = []
        while True:
            data = await self.fetch(topic, offset, partition=partition)
            assert data.error_code == 0
            batches = split_batches(data.records)
            if not batches:
                return records
            for header, batch in batches:
                records += [record.value for record in decode_batch(batch, header, from_offset=offset)]
                offset = header.next_offset
