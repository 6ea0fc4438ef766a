"""The clients of this process: made once, lent to one task at a time, and used again.

Spark keeps its Python workers from task to task, so a connection outlives the task that needed it first. Lent, not shared:
a generator that Spark has given up on (a `LIMIT` was reached) may be closed long after the next task has begun, and must
not take that task's partition away.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar
from uuid import UUID

from odradek import client
from odradek.client.groups.values import OffsetAndMetadata, OffsetsToCommit
from odradek.client.network.errors import PartialFailureError
from odradek.client.settings.security_settings import OTHER_SPELLINGS
from odradek.client.settings.settings import AdminSettings, ConsumerSettings, ProducerSettings
from odradek.model.errors import ConfigError, ErrorCode, KafkaError, OdradekError
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.runtime import real_process

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.client import Admin, Consumer, Producer, TransactionIdentity

log: Final = logging.getLogger("odradek.spark")

IDLE_CLIENTS_MAX: Final = 8
"""The most clients of each kind that a process keeps open; beyond that, the one idle for longest is closed."""
READ_DEFAULTS: Final = {
    "auto.offset.reset": "none",
    "allow.auto.create.topics": "false",
    "fetch.max.wait.ms": "50",
}
"""`fetch.py` handles offsets outside the log, and a read creates no topics. The client fetches ahead, also beyond the end
of a range; a short wait there keeps such a fetch from delaying the next task's.
"""
MANY_RECORDS: Final = 8_192
BYTES_PER_FETCH: Final = 8 << 20
"""The size of a fetch for a range of many records: few, large answers. A small range would discard most of such an answer."""
_FREED_BYTES_HELD: Final = 64 << 20
"""Freed memory that a process keeps once it has read many records: what is received, what comes next, and their columns."""
WRITE_DEFAULTS: Final = {"batch.size": "262144", "linger.ms": "20"}
"""A task sends as fast as it can: large batches."""
TRANSACTION_DEFAULTS: Final = {"transaction.timeout.ms": "900000"}
"""The longest time-out that brokers allow by default: a transaction that times out after the decision is a lost batch."""
_NAMED_LATER: Final = "odradek-sink"
"""The transactional id of a sink's producer before its first transaction: it gets one for each transaction."""
_TWO_PHASE: Final = "transaction.two.phase.commit.enable"

COMMIT_TIMEOUT_S: Final = 3.0

_ISOLATION: Final = {"read_uncommitted": 0, "read_committed": 1}

ClientConfig = Mapping[str, str]
SettingsKey = tuple[tuple[str, str], ...]


class _Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closable)
K = TypeVar("K")
V = TypeVar("V")


class Pool(Generic[C]):
    """Idle clients of one kind, by their settings. `abandon` ends one that an error came out of. For any thread.

    The one that was used last is lent first: few clients do the work, and these know coordinators and topics.
    """

    def __init__(self, make: Callable[[ClientConfig], C], abandon: Callable[[C], None]) -> None:
        self._make = make
        self._abandon = abandon
        self._idle: deque[tuple[SettingsKey, C]] = deque()
        self._process = os.getpid()
        self._lock = threading.Lock()

    @contextmanager
    def lend(self, config: ClientConfig) -> Iterator[C]:
        """Lends a client for as long as the block runs."""
        key = tuple(sorted(config.items()))
        lent = self._reuse(key) or self._make(config)
        try:
            yield lent
        except GeneratorExit:  # Spark wants no more: the client is as good as before
            self._put(key, lent)
            raise
        except BaseException:
            self._abandon_quietly(lent)
            raise
        self._put(key, lent)

    def _reuse(self, key: SettingsKey) -> C | None:
        if self._process != os.getpid():  # sockets, threads and locks do not survive a fork
            self._process, self._idle, self._lock = os.getpid(), deque(), threading.Lock()
        with self._lock:
            for index in range(len(self._idle) - 1, -1, -1):
                settings, idle = self._idle[index]
                if settings == key:
                    del self._idle[index]
                    return idle
        return None

    def _put(self, key: SettingsKey, lent: C) -> None:
        with self._lock:
            self._idle.append((key, lent))
            surplus = self._idle.popleft()[1] if len(self._idle) > IDLE_CLIENTS_MAX else None
        if surplus is not None:
            self._abandon_quietly(surplus)

    def close(self) -> None:
        """Closes idle clients, but not those that a parent process opened."""
        if self._process == os.getpid():
            while self._idle:
                self._abandon_quietly(self._idle.popleft()[1])

    def _abandon_quietly(self, lent: C) -> None:
        try:
            self._abandon(lent)
        except Exception as error:  # noqa: BLE001 - the error that is on its way matters more than this one
            log.debug("a client did not close cleanly: %s", error)


