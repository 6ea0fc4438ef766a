"""Ends prepared transactions: writes their markers until every partition has its own, then marks them as
complete.

Writing a marker twice does no harm while the transaction is the producer's last, and neither does finding that someone else
completed it; so whatever goes wrong is tried again. A partition that is offline holds up its own transactions alone.

A decision is carried out under the leadership that handed it out, and under no other: once another broker coordinated in
between, the transaction may be complete and the producer in its next, which a marker of ours would end. The next leadership
hands out again what is left to do. A partition that has seen the marker of a newer coordinator tells us that we were succeeded.
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

_log = events.caused_by_peers("transactions")
_AGAIN_SECONDS_MIN: Final = 0.02
_AGAIN_SECONDS_MAX: Final = 1.0
_REPORTED_AFTER: Final = 5
"""How many failed attempts are not logged: a partition may just be starting."""
_SETTLED: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH}
)
"""Codes after which a partition needs no marker of ours: it has it; it was deleted; it knows a newer epoch of the producer,
so whatever our transaction left there was ended before that epoch began."""


class Finisher:
    """Writes the markers of decided transactions, and completes them. Used on the event loop only."""

    def __init__(
        self,
        shards: Shards[TransactionMachine],
        markers: Markers,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._shards = shards
        self._markers = markers
        self._sleep = sleep
        self._succeeded: dict[int, int] = {}
        """Shard -> the epoch of ours that a partition refused as outdated."""

    async def finish(self, index: int, epoch: int, prepared: Prepared) -> None:
        """Carries out the work that was handed out in the leader epoch `epoch` of the shard.

        Returns when the transaction is complete, or no business of that leadership any more.
        """
        missing: Sequence[TopicPartition] = sorted(prepared.transaction.partitions)
        attempts = 0
        while True:
            if not self._coordinates(index, epoch):
                return
            try:
                missing = await self._write(index, epoch, prepared, missing)
                if not self._coordinates(index, epoch):
                    return
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
                    partitions=", ".join(str(partition) for partition in missing[:10]),
                )
            await self._sleep(min(_AGAIN_SECONDS_MIN * 2.0 ** min(attempts, 10), _AGAIN_SECONDS_MAX))

    def _coordinates(self, index: int, epoch: int) -> bool:
        """Returns whether the leadership is the same: a shard that refuses for the moment is loaded again, and expects us to
        go on."""
        try:
            return self._shards.shard(index).leader_epoch == epoch
        except KafkaError:
            return False

    async def _write(
        self, index: int, epoch: int, prepared: Prepared, partitions: Sequence[TopicPartition]
    ) -> Sequence[TopicPartition]:
        """Makes one attempt; returns the partitions that need another."""
        if not partitions:
            return ()
        transaction = prepared.transaction
        outcomes = await self._markers.write(
            MarkerBatch(
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                is_commit=transaction.is_commit,
                coordinator_epoch=epoch,
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
        if ErrorCode.TRANSACTION_COORDINATOR_FENCED in outcomes.values():
            self._doubt(index, epoch, prepared)
        return [
            topic_partition for topic_partition in partitions if outcomes.get(topic_partition) not in _SETTLED
        ]

    def _doubt(self, index: int, epoch: int, prepared: Prepared) -> None:
        """Waiters for the shard are better off elsewhere. Once for each leadership: were the partition wrong, and we not
        succeeded, it must not keep the others from us.
        """
        if self._succeeded.get(index) == epoch or not self._coordinates(index, epoch):
            return
        self._succeeded[index] = epoch
        _log.warning("coordinator_succeeded", transactional_id=prepared.transactional_id, epoch=epoch)
        self._shards.shard(index).doubt(
            KafkaError(ErrorCode.NOT_COORDINATOR, f"a newer coordinator than epoch {epoch}'s wrote markers")
        )
