"""The results that a core of this room collects while it decides, and passes to the shard as an `Outcome`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from odradek.shards import DeferredReply, Moment, NewRecord, Outcome, Ticket

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True)
class GroupStep:
    """One operation, or one tick: its time, and what it has decided so far."""

    now: Moment
    records: list[NewRecord] = field(default_factory=list)
    answers: list[DeferredReply[object]] = field(default_factory=list)

    def answer(self, ticket: Ticket[R], response: R) -> None:
        """Answers the ticket; released once the step's records are durable."""
        self.answers.append(DeferredReply(ticket, response))

    def outcome(self, reply: T) -> Outcome[T]:
        return Outcome(reply, records=self.records, answers=self.answers)
