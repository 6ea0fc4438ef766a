"""Ends prepared transactions: writes their markers until every partition has its own, then says that they are complete.

Writing a marker twice does no harm, and neither does finding that somebody else completed the transaction; so whatever goes
wrong is tried again until the shard is coordinated elsewhere. A partition that is offline holds up its own transactions alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.shards import Shards
from odradek.telemetry import events
from odradek.transactions.machine import TransactionMachine
from odradek.transactions.markers import MarkerBatch, Markers
from odradek.transactions.work import Prepared

_log = events.get("transactions")
_AGAIN_SECONDS_MIN: Final = 0.02
_AGAIN_SECONDS_MAX: Final = 1.0
_REPORTED_AFTER: Final = 5
"""So many attempts are quiet: a partition may just be starting."""
_SETTLED: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH}
)
"""The partition needs no marker of ours: it has it; it was deleted; it knows a newer epoch of the producer, so whatever our
transaction left there was ended before that epoch began."""


class Finisher:
    """Used on the event loop only. `coordinator_epoch` is asked for each attempt: it grows when leadership moves."""

    def __init__(
        self,
        shards: Shards[TransactionMachine],
        markers: Markers,
        coordinator_epoch: Callable[[int], int],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._shards = shards
        self._markers = markers
        self._coordinator_epoch = coordinator_epoch
        self._sleep = sleep

    async def finish(self, index: int, prepared: Prepared) -> None:
        """Returns when the transaction is complete, or no business of this broker any more."""
        missing: Sequence[TopicPartition] = sorted(prepared.transaction.partitions)
        attempts = 0
        while True:
            if not self._coordinates(index):
                return
            try:
                missing = await self._write(index, prepared, missing)
                if not missing:
                    await self._shards.shard(index).execute(
                        lambda machine, now: machine.complete(prepared, now)
                    )
                    return
            except (
                KafkaError
            ):  # the shard is being loaded, say; its machine knows whether there is anything left to do
                pass
            attempts += 1
            if attempts == _REPORTED_AFTER:
                _log.warning(
                    "transaction_unfinished",
                    transactional_id=prepared.transactional_id,
                    partitions=", ".join(str(one) for one in missing[:10]),
                )
            await self._sleep(min(_AGAIN_SECONDS_MIN * 2.0 ** min(attempts, 10), _AGAIN_SECONDS_MAX))

    def _coordinates(self, index: int) -> bool:
        """Only whether there is a shard counts: one that refuses for the moment is loaded again, and expects us to go on."""
        try:
            self._shards.shard(index)
        except KafkaError:
            return False
        return True

    async def _write(
        self, index: int, prepared: Prepared, partitions: Sequence[TopicPartition]
    ) -> Sequence[TopicPartition]:
        """One attempt; the partitions that need another."""
        if not partitions:
            return ()
        transaction = prepared.transaction
        outcomes = await self._markers.write(
            MarkerBatch(
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                is_commit=transaction.is_commit,
                coordinator_epoch=self._coordinator_epoch(index),
                version=transaction.client_version,
                partitions=tuple(partitions),
            )
        )
        for partition, code in outcomes.items():
            if code in _SETTLED and code is not ErrorCode.NONE:
                _log.info(
                    "marker_not_needed",
                    transactional_id=prepared.transactional_id,
                    partition=partition,
                    reason=code.name,
                )
        return [one for one in partitions if outcomes.get(one) not in _SETTLED]
