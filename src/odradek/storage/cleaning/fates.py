"""Compacts one batch. Pure, except for the records, which the key map decides about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.records import BatchHeader, read_control
from odradek.records.cleaning import KeyMap, emptied, sieve_batch, with_horizon
from odradek.runtime.ports import Buffer
from odradek.storage.cleaning.transactions import CleanedTransactions

_HORIZON_MAX: Final = 1 << 62


class LastWrite(NamedTuple):
    """The last write of a producer that is still known."""

    epoch: int
    last_offset: int
    """The last offset of its last batch of records; -1 when only a marker is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTerms:
    """The terms that apply to all batches of a group of segments."""

    keys: KeyMap
    end_offset: int
    """Records from here on are not in the key map: they stay."""
    producers: Mapping[int, LastWrite]
    now_ms: int
    delete_horizon_ms: int
    """The delete horizon of tombstones and markers that this compaction is the first to meet."""

    @classmethod
    def of(
        cls,
        keys: KeyMap,
        *,
        end_offset: int,
        producers: Mapping[int, LastWrite],
        now_ms: int,
        delete_retention_ms: int,
    ) -> CompactionTerms:
        return cls(
            keys=keys,
            end_offset=end_offset,
            producers=producers,
            now_ms=now_ms,
            delete_horizon_ms=min(now_ms + delete_retention_ms, _HORIZON_MAX),
        )


class Fates:
    """Decides which records of each batch a compaction keeps. It must see every batch in order."""

    def __init__(self, terms: CompactionTerms, transactions: CleanedTransactions) -> None:
        self._terms = terms
        self._transactions = transactions
        self.keeps_entry = False
        """Whether the last batch was a marker of a transaction of which something was seen: what the transaction index says
        of it must stay."""

    def of(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """Returns the cleaned batch, or None when nothing is left. Raises KafkaError for a damaged batch."""
        retained = self._marker(header, batch) if header.is_control else self._data(header, batch)
        return emptied(header) if retained is None and self._is_last_of_producer(header) else retained

    def _marker(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        self.keeps_entry = False
        if header.record_count == 0:  # an earlier compaction took the record
            return None
        if not self._transactions.is_done(header, read_control(batch).kind):
            self.keeps_entry = True
            return batch
        if header.has_delete_horizon:
            return None if header.base_timestamp <= self._terms.now_ms else batch
        return with_horizon(batch, header, self._terms.delete_horizon_ms)

    def _data(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        if self._transactions.is_aborted(header):
            return None
        terms = self._terms
        # While older values may be left, a tombstone's time does not begin: a reader could take one and miss it.
        is_known = header.last_offset < terms.end_offset
        return sieve_batch(
            terms.keys,
            batch,
            header,
            end_offset=terms.end_offset,
            drops_tombstones=header.has_delete_horizon and header.base_timestamp <= terms.now_ms,
            delete_horizon_ms=terms.delete_horizon_ms if is_known else -1,
        )

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Returns whether a batch is the producer's last: its sequence numbers, or the epoch in a marker, are all that is
        known of a producer after a restart."""
        last = self._terms.producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset and not header.is_control
        return header.is_control and header.producer_epoch == last.epoch
