"""May a client's batch begin a transaction in a partition? Its coordinator is asked first (KIP-890).

A batch of a transaction that is under way in the partition needs no question. Any other is held, with all that its connection
sends after it, while the coordinator is asked: whether the partition was added to the transaction, or, for newer clients, to
add it. The guard that the partition gave before the question voids the answer if a marker comes first.
"""

from __future__ import annotations

from typing import Final

from odradek.model.errors import ErrorCode, ErrorContent, KafkaError
from odradek.records import BatchHeader
from odradek.replication.partition import Partition
from odradek.storage.producers.verification import UNVERIFIED, Guard
from odradek.transactions.verification import TransactionVerifier, VerificationQuestion

ADDS_PARTITIONS_SINCE_PRODUCE: Final = 12
_ABORTABLE_SINCE_PRODUCE: Final = 11
_COMES_BACK: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


class TransactionVerification:
    """The transactional batches of one Produce request: under which guard each may be appended, or why not."""

    def __init__(self, verifier: TransactionVerifier, transactional_id: str, api_version: int) -> None:
        self._verifier = verifier
        self._transactional_id = transactional_id
        self._version = api_version
        self._producer: tuple[int, int] | None = None
        self._guards: dict[Partition, Guard] = {}
        self._refused: dict[Partition, ErrorContent] = {}

    @property
    def has_questions(self) -> bool:
        return bool(self._guards)

    def add(self, partition: Partition, header: BatchHeader, now_ms: int) -> None:
        """Adds a batch that will be appended. Raises INVALID_PRODUCER_ID_MAPPING when the request has more
        than one producer."""
        if header.producer_id < 0:
            return
        producer = (header.producer_id, header.producer_epoch)
        if self._producer not in (None, producer):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"transactional id {self._transactional_id!r} has one producer, the request has batches of two",
            )
        self._producer = producer
        bumps_epoch = self._version >= ADDS_PARTITIONS_SINCE_PRODUCE
        guard = partition.leader().begin_verification(header, bumps_epoch=bumps_epoch, now_ms=now_ms)
        if guard is not None:
            self._guards[partition] = guard

    async def verify(self) -> None:
        """Sends all questions at once; `guard_of` tells the outcomes."""
        if self._producer is None or not self._guards:
            return
        partitions = {partition.name: partition for partition in self._guards}
        producer_id, producer_epoch = self._producer
        question = VerificationQuestion(
            transactional_id=self._transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            adds=self._version >= ADDS_PARTITIONS_SINCE_PRODUCE,
            partitions=frozenset(partitions),
        )
        answers = await self._verifier.verify(question)
        for name, code in answers.items():
            if code is not ErrorCode.NONE:
                self._refuse(partitions[name], code)

    def _refuse(self, partition: Partition, code: ErrorCode) -> None:
        assert self._producer is not None
        self._refused[partition] = _as_produce_error(partition, code, self._version)
        if code not in _COMES_BACK:
            partition.log.producers.verifications.refused(self._producer[0], self._guards[partition])

    def guard_of(self, partition: Partition) -> Guard:
        """Raises the coordinator's error against an append."""
        refused = self._refused.get(partition)
        if refused is not None:
            raise refused.error()
        return self._guards.get(partition, UNVERIFIED)


def _as_produce_error(partition: Partition, code: ErrorCode, version: int) -> ErrorContent:
    """Returns the error that Kafka sends to producers. A temporary one becomes NOT_ENOUGH_REPLICAS: on that every client, even
    one that does not expect coordinator errors in Produce, tries again without asking for metadata first.
    """
    known = code
    if code in _COMES_BACK and (
        code is not ErrorCode.CONCURRENT_TRANSACTIONS or version < ADDS_PARTITIONS_SINCE_PRODUCE
    ):
        known = ErrorCode.NOT_ENOUGH_REPLICAS
    elif code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE_PRODUCE:
        known = ErrorCode.INVALID_TXN_STATE
    return ErrorContent(
        code=known,
        message=f"{partition.name} could not join the transaction, its coordinator says: {code.name}",
    )
