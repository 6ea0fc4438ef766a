"""A task's half of the exactly-once sink: its records in a transaction that stays open, whose name no other process has."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from odradek.client.transactions.error_actions import ProducerFencedError
from odradek.client.transactions.prepared import TransactionIdentity
from odradek.model.errors import ErrorCode
from odradek.spark.clients import connections
from odradek.spark.exactly_once.committed import ProducerAndEpoch
from odradek.spark.exactly_once.decision import WRITER_BYTES, Participant, participant_id
from odradek.spark.exactly_once.driver import BatchTerms
from odradek.spark.writing.outgoing_rows import send_gathered

if TYPE_CHECKING:
    import pyarrow as pa


RESUMED_WITHIN_S: Final = 600.0
"""Longer than this after a transaction, brokers may have forgotten its transactional id: they are asked."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The last transaction under one transactional id, and when it was prepared."""

    identity: TransactionIdentity
    prepared_at: float
    timeout_s: float
    """The transactional id's timeout, which its coordinator keeps until it is initialized again; infinity: two-phase commit."""


@dataclass(slots=True)
class _Names:
    """The transactional ids that this process uses, in the last batch that it saw."""

    driver: TransactionIdentity
    writer: str = field(default_factory=lambda: os.urandom(WRITER_BYTES).hex())
    next_slot: int = 0
    process: int = field(default_factory=os.getpid)
    prepared: dict[str, _Prepared] = field(default_factory=dict)
    """The transactions that this process left to the driver in any batch, by transactional id."""

    def acquire_committed(
        self, transactional_id: str, committed: frozenset[ProducerAndEpoch], timeout_s: float
    ) -> TransactionIdentity | None:
        """Returns the last transaction under the id, if it is one of `committed`, brokers remember it, and it had this timeout.
        It is given out once."""
        last = self.prepared.pop(transactional_id, None)
        if (
            last is None
            or last.timeout_s != timeout_s
            or time.monotonic() - last.prepared_at > RESUMED_WITHIN_S
        ):
            return None
        identity = last.identity
        return identity if (identity.producer_id, identity.producer_epoch) in committed else None


known_names: Final[dict[tuple[str, str], _Names]] = {}
"""The names of this process, by servers and sink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionName:
    """The name of one transaction of this process, in a batch."""

    writer: str
    slot: int
    transactional_id: str
    committed: TransactionIdentity | None
    """The transaction before it under this id, if it is certainly committed: then its producer continues."""


def reserve_name(servers: str, sink_id: str, terms: BatchTerms, timeout_s: float) -> TransactionName:
    """Returns the name of one more transaction of this process, in the batch that `terms` are of.

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
    slot = names.next_slot
    names.next_slot += 1
    transactional_id = participant_id(sink_id, names.writer, terms.side, slot)
    return TransactionName(
        writer=names.writer,
        slot=slot,
        transactional_id=transactional_id,
        committed=names.acquire_committed(transactional_id, terms.committed, timeout_s),
    )


def note_prepared(
    servers: str, sink_id: str, name: TransactionName, identity: TransactionIdentity, timeout_s: float
) -> None:
    """Notes that a transaction was left to the driver. Once it is committed, its producer can begin the next one without
    asking the coordinator."""
    names = known_names.get((servers, sink_id))
    if names is not None and names.writer == name.writer:
        names.prepared[name.transactional_id] = _Prepared(identity, time.monotonic(), timeout_s)


def prepare(
    client: connections.ClientConfig,
    sink_id: str,
    terms: BatchTerms,
    rows_by_topic: Iterable[tuple[str, pa.RecordBatch]],
) -> Participant | None:
    """Sends the rows and leaves their transaction open, for the driver to end. Returns None when there are no rows.

    After an error nothing of them counts.
    """
    groups = iter(rows_by_topic)
    first = next(groups, None)
    if first is None:
        return None
    servers = client["bootstrap.servers"]
    timeout_s = connections.transaction_timeout_s(client)
    name = reserve_name(servers, sink_id, terms, timeout_s)
    with connections.preparing(client, name.transactional_id, name.committed) as task:
        send_gathered(first, groups, task.send_rows, task.partition_count)
        identity = task.prepare()
    note_prepared(servers, sink_id, name, identity, timeout_s)
    return Participant(
        writer=name.writer,
        slot=name.slot,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
    )
