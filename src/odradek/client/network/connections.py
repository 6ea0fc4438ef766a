"""Connections to brokers by address: opened when one is needed, shared, closed when idle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.client.network.backoff import Backoff
from odradek.client.network.connection import BrokerConnection, BrokerIdentity, MisroutedError
from odradek.client.network.errors import BrokerUnreachableError, ClientClosedError, explain
from odradek.client.settings.address import Address
from odradek.client.settings.settings import ClientSettings
from odradek.model.errors import KafkaError
from odradek.model.lazy import lazy
from odradek.runtime.ports import Clock, Entropy
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.client.network import security as network_security
else:
    network_security = lazy("odradek.client.network.security")

_log = events.get("client")
RESTART_S: Final = 3.0
"""The time for which a broker that was reachable may be away before it is logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnreachableAddress:
    """An address that could not be reached: since when, how often in a row, when to try again, and whether the log has it."""

    since: float
    failure_count: int
    retry_at: float
    is_reported: bool


class BrokerConnections:
    """Connections to brokers, at most one per address. Lives on one event loop."""

    def __init__(self, settings: ClientSettings, clock: Clock, entropy: Entropy) -> None:
        self._settings = settings
        self._clock = clock
        self._backoff = Backoff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, entropy)
        self._open: dict[Address, BrokerConnection] = {}
        self._opening: dict[Address, asyncio.Task[BrokerConnection]] = {}
        self._troubles: dict[Address, _UnreachableAddress] = {}
        self._reached: set[Address] = set()
        self._idle_timers: dict[BrokerConnection, asyncio.TimerHandle] = {}
        self._misrouted: set[Address] = set()
        """Addresses at which another broker answered: the next connection takes whichever is there, to ask who is where."""
        self.identity: Callable[[Address], BrokerIdentity | None] = _unknown_broker
        """Returns the broker that should be at an address; None where that is not known."""
        self._closed = False
        self._security = (
            None
            if settings.security_protocol == "PLAINTEXT"
            else network_security.outgoing_security(settings)
        )
        self.on_change: Callable[[], None] = _nothing
        """Called when a connection was made or lost, or takes bytes again."""
        self.on_trouble: Callable[[], object] = _nothing
        """Called when a broker hung up or could not be reached: its partitions may have moved."""

    def ready(self, address: Address) -> BrokerConnection | None:
        """Returns the connection, if there is one now."""
        connection = self._open.get(address)
        return connection if connection is not None and not connection.closed else None

    def is_unreachable(self, address: Address) -> bool:
        """Returns whether the last attempt to connect failed."""
        return address in self._troubles

    def begin(self, address: Address) -> None:
        """Begins to connect, unless there is a connection or an attempt; `on_change` tells how it went. Does not wait."""
        if self._closed or self.ready(address) is not None or address in self._opening:
            return
        task = asyncio.get_running_loop().create_task(
            self._connect(address), name=f"odradek-connect-{address}"
        )
        self._opening[address] = task
        task.add_done_callback(partial(self._opened, address))

    async def get(self, address: Address) -> BrokerConnection:
        """Returns the connection, made if need be. After failures it waits a while first (reconnect.backoff.ms)."""
        if self._closed:
            raise ClientClosedError("client")
        connection = self.ready(address)
        if connection is not None:
            return connection
        self.begin(address)
        try:
            return await asyncio.shield(self._opening[address])
        except asyncio.CancelledError:
            if self._closed:
                raise ClientClosedError("client") from None
            raise

    def least_loaded(self) -> BrokerConnection | None:
        """Returns an open connection with the fewest requests under way; None if none is open."""
        usable = [connection for connection in self._open.values() if not connection.closed]
        return min(usable, key=lambda connection: connection.in_flight, default=None)

    def abandon(self, addresses: Iterable[Address]) -> None:
        """Closes the connections to these brokers: the client looks for others. Requests under way fail, and are retriable."""
        for address in addresses:
            connection = self._open.pop(address, None)  # first, so that it does not look like trouble
            if connection is not None:
                reason = BrokerUnreachableError(
                    f"the client bootstraps again, and leaves the broker at {address}"
                )
                connection.close(reason)
        self._changed()

    @property
    def open_count(self) -> int:
        """The number of open connections. Called from any thread."""
        return sum(not connection.closed for connection in list(self._open.values()))

    @property
    def in_flight(self) -> int:
        """The number of requests that wait for an answer. Called from any thread."""
        return sum(connection.in_flight for connection in list(self._open.values()))

    async def close(self) -> None:
        """Close all; requests under way fail."""
        self._closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        for timer in self._idle_timers.values():
            timer.cancel()
        self._idle_timers.clear()
        for connection in list(self._open.values()):
            connection.close(BrokerUnreachableError("the client was closed"))
        self._open.clear()
        await asyncio.sleep(0)  # lets the transports finish closing

    async def _connect(self, address: Address) -> BrokerConnection:
        trouble = self._troubles.get(address)
        if trouble is not None:
            await asyncio.sleep(max(0.0, trouble.retry_at - self._clock.monotonic()))
        try:
            identity = None if address in self._misrouted else self.identity(address)
            connection = await BrokerConnection.open(
                address, self._settings, self._clock, self._security, identity
            )
        except KafkaError as error:
            if isinstance(error, MisroutedError):
                self._misrouted.add(address)
            self._note(address, trouble, error)
            raise
        self._misrouted.discard(address)
        self._troubles.pop(address, None)
        self._reached.add(address)
        connection.on_closed = partial(self._lost, connection)
        connection.on_writable = self._changed
        self._open[address] = connection
        self._watch_idleness(connection)
        return connection

    def _note(self, address: Address, trouble: _UnreachableAddress | None, error: KafkaError) -> None:
        """Notes a failure to connect. A broker that was there may restart, so the log has it only when it stays away."""
        now = self._clock.monotonic()
        failures, since, is_reported = (
            (0, now, False)
            if trouble is None
            else (trouble.failure_count, trouble.since, trouble.is_reported)
        )
        if not is_reported and (address not in self._reached or now - since >= RESTART_S):
            is_reported = True
            _log.warning("broker_unreachable", reason=explain(error))
        self._troubles[address] = _UnreachableAddress(
            since=since,
            failure_count=failures + 1,
            retry_at=now + self._backoff.delay_s(failures),
            is_reported=is_reported,
        )

    def _opened(self, address: Address, task: asyncio.Task[BrokerConnection]) -> None:
        self._opening.pop(address, None)
        if task.cancelled():
            return
        if task.exception() is not None:  # its waiter has it; if no one does, it is no bug
            self._in_trouble()
        self._changed()

    def _lost(self, connection: BrokerConnection) -> None:
        timer = self._idle_timers.pop(connection, None)
        if timer is not None:
            timer.cancel()
        if self._open.get(connection.address) is connection:
            del self._open[connection.address]
            self._in_trouble()
            self._changed()

    def _in_trouble(self) -> None:
        if not self._closed:
            self.on_trouble()

    def _changed(self) -> None:
        if not self._closed:
            self.on_change()

    def _watch_idleness(self, connection: BrokerConnection) -> None:
        limit_s = self._settings.connections_max_idle_ms / 1000
        if limit_s < 0 or connection.closed or self._closed:
            return
        left_s = limit_s - connection.idle_s
        if left_s <= 0:
            self._open.pop(connection.address, None)  # first, so that it does not look like trouble
            connection.close()
            return
        self._idle_timers[connection] = asyncio.get_running_loop().call_later(
            left_s, self._watch_idleness, connection
        )


def _nothing() -> None:
    return None


def _unknown_broker(address: Address) -> None:
    return None
