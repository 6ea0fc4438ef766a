"""A simulated coordination service, as ZooKeeper is one: one true store, and clients that see it late or not at all.

`SimRegistryStore` is the service; `connect` gives a life of a host its session. A request travels to the store and the answer
back, in order, each for as long as drawn; the connection may break before the store saw the request or after. Reads come from a
replica of the client's own that follows the store late, so that they are stale until `sync`. A session that the store has not
heard from for its timeout ends, and its client learns of it only when it reaches the store again: a crashed host stops
its heartbeats, and nothing else. What the store does runs as no one's; what a client does runs as its host's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import TypeVar

from odradek.registry.port import Node, Operation, RegistryError, SessionExpired
from odradek.registry.tree import Change, Tree
from odradek.registry.watching import Watches
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.failures import HostCrashed
from odradek.testing.sim.network import CURRENT
from odradek.testing.sim.world import World

T = TypeVar("T")
Span = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConditions:
    """The behaviour of the service; values are drawn evenly from spans, in seconds."""

    latency_s: Span = (0.0002, 0.003)
    """The latency of one direction."""
    lag_s: Span = (0.0, 0.03)
    """The lag of the replica that a client reads from."""
    watch_delay_s: Span = (0.0, 0.01)
    """The delay from the replica's change to the call of the watch."""
    loss: float = 0.0
    """The share of requests during which the connection breaks; half of them reached the store."""
    reconnect_s: Span = (0.01, 0.2)
    request_timeout_s: float = 2.0
    """A client without a connection gives up a request after this."""


class SimRegistryStore:
    """The service. What happens to a client is done here, by the name it connected with."""

    def __init__(
        self, world: World, *, session_timeout_s: float = 6.0, conditions: RegistryConditions | None = None
    ) -> None:
        self.world = world
        self.session_timeout_s = session_timeout_s
        self.conditions = conditions or RegistryConditions()
        self.tree = Tree()
        """The truth, for checkers."""
        self.commit_count = 0
        self._sessions: dict[int, SimRegistry] = {}
        self._heard: dict[int, float] = {}
        self._last_session = 0
        self._clients: dict[str, SimRegistry] = {}
        self._cut_off: dict[str, None] = {}
        self._connected_count = 0

    async def connect(self, name: str) -> SimRegistry:
        """Returns a session for the host's present life; call it from a task of that life, which ends the client, too.

        Waits until the store is reached.
        """
        self._connected_count += 1
        client = SimRegistry(self, name, number=self._connected_count)
        self._clients[name] = client
        if self.is_cut_off(name):
            client.lose_connection()
        while True:
            try:
                await client.begin()
            except RegistryError:
                self.world.trace.note("registry not reached", name)
            else:
                return client

    # -- for the nemesis -------------------------------------------------------------------------------------

    def cut_off(self, name: str) -> None:
        """Cuts this host off: nothing reaches the store, or comes back from it, until `heal`."""
        self._cut_off[name] = None
        self.world.trace.note("registry cut off", name)
        if name in self._clients:
            self._clients[name].lose_connection()

    def heal(self, name: str | None = None) -> None:
        """Let this host through again; all of them without a name."""
        for host in [name] if name is not None else list(self._cut_off):
            self._cut_off.pop(host, None)
            if host in self._clients:
                self._clients[host].reconnect_soon()

    def drop_connection(self, name: str) -> None:
        """Break the host's connection once: requests under way have an unknown outcome."""
        if name in self._clients:
            self._clients[name].lose_connection()
            self._clients[name].reconnect_soon()

    def expire(self, name: str) -> None:
        """End the host's session now, as if the service had not heard from it."""
        client = self._clients.get(name)
        if client is not None and client.session_id in self._sessions:
            self.end_session(client.session_id, why="forced")

    def is_cut_off(self, name: str) -> bool:
        return name in self._cut_off

    # -- for clients -----------------------------------------------------------------------------------------

    def now(self) -> float:
        return self.world.loop.time()

    def later(self, delay_s: float, act: Callable[..., None], *arguments: object) -> None:
        """Calls `act` at the store, after the delay."""
        self.at(self.now() + delay_s, act, *arguments)

    def at(self, when_s: float, act: Callable[..., None], *arguments: object) -> None:
        self.world.loop.call_at(when_s, act, *arguments, context=self.world.network.kernel)

    def begin_session(self, client: SimRegistry) -> int:
        self._last_session += 1
        session = self._last_session
        self._sessions[session] = client
        self.heard_from(session)
        self.later(self.session_timeout_s, self._check_session, session)
        self.world.trace.note("registry session", client.name, session)
        return session

    def heard_from(self, session: int) -> None:
        self._heard[session] = self.now()

    def has_session(self, session: int) -> bool:
        return session in self._sessions

    def _check_session(self, session: int) -> None:
        if session not in self._sessions:
            return
        left = self._heard[session] + self.session_timeout_s - self.now()
        if left <= 1e-9:
            self.end_session(session, why="expired")
        else:
            self.later(left, self._check_session, session)

    def end_session(self, session: int, *, why: str) -> None:
        client = self._sessions.pop(session)
        del self._heard[session]
        self.world.trace.note("registry session ended", client.name, session, why)
        gone: list[Change] = [(path, None) for path in self.tree.owned_by(session)]
        if gone:
            self._apply(gone)
        client.session_ended(session)

    def commit(self, operations: Sequence[Operation], session: int) -> None:
        if session not in self._sessions:
            raise SessionExpired("the registry ended the session: begin another")
        self.heard_from(session)
        changes = self.tree.decide(operations, session)
        self.world.trace.note("registry commit", session, [path for path, _ in changes])
        if changes:
            self._apply(changes)

    def _apply(self, changes: list[Change]) -> None:
        self.commit_count += 1
        self.tree.apply(changes)
        for session, client in list(self._sessions.items()):
            client.follow(changes, session)


