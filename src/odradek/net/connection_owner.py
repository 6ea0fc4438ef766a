"""The surroundings of a connection: the server that accepted it, its figures, and the observers of its answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from odradek.net.hangups import Hangups, Pausable
    from odradek.net.listening import ServerLimits
    from odradek.net.request_budget import RequestBudget
    from odradek.net.unread_answers import UnreadAnswers
    from odradek.runtime.turns import Turns


ConnectionT = TypeVar("ConnectionT", bound="Pausable")


class RequestTerms(Protocol):
    """The server's terms for the order of a connection's requests."""

    limits: ServerLimits
    turns: Turns
    pipeline_of: Callable[[memoryview], int | None]


class ConnectionOwner(RequestTerms, Protocol[ConnectionT]):
    """The server's face to a connection that it accepted."""

    now: Callable[[], float]
    requests: RequestBudget
    answers: UnreadAnswers
    hangups: Hangups[ConnectionT]
    failed_handshakes: Counter[str]
    pace: Callable[[str], tuple[float, bool]]

    def admit(self, connection: ConnectionT) -> str | None:
        """Counts a new connection; returns why it may not stay, or None."""

    def forget(self, connection: ConnectionT) -> None: ...

    def watch(self) -> None:
        """Checks paused connections and shared memory from now on."""

    def report(self, error: BaseException) -> None:
        """Reports an unexpected error from a request."""


class AnswerObserver(Protocol):
    """An observer that is called when the answer to a request has left."""

    def sent(self, queued_s: float, sending_s: float) -> None:
        """Called when an answer has left. `queued_s`: the time for which the answer waited for earlier ones; `sending_s`:
        until the kernel had all of it."""


class ConnectionLoad(NamedTuple):
    """What of one connection is in the broker at one time."""

    waiting_count: int
    """The requests that were received and are not served yet."""
    request_bytes: int
    """The bytes of requests that come in, wait for their turn, or are being handled with their frames kept."""
    response_bytes: int
    """The bytes of responses that the peer's system has not taken yet."""


class ConnectionFigures:
    """The counters of one connection. The handler of its requests sets them."""

    __slots__ = (
        "arrived_at",
        "client_id",
        "handled_s",
        "received_at",
        "received_s",
        "request_bytes",
        "request_count",
        "served",
    )

    def __init__(self) -> None:
        self.client_id = ""
        """The client id in the last request."""
        self.request_count = 0
        self.request_bytes = 0
        self.arrived_at = 0.0
        """The time when the request being served was complete."""
        self.handled_s = 0.0
        """The time for which the event loop was busy with the requests, until each was answered or had to wait."""
        self.received_s = 0.0
        """How long the parts of the last request that came in several of them took to come."""
        self.received_at = 0.0
        """The time when that request was complete."""
        self.served: AnswerObserver | None = None
        """The observer of the answer to the request being served."""
