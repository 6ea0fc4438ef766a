"""The other brokers, and how this one asks them: a connection for each broker and lane, made when it is needed.

A lane is a connection of its own: what must not wait for a long poll, or for ten megabytes of records, uses
another lane. Requests of one lane are pipelined and answered in order.

There are no tasks here. The first asker makes the connection, and later callers wait for that attempt and
share its end; when the first one is cancelled, the next caller continues. Attempts that fail, or end before
anything was answered, are followed by a pause that doubles up to a second, and is varied by chance: brokers
that lost the same peer do not all come back at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.model.errors import ErrorValue
from odradek.model.ids import BrokerId
from odradek.net.peer_connection import AnswerReceiver, PeerConnection, PeerUnreachable
from odradek.protocol import Message, api_by_key

if TYPE_CHECKING:
    from odradek.net.outgoing_security import OutgoingSecurity

__all__ = ["PeerUnreachable", "Peers"]

_PAUSE_S_MIN: Final = 0.05
_PAUSE_S_MAX: Final = 1.0
_DOUBLINGS_MAX: Final = 10
_CONNECT_S_MAX: Final = 10.0
"""A peer that has not accepted and greeted after this long is not there, however long the request may take."""


def _nothing(broker: BrokerId) -> None:
    return None


def _plain(broker: BrokerId) -> None:
    return None


class Peers:
    """Sends requests to the other brokers, over a connection for each broker and lane. `chance` returns a float in [0, 1).
    Used on the event loop only."""

    def __init__(
        self,
        address_of: Callable[[BrokerId], tuple[str, int] | None],
        *,
        client_id: str,
        now: Callable[[], float],
        request_timeout_s: float,
        chance: Callable[[], float],
        on_lost: Callable[[BrokerId], None] = _nothing,
        security: Callable[[BrokerId], OutgoingSecurity | None] = _plain,
    ) -> None:
        """`on_lost` is called for connections that the other broker, or the network, ended. `security` is asked for each new
        one, right after the address."""
        self._address_of = address_of
        self._client_id = client_id
        self._now = now
        self._request_timeout_s = request_timeout_s
        self._chance = chance
        self._on_lost = on_lost
        self._security = security
        self._lanes: dict[tuple[BrokerId, str], _Lane] = {}
        self._closed = False

    def send(
        self,
        broker: BrokerId,
        api_key: int,
        request: Message,
        *,
        timeout_s: float | None = None,
        lane: str = "",
        receive: AnswerReceiver | None = None,
    ) -> Awaitable[Message]:
        """Returns the broker's answer, to be awaited. PeerUnreachable, and nothing else, when there is none within `timeout_s`.
        `receive` sees its frame first, if both brokers speak the newest version.

        Where the lane is connected, the request is sent by this call, and the answer is a future: a follower that asks again
        and again saves a task, and two rounds of the loop, for each fetch.
        """
        limit_s = self._request_timeout_s if timeout_s is None else timeout_s
        known = self._lanes.get((broker, lane))
        if known is not None and not self._closed and (connection := known.ready) is not None:
            try:
                return connection.send(api_by_key(api_key), request, timeout_s=limit_s, receive=receive)
            except PeerUnreachable as error:
                return _failed(error)
        return self._connect_and_send(broker, api_key, request, limit_s, lane, receive)

    def connection(self, broker: BrokerId, lane: str) -> PeerConnection | None:
        """Returns the lane's connection, if requests may be sent on it now."""
        known = self._lanes.get((broker, lane))
        return None if known is None or self._closed else known.ready

    async def _connect_and_send(
        self,
        broker: BrokerId,
        api_key: int,
        request: Message,
        limit_s: float,
        lane: str,
        receive: AnswerReceiver | None,
    ) -> Message:
        deadline = self._now() + limit_s
        if self._closed:
            raise PeerUnreachable("this broker is stopping")
        open_lane = self._lanes.get((broker, lane))
        if open_lane is None:
            open_lane = self._lanes[broker, lane] = _Lane(
                broker,
                self._now,
                self._chance,
                self._client_id,
                partial(self._on_lost, broker),
                partial(self._security, broker),
            )
        connection = open_lane.ready
        if connection is None:
            try:
                async with asyncio.timeout(limit_s):
                    connection = await open_lane.connected(lambda: self._address_of(broker))
            except TimeoutError as error:
                raise PeerUnreachable(f"broker {broker} could not be reached within {limit_s:g} s") from error
        api = api_by_key(api_key)
        return await connection.send(
            api, request, timeout_s=max(deadline - self._now(), 0.0), receive=receive
        )

    def forget(self, broker: BrokerId) -> None:
        """Forgets a broker that moved or died: its requests under way fail now, and the next one looks its address up again."""
        for key in [key for key in self._lanes if key[0] == broker]:
            self._lanes.pop(key).close(f"broker {broker} stopped, or has another address now")

    def hang_up(self, broker: BrokerId, lane: str) -> None:
        """Ends the requests under way on the lane, which are of no use any more, so that they do not hold up later ones."""
        open_lane = self._lanes.pop((broker, lane), None)
        if open_lane is not None:
            open_lane.close(f"nothing waits for broker {broker} any more")

    async def close(self) -> None:
        """Fails all requests under way, and all later ones."""
        self._closed = True
        for lane in list(self._lanes.values()):
            lane.close("this broker is stopping")
        self._lanes.clear()
        await asyncio.sleep(0)  # asyncio lets go of a transport in the loop's next round