class SerialExecutor:
    """One thread of this process, made when it is needed. The process does not end before its work is done."""

    def __init__(self) -> None:
        self._of_process: tuple[int, ThreadPoolExecutor] | None = None
        self._lock = threading.Lock()

    def submit(self, work: Callable[[], None]) -> None:
        with self._lock:
            of_process = self._of_process
            if of_process is None or of_process[0] != os.getpid():  # threads do not survive a fork
                of_process = self._of_process = os.getpid(), ThreadPoolExecutor(1, "odradek-errands")
        of_process[1].submit(work)


def _consumer(config: ClientConfig) -> Consumer:
    return client.Consumer.from_config({**READ_DEFAULTS, **config})


def _producer(config: ClientConfig) -> Producer:
    return client.Producer.from_config({**WRITE_DEFAULTS, **config})


def _admin(config: ClientConfig) -> Admin:
    known = {setting.key for setting in AdminSettings.settings.values()} | {
        "bootstrap.servers",
        *OTHER_SPELLINGS,
    }
    return client.Admin.from_config({key: value for key, value in config.items() if key in known})


_consumers: Final = Pool(_consumer, lambda consumer: consumer.close())
producer_pool: Final = Pool(_producer, lambda producer: producer.close(timeout_s=0))
_admins: Final = Pool(_admin, lambda admin: admin.close())
_errands: Final = SerialExecutor()
for _pool in (_consumers, producer_pool, _admins):
    atexit.register(_pool.close)


def check_read_settings(config: ClientConfig) -> None:
    """Raises ConfigError for a client setting that a read cannot have, before anything runs."""
    arguments = ConsumerSettings.arguments({**READ_DEFAULTS, **config})
    ConsumerSettings.of(arguments.pop("bootstrap_servers"), arguments)


def check_write_settings(config: ClientConfig) -> None:
    """Raises ConfigError for a client setting that a write cannot have, or that would lose records in silence."""
    arguments = ProducerSettings.arguments({**WRITE_DEFAULTS, **config})
    if ProducerSettings.of(arguments.pop("bootstrap_servers"), arguments).acks == 0:
        raise ConfigError("kafka.acks=0 would lose records in silence: a write waits for acknowledgement")


def close_idle() -> None:
    """Closes the clients of this process that nothing uses now."""
    for pool in (_consumers, producer_pool, _admins):
        pool.close()


@contextmanager
def reading(config: ClientConfig, record_count: int) -> Iterator[Consumer]:
    """A consumer with nothing assigned, fit for about `record_count` records of one partition."""
    if record_count >= MANY_RECORDS:
        config = {"max.partition.fetch.bytes": str(BYTES_PER_FETCH), **config}
        real_process.keep_freed_memory(_FREED_BYTES_HELD)
    with _consumers.lend(config) as consumer:
        try:
            yield consumer
        finally:
            consumer.assign([])


@contextmanager
def sending(config: ClientConfig) -> Iterator[Producer]:
    """A producer to send with. Leaving the block waits until all is acknowledged; DeliveryError when something was not."""
    with producer_pool.lend(config) as producer:
        yield producer
        producer.flush()


def transaction_timeout_s(config: ClientConfig) -> float:
    """Returns how long a task's transaction may be open; infinity with two-phase commit (KIP-939)."""
    if config.get(_TWO_PHASE, "").strip().lower() == "true":
        return float("inf")
    return float({**TRANSACTION_DEFAULTS, **config}["transaction.timeout.ms"]) / 1000


@dataclass(frozen=True, slots=True)
class TransactionalTask:
    """A task's transaction: `send_rows` to topics, then `prepare`."""

    send_rows: Callable[[str, pa.RecordBatch], None]
    partition_count: Callable[[str], int]
    prepare: Callable[[], TransactionIdentity]


