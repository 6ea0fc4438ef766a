"""Planted bugs of transactions: what coordinators, and partitions under them, are known to get wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tests.simulation.mutant import Patches, mutant

from odradek.broker.coordinators.transaction_markers import LocalMarkers, by_image
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.replication.partition import Partition
from odradek.shards import Moment, Outcome, Shard
from odradek.shards.held import WaitingRequest, answer_request
from odradek.storage.log.log import Log
from odradek.transactions import decisions
from odradek.transactions.decisions import TransactionChange
from odradek.transactions.finisher import Finisher
from odradek.transactions.machine import TransactionMachine
from odradek.transactions.service import TransactionCoordinator
from odradek.transactions.state import (
    NO_EPOCH,
    ProducerIdentity,
    Transaction,
    TransactionState,
    TransactionVersion,
)
from odradek.transactions.work import Prepared

_SCENARIO = "transactions"


@mutant("a transaction is called complete before its markers are written", _SCENARIO)
def complete_before_markers() -> Patches:
    real = Finisher.finish

    async def finish(self: Finisher, index: int, epoch: int, prepared: Prepared) -> None:
        await self._shards.shard(index).execute(lambda machine, now: machine.complete(prepared, now))
        await real(self, index, epoch, prepared)

    yield patch.object(Finisher, "finish", finish)


@mutant("a transaction is called complete although a marker could not be written", _SCENARIO)
def failed_marker_forgotten() -> Patches:
    real = Finisher._write

    async def write(
        self: Finisher, index: int, epoch: int, prepared: Prepared, partitions: Any
    ) -> Sequence[Any]:
        await real(self, index, epoch, prepared, partitions)
        return ()

    yield patch.object(Finisher, "_write", write)


@mutant("a marker counts before it is durable", _SCENARIO)
def marker_not_awaited() -> Patches:
    async def write_one(self: LocalMarkers, batch: Any, name: TopicPartition) -> ErrorCode:
        try:
            self._replicas.leader(*name).leader().append_marker(
                batch.producer_id,
                batch.producer_epoch,
                is_commit=batch.is_commit,
                coordinator_epoch=batch.coordinator_epoch,
                transaction_version=batch.version,
                now_ms=self._clock.wall_ms(),
            )
        except KafkaError as error:
            return by_image(self._image(), name, error.code)
        return ErrorCode.NONE

    yield patch.object(LocalMarkers, "write_one", write_one)


@mutant("after a restart no one finishes what was decided before", _SCENARIO)
def decisions_forgotten_by_recovery() -> Patches:
    real = TransactionMachine.loaded

    def loaded(self: TransactionMachine, now: Moment) -> None:
        real(self, now)
        self._unclaimed.clear()

    yield patch.object(TransactionMachine, "loaded", loaded)


@mutant("markers are written before the decision is durable", _SCENARIO)
def markers_before_the_decision() -> Patches:
    real = Shard._hold

    def hold(self: Shard[Any], outcome: Outcome[Any], waiting: WaitingRequest[Any] | None = None) -> None:
        if isinstance(self._machine, TransactionMachine):
            for reply in outcome.answers:
                answer_request(reply)
            outcome = outcome._replace(answers=())
        real(self, outcome, waiting)

    yield patch.object(Shard, "_hold", hold)


@mutant("a client learns of a decision that is not durable", _SCENARIO)
def answer_before_the_decision() -> Patches:
    real = Shard._hold

    def hold(self: Shard[Any], outcome: Outcome[Any], waiting: WaitingRequest[Any] | None = None) -> None:
        real(self, outcome)
        if waiting is not None:
            waiting.answer(outcome.reply)

    yield patch.object(Shard, "_hold", hold)


@mutant("a late EndTxn is taken for one of the transaction under way", _SCENARIO)
def late_end_accepted() -> Patches:
    real = decisions.end_with_new_epoch

    def end(current: Transaction | None, who: ProducerIdentity, **rest: Any) -> TransactionChange | None:
        if current is not None and current.state is TransactionState.ONGOING:
            who = current.identity
        return real(current, who, **rest)

    yield patch.object(decisions, "end_with_new_epoch", end)


@mutant("a producer is fenced, but its epoch stays good", _SCENARIO)
def fenced_without_a_new_epoch() -> Patches:
    def fence(current: Transaction, *, now_ms: int, **_rest: Any) -> TransactionChange:
        aborted = replace(
            current,
            state=TransactionState.PREPARE_ABORT,
            updated_ms=now_ms,
            client_version=TransactionVersion.CLASSIC,
        )
        return TransactionChange(transaction=aborted, last_epoch=NO_EPOCH)

    yield patch.object(decisions, "fence", fence)


@mutant("a producer that begins again gets the epoch of the one before it", _SCENARIO)
def zombie_shares_the_epoch() -> Patches:
    def next_identity(current: Transaction, last_epoch: int, *_rest: Any) -> tuple[ProducerIdentity, int]:
        return current.identity, last_epoch

    yield patch.object(decisions, "_next_identity", next_identity)


@mutant("a transaction times out, and is committed all the same", _SCENARIO)
def timeout_commits() -> Patches:
    real = decisions.fence

    def fence(current: Transaction, **rest: Any) -> TransactionChange:
        change = real(current, **rest)
        commit = replace(change.transaction, state=TransactionState.PREPARE_COMMIT)
        return TransactionChange(transaction=commit, last_epoch=change.last_epoch)

    yield patch.object(decisions, "fence", fence)


@mutant("transactions that take too long are never looked for", _SCENARIO)
def no_timeouts() -> Patches:
    yield patch.object(TransactionMachine, "_find_overdue", lambda self, now: None)


@mutant("readers of committed records do not learn what was aborted", _SCENARIO)
def aborted_transactions_omitted() -> Patches:
    yield patch.object(Log, "aborted_transactions", lambda self, start_offset, end_offset: [])


@mutant("the last stable offset is the high watermark, open transactions or not", _SCENARIO)
def stable_offset_ignores_transactions() -> Patches:
    yield patch.object(Partition, "last_stable_offset", property(lambda self: self.high_watermark))


@mutant("a partition takes what its coordinator said no longer belongs to a transaction", _SCENARIO)
def refused_producer_admitted() -> Patches:
    real = TransactionCoordinator.verify

    async def verify(self: TransactionCoordinator, *who: Any, **how: Any) -> dict[TopicPartition, ErrorCode]:
        return dict.fromkeys(await real(self, *who, **how), ErrorCode.NONE)

    yield patch.object(TransactionCoordinator, "verify", verify)
