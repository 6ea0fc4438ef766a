"""What follows a decision: markers until every partition has its own, then completion; whatever goes wrong on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.transactions.finisher import Finisher
from odradek.transactions.markers import MarkerBatch
from odradek.transactions.state import Transaction, TransactionState, TransactionVersion
from odradek.transactions.work import Prepared

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NONE, OFFLINE = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR
PREPARED = Prepared(
    transactional_id="x",
    offset=7,
    transaction=Transaction(
        producer_id=5,
        producer_epoch=3,
        state=TransactionState.PREPARE_COMMIT,
        timeout_ms=1000,
        updated_ms=1,
        started_ms=1,
        partitions=frozenset({P0, P1}),
        client_version=TransactionVersion.EPOCH_FOR_EACH,
    ),
)


class World:
    """Shards and partitions that answer as the test says, and note what happens."""

    def __init__(self) -> None:
        self.answers: dict[TopicPartition, list[ErrorCode]] = {}
        self.refusals: list[ErrorCode] = []
        self.events: list[Any] = []
        self.leader_epoch = 13
        self.is_ours = True
        self.in_a_pause: Callable[[], None] = lambda: None

    def shard(self, index: int) -> World:
        if not self.is_ours:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return self

    async def execute(self, operation: Callable[[Any, Any], Any]) -> None:
        if self.refusals:
            raise KafkaError(self.refusals.pop(0))
        operation(self, None)

    def doubt(self, reason: KafkaError) -> None:
        self.events.append(("doubt", reason.code))

    def complete(self, prepared: Prepared, _now: Any) -> None:
        self.events.append(("complete", prepared.offset))

    async def write(self, batch: MarkerBatch) -> dict[TopicPartition, ErrorCode]:
        self.events.append(tuple(batch.partitions))
        self.last = batch
        return {
            partition: self.answers[partition].pop(0) if self.answers.get(partition) else NONE
            for partition in batch.partitions
        }

    async def sleep(self, seconds: float) -> None:
        self.events.append(seconds)
        self.in_a_pause()

    async def finish(self, prepared: Prepared = PREPARED) -> list[Any]:
        shards: Any = self
        await Finisher(shards, self, self.sleep).finish(2, 13, prepared)
        return self.events


async def test_every_partition_gets_its_marker_before_the_transaction_is_complete() -> None:
    world = World()
    assert await world.finish() == [(P0, P1), ("complete", 7)]
    assert world.last == MarkerBatch(
        producer_id=5,
        producer_epoch=3,
        is_commit=True,
        coordinator_epoch=13,
        version=TransactionVersion.EPOCH_FOR_EACH,
        partitions=(P0, P1),
    )


@pytest.mark.parametrize(
    "code",
    [
        OFFLINE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_only_the_partition_that_failed_is_tried_again(code: ErrorCode) -> None:
    world = World()
    world.answers[P1] = [code, code]
    assert await world.finish() == [(P0, P1), 0.04, (P1,), 0.08, (P1,), ("complete", 7)]
    assert world.last.coordinator_epoch == 13


async def test_a_decision_of_an_earlier_leadership_is_carried_out_no_further() -> None:
    """Another broker may have completed it in between, and the producer be in its next transaction."""
    world = World()
    world.answers[P1] = [OFFLINE] * 5

    def led_again() -> None:
        world.leader_epoch = 15

    world.in_a_pause = led_again
    assert await world.finish() == [(P0, P1), 0.04]


async def test_a_leadership_that_ended_while_markers_were_written_completes_nothing() -> None:
    world = World()
    write = world.write

    async def written_too_late(batch: MarkerBatch) -> dict[TopicPartition, ErrorCode]:
        world.leader_epoch = 14
        return await write(batch)

    world.write = written_too_late  # type: ignore[method-assign]
    assert await world.finish() == [(P0, P1)]


async def test_a_coordinator_that_was_succeeded_begins_again_from_its_log() -> None:
    world = World()
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    world.answers[P0], world.answers[P1] = [fenced, fenced], [fenced, fenced]

    def deposed() -> None:
        world.is_ours = len(world.events) < 4

    world.in_a_pause = deposed
    assert await world.finish() == [(P0, P1), ("doubt", ErrorCode.NOT_COORDINATOR), 0.04, (P0, P1), 0.08]


async def test_pauses_grow_to_a_second_and_no_further() -> None:
    world = World()
    world.answers[P0] = [OFFLINE] * 12
    pauses = [event for event in await world.finish() if isinstance(event, float)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 1.0


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH])
async def test_a_partition_that_is_gone_or_knows_a_newer_epoch_needs_no_marker(code: ErrorCode) -> None:
    world = World()
    world.answers[P0] = [code]
    assert await world.finish() == [(P0, P1), ("complete", 7)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    ],
)
async def test_completion_is_tried_again_and_markers_are_not(code: ErrorCode) -> None:
    world = World()
    world.refusals = [code, code]
    assert await world.finish() == [(P0, P1), 0.04, 0.08, ("complete", 7)]


async def test_a_shard_that_is_coordinated_elsewhere_is_no_business_of_ours() -> None:
    world = World()
    world.is_ours = False
    assert await world.finish() == []
