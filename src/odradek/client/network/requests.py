"""The requests of one connection, in their order: which answer belongs to which, and when one is overdue. No I/O."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol import Api, Buffer, Message, correlation_id_of

_CORRELATION_ID_MAX: Final = 0x7FFF_FFFF


class PendingRequest(NamedTuple):
    """A request without a response yet."""

    correlation_id: int
    api: Api
    version: int
    deadline: float
    answer: asyncio.Future[object]


class OutgoingRequest(NamedTuple):
    """A request to send, now or when the broker may be asked again."""

    api: Api
    version: int
    message: Message
    answer: asyncio.Future[object] | None
    """The future of the answer; None for a request without one."""
    timeout_s: float | None


class RequestQueue:
    """The requests under way on one connection, oldest first. No I/O."""

    __slots__ = ("_pending", "last_id")

    def __init__(self) -> None:
        self._pending: deque[PendingRequest] = deque()
        self.last_id = 0

    def __len__(self) -> int:
        return len(self._pending)

    def next_id(self) -> int:
        self.last_id = self.last_id % _CORRELATION_ID_MAX + 1
        return self.last_id

    def sent(self, request: PendingRequest) -> None:
        self._pending.append(request)

    def answered(self, frame: Buffer) -> PendingRequest:
        """Returns the request that `frame` answers. KafkaError when it is not the oldest: the stream is out of step."""
        correlation_id = correlation_id_of(frame)
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            expected = self._pending[0].correlation_id if self._pending else "none"
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"an answer to request {correlation_id} came, the one awaited is {expected}",
            )
        return self._pending.popleft()

    def overdue(self, now: float) -> PendingRequest | None:
        return next(
            (pending_request for pending_request in self._pending if pending_request.deadline <= now), None
        )

    @property
    def next_deadline(self) -> float | None:
        return min((pending_request.deadline for pending_request in self._pending), default=None)

    def postpone(self, by_s: float) -> None:
        """Give every request that much more time."""
        if by_s <= 0:
            return
        self._pending = deque(
            pending_request._replace(deadline=pending_request.deadline + by_s)
            for pending_request in self._pending
        )

    def clear(self) -> list[PendingRequest]:
        """Take all: they will not be answered."""
        pending = list(self._pending)
        self._pending.clear()
        return pending
