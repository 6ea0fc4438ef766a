"""The slow requests of late, with the time of each stage: a ring of fixed size. Used on the event loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from odradek.net.connection import Connection
from odradek.protocol import APIS

_RECENT_MAX: Final = 200
LONG_POLLS: Final = frozenset({1, 11, 14, 78, 10000})
"""Fetch, JoinGroup, SyncGroup, ShareFetch and ClusterSync of our brokers wait as long as they are asked to: their waits make
them no slow requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRequest:
    """One request. Times are in milliseconds."""

    at_ms: int
    """The wall clock when its answer was sent."""
    request: str
    version: int
    client_id: str
    peer: str
    total_ms: float
    queued_ms: float
    handled_ms: float
    waited_ms: float
    response_queued_ms: float
    sent_ms: float


class SlowRequests:
    """The last slow requests. `limit_ms`: what takes longer is slow; 0: nothing is."""

    def __init__(self, limit_ms: int, wall_ms: Callable[[], int]) -> None:
        self.limit_s: Final = limit_ms / 1_000 or float("inf")
        self._wall_ms = wall_ms
        self._recent: Final[deque[SlowRequest]] = deque(maxlen=_RECENT_MAX)
        self.count = 0
        """All that there ever were."""

    def note(self, api_key: int, version: int, connection: Connection, times_s: tuple[float, ...]) -> None:
        """Notes a slow request. `times_s`: by stage, in the order of the fields."""
        times_ms = [round(seconds * 1_000, 3) for seconds in times_s]
        queued_ms, handled_ms, waited_ms, response_queued_ms, sent_ms = times_ms
        self.count += 1
        self._recent.append(
            SlowRequest(
                at_ms=self._wall_ms(),
                request=APIS[api_key].name,
                version=version,
                client_id=connection.figures.client_id,
                peer=connection.peer,
                total_ms=round(sum(times_ms), 3),
                queued_ms=queued_ms,
                handled_ms=handled_ms,
                waited_ms=waited_ms,
                response_queued_ms=response_queued_ms,
                sent_ms=sent_ms,
            )
        )

    def described(self) -> list[dict[str, object]]:
        """Returns the last ones as JSON objects, the newest first."""
        return [asdict(request) for request in reversed(self._recent)]
