"""The asynchronous consumer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from odradek.client.assignment import EARLIEST, LATEST
from odradek.client.consumer_core import ConsumerCore, Deserializer
from odradek.client.consumer_record import ConsumerRecord
from odradek.client.errors import ClientClosedError
from odradek.client.fetched import FetchedChunk
from odradek.client.offsets import OffsetAndTimestamp
from odradek.client.options import ConsumerOptions
from odradek.client.settings import ConsumerSettings
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Clock, Entropy

T = TypeVar("T")


class AsyncConsumer:
    """Reads partitions from one event loop.

        async with AsyncConsumer("127.0.0.1:9092", auto_offset_reset="earliest") as consumer:
            await consumer.assign([TopicPartition("flights", 0)])
            async for record in consumer:
                ...

    Consumer groups, and with them `subscribe`, are not part of this version. Settings are Kafka's, as keyword arguments;
    see `ConsumerSettings` for all of them.
    """

    def __init__(
        self,
        bootstrap_servers: str | list[str] | tuple[str, ...],
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        **settings: Unpack[ConsumerOptions],
    ) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._core = ConsumerCore(
            ConsumerSettings.of(bootstrap_servers, dict(settings)),
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            clock=clock,
            entropy=entropy,
            wake=self._wake,
        )

    @classmethod
    def from_config(cls, config: Mapping[str, object], **more: Any) -> Self:
        """From a mapping with Kafka's names: `{"bootstrap.servers": "...", "fetch.min.bytes": 1}`."""
        return cls(**ConsumerSettings.arguments(config), **more)

    async def start(self) -> None:
        """Begin to work on the running loop; other methods do so by themselves."""
        if self._closed:
            raise ClientClosedError("consumer")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._core.start()

    async def close(self) -> None:
        """Stop reading. Idempotent."""
        if not self._closed:
            self._closed = True
            await self._core.finish(ClientClosedError("consumer"))

    # -- where to read

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; those assigned already stay where they are, others begin by auto.offset.reset."""
        await self.start()
        self._core.want(self._core.assign(partitions))

    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions assigned."""
        return tuple(sorted(self._core.assignment.states))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at this offset."""
        self._core.seek(partition, offset)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on at the first record of these partitions, by default of all."""
        self._core.seek_all(partitions, EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on behind the last record of these partitions, by default of all."""
        self._core.seek_all(partitions, LATEST)

    async def seek_to_timestamp(
        self, timestamps_ms: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> None:
        """Go on at the first record not before each time (milliseconds since 1970), at the end if there is none."""
        await self.start()
        await self._core.seek_to_timestamp(timestamps_ms, LATEST, timeout_s)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`."""
        self._core.pause(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`."""
        self._core.pause(partitions, False)

    def paused(self) -> tuple[TopicPartition, ...]:
        """The partitions that are paused."""
        return tuple(sorted(tp for tp, state in self._core.assignment.states.items() if state.paused))

    async def position(self, partition: TopicPartition, timeout_s: float | None = None) -> int:
        """The offset of the next record to be returned; waits for it where it must be asked for first."""
        limit_s = self._core.patience_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._until(lambda: self._core.known_position(partition))
        except TimeoutError:
            raise self._core.no_position(partition, limit_s) from None

    # -- reading

    async def poll(self, timeout_s: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, at most max.poll.records or `max_records`; waits up to `timeout_s` for the first."""
        chunk = await self._next_chunk(timeout_s)
        return self._core.take(chunk, max_records or self._core.settings.max_poll_records) if chunk else []

    async def poll_arrow(self, timeout_s: float = 1.0, max_records: int = 100_000) -> Any:
        """Records of one partition as a pyarrow.RecordBatch, in order; without rows when none came in time.

        Columns: topic, partition, offset, timestamp (ms), timestamp_type (0 create, 1 append), key, value, headers.
        Whole record batches are taken, so there may be more than `max_records` rows when a single batch has more.
        """
        clock = self._core.clock
        deadline = clock.monotonic() + timeout_s
        while True:
            chunk = await self._next_chunk(max(0.0, deadline - clock.monotonic()))
            if chunk is None:
                return self._core.no_arrow()
            rows = self._core.take_arrow(chunk, max_records)
            if rows is not None:
                return rows

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Records for ever, one by one."""
        while True:
            for record in await self.poll():
                yield record

    # -- offsets

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that each partition holds."""
        return await self._ends(partitions, EARLIEST, timeout_s)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record that may be read (with read_committed: behind the last stable one)."""
        return await self._ends(partitions, LATEST, timeout_s)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record not before each time; None where there is none."""
        await self.start()
        return await self._core.offsets(timestamps_ms, timeout_s)

    async def partitions_for(self, topic: str, timeout_s: float | None = None) -> tuple[int, ...]:
        """The partitions of a topic, in order."""
        await self.start()
        limit_s = self._core.patience_s if timeout_s is None else timeout_s
        image = await self._core.cluster.metadata.topic(topic, limit_s)
        return tuple(range(len(image.partitions)))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _ends(
        self, partitions: Iterable[TopicPartition], end: int, timeout_s: float | None
    ) -> dict[TopicPartition, int]:
        await self.start()
        found = await self._core.offsets(dict.fromkeys(partitions, end), timeout_s)
        return {tp: answer.offset if answer is not None else 0 for tp, answer in found.items()}

    async def _next_chunk(self, timeout_s: float) -> FetchedChunk | None:
        await self.start()
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                return await self._until(self._core.next_chunk)
        except TimeoutError:
            return None

    async def _until(self, look: Callable[[], T | None]) -> T:
        """Wait for `look`, called with the assignment's lock held, to find something."""
        assignment = self._core.assignment
        while True:
            news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            tell = partial(_settle, news)
            with assignment.lock:
                found = look()
                if found is not None:
                    return found
                assignment.watch_for_news(tell)
            try:
                await news
            finally:
                with assignment.lock:
                    assignment.unwatch(tell)

    def _wake(self) -> None:
        if self._loop is not None:
            self._core.fetcher.turn_soon()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
