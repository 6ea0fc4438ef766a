"""The result of an operation on a machine: records to write, a reply, and answers to waiters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

T_co = TypeVar("T_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)


class Moment(NamedTuple):
    """The current time, for cores that read no clock. Durations and deadlines go by `monotonic_ms`; `wall_ms` is for what is
    stored."""

    wall_ms: int
    monotonic_ms: int


class NewRecord(NamedTuple):
    """A record to be written; a `value` of None is a tombstone."""

    key: bytes
    value: bytes | None


class BatchProducer(NamedTuple):
    """The transactional producer in whose name the records are written: they count once its transaction commits."""

    producer_id: int
    producer_epoch: int


class Ticket(Generic[R_co]):
    """Names a request that waits for a response of this type. Cores keep tickets, and name them in a `DeferredReply`; only the
    shard knows the waiters."""

    __slots__ = ()


class DeferredReply(NamedTuple, Generic[R_co]):
    """The response to an earlier request, released with the outcome that holds it."""

    ticket: Ticket[R_co]
    response: R_co


class Outcome(NamedTuple, Generic[T_co]):
    """The result of an operation on a machine. `records` are appended as one batch, so all of them survive a crash or none.
    `reply` and `answers` leave once they, and everything written before, are durable."""

    reply: T_co
    records: Sequence[NewRecord] = ()
    answers: Sequence[DeferredReply[object]] = ()
    producer: BatchProducer | None = None
