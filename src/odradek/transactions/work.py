"""The work that a machine cannot do itself: its service writes markers, and ends overdue transactions."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.transactions.state import ProducerIdentity, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A transaction whose end is decided and durable: its partitions need their markers."""

    transactional_id: str
    transaction: Transaction
    offset: int
    """The offset of the deciding record: two transactions of an id may be equal in everything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """A transaction that took longer than its producer's timeout."""

    transactional_id: str
    identity: ProducerIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    prepared: tuple[Prepared, ...] = ()
    overdue: tuple[Overdue, ...] = ()