@contextmanager
def preparing(
    config: ClientConfig, transactional_id: str, committed: TransactionIdentity | None = None
) -> Iterator[TransactionalTask]:
    """A transaction that outlives the block once it is prepared, and is aborted when the block fails before that.

    `committed`: the one before it under this id, if that is known to be committed: then no broker is asked how to go on.
    """
    with producer_pool.lend({**TRANSACTION_DEFAULTS, **config, "transactional.id": _NAMED_LATER}) as producer:
        producer.change_transactional_id(transactional_id)
        if committed is None or not producer.resume_transactions(committed):
            producer.init_transactions()
        producer.begin_transaction()

        def prepare() -> TransactionIdentity:
            producer.flush()
            return producer.prepare_transaction()

        yield TransactionalTask(
            send_rows=producer.send_arrow,
            partition_count=lambda topic: len(producer.partitions_for(topic)),
            prepare=prepare,
        )


@contextmanager
def administering(config: ClientConfig) -> Iterator[Admin]:
    """An admin client of the cluster that `config` leads to."""
    with _admins.lend(config) as admin:
        yield admin


def administer_soon(config: ClientConfig, work: Callable[[Admin], None]) -> None:
    """Runs `work` on a thread, after earlier work. Logs an error: no caller waits for the result."""

    def run() -> None:
        try:
            with administering(config) as admin:
                work(admin)
        except (OdradekError, OSError) as error:
            log.warning("what can wait was not done: %s", error)

    _errands.submit(run)


def committing(config: ClientConfig) -> Callable[[str, OffsetsToCommit], None]:
    """Returns a way to commit offsets of a consumer group that has no members; it waits for brokers no longer than 3 s."""

    def commit(group: str, offsets: OffsetsToCommit) -> None:
        with _admins.lend(config) as admin:
            admin.alter_group_offsets(group, offsets, timeout_s=COMMIT_TIMEOUT_S)

    return commit


class ClusterCatalog:
    """A `Catalog` of the cluster that `config` leads to."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._isolation = _ISOLATION.get(config.get("isolation.level", ""), 0)

    def topics(self) -> list[str]:
        with _admins.lend(self._config) as admin:
            return admin.list_topics()

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        with _admins.lend(self._config) as admin:
            descriptions = _existing(lambda: admin.describe_topics(topics))
        return {name: len(description.partitions) for name, description in descriptions.items()}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        with _admins.lend(self._config) as admin:
            descriptions = _existing(lambda: admin.describe_topics(topics))
        ids = {name: description.topic_id for name, description in descriptions.items()}
        return {name: topic_id for name, topic_id in ids.items() if topic_id != ZERO_UUID}

    def offsets(self, questions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        with _admins.lend(self._config) as admin:
            listed = _existing(lambda: admin.list_offsets(questions, isolation=self._isolation))
            if len(listed) < len(questions):
                # A partition that was just added or deleted: the admin's metadata may be minutes old.
                admin.describe_cluster()
                listed = _existing(lambda: admin.list_offsets(questions, isolation=self._isolation))
        return {partition: listing.offset for partition, listing in listed.items()}

    def committed(
        self, group: str, partitions: Iterable[TopicPartition], topic_ids: Mapping[str, UUID]
    ) -> dict[TopicPartition, int]:
        with _admins.lend(self._config) as admin:
            committed = admin.list_group_offsets(group, partitions, require_stable=True)
        offsets = {partition: offset for partition, offset in committed.items() if offset is not None}
        if not topic_ids:
            return {partition: offset.offset for partition, offset in offsets.items()}
        untied = sorted({at.topic for at, offset in offsets.items() if offset.topic_id == ZERO_UUID})
        present = self.topic_ids(untied) if untied else {}
        return {
            partition: offset.offset
            for partition, offset in offsets.items()
            if _is_of(offset, partition.topic, topic_ids, present)
        }


def _is_of(
    offset: OffsetAndMetadata, topic: str, wanted: Mapping[str, UUID], present: Mapping[str, UUID]
) -> bool:
    """Tells whether an offset is one of the topic with the wanted id, as far as is known.

    A broker that takes only names has answered for the topic that has the name at present.
    """
    known = offset.topic_id if offset.topic_id != ZERO_UUID else present.get(topic)
    return known is None or wanted.get(topic, known) == known


def _existing(ask: Callable[[], dict[K, V]]) -> dict[K, V]:
    """Returns the result of `ask`, without the topics and partitions that do not exist."""
    try:
        return ask()
    except PartialFailureError as failure:
        for error in failure.errors.values():
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise error from None
        return dict(failure.results)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return {}


def catalog(config: ClientConfig) -> ClusterCatalog:
    """Returns the cluster, as planning sees it."""
    return ClusterCatalog(config)
