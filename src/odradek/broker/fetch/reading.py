"""Reads the partitions of a fetch, within its limits.

A consumer reads below the high watermark, or with read_committed below the last stable offset, of a leader
or, when it is new enough to know of this, of a follower, whose high watermark and last stable offset may be
lower (KIP-392). A follower reads up to the end of the leader's log. The offset that it reads from tells the
leader what it has made durable. No quota and no limit on what clients leave unread holds it back, for what it
has not got is not acknowledged either. That limit is one of memory: a large read, which is sent from a
mapping of the file, is found however much others leave unread.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.broker.produce.record_validation import ZSTD_SINCE_FETCH
from odradek.broker.requests.context import BrokerContext, RequestContext
from odradek.broker.requests.throttling import fetch_bytes_max
from odradek.broker.sessions.fetch_sessions import PartitionKey, RequestedPartition
from odradek.cluster.image import BrokerImage
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.protocol.acls import AclOperation, AclResourceType
from odradek.protocol.messages.data.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchRequest,
    PartitionData,
)
from odradek.replication.partition import Partition
from odradek.runtime.mapped_range import is_mapped
from odradek.runtime.turns import in_one_go
from odradek.storage.files.at_hand import Missing, ReadProgress

_UNBOUNDED: Final = 1 << 62
_SINCE_RACKS: Final = 11
_READ_COMMITTED: Final = 1
_LOOKS_FOR_COLD: Final = 6
COPIED_BYTES_MAX: Final = 1024 * 1024
_ALL_COPIED_BYTES_MAX: Final = 4 * 1024 * 1024
"""The bytes that a fetch over TLS reads of one partition, and of all, on the event loop: it cannot be sent from the file."""
"""The end of a segment and its index, which say whether to believe the index; a place in the log; the batches there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchingBroker:
    """A follower, as its fetch introduces it."""

    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Result:
    """One partition's part of the response, and whether it is worth sending."""

    key: PartitionKey
    data: PartitionData
    has_records: bool
    has_news: bool


def fetching_broker(broker: BrokerContext, broker_id: int, broker_epoch: int) -> FetchingBroker:
    """Returns the follower. Raises STALE_BROKER_EPOCH unless it is registered with that epoch, as far as this broker knows."""
    known = None
    for broker_image in broker.image.brokers:
        if broker_image.broker_id == broker_id:
            known = broker_image.epoch
            break
    if broker_epoch != known:  # a later one, of which we have not heard yet, comes again soon
        what = "is not registered" if known is None else f"has epoch {known}"
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} {what}, as far as this broker knows; the request says {broker_epoch}",
        )
    return FetchingBroker(broker_id=BrokerId(broker_id), broker_epoch=broker_epoch)


def session_owner(follower: FetchingBroker) -> str:
    """Returns the owner of a follower's fetch session: another incarnation does not continue it."""
    return f"broker {follower.broker_id} in epoch {follower.broker_epoch}"


def partition_for_follower(
    broker: BrokerContext, wanted: RequestedPartition, follower: FetchingBroker
) -> Partition:
    """Returns the partition, if this broker leads it in the epoch that the follower names, and the follower has a replica.
    Raises what refuses it."""
    key, replicas = wanted.key, broker.replicas
    partition = (
        replicas.leader(key.topic, key.partition)
        if key.topic
        else replicas.leader_by_id(key.topic_id, key.partition)
    )
    partition.check_leader_epoch(wanted.current_leader_epoch)
    partition.leader().check_follower(
        follower.broker_id, follower.broker_epoch, knows_epoch=wanted.current_leader_epoch >= 0
    )
    return partition


