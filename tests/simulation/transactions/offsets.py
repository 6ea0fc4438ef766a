"""Offsets inside simulated transactions: each transaction that commits some has a group of its own, so that nothing hides them.

For the history such a commit is one more record, of a partition that stands for all offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from tests.simulation.broker.clients import ClientContext, RefusedError
from tests.simulation.transactions.history import CommittedRecord, SentTransaction

from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from odradek.protocol.messages.transactions.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from odradek.protocol.messages.transactions.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.wire_client import WireClient

OFFSETS: Final = TopicPartition("offsets", 0)
"""Stands for the offsets of all groups."""
_OFFSET: Final = 7
_STABLE_SINCE: Final = 7


def offsets_of(transaction: str) -> bytes:
    """What the history calls the commit of a transaction's offsets."""
    return f"{transaction}/offsets".encode()


def group_of(transaction: str) -> str:
    return f"group {transaction}"


async def add_offsets(
    client: WireClient, transactional_id: str, producer_id: int, epoch: int, name: str, version: int
) -> int:
    """A classic client says first that offsets will be part of the transaction; the error code."""
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        group_id=group_of(name),
    )
    return (await client.call(request, version, AddOffsetsToTxnResponse)).error_code


async def commit_offsets(
    client: WireClient,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    name: str,
    topic: str,
    version: int,
) -> int:
    """The error code."""
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group_of(name),
        producer_id=producer_id,
        producer_epoch=epoch,
        member_id="",
        generation_id_or_member_epoch=-1,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=_OFFSET, committed_metadata=""
                    )
                ],
            )
        ],
    )
    response = await client.call(request, version, TxnOffsetCommitResponse)
    return response.topics[0].partitions[0].error_code


class OffsetsReader:
    """Asks for the offsets of every transaction that wrote some, once none is open any more."""

    def __init__(self, context: ClientContext, transactions: Sequence[SentTransaction], topic: str) -> None:
        self._context = context
        self._transactions = transactions
        self._topic = topic

    async def read_all(self, seconds_max: float) -> list[CommittedRecord]:
        """Returns the committed offsets, by the number of their transaction. ViolationError when one stays undecided."""
        end_s = asyncio.get_running_loop().time() + seconds_max
        while True:
            try:
                with closing(await self._context.connect()) as client:
                    return await self._read(client)
            except (OSError, RefusedError) as error:
                if asyncio.get_running_loop().time() > end_s:
                    raise ViolationError(f"stuck: offsets stay undecided ({error})") from None
            await self._context.pause()

    async def _read(self, client: WireClient) -> list[CommittedRecord]:
        results = []
        for number, named in enumerate(self._transactions):
            value = offsets_of(named.name)
            if value in named.records and await self._is_committed(client, named.name):
                results.append(CommittedRecord(number, value))
        return results

    async def _is_committed(self, client: WireClient, name: str) -> bool:
        request = OffsetFetchRequest(
            group_id=group_of(name),
            topics=[OffsetFetchRequestTopic(name=self._topic, partition_indexes=[0])],
            require_stable=True,
        )
        response = await client.call(request, _STABLE_SINCE, OffsetFetchResponse)
        partition = response.topics[0].partitions[0] if response.topics else None
        code = ErrorCode.of(partition.error_code if partition else response.error_code)
        if code is not ErrorCode.NONE:
            if code.retriable:
                raise RefusedError(code.name)
            raise ViolationError(f"offsets of {name} were answered with {code.name}")
        offset = partition.committed_offset if partition is not None else -1
        if offset not in (-1, _OFFSET):
            raise ViolationError(f"offsets of {name}: {offset} was never committed")
        return offset == _OFFSET
