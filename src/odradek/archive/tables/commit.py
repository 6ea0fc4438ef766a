"""Committing a batch, also while others commit."""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import Final

from odradek.archive.store.values import ArchiveError, CommitConflict, NewBatch
from odradek.archive.tables.admission import gaps_before, is_new
from odradek.archive.tables.port import ArchiveTable

log: Final = logging.getLogger("odradek.archive")

ATTEMPTS_MAX: Final = 20
"""Each failure means that someone else's commit succeeded: another sink of the table, or a compaction."""


class Committed(Enum):
    """The outcome of a batch."""

    NOW = auto()
    BEFORE = auto()
    """It was in the archive when this process looked first: its files are not part of the table."""


def commit_batch(table: ArchiveTable, batch: NewBatch, *, leaving_gaps: bool = False) -> Committed:
    """Makes a batch part of the table, once. ArchiveError when it does not continue the archive."""
    for attempt in range(ATTEMPTS_MAX):
        state = table.state()
        if not is_new(batch, state, leaving_gaps=leaving_gaps):
            return Committed.NOW if attempt else Committed.BEFORE
        try:
            table.append(batch, state)
        except CommitConflict as conflict:
            log.info("batch %d of %s is committed again: %s", batch.id.batch, batch.id.sink, conflict)
            continue
        for gap in gaps_before(batch, state):
            log.warning(
                "%s: offsets %d to %d are left out, because leaveGaps is set; `odradek archive verify` compares with the topic",
                gap.partition,
                gap.start,
                gap.end - 1,
            )
        return Committed.NOW
    raise ArchiveError(
        f"batch {batch.id.batch} of sink {batch.id.sink} found no gap between others' commits to {table.location} in"
        f" {ATTEMPTS_MAX} attempts: do fewer sinks write to it, or less often?"
    )
