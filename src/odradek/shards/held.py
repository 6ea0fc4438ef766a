"""Replies that are held until what they show is durable: released then, refused when it is lost, or when it takes too long.

The same holds for answers to earlier requests. A core names them by tickets; here are the waiters for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from odradek.model.errors import ErrorCode, KafkaError
from odradek.runtime.prompt import PromptFuture
from odradek.shards.outcome import DeferredReply, Outcome, Ticket

R = TypeVar("R")


class WaitingRequest(Ticket[R]):
    """A request that waits, and its ticket: no table of waiters is searched for each answer.

    Subclasses define both methods. The class is not an abstract one, because each answer asks `isinstance`, which is slow for
    subclasses of `ABC`.
    """

    __slots__ = ()

    def answer(self, response: R) -> None:
        """Answers the request, unless its waiter was cancelled."""
        raise NotImplementedError

    def refuse(self, error: KafkaError) -> None:
        """Refuses the request, unless its waiter was cancelled, or has its answer."""
        raise NotImplementedError


class WaitingTicket(PromptFuture[R], WaitingRequest[R]):
    """A request whose waiter wants the response itself: resolves to it, or raises the KafkaError that took the coordinator
    away."""

    __slots__ = ()

    def answer(self, response: R) -> None:
        if not self.done():
            self.set_result(response)

    def refuse(self, error: KafkaError) -> None:
        if not self.done():
            self.set_exception(error)


def answer_request(reply: DeferredReply[object]) -> None:
    """Answers the request, unless its waiter was cancelled."""
    if isinstance(reply.ticket, WaitingRequest):
        reply.ticket.answer(reply.response)


def refuse_request(ticket: Ticket[object], error: KafkaError) -> None:
    if isinstance(ticket, WaitingRequest):
        ticket.refuse(error)


class HeldOutcome(NamedTuple):
    """An outcome whose answers, and whose reply if someone waits for it, leave later."""

    outcome: Outcome[object]
    waiting: WaitingRequest[Any] | None = None
    """The request that waits for the reply. None where the answers are all: a ticket that the machine keeps is not of this
    outcome."""

    def release(self) -> None:
        for reply in self.outcome.answers:
            answer_request(reply)
        if self.waiting is not None:
            self.waiting.answer(self.outcome.reply)

    def refuse(self, reason: KafkaError) -> None:
        error = unavailable(reason)
        for reply in self.outcome.answers:
            refuse_request(reply.ticket, error)
        if self.waiting is not None:
            self.waiting.refuse(error)


def release_when(
    committed: asyncio.Future[None],
    waiting: Sequence[HeldOutcome],
    *,
    name: str,
    patience_seconds: float,
    lost: Callable[[KafkaError], None],
) -> None:
    """Releases `waiting` once `committed` is done. If it fails, calls `lost`, and refuses them.

    A log may make no progress for as long as a network partition lasts. Waiters are refused after
    `patience_seconds`, to ask again: the written records still count, once they are durable.
    """

    def too_late() -> None:
        error = KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name}: not durable within {patience_seconds:g} s"
        )
        for held_outcome in waiting:
            held_outcome.refuse(error)

    timer = asyncio.get_running_loop().call_later(patience_seconds, too_late)

    def settle(done: asyncio.Future[None]) -> None:
        timer.cancel()
        error = _LOST if done.cancelled() else done.exception()
        if error is None:
            for held_outcome in waiting:
                held_outcome.release()
            return
        reason = error if isinstance(error, KafkaError) else _LOST
        lost(reason)  # first: refused callers may ask again at once
        for held_outcome in waiting:
            held_outcome.refuse(reason)

    committed.add_done_callback(settle)


_LOST: Final = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the wait for the log was given up")
_ELSEWHERE: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_COORDINATOR}
)


def unavailable(reason: KafkaError) -> KafkaError:
    """Returns the error that makes clients look for the coordinator again, and try again."""
    code = ErrorCode.NOT_COORDINATOR if reason.code in _ELSEWHERE else ErrorCode.COORDINATOR_NOT_AVAILABLE
    return KafkaError(code, reason.message)
