"""Where audit events go: a file that is put aside when it is large, and the topic `__odradek_audit`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from odradek.broker.produce.record_validation import ValidationTerms, checked_batches
from odradek.broker.replicas.replica_manager import ReplicaManager
from odradek.cluster.image import ClusterImage, TopicImage
from odradek.cluster.planning import TopicSpec
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.records import BatchBuilder, Codec
from odradek.runtime.ports import DiskFile, Runtime
from odradek.security.audit import AUDIT_TOPIC, AuditEvent

_VERSION: Final = 9
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
    """Writes into the partitions of `__odradek_audit` that this broker leads: it needs no login at another one.

    The topic is made for the first event. While this broker leads none of its partitions, the events go nowhere: then a file
    beside it helps, or more partitions.
    """

    def __init__(
        self,
        image: Callable[[], ClusterImage],
        replicas: ReplicaManager,
        runtime: Runtime,
        create_topics: CreateTopics,
        *,
        me: BrokerId,
        partitions: int,
        retention_ms: int,
    ) -> None:
        self._image = image
        self._replicas = replicas
        self._runtime = runtime
        self._create_topics = create_topics
        self._me = me
        self._partitions = partitions
        self._retention_ms = retention_ms

    async def write(self, written: Sequence[AuditEvent]) -> None:
        """NOT_LEADER_OR_FOLLOWER where this broker leads no partition of the topic."""
        if AUDIT_TOPIC not in self._image().topics:
            await self._make()
        index = self._led()
        partition = self._replicas.leader(AUDIT_TOPIC, index)
        now_ms = self._runtime.clock.wall_ms()
        builder = BatchBuilder(Codec.NONE)
        for event in written:
            builder.append(event.time_ms, event.principal.encode() or None, event.line())
        terms = ValidationTerms(config=partition.config, api_version=_VERSION, now_ms=now_ms)
        leader = partition.leader()
        appended = leader.append(checked_batches(builder.build(), terms), now_ms=now_ms)
        durable = leader.acknowledgement(appended.last_offset)
        if durable is not None:
            await durable

    async def close(self) -> None:
        """The log is closed with the others."""

    def _led(self) -> int:
        topic = self._image().topics.get(AUDIT_TOPIC)
        for index, partition in enumerate(() if topic is None else topic.partitions):
            if partition.leader == self._me:
                return index
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {self._me} leads no partition of {AUDIT_TOPIC}: give it more partitions, or a file beside it",
        )

    async def _make(self) -> None:
        configs = {"retention.ms": str(self._retention_ms), "min.insync.replicas": "1"}
        spec = TopicSpec(name=AUDIT_TOPIC, partition_count=self._partitions, configs=configs)
        (outcome,) = await self._create_topics([spec])
        if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise outcome
