"""Which transactional batches a partition takes, by what their coordinator says, and the error for each client version."""

from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

import pytest

from odradek.broker.produce.transaction_verification import TransactionVerification
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import LeaderEpoch, TopicPartition
from odradek.records import BatchBuilder, BatchHeader, split_batches
from odradek.replication.partition import Partition
from odradek.runtime.real import real_runtime
from odradek.storage.log.log import Log
from odradek.storage.producers.verification import UNVERIFIED
from odradek.transactions.verification import VerificationQuestion

NOW_MS = 1_700_000_000_000
PRODUCER = 7


class Coordinator:
    """Answers every question with one code, and remembers what it was asked."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.code = code
        self.asked: list[VerificationQuestion] = []

    async def verify(self, question: VerificationQuestion) -> Mapping[TopicPartition, ErrorCode]:
        self.asked.append(question)
        return dict.fromkeys(question.partitions, self.code)


class NoFlush:
    def request(self, partition: Partition) -> None: ...


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    name = TopicPartition("t", 0)
    log = Log.open(
        real_runtime(),
        str(tmp_path / "t-0"),
        LogConfig(),
        topic_partition=name,
        clean=True,
        recovery_point=0,
    )
    return Partition(name, UUID(int=1), log, LeaderEpoch(0), NoFlush())


def batch(
    sequence: int = 0, *, epoch: int = 0, producer_id: int = PRODUCER
) -> tuple[BatchHeader, memoryview]:
    builder = BatchBuilder()
    builder.append(NOW_MS, b"k", b"v")
    return split_batches(
        builder.build(
            producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
        )
    )[0]


async def admitted(partition: Partition, coordinator: Coordinator, version: int) -> TransactionVerification:
    admission = TransactionVerification(coordinator, "id", version)
    admission.add(partition, batch()[0], NOW_MS)
    await admission.verify()
    return admission


@pytest.mark.parametrize(("version", "adds"), [(9, False), (11, False), (12, True), (13, True)])
async def test_a_first_batch_is_asked_about_and_newer_clients_batches_join(
    partition: Partition, version: int, adds: bool
) -> None:
    coordinator = Coordinator()
    admission = await admitted(partition, coordinator, version)
    (question,) = coordinator.asked
    assert (question.transactional_id, question.producer_id, question.producer_epoch) == ("id", PRODUCER, 0)
    assert (question.partitions, question.adds) == ({partition.name}, adds)
    guard = admission.guard_of(partition)
    assert guard is not UNVERIFIED
    partition.leader().append([batch()], now_ms=NOW_MS, guard=guard)
    assert partition.ongoing_transaction(PRODUCER) == 0


async def test_a_batch_of_a_transaction_under_way_is_not_asked_about(partition: Partition) -> None:
    partition.leader().append([batch()], now_ms=NOW_MS)
    coordinator = Coordinator()
    admission = TransactionVerification(coordinator, "id", 9)
    admission.add(partition, batch(1)[0], NOW_MS)
    assert not admission.has_questions
    await admission.verify()
    assert coordinator.asked == []
    assert admission.guard_of(partition) is UNVERIFIED


@pytest.mark.parametrize(
    ("said", "version", "code"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 9, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 12, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
async def test_a_refusal_has_the_error_code_of_the_clients_version(
    partition: Partition, said: ErrorCode, version: int, code: ErrorCode
) -> None:
    admission = await admitted(partition, Coordinator(said), version)
    with pytest.raises(KafkaError) as refused:
        admission.guard_of(partition)
    assert refused.value.code is code


async def test_a_final_refusal_leaves_nothing_behind_and_a_passing_one_keeps_later_batches_back(
    partition: Partition,
) -> None:
    verifications = partition.log.producers.verifications
    await admitted(partition, Coordinator(ErrorCode.TRANSACTION_ABORTABLE), 11)
    assert not verifications.under_way
    await admitted(partition, Coordinator(ErrorCode.NOT_COORDINATOR), 11)
    assert list(verifications.under_way) == [PRODUCER]
    later = TransactionVerification(Coordinator(), "id", 11)
    later.add(partition, batch(1)[0], NOW_MS)
    await later.verify()
    with pytest.raises(KafkaError) as refused:
        partition.leader().append([batch(1)], now_ms=NOW_MS, guard=later.guard_of(partition))
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_an_answer_that_comes_behind_a_marker_is_worth_nothing(partition: Partition) -> None:
    admission = TransactionVerification(Coordinator(), "id", 11)
    admission.add(partition, batch()[0], NOW_MS)
    partition.leader().append_marker(
        PRODUCER, 0, is_commit=False, coordinator_epoch=0, transaction_version=1, now_ms=NOW_MS
    )
    await admission.verify()
    with pytest.raises(KafkaError) as refused:
        partition.leader().append([batch()], now_ms=NOW_MS, guard=admission.guard_of(partition))
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE


async def test_a_verification_that_leads_nowhere_is_forgotten_in_time(partition: Partition) -> None:
    producers = partition.log.producers
    await admitted(partition, Coordinator(ErrorCode.NOT_COORDINATOR), 11)
    producers.expire_idle_producers(NOW_MS + 999, 1000)
    assert producers.verifications.under_way
    producers.expire_idle_producers(NOW_MS + 1000, 1000)
    assert not producers.verifications.under_way


def test_two_producers_in_one_request_are_refused(partition: Partition) -> None:
    admission = TransactionVerification(Coordinator(), "id", 9)
    admission.add(partition, batch()[0], NOW_MS)
    with pytest.raises(KafkaError) as refused:
        admission.add(partition, batch(producer_id=8)[0], NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
