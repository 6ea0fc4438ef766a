"""One session of ZooKeeper, on the event loop, out of kazoo's threads. Only this and `zookeeper_client.py` import kazoo.

kazoo has a thread for its connection and two for callbacks. Their events move to the loop, which never waits
for them. What kazoo would do by itself, and must not:

- After an expiry it opens another session and continues. Here a session is over once and for all: kazoo's
  thread sets `_is_over` under `_guard` before it gives up the old session, and no request is handed to it
  after that.
- It sends what was queued while the connection was lost, however much later. Here requests wait on this side, and are not sent
  once their caller knows that they failed.
- Watches fall with the connection. Here they are set again before any other request of a new connection.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from odradek.config.zookeeper import ZooKeeperConfig, parse_connect
from odradek.registry.port import RegistryError, SessionExpired
from odradek.registry.zookeeper_client import new_client
from odradek.registry.zookeeper_steps import StepRefusal, ZooKeeperStep
from odradek.telemetry import events

from kazoo import exceptions as refusals  # isort: skip - the import above explains itself where kazoo is missing
from kazoo.client import KazooClient, TransactionRequest  # isort: skip
from kazoo.interfaces import IAsyncResult  # isort: skip
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent  # isort: skip
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE  # isort: skip

_log = events.get("registry")
_STOP_SECONDS: Final = 5.0
_IN_FLIGHT_MAX: Final = 200
"""kazoo's wake-up socket, to which each request writes a byte, must never be full: the loop would wait."""

