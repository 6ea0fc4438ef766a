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


class WaitingRequests:
    """The waiter for the answer to a ticket."""

    __slots__ = ("_answers",)

    def __init__(self) -> None:
        self._answers: dict[Ticket[object], PromptFuture[Any]] = {}

    def wait(self, ticket: Ticket[R]) -> PromptFuture[R]:
        """Resolves to the response, or raises the KafkaError that took the coordinator away."""
        future: PromptFuture[R] = PromptFuture()
        self._answers[ticket] = future
        future.add_done_callback(lambda _: self._answers.pop(ticket, None))
        return future

    def answer(self, reply: DeferredReply[object]) -> None:
        future = self._answers.get(reply.ticket)
        if future is not None and not future.done():
            future.set_result(reply.response)

    def refuse(self, ticket: Ticket[object], error: KafkaError) -> None:
        future = self._answers.get(ticket)
        if future is not None and not future.done():
            future.set_exception(error)


class HeldOutcome(NamedTuple):
    """An outcome, the future of its reply, and the waiters for its answers."""

    outcome: Outcome[object]
    released: PromptFuture[Any]
    requests: WaitingRequests

    def release(self) -> None:
        for reply in self.outcome.answers:
            self.requests.answer(reply)
        if not self.released.done():
            self.released.set_result(self.outcome.reply)

    def refuse(self, reason: KafkaError) -> None:
        error = unavailable(reason)
        for reply in self.outcome.answers:
            self.requests.refuse(reply.ticket, error)
        if not self.released.done():
            self.released.set_exception(error)


def release_when(
    committed: asyncio.Future[None],
    waiting: Sequence[HeldOutcome],
    *,
    name: str,
    patience_seconds: float,
    lost: Callable[[KafkaError], None],
) -> None:
    """Releases `waiting` once `committed` is done. If it fails, calls `lost`, and refuses them.

    A log may stand still for as long as a partition of the network lasts. Waiters are refused after `patience_seconds`, to ask
    again: what was written counts all the same, once it is durable.
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
        lost(reason)  # first: those who are refused may ask again at once
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
