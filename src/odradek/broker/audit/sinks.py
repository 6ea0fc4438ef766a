"""The destinations of audit events: a file that is rotated when it is large, and the topic `__odradek_audit`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from odradek.broker.cluster.peer_requests import SendToPeer
from odradek.broker.produce.own_records import OwnRecords
from odradek.broker.replicas.replica_manager import ReplicaManager
from odradek.cluster.image import NO_LEADER, ClusterImage, TopicImage
from odradek.cluster.planning import TopicSpec
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import BrokerId
from odradek.records import BatchBuilder, Codec
from odradek.runtime.ports import DiskFile, Runtime
from odradek.security.audit import AUDIT_TOPIC, AuditEvent

_TIMEOUT_S: Final = 5.0
"""A broker that stops waits for its last events, but no longer."""
CreateTopics = Callable[[Sequence[TopicSpec]], Awaitable[Sequence[TopicImage | KafkaError]]]


class AuditFileSink:
    """One JSON object a line. The file in use has the path; those put aside have `.1` (the newest) to `.N`."""

    def __init__(self, path: str, runtime: Runtime, *, bytes_max: int, count_max: int) -> None:
        self._path = path
        self._runtime = runtime
        self._bytes_max = bytes_max
        self._count_max = count_max
        self._file: DiskFile | None = None
        self._position = 0

    async def write(self, written: Sequence[AuditEvent]) -> None:
        data = b"".join(event.line() + b"\n" for event in written)
        await self._runtime.offload.run(self._append, data)

    async def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            await self._runtime.offload.run(_close, file)

    def _append(self, data: bytes) -> None:
        if self._file is not None and self._position + len(data) > self._bytes_max and self._position:
            self._put_aside()
        if self._file is None:
            self._file = self._runtime.disk.open(self._path, create=True)
            self._position = self._file.length()
        self._file.pwrite(data, self._position)
        self._position += len(data)

    def _put_aside(self) -> None:
        assert self._file is not None
        _close(self._file)
        self._file = None
        disk = self._runtime.disk
        last = f"{self._path}.{self._count_max}"
        if disk.exists(last):
            disk.remove(last)
        for number in range(self._count_max - 1, 0, -1):
            if disk.exists(f"{self._path}.{number}"):
                disk.rename(f"{self._path}.{number}", f"{self._path}.{number + 1}")
        disk.rename(self._path, f"{self._path}.1")


def _close(file: DiskFile) -> None:
    file.sync()
    file.close()


class AuditTopicSink:
    """Writes into a partition of `__odradek_audit` that this broker leads: that needs no login at another one. Where it leads
    none, the events go to a partition's leader, over the channel between brokers.

    The topic is made for the first event.
    """

    def __init__(
        self,
        image: Callable[[], ClusterImage],
        replicas: ReplicaManager,
        runtime: Runtime,
        create_topics: CreateTopics,
        send_to_peer: Callable[[], SendToPeer],
        *,
        me: BrokerId,
        partitions_min: int,
        retention_ms: int,
    ) -> None:
        self._image = image
        self._records = OwnRecords(
            replicas, runtime.clock, send_to_peer, what="audit events", timeout_s=_TIMEOUT_S
        )
        self._create_topics = create_topics
        self._me = me
        self._partitions_min = partitions_min
        self._retention_ms = retention_ms
        self._failed_sends = 0
        """The number of sends that failed. After each failure the next partition is tried."""

    async def write(self, written: Sequence[AuditEvent]) -> None:
        """Raises LEADER_NOT_AVAILABLE while no partition of the topic has a leader, PeerUnreachable, and the leader's error."""
        if AUDIT_TOPIC not in self._image().topics:
            await self._make()
        topic = self._image().topics.get(AUDIT_TOPIC)
        leaders = {} if topic is None else _leaders(topic)
        if topic is None or not leaders:
            raise KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"no partition of {AUDIT_TOPIC} has a leader now"
            )
        batch = _batch_of(written)
        for index, leader in leaders.items():
            if leader == self._me:
                await self._records.append(AUDIT_TOPIC, index, batch)
                return
        index = list(leaders)[(self._me + self._failed_sends) % len(leaders)]
        try:
            await self._records.send(topic, index, leaders[index], batch)
        except OdradekError:
            self._failed_sends += 1
            raise

    async def close(self) -> None:
        """The log is closed with the others."""

    async def _make(self) -> None:
        """Creates the topic with a partition for each current broker, so that each writes to its own."""
        configs = {"retention.ms": str(self._retention_ms), "min.insync.replicas": "1"}
        count = max(self._partitions_min, len(self._image().brokers))
        spec = TopicSpec(name=AUDIT_TOPIC, partition_count=count, configs=configs)
        (outcome,) = await self._create_topics([spec])
        if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise outcome


def _leaders(topic: TopicImage) -> dict[int, BrokerId]:
    """Returns the leader of each partition that has one, by partition index."""
    return {
        index: partition.leader
        for index, partition in enumerate(topic.partitions)
        if partition.leader != NO_LEADER
    }


def _batch_of(written: Sequence[AuditEvent]) -> bytearray:
    builder = BatchBuilder(Codec.NONE)
    for event in written:
        builder.append(event.time_ms, event.principal.encode() or None, event.line())
    return builder.build()
