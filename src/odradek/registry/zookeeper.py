"""The registry in ZooKeeper: see `zookeeper_session.py` for how it is talked to, `zookeeper_steps.py` for what is stored.

All nodes are below the path in zookeeper.connect, at paths of the same names. A node's `created` is its
czxid, its `owner` the ZooKeeper session. One more node, `/odradek`, marks the path as Odradek's and has the
registry's id: a session that is renewed and finds another one there, or none (ZooKeeper's data was wiped or
replaced), is refused.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from odradek.config.zookeeper import ZooKeeperConfig, parse_connect
from odradek.registry.port import (
    Check,
    Create,
    Delete,
    Node,
    Operation,
    Put,
    RegistryConflict,
    RegistryError,
)
from odradek.registry.watching import Watches
from odradek.registry.zookeeper_session import RefusedStep, Session
from odradek.registry.zookeeper_steps import CommitPlan, StepRefusal, ZooKeeperStep, ancestors, decode, encode
from odradek.runtime.ports import Runtime
from odradek.telemetry import events

_log = events.get("registry")
_MARK: Final = "/odradek"
_FORMAT: Final = 1
_KAFKAS: Final = ("/cluster/id", "/brokers/topics")
"""Znodes of Apache Kafka that Odradek has not."""
_AMENDMENTS_MAX: Final = 50
_OFFLOAD_FROM_BYTES: Final = 128 * 1024
_GRACE_SECONDS: Final = 3.0
"""How long a lost session may take to come back when others get in: longer than between two attempts to connect."""


class ZooKeeperRegistry:
    """A session with the registry in ZooKeeper: implements `Registry`. Open it with `open`."""

    def __init__(self, config: ZooKeeperConfig, runtime: Runtime) -> None:
        self.on_expired: Callable[[], None] = lambda: None
        self._config = config
        self._runtime = runtime
        self._connect_ms = config.connection_timeout_ms or config.session_timeout_ms
        self._chroot = parse_connect(config.connect or "").chroot
        self._watches = Watches()
        self._watched: dict[str, int] = {}
        """How many watches each znode has."""
        self._identity = ""
        self._renewing = asyncio.Lock()
        self._rescue: asyncio.Task[None] | None = None
        self._closed = False
        self._session = self._new_session()

    @classmethod
    async def open(cls, config: ZooKeeperConfig, runtime: Runtime) -> ZooKeeperRegistry:
        """Returns a session with the ZooKeeper that `zookeeper.connect` names. RegistryError or ConfigError, in one line,
        without."""
        registry = cls(config, runtime)
        await registry._session.begin(registry._connect_ms)
        try:
            await registry._settle()
        except BaseException:
            await registry.close()
            raise
        _log.info("zookeeper_connected", servers=registry._session.addresses, chroot=registry._chroot or "/")
        return registry

    @property
    def is_connected(self) -> bool:
        """True if the session has a connection now: without one it lasts for its timeout."""
        return self._session.is_connected

    @property
    def session_id(self) -> int:
        return self._session.session_id

    @property
    def password(self) -> bytes:
        """The holder of it and of the id may take the session over."""
        return self._session.password

    async def get(self, path: str) -> Node | None:
        znode = await self._session.get(self._znode(path))
        data = None if znode is None else decode(znode.data, path)
        if znode is None or data is None:
            return None
        return Node(data=data, version=znode.version, created=znode.created, owner=znode.owner)

    async def children(self, path: str) -> list[str]:
        return await self._session.children(self._znode(path))

    async def sync(self) -> None:
        await self._session.sync(self._znode("/"))

    async def commit(self, operations: Sequence[Operation]) -> None:
        session = self._session  # a commit of one session never continues in the next
        plan = CommitPlan(operations, await self._encoded(operations))
        for _ in range(_AMENDMENTS_MAX):
            refused = await session.multi([self._placed(step) for step in plan.steps()])
            if refused is None:
                return
            await self._amend(plan, operations, refused)
        raise RegistryError(f"ZooKeeper at {session.addresses} changes faster than this change can be made")

    def watch(self, path: str, on_change: Callable[[], None]) -> Callable[[], None]:
        znode = self._znode(path)
        end = self._watches.add(znode, on_change)
        self._watched[znode] = self._watched.get(znode, 0) + 1
        if self._watched[znode] == 1:
            self._session.watch(znode)
        ended = False

        def stop() -> None:
            nonlocal ended
            if not ended:
                ended = True
                end()
                self._watched[znode] -= 1
                if not self._watched[znode]:
                    del self._watched[znode]

        return stop

    async def renew(self) -> None:
        async with self._renewing:
            if self._closed:
                raise RegistryError("the registry is closed")
            if not self._session.is_over:
                return
            over, self._session = self._session, self._new_session()
            closing = asyncio.ensure_future(over.close())  # which has nothing to wait for
            try:
                await self._session.begin(self._connect_ms)
                await self._settle()
            except BaseException:
                await self._session.close()
                raise
            finally:
                await closing
        _log.info("zookeeper_session_renewed", session=f"{self.session_id:#x}")

    async def close(self) -> None:
        self._watches.clear()
        self._watched.clear()
        self._closed = True
        if self._rescue is not None:
            self._rescue.cancel()
            with suppress(asyncio.CancelledError):
                await self._rescue
        await self._session.close()

    # -- sessions

    def _new_session(self) -> Session:
        session = Session(self._config, watched=lambda: list(self._watched))
        session.on_connected = self._on_connected
        session.on_suspended = self._on_suspended
        session.on_over = self._on_over
        session.on_watched = lambda znode: self._watches.notify([znode])
        return session

    def _on_connected(self) -> None:
        if self._rescue is not None:
            self._rescue.cancel()
            _log.info("zookeeper_reconnected", servers=self._session.addresses)

    def _on_suspended(self) -> None:
        _log.warning("zookeeper_connection_lost", servers=self._session.addresses)
        if self._rescue is not None:
            self._rescue.cancel()
        self._rescue = asyncio.get_running_loop().create_task(self._detect_other_history(self._session))

    def _on_over(self) -> None:
        _log.warning(
            "zookeeper_session_over", servers=self._session.addresses, session=f"{self.session_id:#x}"
        )
        if self._rescue is not None and self._rescue is not asyncio.current_task():
            self._rescue.cancel()
        self.on_expired()

    async def _detect_other_history(self, lost: Session) -> None:
        """Detects a ZooKeeper whose data was wiped or set back: it silently refuses a session that saw more than it has.

        It does let in a new one: if the lost session is still refused then, it is over.
        """
        while True:
            await asyncio.sleep(self._config.session_timeout_ms / 1000)
            stranger = Session(self._config, watched=lambda: ())
            try:
                await stranger.begin(self._connect_ms)
            except RegistryError:
                continue
            try:
                await asyncio.sleep(_GRACE_SECONDS)
                if stranger.is_connected and lost.give_up():
                    _log.error("zookeeper_has_another_history", servers=lost.addresses)
                    return
            finally:
                await stranger.close()

    async def _settle(self) -> None:
        """Makes sure that the nodes below the path are ours: at first, and that they stay the same in every session."""
        await self._session.sync(self._znode("/"))
        for path in (*ancestors(self._chroot + "/any"),) if self._chroot else ():
            if not await self._session.exists(path):
                await self._session.multi([ZooKeeperStep(operation=None, path=path, creates=True, data=b"")])
        if self._config.set_acl:
            await self._restrict()
        mark = await self.get(_MARK)
        if mark is None and not self._identity:
            mark = await self._first_mark()
        noted = _read_mark(mark)
        if self._identity and noted != self._identity:
            raise RegistryError(
                f"ZooKeeper at {self._session.addresses} has lost what it held below {self._chroot or '/'}: restore its data; "
                "the broker does not go on with an empty registry"
            )
        self._identity = noted

    async def _restrict(self) -> None:
        """Sets the ACLs of nodes that were made before zookeeper.set.acl, against clients that do not log in."""
        root = self._znode("/")
        if not await self._session.is_open_to_all(root):
            return
        if not self._chroot:
            raise RegistryError(
                f"everyone may make and remove znodes at the root of ZooKeeper at {self._session.addresses}, in spite of "
                "zookeeper.set.acl=true: give zookeeper.connect a path of its own, as HOST:PORT/odradek, or restrict the root"
            )
        below = [root]
        for path in below:  # a parent before its children, so that nothing is added meanwhile
            await self._session.restrict(path)
            below += [f"{path}/{name}" for name in await self._session.children(path)]
        _log.info("zookeeper_restricted", chroot=self._chroot, znodes=len(below))

    async def _first_mark(self) -> Node | None:
        where = f"ZooKeeper at {self._session.addresses} below {self._chroot or '/'}"
        for path in _KAFKAS:
            if await self._session.exists(self._znode(path)):
                raise RegistryError(
                    f"{where} holds a cluster of Apache Kafka ({self._znode(path)}): give zookeeper.connect another path"
                )
        data = json.dumps({"format": _FORMAT, "id": str(self._runtime.entropy.uuid())})
        with suppress(RegistryConflict):  # another broker was faster
            await self.commit([Create(path=_MARK, data=data.encode())])
        return await self.get(_MARK)

    # -- commits

    def _znode(self, path: str) -> str:
        return (self._chroot + path.rstrip("/")) or "/"

    def _placed(self, step: ZooKeeperStep) -> ZooKeeperStep:
        return ZooKeeperStep(
            operation=step.operation,
            path=self._znode(step.path),
            creates=step.creates,
            ephemeral=step.ephemeral,
            deletes=step.deletes,
            data=step.data,
            version=step.version,
        )

    async def _encoded(self, operations: Sequence[Operation]) -> dict[int, bytes]:
        values = {
            number: operation.data
            for number, operation in enumerate(operations)
            if isinstance(operation, Create | Put)
        }
        if sum(map(len, values.values())) < _OFFLOAD_FROM_BYTES:
            return _encode_all(values)
        return await self._runtime.offload.run(_encode_all, values)

    async def _amend(self, plan: CommitPlan, operations: Sequence[Operation], refused: RefusedStep) -> None:
        """Learns from a refusal. Raises `RegistryConflict` where there is nothing to learn."""
        step, why = refused.step, refused.why
        if why is StepRefusal.CHILD_OF_EPHEMERAL:
            raise RegistryError(
                f"{step.path} cannot be made: ZooKeeper allows no children of ephemeral nodes"
            )
        if step.operation is None:
            await self._amend_parents(plan, step, why)
            return
        number, operation = step.operation, operations[step.operation]
        match operation:
            case Create(path=path) if why is StepRefusal.MISSING:
                plan.parents_are_missing(await self._missing(ancestors(path)))
            case Create() if plan.is_no_longer_mere_parent(number):
                pass
            case Create(path=path, ephemeral=ephemeral) if why is StepRefusal.EXISTS:
                znode = await self._session.get(self._znode(path))
                if znode is not None and (znode.data or ephemeral):
                    raise RegistryConflict(f"{path} exists")
                if znode is not None:
                    plan.is_mere_parent(number, znode.version)
            case Delete() if why is StepRefusal.HAS_CHILDREN:
                plan.has_children(number)
            case Create(path=path):
                raise RegistryConflict(f"{path} changes")
            case Put() | Delete() | Check():
                reason = "is missing" if why is StepRefusal.MISSING else "has another version"
                raise RegistryConflict(f"{operation.path} {reason}, not version {operation.version}")

    async def _amend_parents(self, plan: CommitPlan, step: ZooKeeperStep, why: StepRefusal) -> None:
        path = step.path[len(self._chroot) :]
        if why is StepRefusal.EXISTS:
            plan.parent_exists(path)
        else:
            plan.parents_are_missing(await self._missing([*ancestors(path), path]))

    async def _missing(self, paths: Sequence[str]) -> list[str]:
        return [path for path in paths if not await self._session.exists(self._znode(path))]


def _encode_all(values: dict[int, bytes]) -> dict[int, bytes]:
    return {number: encode(data) for number, data in values.items()}


def _read_mark(mark: Node | None) -> str:
    """Returns the registry's id; empty where there is no mark."""
    if mark is None:
        return ""
    try:
        document = json.loads(mark.data)
        identity, form = str(document["id"]), int(document["format"])  # digits: a number of our own JSON
    except (ValueError, KeyError, TypeError):
        raise RegistryError(
            f"the znode {_MARK} is not Odradek's: give zookeeper.connect another path"
        ) from None
    if form > _FORMAT:
        raise RegistryError(f"the znode {_MARK} has format {form}, of a later version: upgrade this broker")
    return identity
