"""Producers that are about to begin a transaction in a log with their coordinator's consent (KIP-890). Pure, and not stored.

A client's first batch of a transaction is appended only under a guard: taken before the coordinator is asked, and void once
anything of the producer's transactions was appended since. So an answer that was on its way while a transaction ended cannot
begin another one, which no one would ever end.
"""

from __future__ import annotations

from typing import Final

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import BatchHeader


class Guard:
    """The identity of one verification. It is compared by identity: no other verification, and no other log, ever has the
    same."""

    __slots__ = ()


UNVERIFIED: Final = Guard()
"""The guard that lets a client append only to a transaction that is already open."""


class _Entry:
    __slots__ = ("bumps_epoch", "epoch", "guard", "lowest_sequence", "since_ms")

    def __init__(self, epoch: int, sequence: int, *, bumps_epoch: bool, now_ms: int) -> None:
        self.guard = Guard()
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.bumps_epoch = bumps_epoch
        self.since_ms = now_ms


class Verifications:
    """The verifications under way in one log, one for each producer id."""

    __slots__ = ("under_way",)

    def __init__(self) -> None:
        self.under_way: dict[int, _Entry] = {}
        """Verifications by producer id. Public, so that the lookup before each batch of a producer needs no call."""

    def begin(self, header: BatchHeader, *, bumps_epoch: bool, now_ms: int) -> Guard:
        """Begins the verification of a transaction's first batch. Requests that come meanwhile share the guard.

        `bumps_epoch`: the producer's epoch grows with each transaction (transaction version 2).
        """
        entry = self.under_way.get(header.producer_id)
        sequence, epoch = header.base_sequence, header.producer_epoch
        if entry is None:
            entry = _Entry(epoch, sequence, bumps_epoch=bumps_epoch, now_ms=now_ms)
            self.under_way[header.producer_id] = entry
        elif epoch > entry.epoch:
            entry.epoch, entry.lowest_sequence = epoch, sequence
        elif epoch == entry.epoch:
            entry.lowest_sequence = min(entry.lowest_sequence, sequence)
        return entry.guard

    def check(self, header: BatchHeader, guard: Guard) -> None:
        """Raises INVALID_TXN_STATE unless `guard` is of the verification under way."""
        entry = self.under_way.get(header.producer_id)
        if entry is None or entry.guard is not guard:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has no transaction here, and none was verified for this batch",
            )

    def check_sequence(self, header: BatchHeader, *, is_first: bool) -> None:
        """Raises OUT_OF_ORDER_SEQUENCE_NUMBER for a batch that overtook another while a verification is under way.

        `is_first`: no batch of the producer's epoch is known here.
        """
        entry = self.under_way.get(header.producer_id)
        if entry is None:
            return
        sequence = header.base_sequence
        if entry.bumps_epoch and is_first:
            lowest = 0
        elif entry.epoch == header.producer_epoch:
            lowest = entry.lowest_sequence
        else:  # what another epoch sent, perhaps long ago, does not apply to this one
            return
        if sequence > lowest:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {sequence} before {lowest}, which must come first",
            )

    def wrote(self, producer_id: int) -> None:
        """Notes that the producer's transaction is in the log: it needs no more verification."""
        self.under_way.pop(producer_id, None)

    def marked(self, producer_id: int, marker_epoch: int) -> None:
        """Ends the producer's verification after a marker. One that already runs in the marker's epoch is of the next
        transaction."""
        entry = self.under_way.get(producer_id)
        if entry is not None and not (entry.bumps_epoch and entry.epoch == marker_epoch):
            del self.under_way[producer_id]

    def refused(self, producer_id: int, guard: Guard) -> None:
        """Ends a verification that the coordinator refused for good."""
        entry = self.under_way.get(producer_id)
        if entry is not None and entry.guard is guard:
            del self.under_way[producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets verifications that had no result for too long."""
        for producer_id, entry in list(self.under_way.items()):
            if now_ms - entry.since_ms >= expiration_ms:
                del self.under_way[producer_id]