def _failed(error: PeerUnreachable) -> asyncio.Future[Message]:
    future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


class _Lane:
    """The connection to one broker, at most one, and the attempts to open it."""

    __slots__ = (
        "_attempt",
        "_broker",
        "_chance",
        "_client_id",
        "_closed_for",
        "_connecting",
        "_failures",
        "_last_failure",
        "_not_before",
        "_now",
        "_on_lost",
        "_security",
        "connection",
    )

    def __init__(
        self,
        broker: BrokerId,
        now: Callable[[], float],
        chance: Callable[[], float],
        client_id: str,
        on_lost: Callable[[], None],
        security: Callable[[], OutgoingSecurity | None],
    ) -> None:
        self._security = security
        self._broker = broker
        self._now = now
        self._chance = chance
        self._client_id = client_id
        self._on_lost = on_lost
        self._connecting = asyncio.Lock()
        self._failures = 0
        self._last_failure: ErrorValue[PeerUnreachable] | None = None
        self._not_before = 0.0
        self._attempt: asyncio.Timeout | None = None
        self._closed_for: str | None = None
        self.connection: PeerConnection | None = None

    @property
    def ready(self) -> PeerConnection | None:
        """The connection, if requests may be sent on it."""
        connection = self.connection
        if connection is None or connection.closed or connection.is_expiring:
            return None
        return connection

    async def connected(self, address: Callable[[], tuple[str, int] | None]) -> PeerConnection:
        """Returns the connection, made if there is none. The address is asked for when it is needed, after the pause."""
        seen = self._last_failure
        async with self._connecting:
            if self.connection is not None and not self.connection.closed:
                if not self.connection.is_expiring:
                    return self.connection
                self.connection.retire()
                self.connection = None
            if self._last_failure is not None and self._last_failure is not seen:
                raise self._last_failure.exception()
            self._note_lost()
            try:
                async with asyncio.timeout(None) as self._attempt:
                    if self._closed_for is not None:
                        raise PeerUnreachable(self._closed_for)
                    await asyncio.sleep(self._not_before - self._now())
                    self.connection = await self._open(address())
            except TimeoutError as error:  # only `close` ends the attempt so
                raise PeerUnreachable(self._closed_for or "") from error
            except PeerUnreachable as error:
                self._failed(error)
                raise PeerUnreachable(str(error), refused=error.refused) from error
            finally:
                self._attempt = None
            return self.connection

    def close(self, reason: str) -> None:
        self._closed_for = reason
        if self._attempt is not None:
            self._attempt.reschedule(asyncio.get_running_loop().time())
        if self.connection is not None:
            self.connection.close(PeerUnreachable(reason, sent=True))

    def _note_lost(self) -> None:
        """Handles the loss of the last connection: one that served is followed at once, one that did not counts as a
        failure."""
        lost, self.connection = self.connection, None
        if lost is None:
            return
        if lost.has_answered:
            self._failures = 0
            self._not_before = 0.0
        else:
            self._failed(PeerUnreachable(f"broker {self._broker} closed the connection before it answered"))

    def _failed(self, error: PeerUnreachable) -> None:
        pause_s = min(_PAUSE_S_MIN * 2 ** min(self._failures, _DOUBLINGS_MAX), _PAUSE_S_MAX)
        self._failures += 1
        self._not_before = self._now() + pause_s * (0.5 + self._chance())
        self._last_failure = ErrorValue.of(error)

    async def _open(self, address: tuple[str, int] | None) -> PeerConnection:
        if address is None:
            raise PeerUnreachable(
                f"broker {self._broker} is not among the live ones: no one knows its address"
            )
        host, port = address
        return await PeerConnection.open(
            f"broker {self._broker} at {host}:{port}",
            address,
            client_id=self._client_id,
            now=self._now,
            timeout_s=_CONNECT_S_MAX,
            on_lost=self._on_lost,
            security=self._security(),
        )