class FetchReader:
    """Reads what a plan wants; may be run again when more has arrived."""

    def __init__(
        self,
        broker: BrokerContext,
        context: RequestContext,
        request: FetchRequest,
        wanted: Sequence[RequestedPartition],
        follower: FetchingBroker | None,
        *,
        is_noted: bool = False,
    ) -> None:
        """`is_noted`: what the follower's request acknowledges was noted before."""
        self.follower = follower
        self.committed_only = request.isolation_level == _READ_COMMITTED and follower is None
        self.found_bytes = 0
        self.has_news = False
        self.partitions: dict[Partition, RequestedPartition] = {}
        """The partitions that could be read."""
        self._broker = broker
        self._context = context
        self._wanted = wanted
        knows_racks = context.api_version >= _SINCE_RACKS
        self._may_read_followers = knows_racks and follower is None
        self._rack = request.rack_id if knows_racks else ""
        self._max_bytes = min(request.max_bytes, broker.config.server.fetch_max_bytes)
        if broker.quotas.active and follower is None:
            self._max_bytes = min(self._max_bytes, fetch_bytes_max(broker, context))
        self._sends_uncopied = context.connection.sends_uncopied
        if not self._sends_uncopied:
            self._max_bytes = min(self._max_bytes, _ALL_COPIED_BYTES_MAX)
        self._memory_room_bytes = 0
        """The bytes that may be read into memory. What is sent from a mapping takes none."""
        self._is_first = not is_noted
        self._looks_left = _LOOKS_FOR_COLD
        self._beside: ReadProgress | None = None
        self.traced: list[tuple[Partition, int, int]] = []
        """The ranges of offsets, of partitions with traced records, that were read."""
        self.cold: list[Missing] = []
        """Data that is only on the disk: another thread must load it (`bring`) before it is read here."""

    def bring(self) -> None:
        """Loads what is in `cold`; blocks, on any thread. The next `read` may find more to load, which an index refers to."""
        assert self._beside is not None
        for missing in self.cold:
            self._beside.do(missing)

    def prepare_retry(self) -> None:
        """Prepares the next `read` after a wait: records that were loaded before may have left the memory since."""
        self._looks_left = _LOOKS_FOR_COLD
        self._beside = None

    def read(self, wanted: Sequence[RequestedPartition] | None = None) -> list[Result]:
        """Reads the partitions that the request wants, in order. `wanted` replaces them for this read and later ones."""
        if wanted is not None:
            self._wanted = wanted
        self._begin()
        if self._is_first:
            self._is_first = False
            if self.follower is not None:
                in_one_go(self._note_follower(self.follower))
        return [self._read_one(wanted) for wanted in self._wanted]

    def read_steps(self) -> Generator[None, None, list[Result]]:
        """Does what `read` does for many partitions; yields between them."""
        self._begin()
        if self._is_first:
            self._is_first = False
            if self.follower is not None:
                yield from self._note_follower(self.follower)
        results = []
        for wanted in self._wanted:
            yield
            results.append(self._read_one(wanted))
        return results

    def _begin(self) -> None:
        self.found_bytes = 0
        self.has_news = False
        self.partitions = {}
        self.cold = []
        self.traced = []
        self._looks_left -= 1
        self._memory_room_bytes = self._broker.answer_room_bytes() if self.follower is None else _UNBOUNDED

    def _note_follower(self, follower: FetchingBroker) -> Generator[None, None, None]:
        """Notes the follower's progress in all partitions before any is read: the answer has the marks that result from it."""
        now = self._broker.runtime.clock.monotonic()
        for wanted in self._wanted:
            yield
            try:
                partition = self._partition(wanted)
                if divergence(partition, wanted) is None:
                    check_range(partition, wanted.fetch_offset)
                    partition.leader().follower_fetched(
                        follower.broker_id,
                        follower.broker_epoch,
                        wanted.fetch_offset,
                        now,
                        start_offset=wanted.log_start_offset,
                    )
            except KafkaError:  # it comes up again when the partition is read
                continue

    def _read_one(self, wanted: RequestedPartition) -> Result:
        try:
            data = self._data(wanted)
        except KafkaError as error:
            self.has_news = True
            return Result(wanted.key, failed(wanted.key.partition, error), False, True)
        size_bytes = len(data.records) if data.records is not None else 0
        self.found_bytes += size_bytes
        is_news = data.diverging_epoch.epoch != -1 or data.preferred_read_replica != -1
        self.has_news = self.has_news or is_news
        return Result(wanted.key, data, size_bytes > 0, is_news)

    def _check_access(self, key: PartitionKey) -> None:
        """Each time that it is read: access may have ended while the fetch waited, or since its session began."""
        access = self._context.access
        if access is None:
            return
        name = key.topic
        if not name:
            topic = self._broker.image.topics_by_id.get(key.topic_id)
            if topic is None:
                return  # the response reports an unknown topic
            name = topic.name
        if not access.may(AclOperation.READ, AclResourceType.TOPIC, name):
            raise KafkaError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                f"topic {name!r} may not be read: the client needs READ on it",
            )

    def _partition(self, wanted: RequestedPartition) -> Partition:
        if self.follower is not None:
            return partition_for_follower(self._broker, wanted, self.follower)
        key = wanted.key
        self._check_access(key)
        replicas = self._broker.replicas
        if self._may_read_followers:
            partition = (
                replicas.replica(key.topic, key.partition)
                if key.topic
                else replicas.replica_by_id(key.topic_id, key.partition)
            )
            partition.check_has_role()
        else:
            partition = (
                replicas.leader(key.topic, key.partition)
                if key.topic
                else replicas.leader_by_id(key.topic_id, key.partition)
            )
        partition.check_leader_epoch(wanted.current_leader_epoch)
        return partition

    def _data(self, wanted: RequestedPartition) -> PartitionData:
        partition = self._partition(wanted)
        index = wanted.key.partition
        if partition.config.compression_type == "zstd" and self._context.api_version < ZSTD_SINCE_FETCH:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                "this topic is compressed with zstd: use Fetch version 10 or newer",
            )
        none: list[AbortedTransaction] | None = [] if self.committed_only else None
        if self._rack and (preferred := self._preferred(partition, wanted)) is not None:
            return _found(partition, index, b"", none).replace(preferred_read_replica=preferred)
        self.partitions[partition] = wanted
        diverging = divergence(partition, wanted)
        if diverging is not None:
            return _found(partition, index, b"", none, diverging)
        throttled = self.follower is not None and self._is_throttled(partition, wanted)
        if throttled and self._is_held_back(partition):
            del self.partitions[partition]  # nor does it wake waiters
            return _found(partition, index, b"", none)
        end_offset = self._end_offset(partition)
        limit = min(wanted.max_bytes, self._max_bytes - self.found_bytes)
        if not self._sends_uncopied:
            limit = min(limit, self._memory_room_bytes, COPIED_BYTES_MAX)
        at_least_one = self.found_bytes == 0 and (self._memory_room_bytes > 0 or self._sends_uncopied)
        check_range(partition, wanted.fetch_offset)
        is_at_end = wanted.fetch_offset >= end_offset or (limit <= 0 and not at_least_one)
        if is_at_end or (self._looks_left >= 0 and self._is_cold(partition, wanted.fetch_offset, limit)):
            return _found(partition, index, b"", none)
        doubted = self.follower is not None and self._is_doubted(partition, wanted.fetch_offset)
        read = partition.log.read(
            wanted.fetch_offset,
            max(limit, 0),
            end_offset=end_offset,
            at_least_one=at_least_one,
            to_send=self._sends_uncopied and not doubted,
        )
        if not is_mapped(read.records):
            if self._memory_room_bytes <= 0:
                return _found(partition, index, b"", none)
            self._memory_room_bytes -= len(read.records)
        if doubted:
            partition.log.verify(read)
        if throttled:
            now = self._broker.runtime.clock.monotonic()
            self._broker.replicas.leader_throttle.copied(len(read.records), now)
        aborted = _aborted(partition, wanted.fetch_offset, read.next_offset) if self.committed_only else None
        self._note_traced(partition, wanted.fetch_offset, read.next_offset)
        return _found(partition, index, read.records, aborted)

    def _note_traced(self, partition: Partition, start_offset: int, end_offset: int) -> None:
        traces = self._broker.traces
        if traces is not None and traces.remembers(partition):
            self.traced.append((partition, start_offset, end_offset))

    def trace(self) -> None:
        """Makes spans of the traced records that were read last: they are what is answered."""
        traces = self._broker.traces
        if traces is None or not self.traced:
            return
        context = self._context
        for partition, start_offset, end_offset in self.traced:
            traces.fetched(
                partition,
                [(start_offset, end_offset)],
                began=context.connection.figures.arrived_at,
                client_id=context.client_id,
                by="consumer" if self.follower is None else "replica",
            )

    def _is_cold(self, partition: Partition, fetch_offset: int, limit: int) -> bool:
        """Tells whether it must be loaded first. It counts as found, so that no more is loaded than one answer takes."""
        if self._beside is None:
            self._beside = ReadProgress()
        missing = partition.log.not_at_hand(fetch_offset, max(limit, 0), self._beside)
        if missing is None:
            return False
        self.cold.append(missing)
        self.found_bytes += missing.size_bytes
        return True

    def _is_doubted(self, partition: Partition, fetch_offset: int) -> bool:
        """Tells whether the follower was sent these records before: it did not get them, or they are not sound."""
        known = None if self.follower is None else partition.leader().followers.get(self.follower.broker_id)
        if known is None:
            return False
        was_sent, known.sent_from = known.sent_from == fetch_offset, fetch_offset
        return was_sent

    def _is_throttled(self, partition: Partition, wanted: RequestedPartition) -> bool:
        """Tells whether copying it is slowed down (KIP-73)."""
        throttle = self._broker.replicas.leader_throttle
        return throttle.is_active and throttle.covers(
            wanted.key.partition, partition.config.leader_replication_throttled_replicas
        )

    def _is_held_back(self, partition: Partition) -> bool:
        """Tells whether too much was copied lately, and the follower has no place in the ISR to lose."""
        state = partition.state
        if self.follower is None or (state is not None and self.follower.broker_id in state.isr):
            return False
        return self._broker.replicas.leader_throttle.pause_s(self._broker.runtime.clock.monotonic()) > 0

    def _end_offset(self, partition: Partition) -> int:
        if self.follower is not None:
            return partition.log.end_offset
        return partition.last_stable_offset if self.committed_only else partition.high_watermark

    def _preferred(self, partition: Partition, wanted: RequestedPartition) -> BrokerId | None:
        if self._broker.config.replication.replica_selector_class != RACK_AWARE or not partition.is_leader:
            return None
        return preferred_replica(
            partition, self._broker.image.brokers, rack=self._rack, fetch_offset=wanted.fetch_offset
        )


