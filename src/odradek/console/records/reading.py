"""Reads records of a cluster for one principal: without a group, without a commit, within limits of time and memory.

A scan is a step: it reads until it has enough matches or met a limit, and returns where it stopped. The next step continues
there, so no reading outlives the request that wanted it. Everything here runs on the background loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from odradek.client.aio import AsyncConsumer, AsyncProducer
from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.client.consumer.unread_ages import unread_ages_ms
from odradek.console.records.decoding import DocumentReader, RecordDecoder
from odradek.console.records.filtering import NO_JSON, RecordFilter
from odradek.console.records.masking import RecordMasks
from odradek.dead_letters.topic import DeadLetterTopic
from odradek.model.aliases import ClientSettings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Clock

READINGS_MAX: Final = 4
"""The number of readings at the same time, for one principal; others wait."""
TAILS_MAX: Final = 8
STEP_S: Final = 2.5
STEP_BYTES_MAX: Final = 256 << 20
STEP_RECORDS_MAX: Final = 1_000_000
KEPT_BYTES_MAX: Final = 32 << 20
"""The bytes of the matches of one step: a page of records of 10 MB is shorter."""
CALL_S: Final = 8.0
AGES_S: Final = 10.0
"""The time for the ages of unread records of many groups."""
_POLL_S: Final = 0.25
_POLL_RECORDS: Final = 2_000
_SETTINGS: Final[Mapping[str, object]] = {
    "enable_auto_commit": False,
    "allow_auto_create_topics": False,
    "auto_offset_reset": "earliest",
    "fetch_max_bytes": 8 << 20,
    "max_partition_fetch_bytes": 1 << 20,
    "prefetch_max_bytes": 16 << 20,
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanStart:
    """The start of a scan; `kind` is beginning, last, offset, time, or positions."""

    kind: str = "last"
    number: int = 0
    """The offset, the milliseconds, or the number of records."""
    positions: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ScanStep:
    """What one step of a scan saw."""

    records: list[ConsumerRecord] = field(default_factory=list)
    """The matches, in the order in which they came."""
    scanned: int = 0
    scanned_bytes: int = 0
    until_ms: int = -1
    """The latest timestamp that was looked at."""
    positions: dict[int, int] = field(default_factory=dict)
    """The offset at which the next step continues, by partition."""
    left: int = 0
    """The number of offsets that were not looked at, up to the end now."""
    undecoded: int = 0
    """The number of values with a schema's id that no condition could test, since they were not decoded."""
    problem: str = ""
    """The reason why the first of them was not decoded; empty without one."""

    @property
    def is_complete(self) -> bool:
        return self.left == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSight:
    """What may be seen of records: the rules that hide parts, and the schemas by which values are read before that."""

    masks: RecordMasks = field(default_factory=RecordMasks)
    decoder: RecordDecoder | None = None

    async def of(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Returns the records as they may be seen."""
        if not any(map(self.masks.concerns, records)):
            return records
        return await asyncio.to_thread(self._masked, records)

    def documents(self) -> DocumentReader | None:
        """Returns what reads values by their schemas in a search; None without a registry."""
        return None if self.decoder is None or not self.decoder.has_registry else self.decoder.documents()

    def searched(self, record: ConsumerRecord, documents: DocumentReader | None) -> ConsumerRecord:
        """Returns a record as a search may test it: masked, with a value that a schema reads as JSON."""
        if documents is None or not self.masks.concerns(record):
            return self.masks.masked(record)
        document = documents.document(record.value, is_masked=True)
        if document is NO_JSON:
            return self.masks.masked(record)
        try:
            decoded = json.dumps(document, ensure_ascii=False).encode(errors="replace")
        except (ValueError, RecursionError):
            return self.masks.masked(record)
        return self.masks.masked(record, decoded)

    def _masked(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        if self.decoder is None:
            return [self.masks.masked(record) for record in records]
        hidden = [record.value for record in records if self.masks.concerns(record)]
        page = self.decoder.decode(hidden)
        shown: list[ConsumerRecord] = []
        for record in records:
            decoded = page.of(record.value)
            shown.append(self.masks.masked(record, None if decoded is None else decoded.content))
        return shown


class RecordTail:
    """The records that arrive from now on."""

    def __init__(self, consumer: AsyncConsumer, sight: RecordSight, on_close: Callable[[], None]) -> None:
        self._consumer = consumer
        self._sight = sight
        self._on_close = on_close
        self._is_closed = False

    async def poll(self, timeout_s: float, shown_max: int) -> tuple[int, list[ConsumerRecord]]:
        """Returns how many records have arrived, and the last of them; none after the time."""
        records = await self._consumer.poll(timeout_s, _POLL_RECORDS)
        return len(records), await self._sight.of(records[-shown_max:])

    async def close(self) -> None:
        """Stops reading. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._on_close()
            await self._consumer.close(commit=False)


class RecordSieve(Protocol):
    """What a scan looks for, such as a `RecordFilter`."""

    def test(self) -> Callable[[ConsumerRecord], bool]:
        """Returns a function that tells whether a record is wanted."""


class ClusterReader:
    """Makes consumers and producers with the principal's own login. Records leave it as they may be seen."""

    def __init__(
        self, bootstrap: str, settings: ClientSettings, clock: Clock, sight: RecordSight | None = None
    ) -> None:
        self._bootstrap = bootstrap
        self._settings = settings
        self._clock = clock
        self._sight = sight or RecordSight()
        self._slots = asyncio.Semaphore(READINGS_MAX)
        self._tails = 0

    @asynccontextmanager
    async def _consumer(self, *, committed: bool) -> AsyncIterator[AsyncConsumer]:
        consumer = self._made(committed=committed)
        try:
            yield consumer
        finally:
            await consumer.close(commit=False)

    def _made(self, *, committed: bool) -> AsyncConsumer:
        level = "read_committed" if committed else "read_uncommitted"
        return AsyncConsumer(self._bootstrap, isolation_level=level, **{**self._settings, **_SETTINGS})

    async def scan(
        self,
        topic: str,
        partitions: list[int],
        start: ScanStart,
        wanted: RecordSieve,
        *,
        matches_max: int,
        committed: bool = True,
    ) -> ScanStep:
        """Reads one step: until `matches_max` records match, all was seen, or a limit is met."""
        async with self._slots, self._consumer(committed=committed) as consumer:
            places = [TopicPartition(topic, number) for number in partitions]
            ends = await consumer.end_offsets(places, CALL_S)
            first = await _first_offsets(consumer, places, start, ends)
            run = _Step(self._clock, wanted, matches_max, self._sight)
            await run.read(consumer, {tp: at for tp, at in first.items() if at < ends[tp]}, ends)
            run.step.positions = {
                tp.partition: run.positions.get(tp, max(at, ends[tp])) for tp, at in first.items()
            }
            run.step.left = sum(max(0, ends[tp] - run.step.positions[tp.partition]) for tp in places)
            run.step.records = await self._sight.of(run.step.records)
            return run.step

    async def record(self, tp: TopicPartition, offset: int) -> ConsumerRecord:
        """Returns one record. KafkaError with OFFSET_OUT_OF_RANGE if the partition has none at the offset."""
        async with self._slots, self._consumer(committed=False) as consumer:
            ends = await consumer.end_offsets([tp], CALL_S)
            begins = await consumer.beginning_offsets([tp], CALL_S)
            if begins[tp] <= offset < ends[tp]:
                await consumer.assign([tp])
                consumer.seek(tp, offset)
                consumer.stop_at(tp, offset + 1)
                deadline_s = self._clock.monotonic() + CALL_S
                while (left_s := deadline_s - self._clock.monotonic()) > 0:
                    records = await consumer.poll(min(left_s, _POLL_S), 1)
                    if records:
                        if records[0].offset == offset:
                            return (await self._sight.of(records[:1]))[0]
                        break
                    if consumer.positions().get(tp, offset) > offset:
                        break
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{tp} has no record at offset {offset}: it was removed or compacted",
        )

    async def unread_ages_ms(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns the age of the first record at or after each position; only of records that arrive in time."""
        if not positions:
            return {}
        async with self._slots, self._consumer(committed=False) as consumer:
            return await unread_ages_ms(consumer, positions, self._clock)

    async def unread_ages_of(
        self, rounds: Sequence[Mapping[TopicPartition, int]]
    ) -> list[dict[TopicPartition, int]]:
        """Returns the ages at the positions of each round, with one consumer; rounds after a limit of time are left out."""
        ages: list[dict[TopicPartition, int]] = []
        async with self._slots, self._consumer(committed=False) as consumer:
            deadline_s = self._clock.monotonic() + AGES_S
            for positions in rounds:
                if self._clock.monotonic() >= deadline_s:
                    break
                ages.append(await unread_ages_ms(consumer, positions, self._clock))
        return ages

    async def with_dead_letters(
        self, topic: str, work: Callable[[DeadLetterTopic], T], *, as_stored: bool = False
    ) -> T:
        """Calls `work` with a dead-letter topic, on a thread of its own. `as_stored`: for a redrive, which shows nothing."""
        view = None if as_stored else self._sight.masks.masked

        def call() -> T:
            with DeadLetterTopic(self._bootstrap, topic, view=view, **self._settings) as letters:
                return work(letters)

        async with self._slots:
            return await asyncio.to_thread(call)

    async def tail(self, topic: str, partitions: list[int]) -> RecordTail:
        """Returns a reader at the end of these partitions, which must be closed. KafkaError if there are too many."""
        if self._tails >= TAILS_MAX:
            line = f"{TAILS_MAX} live tails are open: close one of them first"
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, line)
        self._tails += 1
        consumer = self._made(committed=True)
        tail = RecordTail(consumer, self._sight, self._tail_is_closed)
        try:
            await consumer.assign([TopicPartition(topic, number) for number in partitions])
            consumer.seek_to_end()
        except BaseException:
            await tail.close()
            raise
        return tail

    def _tail_is_closed(self) -> None:
        self._tails -= 1

    async def produce(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None,
        headers: list[tuple[str, bytes | None]],
        partition: int | None,
    ) -> tuple[TopicPartition, int]:
        """Writes one record, and returns its partition and offset."""
        settings = {
            name: setting for name, setting in self._settings.items() if name != "default_api_timeout_ms"
        }
        producer = AsyncProducer(
            self._bootstrap, delivery_timeout_ms=10_000, request_timeout_ms=8_000, linger_ms=0, **settings
        )
        try:
            async with asyncio.timeout(2 * CALL_S):
                written = await producer.send_and_wait(
                    topic, value, key=key, headers=headers, partition=partition
                )
        finally:
            await producer.close(1.0)
        return TopicPartition(topic, written.partition), written.offset


async def _first_offsets(
    consumer: AsyncConsumer,
    places: list[TopicPartition],
    start: ScanStart,
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    begins = await consumer.beginning_offsets(places, CALL_S)
    if start.kind == "last":
        return {tp: max(begins[tp], ends[tp] - start.number) for tp in places}
    if start.kind == "offset":
        return {tp: max(begins[tp], start.number) for tp in places}
    if start.kind == "positions":
        return {tp: max(begins[tp], start.positions.get(tp.partition, ends[tp])) for tp in places}
    if start.kind == "time":
        at = await consumer.offsets_for_times(dict.fromkeys(places, start.number), CALL_S)
        offsets = {tp: hit.offset for tp, hit in at.items() if hit is not None and hit.offset >= 0}
        return {tp: max(begins[tp], offsets.get(tp, ends[tp])) for tp in places}
    return {tp: begins[tp] for tp in places}


class _Step:
    """One step of a scan while it runs."""

    def __init__(self, clock: Clock, wanted: RecordSieve, matches_max: int, sight: RecordSight) -> None:
        self.step: Final = ScanStep()
        self.positions: dict[TopicPartition, int] = {}
        self._clock = clock
        condition = wanted.condition if isinstance(wanted, RecordFilter) else None
        self._documents = documents = sight.documents() if sight.masks or condition is not None else None
        if documents is not None and isinstance(wanted, RecordFilter):
            test: Callable[[ConsumerRecord], bool] = wanted.test(documents.document)
        else:
            test = wanted.test()
        self._test = (lambda record: test(sight.searched(record, documents))) if sight.masks else test
        self._matches_max = matches_max
        self._kept_bytes = 0

    async def read(
        self, consumer: AsyncConsumer, first: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> None:
        if not first:
            return
        await consumer.assign(first)
        for tp, offset in first.items():
            consumer.seek(tp, offset)
            consumer.stop_at(tp, ends[tp])
        self.positions = dict(first)
        limits = {tp.partition: end for tp, end in ends.items()}
        deadline_s = self._clock.monotonic() + STEP_S
        while any(self.positions[tp] < ends[tp] for tp in first):
            left_s = deadline_s - self._clock.monotonic()
            if left_s <= 0 or self._is_over():
                return
            records = await consumer.poll(min(left_s, _POLL_S), _POLL_RECORDS)
            fresh = [record for record in records if record.offset < limits[record.partition]]
            if not await self._sifted(fresh):
                return
            self.positions.update(consumer.positions())  # past markers of transactions, too
            await asyncio.sleep(0)

    async def _sifted(self, records: list[ConsumerRecord]) -> bool:
        """Tests the records of a poll: on a thread where schemas are read from a registry, which blocks."""
        if self._documents is None:
            return self._sift(records)
        goes_on = await asyncio.to_thread(self._sift, records)
        self.step.undecoded, self.step.problem = self._documents.undecoded, self._documents.page.problem
        return goes_on

    def _is_over(self) -> bool:
        step = self.step
        is_large = step.scanned_bytes >= STEP_BYTES_MAX or step.scanned >= STEP_RECORDS_MAX
        return is_large or len(step.records) >= self._matches_max or self._kept_bytes >= KEPT_BYTES_MAX

    def _sift(self, records: list[ConsumerRecord]) -> bool:
        """Tests the records of a poll; returns False if the step was over before the last of them."""
        step, test = self.step, self._test
        seen = records[: STEP_RECORDS_MAX - step.scanned]
        for index, record in enumerate(seen):
            if test(record):
                step.records.append(record)
                self._kept_bytes += _size(record)
                if self._is_over():
                    seen = seen[: index + 1]
                    break
        if seen:
            step.scanned += len(seen)
            step.scanned_bytes += sum(map(_size, seen))
            step.until_ms = max(step.until_ms, *[record.timestamp_ms for record in seen])
            last = {record.partition: record.offset for record in seen}
            topic = seen[0].topic
            self.positions |= {TopicPartition(topic, number): offset + 1 for number, offset in last.items()}
        return len(seen) == len(records)


def _size(record: ConsumerRecord) -> int:
    return len(record.value or b"") + len(record.key or b"")
