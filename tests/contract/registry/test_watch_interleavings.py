"""No watch is lost: whatever is interleaved, once all is quiet a client that reads again after each call knows the truth."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kit.waiting import until

from odradek.registry import (
    Create,
    Delete,
    Node,
    Put,
    Registry,
    RegistryConflict,
    RegistryError,
    SessionExpired,
)

Store = Any
_NAMES = ("a", "b")
_SESSIONS = 3
_roots = count()

STEP = st.tuples(
    st.integers(0, _SESSIONS - 1),
    st.sampled_from(
        ["create", "create", "ephemeral", "put", "put", "delete", "expire", "lose", "pause", "pause"]
    ),
    st.sampled_from(_NAMES),
)


class Watcher:
    """A session that keeps a view of some nodes by re-reading what it hears of."""

    def __init__(self, registry: Registry, root: str) -> None:
        self.registry = registry
        self.root = root
        self.view: dict[str, object] = {}
        self._again: dict[str, bool] = {}
        self._tasks: list[asyncio.Task[None]] = []
        registry.on_expired = self._expired
        for path in (root, *(f"{root}/{name}" for name in _NAMES)):
            self._again[path] = False
            registry.watch(path, lambda path=path: self._changed(path))
            self._changed(path)

    def _expired(self) -> None:
        self._tasks.append(asyncio.ensure_future(self._renew()))

    async def _renew(self) -> None:
        while True:
            try:
                await self.registry.renew()
            except RegistryError:
                await asyncio.sleep(0.01)
            else:
                break
        for path in self._again:
            self._changed(path)

    def _changed(self, path: str) -> None:
        if self._again[path]:
            return
        self._again[path] = True
        self._tasks.append(asyncio.ensure_future(self._read(path)))

    async def _read(self, path: str) -> None:
        while True:
            self._again[path] = False
            try:
                if path == self.root:
                    self.view[path] = await self.registry.children(path)
                else:
                    self.view[path] = await self.registry.get(path)
            except SessionExpired:
                return  # renewing reads again
            except RegistryError:
                await asyncio.sleep(0.01)
                continue
            return

    async def act(self, kind: str, path: str) -> None:
        try:
            node = await self.registry.get(path)
            await self.registry.commit([_operation(kind, path, node)])
        except (RegistryConflict, RegistryError):
            return

    async def stop(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _operation(kind: str, path: str, node: Node | None) -> Create | Put | Delete:
    if kind in ("create", "ephemeral") or node is None:
        return Create(path=path, data=b"", ephemeral=kind == "ephemeral")
    if kind == "put":
        return Put(path=path, data=b"%d" % node.version, version=node.version)
    return Delete(path=path, version=node.version)


async def _play(store: Store, script: list[tuple[int, str, str]]) -> None:
    root = f"/watched-{next(_roots)}"
    watchers = [Watcher(await store.open(), root) for _ in range(_SESSIONS)]
    acting: list[asyncio.Task[None]] = []
    for who, kind, name in script:
        watcher = watchers[who]
        if kind == "pause":
            await asyncio.sleep(0.01)
        elif kind == "expire":
            await watcher.act("ephemeral", f"{root}/{name}")
            await store.expire(watcher.registry)
        elif kind == "lose":
            await store.lose_connection(watcher.registry)
        else:
            acting.append(asyncio.ensure_future(watcher.act(kind, f"{root}/{name}")))
            await asyncio.sleep(0)
    await asyncio.gather(*acting)
    observer = await store.open()

    async def all_know_the_truth() -> bool:
        await observer.sync()
        truth: dict[str, object] = {root: await observer.children(root)}
        for name in _NAMES:
            truth[f"{root}/{name}"] = await observer.get(f"{root}/{name}")
        return all(watcher.view == truth for watcher in watchers)

    await until(all_know_the_truth)
    for watcher in watchers:
        await watcher.stop()


@settings(
    deadline=None,
    max_examples=12,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(script=st.lists(STEP, max_size=14))
def test_once_all_is_quiet_every_watcher_knows_the_truth(
    store: Store, script: list[tuple[int, str, str]]
) -> None:
    store.run(lambda: _play(store, script))
