"""A task's half: its records in a transaction that stays open, under a name that no other process has."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

from odradek.client.transactions.error_actions import ProducerFencedError
from odradek.client.transactions.prepared import TransactionIdentity
from odradek.model.errors import ErrorCode
from odradek.spark import connections
from odradek.spark.exactly_once.decision import WRITER_BYTES, Decision, Participant, participant_id
from odradek.spark.exactly_once.driver import BatchTerms
from odradek.spark.outgoing_rows import RowBatcher

if TYPE_CHECKING:
    import pyarrow as pa


RESUMED_WITHIN_S: Final = 600.0
"""Longer than this after a batch, brokers may have forgotten its transactional ids: they are asked."""


@dataclass(slots=True)
class _Names:
    """Those of this process, in the last batch that it saw."""

    driver: TransactionIdentity
    writer: str = field(default_factory=lambda: os.urandom(WRITER_BYTES).hex())
    next_slot: int = 0
    process: int = field(default_factory=os.getpid)
    committed: dict[str, TransactionIdentity] = field(default_factory=dict)
    """By transactional id: the last transaction under it, where a decision names it."""
    noted_at: float = 0.0

    def note(self, decided: Decision | None) -> None:
        """The decision before this batch has been carried out, so its transactions are committed."""
        now = time.monotonic()
        if now - self.noted_at > RESUMED_WITHIN_S:
            self.committed.clear()
        self.noted_at = now
        if decided is not None:
            self.committed |= {
                identity.transactional_id: identity for identity in decided.identities_of(self.writer)
            }


known_names: Final[dict[tuple[str, str], _Names]] = {}
"""By servers and sink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionName:
    """One transaction's of this process, in a batch."""

    writer: str
    slot: int
    transactional_id: str
    committed: TransactionIdentity | None
    """The transaction before it under this id, if that is known to be committed."""


def reserve_name(servers: str, sink_id: str, terms: BatchTerms) -> TransactionName:
    """The name of one more transaction of this process, in the batch that `terms` are of.

    ProducerFencedError when a later batch has begun here meanwhile: its transactions may be decided already.
    """
    driver = terms.driver
    names = known_names.get((servers, sink_id))
    if (
        names is None or names.process != os.getpid() or names.driver.producer_id != driver.producer_id
    ):  # another producer id: the epochs of the one before were used up, and which is newer is unknown
        names = known_names[servers, sink_id] = _Names(driver)
    elif driver.producer_epoch < names.driver.producer_epoch:
        raise ProducerFencedError(
            ErrorCode.PRODUCER_FENCED,
            f"the batch of sink {sink_id!r} that this task belongs to has begun again",
        )
    elif driver.producer_epoch > names.driver.producer_epoch:
        names.driver, names.next_slot = driver, 0
        names.note(terms.decided)
    slot = names.next_slot
    names.next_slot += 1
    transactional_id = participant_id(sink_id, names.writer, terms.side, slot)
    return TransactionName(
        writer=names.writer,
        slot=slot,
        transactional_id=transactional_id,
        committed=names.committed.pop(transactional_id, None),
    )


def prepare(
    client: connections.ClientConfig,
    sink_id: str,
    terms: BatchTerms,
    rows_by_topic: Iterable[tuple[str, pa.RecordBatch]],
) -> Participant | None:
    """Send the rows and leave their transaction open, for the driver to end. None when there are no rows.

    After an error nothing of them counts.
    """
    groups = iter(rows_by_topic)
    first = next(groups, None)
    if first is None:
        return None
    name = reserve_name(client["bootstrap.servers"], sink_id, terms)
    with connections.preparing(client, name.transactional_id, name.committed) as task:
        gathering = RowBatcher(task.send_rows, task.partition_count)
        for topic, rows in chain((first,), groups):
            gathering.add(topic, rows)
        gathering.send_all()
        identity = task.prepare()
    return Participant(
        writer=name.writer,
        slot=name.slot,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
    )
