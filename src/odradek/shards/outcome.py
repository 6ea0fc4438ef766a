"""What an operation on a machine decides: records to write, a reply, and answers to those who waited."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from odradek.model.errors import KafkaError

T = TypeVar("T")


class Moment(NamedTuple):
    """`now`, for cores. Durations and deadlines go by `monotonic_ms`; `wall_ms` is for what is stored."""

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


class Ticket:
    """A request that waits for its answer. Cores keep tickets and name them in a `DeferredReply`; only the shard fills them."""

    __slots__ = ("_answered",)

    def __init__(self) -> None:
        self._answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def answered(self) -> asyncio.Future[Any]:
        """Resolves to the response, or raises the KafkaError that took the coordinator away."""
        return self._answered

    def answer(self, response: object) -> None:
        if not self._answered.done():
            self._answered.set_result(response)

    def refuse(self, error: KafkaError) -> None:
        if not self._answered.done():
            self._answered.set_exception(error)
            self._answered.exception()  # whoever waited may be gone: that is no fault to report


@dataclass(frozen=True, slots=True)
class DeferredReply:
    """The response to an earlier request, released with the outcome that holds it."""

    ticket: Ticket
    response: object


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """`records` are appended as one batch, so all of them survive a crash or none. `reply` and `answers` leave once they,
    and everything written before, are durable."""

    reply: T
    records: Sequence[NewRecord] = ()
    answers: Sequence[DeferredReply] = ()
    producer: BatchProducer | None = None