class SimRegistry:
    """The registry session of one life of a host: implements `Registry`."""

    def __init__(self, store: SimRegistryStore, name: str, *, number: int) -> None:
        self.name = name
        self.on_expired: Callable[[], None] = lambda: None
        self._store = store
        self._context = copy_context()
        self._rng = stream(store.world.seed, f"registry {name}/{number}")
        self._watches = Watches()
        self._session = 0
        self._is_over = True
        """Whether the session has ended, as far as this side knows."""
        self._closed = False
        self._interface = CURRENT.get()
        self._replica = Tree()
        self._replica_session = 0
        """The session in which the replica follows the store; ahead of `_session` while its answer is on its way."""
        self._behind: deque[list[Change]] = deque()
        """Commits that the replica has not made yet, oldest first."""
        self._made = 0
        self._replica_due = self._sent_until = self._answered_until = 0.0
        self._is_connected = True
        self._connection = 0
        """Counts connections: what was sent over an earlier one gets no answer."""
        self._waiting: dict[asyncio.Future[None], None] = {}
        """Ends (with an error) when the connection does."""
        self._back = asyncio.Event()
        self._back.set()
        self._heart: asyncio.Task[None] | None = None

    @property
    def _conditions(self) -> RegistryConditions:
        return self._store.conditions

    @property
    def _lives(self) -> bool:
        return self._interface is None or self._interface.is_alive

    # -- the port --------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        return self._session

    async def get(self, path: str) -> Node | None:
        return await self._call_store(lambda: self._replica.nodes.get(path))

    async def children(self, path: str) -> list[str]:
        return await self._call_store(lambda: self._replica.children(path))

    async def commit(self, operations: Sequence[Operation]) -> None:
        operations = list(operations)
        session = self._session

        def at_store() -> None:
            self._store.commit(operations, session)
            self._catch_up()

        await self._call_store(at_store)

    async def sync(self) -> None:
        await self._call_store(self._catch_up)

    def watch(self, path: str, on_change: Callable[[], None]) -> Callable[[], None]:
        return self._watches.add(path, on_change)

    async def renew(self) -> None:
        if self._is_over and not self._closed:
            await self.begin()
            self._watches.notify_all()

    async def close(self) -> None:
        if self._closed:
            return
        self._watches.clear()
        self._is_over = True
        if self._heart is not None:
            self._heart.cancel()
        try:
            await self._call_store(self._end, needs_session=False)
        except RegistryError:
            self._store.world.trace.note("registry close unheard", self.name)
        finally:
            self._closed = True

    # -- what the store does ---------------------------------------------------------------------------------

    def follow(self, changes: list[Change], session: int) -> None:
        """Follows a commit: the replica makes it after its lag."""
        if session != self._replica_session:
            return
        loop = self._store.world.loop
        self._behind.append(changes)
        self._replica_due = max(self._replica_due, loop.time() + self._drawn(self._conditions.lag_s))
        self._store.at(self._replica_due, self._catch_up_to, self._made + len(self._behind))

    def session_ended(self, session: int) -> None:
        """Notes that the store ended the session: connected clients learn of it after a while, others when they are back."""
        if self._is_connected:
            self._later(self._conditions.latency_s, self._learn_of_end, session)

    # -- the replica -----------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        self._catch_up_to(self._made + len(self._behind))

    def _catch_up_to(self, count: int) -> None:
        while self._made < count:
            touched = self._replica.apply(self._behind.popleft())
            self._made += 1
            if self._is_connected:
                self._later(self._conditions.watch_delay_s, self._notify, touched)

    def _notify(self, touched: list[str]) -> None:
        if self._is_connected and self._lives and not self._closed:
            self._watches.notify(touched)

    # -- the connection --------------------------------------------------------------------------------------

    def lose_connection(self) -> None:
        self._is_connected = False
        self._connection += 1
        self._back.clear()
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(
                    RegistryError("the connection to the registry broke: the outcome is unknown")
                )
        self._waiting.clear()

    def reconnect_soon(self) -> None:
        self._later(self._conditions.reconnect_s, self._reconnect)

    def _reconnect(self) -> None:
        if self._is_connected or (self._closed or not self._lives) or self._store.is_cut_off(self.name):
            return
        self._is_connected = True
        self._back.set()
        if self._session and not self._store.has_session(self._session):
            self._learn_of_end(self._session)
        elif self._session:
            self._store.heard_from(self._session)
        self._watches.notify_all()

    def _learn_of_end(self, session: int) -> None:
        if (
            session == self._session
            and not self._is_over
            and self._lives
            and not self._closed
            and self._is_connected
        ):
            self._is_over = True
            self._store.world.trace.note("registry session end reported", self.name, session)
            self.on_expired()

    # -- sessions --------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        session = await self._call_store(self._begin, needs_session=False)
        self._session, self._is_over = session, False
        if self._heart is not None:
            self._heart.cancel()
        self._heart = asyncio.create_task(self._beat(), name=f"registry heartbeats of {self.name}")

    def _begin(self) -> int:
        """Begins a session at the store. The replica starts as a copy of the store's tree."""
        self._catch_up()
        truth = self._store.tree
        self._replica = Tree()
        self._replica.apply(list(truth.nodes.items()))
        self._replica.commits = truth.commits
        self._replica_session = self._store.begin_session(self)
        return self._replica_session

    def _end(self) -> None:
        if self._store.has_session(self._session):
            self._store.end_session(self._session, why="closed")

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._store.session_timeout_s / 3)
            session = self._session
            if self._is_connected:
                self._store.later(self._drawn(self._conditions.latency_s), self._heartbeat_arrives, session)

    def _heartbeat_arrives(self, session: int) -> None:
        if self._is_connected and self._store.has_session(session):
            self._store.heard_from(session)

    # -- requests --------------------------------------------------------------------------------------------

    async def _call_store(self, at_store: Callable[[], T], *, needs_session: bool = True) -> T:
        """Have `at_store` called at the store, in the order of asking, and return or raise what it does."""
        if not self._lives:
            raise HostCrashed
        if self._closed:
            raise RegistryError("the registry is closed")
        await self._connected()
        if needs_session and self._is_over:
            raise SessionExpired("the registry ended the session: begin another")
        loop = self._store.world.loop
        answered: asyncio.Future[None] = loop.create_future()
        outcome: list[T] = []
        self._waiting[answered] = None
        breaks = self._rng.random() < self._conditions.loss
        arrives = breaks and self._rng.random() < 0.5
        self._sent_until = max(self._sent_until, loop.time() + self._drawn(self._conditions.latency_s))
        self._store.at(
            self._sent_until, self._arrive, self._connection, at_store, outcome, answered, breaks, arrives
        )
        try:
            await answered
        finally:
            self._waiting.pop(answered, None)
        return outcome[0]

    def _arrive(
        self,
        connection: int,
        at_store: Callable[[], T],
        outcome: list[T],
        answered: asyncio.Future[None],
        breaks: bool,
        arrives: bool,
    ) -> None:
        if connection != self._connection and self._rng.random() < 0.5:
            return  # lost with its connection; the other half was already on its way
        error: Exception | None = None
        if arrives or not breaks:
            try:
                outcome.append(at_store())
            except Exception as raised:  # noqa: BLE001 - it belongs to the asker
                error = raised
        if breaks and connection == self._connection:
            self.lose_connection()
            self.reconnect_soon()
            return
        loop = self._store.world.loop
        self._answered_until = max(
            self._answered_until, loop.time() + self._drawn(self._conditions.latency_s)
        )
        loop.call_at(
            self._answered_until, self._if_alive, self._answer, (answered, error), context=self._context
        )

    def _answer(self, answered: asyncio.Future[None], error: Exception | None) -> None:
        if answered.done():
            return
        if error is None:
            answered.set_result(None)
        else:
            answered.set_exception(error)
            if isinstance(error, SessionExpired):
                self._learn_of_end(self._session)

    async def _connected(self) -> None:
        if self._is_connected:
            return
        try:
            await asyncio.wait_for(self._back.wait(), self._conditions.request_timeout_s)
        except TimeoutError:
            raise RegistryError(
                f"{self.name} cannot reach the registry: is it running, and the network up?"
            ) from None

    def _later(self, span: Span, act: Callable[..., None], *arguments: object) -> None:
        self._store.world.loop.call_later(
            self._drawn(span), self._if_alive, act, arguments, context=self._context
        )

    def _if_alive(self, act: Callable[..., None], arguments: tuple[object, ...]) -> None:
        if self._lives:
            act(*arguments)

    def _drawn(self, span: Span) -> float:
        return self._rng.uniform(*span)
