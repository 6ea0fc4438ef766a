"""The checker of transactions: what producers wrote and decided, and what readers of committed records got.

Its anomalies have Jepsen's names. *Aborted read*: a record of a transaction that no one asked to commit, or whose abort was
acknowledged. *Torn*: a part of a transaction. *Lost*: a commit was acknowledged, and its records are gone. *Duplicate*: a
record twice.
*Unstable*: what a reader saw is not there any more. *Stuck*: a transaction never ends (the scenario looks for that).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from odradek.model.ids import TopicPartition
from odradek.testing.sim.failures import ViolationError


class Fate(Enum):
    OPEN = "open"
    """No one asked to commit it yet: nothing of it may be read."""
    IN_DOUBT = "in doubt"
    """A commit was asked for, and its answer never came, or spoke of another producer."""
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True, kw_only=True)
class SentTransaction:
    """A transaction as its producer knows it."""

    name: str
    records: dict[bytes, TopicPartition] = field(default_factory=dict)
    fate: Fate = Fate.OPEN


class CommittedRecord(NamedTuple):
    """A committed record that a reader got."""

    offset: int
    value: bytes


class TransactionHistory:
    """All of a run. Every record has a value of its own."""

    def __init__(self) -> None:
        self.transactions: list[SentTransaction] = []
        self._by_value: dict[bytes, SentTransaction] = {}
        self._seen: dict[TopicPartition, dict[int, bytes]] = {}

    # -- what producers tell

    def begin(self, name: str) -> SentTransaction:
        transaction = SentTransaction(name=name)
        self.transactions.append(transaction)
        return transaction

    def writes(self, transaction: SentTransaction, partition: TopicPartition, value: bytes) -> None:
        """A record is about to be sent, maybe not for the first time."""
        transaction.records[value] = partition
        if self._by_value.setdefault(value, transaction) is not transaction:
            raise AssertionError(f"two records have the value {value!r}")

    def asks_to_commit(self, transaction: SentTransaction) -> None:
        """All its records were acknowledged, and EndTxn is about to be sent."""
        transaction.fate = Fate.IN_DOUBT

    def committed(self, transaction: SentTransaction) -> None:
        transaction.fate = Fate.COMMITTED

    def aborted(self, transaction: SentTransaction) -> None:
        """It is given up without a commit having been asked for; or the broker said that it was aborted."""
        for offsets in self._seen.values():
            for offset, value in offsets.items():
                if self._by_value[value] is transaction:
                    raise ViolationError(f"aborted read: {value!r} was read at {offset} and then aborted")
        transaction.fate = Fate.ABORTED

    # -- what readers tell

    def observe(self, partition: TopicPartition, results: list[CommittedRecord]) -> None:
        """A reader of committed records got these."""
        known = self._seen.setdefault(partition, {})
        for offset, value in results:
            transaction = self._known(partition, offset, value)
            if transaction.fate in (Fate.OPEN, Fate.ABORTED):
                raise ViolationError(
                    f"aborted read: {partition} at {offset} has {value!r} of {transaction.name}, "
                    f"which is {transaction.fate.value}"
                )
            before = known.setdefault(offset, value)
            if before != value:
                raise ViolationError(f"unstable: {partition} at {offset} had {before!r}, now {value!r}")

    def check(self, contents: dict[TopicPartition, list[CommittedRecord]]) -> None:
        """`contents` is all that readers of committed records get now; nothing is under way any more."""
        places: dict[bytes, list[tuple[TopicPartition, int]]] = {}
        for partition, results in contents.items():
            self.observe(partition, results)
            for offset, value in results:
                places.setdefault(value, []).append((partition, offset))
        for value, found_at in places.items():
            if len(found_at) > 1:
                raise ViolationError(f"duplicate: {value!r} is at {found_at}")
        for partition, known in self._seen.items():
            present = dict(contents[partition])
            for offset, value in known.items():
                if present.get(offset) != value:
                    raise ViolationError(
                        f"unstable: {value!r} was read at {offset} of {partition} and is gone"
                    )
        for transaction in self.transactions:
            self._check_whole(transaction, places)

    def _check_whole(
        self, transaction: SentTransaction, places: dict[bytes, list[tuple[TopicPartition, int]]]
    ) -> None:
        missing = sorted(value for value in transaction.records if value not in places)
        if transaction.fate is Fate.COMMITTED and missing:
            raise ViolationError(f"lost: {transaction.name} was committed, {missing[0]!r} is gone")
        if missing and len(missing) < len(transaction.records):
            raise ViolationError(
                f"torn: {transaction.name}: {len(transaction.records) - len(missing)} of "
                f"{len(transaction.records)} records are there, {missing[0]!r} is not"
            )

    def _known(self, partition: TopicPartition, offset: int, value: bytes) -> SentTransaction:
        transaction = self._by_value.get(value)
        if transaction is None or transaction.records.get(value) != partition:
            raise ViolationError(f"{partition} at {offset} holds {value!r}, which no one sent there")
        return transaction
