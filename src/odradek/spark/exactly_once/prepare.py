"""A task's half: its records in a transaction that stays open, under a name that no other process has."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

from odradek.client.transactions.error_actions import ProducerFencedError
from odradek.client.transactions.prepared import TransactionIdentity
from odradek.model.errors import ErrorCode
from odradek.spark import connections
from odradek.spark.exactly_once.decision import WRITER_BYTES, Participant, participant_id
from odradek.spark.exactly_once.driver import BatchTerms
from odradek.spark.outgoing_rows import Gathering

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(slots=True)
class _Names:
    """Those of this process, in the last batch that it saw."""

    driver: TransactionIdentity
    writer: str = field(default_factory=lambda: os.urandom(WRITER_BYTES).hex())
    next_slot: int = 0
    process: int = field(default_factory=os.getpid)


_names: Final[dict[tuple[str, str], _Names]] = {}
"""By servers and sink."""


def take_name(servers: str, sink_id: str, driver: TransactionIdentity) -> tuple[str, int]:
    """The writer and slot of one more transaction of this process, in the batch that `driver` began.

    ProducerFencedError when a later batch has begun here meanwhile: its transactions may be decided already.
    """
    names = _names.get((servers, sink_id))
    if (
        names is None or names.process != os.getpid() or names.driver.producer_id != driver.producer_id
    ):  # another producer id: the epochs of the one before were used up, and which is newer cannot be told
        names = _names[servers, sink_id] = _Names(driver)
    elif driver.producer_epoch < names.driver.producer_epoch:
        raise ProducerFencedError(
            ErrorCode.PRODUCER_FENCED,
            f"the batch of sink {sink_id!r} that this task belongs to has begun again",
        )
    elif driver.producer_epoch > names.driver.producer_epoch:
        names.driver, names.next_slot = driver, 0
    slot = names.next_slot
    names.next_slot += 1
    return names.writer, slot


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
    writer, slot = take_name(client["bootstrap.servers"], sink_id, terms.driver)
    with connections.preparing(client, participant_id(sink_id, writer, terms.side, slot)) as task:
        gathering = Gathering(task.send_rows, task.partition_count)
        for topic, rows in chain((first,), groups):
            gathering.add(topic, rows)
        gathering.send_all()
        identity = task.prepare()
    return Participant(
        writer=writer, slot=slot, producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
    )