def _aborted(partition: Partition, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
        for producer_id, first_offset in partition.log.aborted_transactions(start_offset, end_offset)
    ]


def check_range(partition: Partition, offset: int) -> None:
    """Raises OFFSET_OUT_OF_RANGE unless the offset is between the log's start and its end. Between the high watermark and the
    end there is nothing to read yet."""
    if not partition.start_offset <= offset <= partition.log.end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition.name} holds offsets {partition.start_offset} to {partition.high_watermark}, not {offset}",
        )


def divergence(partition: Partition, wanted: RequestedPartition) -> EpochEndOffset | None:
    """Returns the epoch and offset after which the client's log differs from ours; None if its last fetched epoch agrees."""
    if wanted.last_fetched_epoch < 0:
        return None
    epoch, end_offset = partition.log.epoch_end_offset(wanted.last_fetched_epoch)
    if end_offset < 0:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition.name} knows no leader epoch {wanted.last_fetched_epoch} after which to go on",
        )
    if epoch == wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
        return None
    return EpochEndOffset(epoch=epoch, end_offset=end_offset)


def _found(
    partition: Partition,
    index: int,
    records: bytes | bytearray | memoryview,
    aborted: list[AbortedTransaction] | None,
    diverging: EpochEndOffset | None = None,
) -> PartitionData:
    data = PartitionData(
        partition_index=index,
        error_code=ErrorCode.NONE,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.start_offset,
        aborted_transactions=aborted,
        records=records,
    )
    return data if diverging is None else data.replace(diverging_epoch=diverging)


def failed(index: int, error: KafkaError) -> PartitionData:
    """Returns the answer for a partition that cannot be read."""
    return PartitionData(
        partition_index=index,
        error_code=error.code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The one `replica.selector.class`."""


def preferred_replica(
    partition: Partition, brokers: Iterable[BrokerImage], *, rack: str, fetch_offset: int
) -> BrokerId | None:
    """Returns a follower in the consumer's rack that has the offset and is in sync; None when it should stay with this leader.

    A follower that lags would be chosen again and again, and the consumer would lag with it. Of several
    followers, the one with the highest end offset is chosen.
    """
    followers = partition.leader().followers
    if not rack or not followers or partition.state is None:
        return None
    near = {broker.broker_id for broker in brokers if broker.rack == rack}
    if partition.state.leader in near:
        return None
    fit = [
        (follower.end_offset, -broker)
        for broker, follower in followers.items()
        if broker in near
        and broker in partition.state.isr
        and 0 <= follower.start_offset <= fetch_offset <= follower.end_offset
    ]
    return BrokerId(-max(fit)[1]) if fit else None
