"""The simulated registry is as unkind as the real ones may be, and repeats itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from odradek.registry import Create, Put, RegistryError, SessionExpired
from odradek.testing.sim import CrashKind, World
from odradek.testing.sim.registry import RegistryConditions, SimRegistryStore

pytestmark = pytest.mark.sim


def play(
    scenario: Callable[[World, SimRegistryStore], Awaitable[None]],
    *,
    seed: int = 1,
    conditions: RegistryConditions | None = None,
) -> str:
    with World(seed, seconds_max=600) as world:
        store = SimRegistryStore(world, conditions=conditions)
        world.run(lambda: scenario(world, store))
        return world.trace.digest()


def test_reads_are_stale_until_sync_but_never_of_ones_own_commits() -> None:
    async def scenario(world: World, store: SimRegistryStore) -> None:
        writer, reader = await store.connect("a"), await store.connect("b")
        await writer.commit([Create(path="/x", data=b"")])
        assert await writer.get("/x") is not None
        assert await reader.get("/x") is None
        await reader.sync()
        assert await reader.get("/x") is not None

    play(scenario, conditions=RegistryConditions(lag_s=(5, 5)))


def test_a_host_that_is_cut_off_believes_in_its_session_until_it_is_back() -> None:
    async def scenario(world: World, store: SimRegistryStore) -> None:
        lonely = await store.connect("a")
        answers: list[float] = []
        lonely.on_expired = lambda: answers.append(world.loop.time())
        await lonely.commit([Create(path="/ids/1", data=b"", ephemeral=True)])
        store.cut_off("a")
        with pytest.raises(RegistryError, match="cannot reach the registry"):
            await lonely.get("/ids/1")
        await asyncio.sleep(store.session_timeout_s)
        assert "/ids/1" not in store.tree.nodes
        assert answers == []
        store.heal()
        await asyncio.sleep(1)
        assert len(answers) == 1
        with pytest.raises(SessionExpired):
            await lonely.commit([Create(path="/late", data=b"")])

    play(scenario)


def test_a_crashed_hosts_session_ends_after_its_timeout_and_nothing_of_it_is_called_any_more() -> None:
    async def scenario(world: World, store: SimRegistryStore) -> None:
        host = world.host("a")
        host.boot()
        calls: list[str] = []

        async def live() -> None:
            registry = await store.connect("a")
            registry.on_expired = lambda: calls.append("expired")
            registry.watch("/ids", lambda: calls.append("changed"))
            await registry.commit([Create(path="/ids/1", data=b"", ephemeral=True)])
            await asyncio.sleep(0.5)

        await host.spawn(live())
        calls.clear()
        host.crash(CrashKind.PROCESS_KILL)
        await asyncio.sleep(store.session_timeout_s / 2)
        assert "/ids/1" in store.tree.nodes
        await asyncio.sleep(store.session_timeout_s)
        assert "/ids/1" not in store.tree.nodes
        assert calls == []

    play(scenario)


def test_a_commit_whose_connection_breaks_may_have_happened_or_not() -> None:
    async def scenario(world: World, store: SimRegistryStore) -> None:
        registry = await store.connect("a")
        outcomes = set()
        for number in range(60):
            path = f"/{number}"
            try:
                await registry.commit([Create(path=path, data=b"")])
            except RegistryError:
                outcomes.add(path in store.tree.nodes)
            else:
                assert path in store.tree.nodes
        assert outcomes == {True, False}

    play(scenario, conditions=RegistryConditions(loss=0.3))


def test_a_run_repeats_itself() -> None:
    async def scenario(world: World, store: SimRegistryStore) -> None:
        first, second = await store.connect("a"), await store.connect("b")
        for version in range(20):
            try:
                operation = (
                    Put(path="/x", data=b"", version=version) if version else Create(path="/x", data=b"")
                )
                await (first, second)[version % 2].commit([operation])
            except RegistryError:
                world.trace.note("lost", version)
            except Exception as error:  # noqa: BLE001 - a race lost by a commit before it is as good
                world.trace.note("refused", str(error))

    trouble = RegistryConditions(loss=0.2)
    assert play(scenario, conditions=trouble) == play(scenario, conditions=trouble)
    assert play(scenario, conditions=trouble) != play(scenario, conditions=trouble, seed=2)
