"""A transactional producer that says exactly what a test wants, and what readers of committed records get."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from tests.kit.requests import produce_request
from tests.kit.waiting import until

from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.transactions.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.messages.transactions.end_txn import EndTxnRequest
from odradek.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from odradek.records import data_batches, decode_batch, split_batches

READ_COMMITTED = 1
BUSY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
CLASSIC, EPOCHS = 3, 5
"""Versions of EndTxn."""
SMALL = {"transaction_state_log_num_partitions": "3"}


class TransactionalProducer:
    """A transactional producer that says exactly what a test wants."""

    def __init__(self, wire: Any, batch_of: Callable[..., bytearray], name: str, end_version: int) -> None:
        self.wire = wire
        self.batch_of = batch_of
        self.name = name
        self.end_version = end_version
        self.sequences: dict[TopicPartition, int] = {}
        self.producer_id = self.epoch = -1

    async def init(self, *, version: int = 5, expected: bool = False, **changes: Any) -> ErrorCode:
        fields: dict[str, Any] = {"transactional_id": self.name, "transaction_timeout_ms": 60_000} | changes
        if expected:
            fields |= {"producer_id": self.producer_id, "producer_epoch": self.epoch}
        response = await self.until_timeout(lambda: self.wire.ask(InitProducerIdRequest(**fields), version))
        if response.error_code == 0:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        return ErrorCode.of(response.error_code)

    async def until_timeout(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Returns the first response after the coordinator is there and has ended what was before."""
        return await until(call, holds=lambda response: response.error_code not in BUSY)

    async def add(self, topic: str, *partitions: int, version: int = 3) -> list[ErrorCode]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )

        async def asked() -> list[ErrorCode]:
            (entry,) = (await self.wire.ask(request, version)).results_by_topic_v3_and_below
            return [ErrorCode.of(partition.partition_error_code) for partition in entry.results_by_partition]

        return await until(asked, holds=lambda codes: not BUSY & set(codes))

    async def send(self, topic: str, value: bytes, partition: int = 0) -> ErrorCode:
        name = TopicPartition(topic, partition)
        sequence = self.sequences.get(name, 0)
        batch = self.batch_of(
            [value],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = produce_request(topic, batch, partition=partition, transactional_id=self.name)
        version = 12 if self.end_version >= EPOCHS else 9
        response = await self.wire.ask(request, version)
        code = ErrorCode.of(response.responses[0].partition_responses[0].error_code)
        if code is ErrorCode.NONE:
            self.sequences[name] = sequence + 1
        return code

    async def write(self, value: bytes, partitions: Iterable[int] = (0, 1), topic: str = "t") -> None:
        """One record in each partition, as part of the transaction."""
        if self.end_version < EPOCHS:
            assert set(await self.add(topic, *partitions)) == {ErrorCode.NONE}
        for partition in partitions:
            # A batch may come before the coordinator is done with the last transaction.
            code = await until(
                partial(self.send, topic, value, partition), holds=lambda code: code not in BUSY
            )
            assert code is ErrorCode.NONE

    def end_request(self, *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )

    async def end(self, *, commit: bool = True, request: EndTxnRequest | None = None) -> ErrorCode:
        asked = request or self.end_request(commit=commit)
        response = await self.until_timeout(lambda: self.wire.ask(asked, self.end_version))
        if response.error_code == 0 and self.end_version >= EPOCHS:
            if response.producer_epoch != self.epoch:
                self.sequences.clear()
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        return ErrorCode.of(response.error_code)

    async def state(self) -> Any:
        return await described(self.wire, self.name)

    async def settled(self) -> str:
        """The state, once no transaction is being completed."""
        state = await until(
            self.state,
            holds=lambda state: (
                state.error_code not in BUSY and not state.transaction_state.startswith("Prepare")
            ),
        )
        return str(state.transaction_state)


async def described(wire: Any, name: str) -> Any:
    response = await wire.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0)
    (state,) = response.transaction_states
    return state


async def committed(wire: Any, make_fetch: Any, topic: str, partition: int = 0) -> list[bytes]:
    """What a reader of committed records gets, up to the last stable offset."""
    records: list[bytes] = []
    offset = 0
    while True:
        request = make_fetch(topic, offset, partition=partition).replace(isolation_level=READ_COMMITTED)
        data = (await wire.ask(request, 11)).responses[0].partitions[0]
        batches = split_batches(data.records)
        if not batches:
            assert offset == data.last_stable_offset
            return records
        aborted = [
            (transaction.producer_id, transaction.first_offset)
            for transaction in data.aborted_transactions or ()
        ]
        for header, batch in data_batches(batches, aborted=aborted):
            records += [record.value or b"" for record in decode_batch(batch, header)]
        offset = batches[-1][0].next_offset


async def stable(wire: Any, make_fetch: Any, topic: str, partition: int = 0) -> bool:
    """Whether no transaction is open on the partition."""
    data = (await wire.ask(make_fetch(topic, 0, partition=partition), 11)).responses[0].partitions[0]
    return bool(data.last_stable_offset == data.high_watermark)


async def coordinated(wire: Any, name: str = "x") -> None:
    """Make `__transaction_state`, as a client's FindCoordinator does."""
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
    response = await wire.ask(request, 6)
    assert response.coordinators[0].error_code == 0


async def opened(scene: Any) -> Any:
    """A connection to a broker that has `__transaction_state` and the topic `t` of two partitions."""
    await scene.start(**SMALL)
    wire = await scene.connect()
    await coordinated(wire)
    await wire.create("t", partitions=2)
    return wire