_MAY_READ: Final = 1
_Send = Callable[[KazooClient], IAsyncResult]
_REFUSALS: Final = {
    refusals.NodeExistsError: StepRefusal.EXISTS,
    refusals.NoNodeError: StepRefusal.MISSING,
    refusals.BadVersionError: StepRefusal.VERSION,
    refusals.NotEmptyError: StepRefusal.HAS_CHILDREN,
    refusals.NoChildrenForEphemeralsError: StepRefusal.CHILD_OF_EPHEMERAL,
}
_NOT_THE_REASON: Final = (refusals.RolledBackError, refusals.RuntimeInconsistency)
"""ZooKeeper's errors for the steps before and after the one that it refused."""
_LOST: Final = (refusals.ConnectionLoss, refusals.OperationTimeoutError)
_OVER: Final = (refusals.SessionExpiredError, refusals.ConnectionClosedError, refusals.AuthFailedError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Znode:
    """A znode as it is stored."""

    data: bytes
    version: int
    created: int
    owner: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedStep:
    """The refused step of a multi; nothing was changed."""

    step: ZooKeeperStep
    why: StepRefusal


class Session:
    """One session of ZooKeeper, used from the event loop. Begin it with `begin`; it ends with `close`, or by itself
    (`on_over`). Paths are ZooKeeper's."""

    def __init__(self, config: ZooKeeperConfig, *, watched: Callable[[], Iterable[str]]) -> None:
        self.addresses = parse_connect(config.connect or "").addresses
        self.session_id = 0
        self.password = b""
        self.is_connected = False
        self.on_connected: Callable[[], None] = lambda: None
        """The connection came (back); watchers will be called."""
        self.on_suspended: Callable[[], None] = lambda: None
        self.on_over: Callable[[], None] = lambda: None
        """Called once, unless `close` was called before."""
        self.on_watched: Callable[[str], None] = lambda path: None
        """The node or its children may have changed, and the next change will be reported, too."""
        self._config = config
        self._watched = watched
        self._timeout_s = config.session_timeout_ms / 1000
        self._in_flight_max = min(config.max_in_flight_requests, _IN_FLIGHT_MAX)
        self._acl = CREATOR_ALL_ACL if config.set_acl else OPEN_ACL_UNSAFE
        self._loop = asyncio.get_running_loop()
        self._guard = threading.Lock()
        self._is_over = False
        self._is_closed = False
        self._login_failed = False
        self._connection = 0
        """Grows with every connection."""
        self._waiting: deque[tuple[_Send, asyncio.Future[object]]] = deque()
        self._in_flight = 0
        self._watchers: dict[str, _Watcher] = {}
        self._wakened: list[asyncio.Future[None]] = []
        self._client, self._threads = new_client(config)
        self._client.add_listener(self._heard)

    # -- its life

    async def begin(self, timeout_ms: int) -> None:
        """Returns once there is a session. RegistryError, in one line, when there is none in time."""
        self._client.start_async()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._until(lambda: self._connection > 0 or self._is_over)
        except TimeoutError:
            await self.close()
            raise RegistryError(
                f"cannot reach ZooKeeper at {self.addresses} within {timeout_ms} ms "
                f"({self._threads.trouble or 'no answer'}): start it, or correct zookeeper.connect"
            ) from None
        except BaseException:
            await self.close()
            raise
        if self._is_over:
            refusal = self._over()
            await self.close()
            raise refusal

    async def close(self) -> None:
        """Ends the session: idempotent, and bounded in time where ZooKeeper does not answer."""
        self._is_closed = True
        with self._guard:
            self._is_over = True
        self.is_connected = False
        self._fail_waiting()
        self._wake()
        stopped = self._loop.create_future()
        threading.Thread(target=self._stop, args=(stopped,), name="zookeeper-stop", daemon=True).start()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await stopped
        except TimeoutError:
            _log.warning("zookeeper_not_closed", servers=self.addresses, session=f"{self.session_id:#x}")

    def give_up(self) -> bool:
        """Treats the session as over although ZooKeeper did not report it; returns False when the connection is back."""
        if self.is_connected or self._is_over:
            return False
        with self._guard:
            self._is_over = True
        self._ended()
        return True

    @property
    def is_over(self) -> bool:
        return self._is_over

    # -- requests

    async def get(self, path: str) -> Znode | None:
        try:
            data, stat = await self._read(lambda client: client.get_async(path))
        except refusals.NoNodeError:
            return None
        return Znode(data=data or b"", version=stat.version, created=stat.czxid, owner=stat.ephemeralOwner)

    async def exists(self, path: str) -> bool:
        return await self._read(lambda client: client.exists_async(path)) is not None

    async def children(self, path: str) -> list[str]:
        try:
            return sorted(await self._read(lambda client: client.get_children_async(path)))
        except refusals.NoNodeError:
            return []

    async def sync(self, path: str) -> None:
        await self._read(lambda client: client.sync_async(path))

    async def is_open_to_all(self, path: str) -> bool:
        """Returns whether clients without a login may change this znode, or make and remove others below it."""
        acl, _ = await self._read(lambda client: client.get_acls_async(path))
        return any(entry.id.scheme == "world" and entry.perms & ~_MAY_READ for entry in acl)

    async def restrict(self, path: str) -> None:
        """Restricts this znode to clients that log in as this session did."""
        await self._read(lambda client: client.set_acls_async(path, self._acl))

    async def multi(self, steps: Sequence[ZooKeeperStep]) -> RefusedStep | None:
        """Takes all of the steps or none. Raises RegistryError where the outcome is unknown."""
        connection = self._connection
        try:
            results = await self._call(lambda client: self._transaction(client, steps).commit_async())
        except _LOST:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timeout_s):
                    await self._until(lambda: self._connection > connection or self._is_over)
            if self._is_over:
                raise self._over() from None
            raise RegistryError(
                f"the connection to ZooKeeper at {self.addresses} was lost during a change: it may have been made or not"
            ) from None
        for step, outcome in zip(steps, results, strict=False):
            if isinstance(outcome, Exception) and not isinstance(outcome, _NOT_THE_REASON):
                if type(outcome) in _REFUSALS:
                    return RefusedStep(step=step, why=_REFUSALS[type(outcome)])
                raise self._trouble(outcome, step.path)
        if any(isinstance(outcome, Exception) for outcome in results):
            raise self._trouble(results[-1], "")  # it names no step as the reason
        return None

    def watch(self, path: str) -> None:
        """Makes `on_watched` be called for every change that follows a request made later."""
        if self.is_connected:
            self._waiting.extend(self._arming(path, EventType.NONE))
            self._pump()

    def _transaction(self, client: KazooClient, steps: Sequence[ZooKeeperStep]) -> TransactionRequest:
        transaction = client.transaction()
        for step in steps:
            if step.creates:
                transaction.create(step.path, step.data, acl=self._acl, ephemeral=step.ephemeral)
            elif step.deletes:
                transaction.delete(step.path, step.version)
            elif step.data is not None:
                transaction.set_data(step.path, step.data, step.version)
            else:
                transaction.check(step.path, step.version)
        return transaction

    async def _read(self, send: _Send) -> Any:
        """Makes a request that may be repeated when its answer was lost."""
        deadline = self._loop.time() + self._timeout_s
        while True:
            try:
                return await self._call(send)
            except _LOST:
                if self._loop.time() > deadline:
                    raise RegistryError(
                        f"the connection to ZooKeeper at {self.addresses} is lost again and again"
                    ) from None

    async def _call(self, send: _Send) -> Any:
        """Makes a call that the session's timeout limits. Raises kazoo's exceptions for those that the caller may
        understand."""
        if self._is_over:
            raise self._over()
        future = self._loop.create_future()
        self._waiting.append((send, future))
        self._pump()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await future
        except TimeoutError:
            raise RegistryError(
                f"ZooKeeper at {self.addresses} did not answer within {self._timeout_s:g} s "
                f"({self._threads.trouble or 'the connection is up'}): a change may have been made or not"
            ) from None
        except _OVER:
            raise self._over() from None
        except (*_REFUSALS, *_LOST):
            raise
        except refusals.KazooException as error:
            raise self._trouble(error, "") from None

    def _pump(self) -> None:
        while self.is_connected and self._waiting and self._in_flight < self._in_flight_max:
            send, future = self._waiting.popleft()
            if future.done():  # its caller was cancelled
                continue
            with self._guard:
                if self._is_over:
                    future.set_exception(refusals.SessionExpiredError())
                    continue
                pending = send(self._client)
            self._in_flight += 1
            pending.rawlink(partial(self._hop, self._answered, future))

    def _answered(self, future: asyncio.Future[object], pending: IAsyncResult) -> None:
        self._in_flight -= 1
        if not future.done():
            if pending.exception is None:
                future.set_result(pending.value)
            else:
                future.set_exception(pending.exception)
        self._pump()

    # -- events of kazoo's threads

    def _hop(self, act: Callable[..., None], *arguments: object) -> None:
        """Calls `act` on the event loop, from any thread."""
        with suppress(RuntimeError):  # the loop is closed: no one listens any more
            self._loop.call_soon_threadsafe(act, *arguments)

    def _heard(self, state: str) -> None:
        """Handles a new state on kazoo's thread, before kazoo does anything else about it."""
        if state == KazooState.LOST:
            login_failed = self._client.client_state == KeeperState.AUTH_FAILED
            with self._guard:
                if self._is_over:
                    return
                self._is_over = True
            self._login_failed = login_failed
            self._hop(self._ended)
        elif state == KazooState.CONNECTED and not self._is_over:
            self._threads.is_greeted = True
            self._hop(self._connected, self._client.client_id)
        elif state == KazooState.SUSPENDED:
            self._hop(self._suspended)

    def _connected(self, client_id: tuple[int, bytes] | None) -> None:
        if self._is_over:
            return
        if client_id is not None:
            self.session_id, self.password = client_id
        self._threads.trouble = ""
        self._connection += 1
        self.is_connected = True
        for path in self._watched():
            self._waiting.extendleft(reversed(self._arming(path, EventType.NONE)))
        self._pump()
        self.on_connected()
        self._wake()

    def _suspended(self) -> None:
        if self._is_over:
            return
        self.is_connected = False
        self.on_suspended()

    def _ended(self) -> None:
        self.is_connected = False
        self._fail_waiting()
        self._wake()
        if not self._is_closed:
            self.on_over()

    def _fired(self, path: str, kind: str) -> None:
        if kind == EventType.NONE or self._is_over:  # a new connection sets its watches itself
            return
        if path in self._watched() and self.is_connected:
            self._waiting.extend(self._arming(path, kind))
            self._pump()

    def _arming(self, path: str, kind: str) -> list[tuple[_Send, asyncio.Future[object]]]:
        """Returns the requests that watch the node and its children again, after an event of this kind (NONE: at first).

        The node goes first: where it is missing its children cannot be watched, but its creation is reported. A watcher is
        called once both are set: that covers what happened meanwhile.
        """
        watcher = self._watchers.setdefault(path, _Watcher(self, path))
        sends: list[_Send] = []
        if kind != EventType.CHILD:
            sends.append(lambda client: client.exists_async(path, watch=watcher))
        if kind != EventType.CHANGED:
            sends.append(lambda client: client.get_children_async(path, watch=watcher))
        armed: list[asyncio.Future[object]] = [self._loop.create_future() for _ in sends]
        for future in armed[:-1]:
            future.add_done_callback(asyncio.Future.exception)  # the last of them tells
        armed[-1].add_done_callback(partial(self._armed, path))
        return list(zip(sends, armed, strict=True))

    def _armed(self, path: str, future: asyncio.Future[object]) -> None:
        error = future.exception()
        if error is None or isinstance(error, refusals.NoNodeError):
            if path in self._watched():
                self.on_watched(path)
        elif isinstance(error, refusals.OperationTimeoutError):
            self.watch(path)
        elif not isinstance(error, (*_LOST, *_OVER, SessionExpired)):
            _log.error("zookeeper_watch_refused", path=path, error=self._trouble(error, path))

    # -- waiting and ending

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            news: asyncio.Future[None] = self._loop.create_future()
            self._wakened.append(news)
            await news

    def _wake(self) -> None:
        wakened, self._wakened = self._wakened, []
        for news in wakened:
            _finish(news)

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(self._over())

    def _stop(self, stopped: asyncio.Future[None]) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:  # noqa: BLE001 - the root of the thread
            _log.debug("zookeeper_stop_failed", error=error)
        self._hop(_finish, stopped)

    def _over(self) -> RegistryError:
        if self._login_failed:
            return SessionExpired(
                f"ZooKeeper at {self.addresses} refuses the user {self._config.username!r}: correct "
                "odradek.zookeeper.username, .password or .auth.scheme"
            )
        return SessionExpired(f"the session with ZooKeeper at {self.addresses} is over")

    def _trouble(self, error: BaseException, path: str) -> RegistryError:
        where = f" at {path}" if path else ""
        if isinstance(error, refusals.NoAuthError):
            user = self._config.username
            who = f"the user {user!r}" if user else "who is not logged in (odradek.zookeeper.username)"
            return RegistryError(
                f"ZooKeeper at {self.addresses} refuses access{where} to {who}: log in as the broker that made its znodes"
            )
        if isinstance(error, refusals.InvalidACLError):
            return RegistryError(
                f"ZooKeeper at {self.addresses} knows no one to protect znodes for: with zookeeper.set.acl=true the broker has "
                "to log in (odradek.zookeeper.username, or a certificate that ZooKeeper asks for)"
            )
        return RegistryError(
            f"ZooKeeper at {self.addresses} refuses the request{where}: {type(error).__name__} {error}".strip()
        )


class _Watcher:
    """The watcher that kazoo calls: one object for a path, so that setting a watch twice is setting it once."""

    __slots__ = ("_path", "_session")

    def __init__(self, session: Session, path: str) -> None:
        self._session = session
        self._path = path

    def __call__(self, event: WatchedEvent) -> None:
        self._session._hop(self._session._fired, self._path, event.type)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
