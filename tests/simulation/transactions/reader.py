"""Simulated readers of committed records: the history notes what they get. Nothing may lie above the last stable offset."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

from tests.kit.requests import fetch_request
from tests.simulation.broker.clients import ClientContext, RefusedError
from tests.simulation.transactions.clients import check
from tests.simulation.transactions.history import CommittedRecord, TransactionHistory

from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.data.fetch import FetchResponse
from odradek.records import data_batches, decode_batch, split_batches
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.wire_client import WireClient

_READ_COMMITTED: Final = 1


class CommittedReader:
    """Reads one partition at read_committed. Where leaders change, a new one may know less of what is stable for a while."""

    def __init__(
        self,
        context: ClientContext,
        history: TransactionHistory,
        partition: TopicPartition,
        *,
        leaders_change: bool = False,
    ) -> None:
        self._leaders_change = leaders_change
        self._context = context
        self._history = history
        self._partition = partition
        self._last_stable_offset = 0

    async def follow(self, finished: Callable[[], bool]) -> None:
        """Read on and on, and tell the history."""
        offset = 0
        while not finished():
            try:
                with closing(await self._context.connect()) as client:
                    while not finished():
                        records, offset, _ = await self._fetch(client, offset)
                        self._history.observe(self._partition, records)
                        await asyncio.sleep(self._context.rng.uniform(0.01, 0.2))
            except (OSError, RefusedError):
                await self._context.pause()

    async def read_all(self, seconds_max: float) -> list[CommittedRecord]:
        """Everything, once no transaction is open any more; ViolationError when that never comes."""
        end_s = asyncio.get_running_loop().time() + seconds_max
        while True:
            try:
                with closing(await self._context.connect()) as client:
                    records, is_stable = await self._read(client)
                if is_stable:
                    return records
            except (OSError, RefusedError):
                pass
            if asyncio.get_running_loop().time() > end_s:
                raise ViolationError(
                    f"stuck: {self._partition} has an open transaction at {self._last_stable_offset}"
                )
            await self._context.pause()

    async def _read(self, client: WireClient) -> tuple[list[CommittedRecord], bool]:
        records: list[CommittedRecord] = []
        offset = 0
        while True:
            piece, following, high_watermark = await self._fetch(client, offset)
            records += piece
            if following == offset:
                return records, offset == high_watermark
            offset = following

    async def _fetch(self, client: WireClient, offset: int) -> tuple[list[CommittedRecord], int, int]:
        """(What was found, where to go on, the high watermark)."""
        request = fetch_request(
            self._partition.topic,
            offset,
            partition=self._partition.partition,
            max_wait_ms=50,
            partition_max_bytes=self._context.rng.choice((200, 5000)),
            isolation_level=_READ_COMMITTED,
        )
        response = await client.call(request, 11, FetchResponse)
        check(response.error_code, "Fetch")
        data = response.responses[0].partitions[0]
        if self._leaders_change and data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise RefusedError("a leader of the past was asked, or one that knows too little yet")
        check(data.error_code, f"{self._partition}: a fetch at {offset}")
        self._check_stable(data)
        batches = split_batches(data.records or b"", allow_partial=True)
        aborted = [
            (transaction.producer_id, transaction.first_offset)
            for transaction in data.aborted_transactions or ()
        ]
        records = [
            CommittedRecord(record.offset, record.value or b"")
            for header, batch in data_batches(batches, aborted=aborted)
            for record in decode_batch(batch, header, from_offset=offset)
        ]
        following = batches[-1][0].next_offset if batches else offset
        if batches and following > data.last_stable_offset:
            raise ViolationError(f"{self._partition}: read above the last stable offset")
        return records, following, data.high_watermark

    def _check_stable(self, data: Any) -> None:
        if data.last_stable_offset < self._last_stable_offset and not self._leaders_change:
            raise ViolationError(
                f"{self._partition}: the last stable offset went from {self._last_stable_offset} "
                f"to {data.last_stable_offset}"
            )
        if data.last_stable_offset > data.high_watermark:
            raise ViolationError(f"{self._partition}: stable above the high watermark")
        self._last_stable_offset = data.last_stable_offset
