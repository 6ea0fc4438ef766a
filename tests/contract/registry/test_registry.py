"""What any registry does, for every implementation. How to add an implementation: see conftest.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.kit.waiting import until

from odradek.registry import (
    Check,
    Create,
    Delete,
    Operation,
    Put,
    Registry,
    RegistryConflict,
    RegistryError,
    SessionExpired,
)

Store = Any


def test_a_created_node_is_read_back_at_version_zero(store: Store) -> None:
    async def scenario() -> None:
        registry = await store.open()
        data = bytes(range(256))
        await registry.commit([Create(path="/topics/a", data=data)])
        node = await registry.get("/topics/a")
        assert (node.data, node.version, node.owner) == (data, 0, 0)
        assert await registry.get("/topics/b") is None

    store.run(scenario)


def test_each_write_raises_the_version_and_keeps_what_was_created(store: Store) -> None:
    async def scenario() -> None:
        registry = await store.open()
        await registry.commit([Create(path="/a", data=b"0")])
        created = (await registry.get("/a")).created
        for version in range(3):
            await registry.commit([Put(path="/a", data=b"%d" % (version + 1), version=version)])
        node = await registry.get("/a")
        assert (node.data, node.version, node.created) == (b"3", 3, created)

    store.run(scenario)


@pytest.mark.parametrize(
    "operation",
    [
        Create(path="/a", data=b""),
        Put(path="/a", data=b"", version=0),
        Put(path="/a", data=b"", version=2),
        Put(path="/none", data=b"", version=0),
        Delete(path="/a", version=0),
        Delete(path="/none", version=0),
        Check(path="/a", version=0),
        Check(path="/none", version=0),
    ],
    ids=repr,
)
def test_a_commit_with_an_operation_that_does_not_apply_changes_nothing(
    store: Store, operation: Operation
) -> None:
    async def scenario() -> None:
        registry = await store.open()
        await registry.commit([Create(path="/a", data=b"0")])
        await registry.commit([Put(path="/a", data=b"1", version=0)])
        for operations in (
            [operation, Create(path="/b", data=b"")],
            [Create(path="/b", data=b""), operation],
        ):
            with pytest.raises(RegistryConflict):
                await registry.commit(operations)
        await registry.sync()
        node = await registry.get("/a")
        assert (node.data, node.version) == (b"1", 1)
        assert await registry.get("/b") is None

    store.run(scenario)


def test_operations_of_one_commit_are_judged_one_after_another(store: Store) -> None:
    async def scenario() -> None:
        registry = await store.open()
        await registry.commit(
            [
                Create(path="/a", data=b"0"),
                Put(path="/a", data=b"1", version=0),
                Check(path="/a", version=1),
                Create(path="/b", data=b""),
                Delete(path="/b", version=0),
            ]
        )
        node = await registry.get("/a")
        assert (node.data, node.version) == (b"1", 1)
        assert await registry.get("/b") is None

    store.run(scenario)


def test_a_check_holds_others_to_the_version_they_know(store: Store) -> None:
    async def scenario() -> None:
        deposed, elected = await store.open(), await store.open()
        await deposed.commit([Create(path="/epoch", data=b"1")])
        await deposed.commit([Check(path="/epoch", version=0), Create(path="/a", data=b"")])
        await elected.commit([Put(path="/epoch", data=b"2", version=0)])
        with pytest.raises(RegistryConflict):
            await deposed.commit([Check(path="/epoch", version=0), Create(path="/b", data=b"")])
        with pytest.raises(RegistryConflict):
            await deposed.commit([Check(path="/epoch", version=0)])
        await elected.commit([Check(path="/epoch", version=1)])
        await elected.sync()
        assert await elected.get("/b") is None

    store.run(scenario)


def test_children_are_the_names_one_level_below_sorted(store: Store) -> None:
    async def scenario() -> None:
        registry = await store.open()
        for path in ("/t/b", "/t/a", "/t/c/deep", "/u", "/tt/x"):
            await registry.commit([Create(path=path, data=b"")])
        assert await registry.children("/t") == ["a", "b", "c"]
        assert await registry.children("/t/c") == ["deep"]
        assert await registry.children("/u") == []
        assert await registry.children("/none") == []
        await registry.commit([Delete(path="/t/a", version=0)])
        assert await registry.children("/t") == ["b", "c"]

    store.run(scenario)


def test_created_numbers_grow_with_every_creation_anywhere(store: Store) -> None:
    async def scenario() -> None:
        first, other = await store.open(), await store.open()
        seen = []
        for round_ in range(4):
            registry = (first, other)[round_ % 2]
            await registry.commit([Create(path="/brokers/1", data=b"")])
            await registry.commit([Create(path=f"/other/{round_}", data=b"")])
            seen.append((await registry.get("/brokers/1")).created)
            seen.append((await registry.get(f"/other/{round_}")).created)
            await registry.commit([Delete(path="/brokers/1", version=0)])
        assert seen == sorted(set(seen))
        assert seen[0] > 0

    store.run(scenario)


def test_what_others_committed_is_read_after_sync(store: Store) -> None:
    async def scenario() -> None:
        writer, reader = await store.open(), await store.open()
        await writer.commit([Create(path="/a", data=b"0")])
        for version in range(10):
            await writer.commit([Put(path="/a", data=b"", version=version)])
            await reader.sync()
            assert (await reader.get("/a")).version == version + 1
            assert (await writer.get("/a")).version == version + 1

    store.run(scenario)


def test_of_several_that_create_one_node_exactly_one_succeeds(store: Store) -> None:
    async def scenario() -> None:
        registries = [await store.open() for _ in range(3)]
        outcomes = await asyncio.gather(
            *(
                registry.commit([Create(path="/controller", data=b"%d" % number, ephemeral=True)])
                for number, registry in enumerate(registries)
            ),
            return_exceptions=True,
        )
        winners = [number for number, outcome in enumerate(outcomes) if outcome is None]
        assert len(winners) == 1
        assert all(isinstance(outcome, RegistryConflict) for outcome in outcomes if outcome is not None)
        for registry in registries:
            await registry.sync()
            node = await registry.get("/controller")
            assert (node.data, node.owner) == (b"%d" % winners[0], registries[winners[0]].session_id)

    store.run(scenario)


def test_no_increment_of_several_writers_is_lost(store: Store) -> None:
    async def increment(registry: Registry, times: int) -> None:
        while times:
            await registry.sync()
            node = await registry.get("/counter")
            assert node is not None
            value = b"%d" % (int(node.data) + 1)
            try:
                await registry.commit([Put(path="/counter", data=value, version=node.version)])
            except RegistryConflict:
                continue
            times -= 1

    async def scenario() -> None:
        registries = [await store.open() for _ in range(3)]
        await registries[0].commit([Create(path="/counter", data=b"0")])
        await asyncio.gather(*(increment(registry, 5) for registry in registries))
        await registries[1].sync()
        node = await registries[1].get("/counter")
        assert (node.data, node.version) == (b"15", 15)

    store.run(scenario)


# -- sessions ------------------------------------------------------------------------------------------------


def test_sessions_have_ids_of_their_own(store: Store) -> None:
    async def scenario() -> None:
        ids = [(await store.open()).session_id for _ in range(3)]
        assert len(set(ids)) == 3
        assert 0 not in ids

    store.run(scenario)


def test_an_ephemeral_node_goes_at_once_when_its_session_is_closed(store: Store) -> None:
    async def scenario() -> None:
        leaving, staying = await store.open(), await store.open()
        await leaving.commit(
            [Create(path="/ids/1", data=b"", ephemeral=True), Create(path="/kept", data=b"")]
        )
        await staying.commit([Create(path="/ids/2", data=b"", ephemeral=True)])
        await staying.sync()
        assert (await staying.get("/ids/1")).owner == leaving.session_id
        await leaving.close()
        await staying.sync()
        assert await staying.get("/ids/1") is None
        assert await staying.children("/ids") == ["2"]
        assert await staying.get("/kept") is not None

    store.run(scenario)


def test_a_write_leaves_an_ephemeral_node_to_its_owner(store: Store) -> None:
    async def scenario() -> None:
        owner, other = await store.open(), await store.open()
        await owner.commit([Create(path="/a", data=b"", ephemeral=True)])
        await other.commit([Put(path="/a", data=b"1", version=0)])
        await other.sync()
        assert (await other.get("/a")).owner == owner.session_id
        await owner.close()
        await other.sync()
        assert await other.get("/a") is None

    store.run(scenario)


def test_an_expired_session_loses_its_nodes_and_may_not_commit(store: Store) -> None:
    async def scenario() -> None:
        expired, other = await store.open(), await store.open()
        answers: list[int] = []
        expired.on_expired = lambda: answers.append(1)
        await expired.commit([Create(path="/ids/1", data=b"", ephemeral=True)])
        await store.expire(expired)
        with pytest.raises(SessionExpired):
            await expired.commit([Create(path="/late", data=b"")])

        async def gone() -> bool:
            await other.sync()
            return await other.get("/ids/1") is None

        async def called_once() -> bool:
            return len(answers) == 1

        await until(gone)
        await until(called_once)
        assert await other.get("/late") is None

    store.run(scenario)


def test_renewing_begins_another_session_without_the_old_nodes(store: Store) -> None:
    async def scenario() -> None:
        registry = await store.open()
        answers: list[int] = []
        registry.on_expired = lambda: answers.append(registry.session_id)
        await registry.commit([Create(path="/ids/1", data=b"old", ephemeral=True)])
        created = (await registry.get("/ids/1")).created
        for number in range(1, 3):
            session = registry.session_id
            await store.expire(registry)

            async def was_called(wanted: int = number) -> bool:
                return len(answers) == wanted

            await until(was_called)
            await registry.renew()
            assert registry.session_id != session
            await registry.sync()
            assert await registry.get("/ids/1") is None
            await registry.commit([Create(path="/ids/1", data=b"new", ephemeral=True)])
            node = await registry.get("/ids/1")
            assert node.owner == registry.session_id
            assert node.created > created
            created = node.created

    store.run(scenario)


def test_a_session_lives_on_without_requests(store: Store) -> None:
    async def scenario() -> None:
        idle, other = await store.open(), await store.open()
        await idle.commit([Create(path="/ids/1", data=b"", ephemeral=True)])
        for version in range(5):
            await other.commit([Create(path=f"/a/{version}", data=b"")])
        await other.sync()
        assert await other.get("/ids/1") is not None
        await idle.commit([Create(path="/b", data=b"")])

    store.run(scenario)


def test_a_closed_registry_accepts_nothing(store: Store) -> None:
    async def scenario() -> None:
        registry = await store.open()
        await registry.close()
        with pytest.raises(RegistryError):
            await registry.commit([Create(path="/a", data=b"")])
        await registry.close()

    store.run(scenario)


# -- watches -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_another", [False, True])
def test_a_watch_hears_of_each_kind_of_change(store: Store, by_another: bool) -> None:
    async def scenario() -> None:
        registry = await store.open()
        writer = await store.open() if by_another else registry
        calls: dict[str, int] = {"/t": 0, "/t/a": 0}

        def count(path: str) -> Callable[[], None]:
            def was_called() -> None:
                calls[path] += 1

            return was_called

        for path in calls:
            registry.watch(path, count(path))

        async def change(operation: Operation, *watched: str) -> None:
            before = dict(calls)
            await writer.commit([operation])

            async def was_called() -> bool:
                return all(calls[path] > before[path] for path in watched)

            await until(was_called)

        await change(Create(path="/t/a", data=b""), "/t", "/t/a")
        await change(Put(path="/t/a", data=b"", version=0), "/t/a")
        await change(Create(path="/t/b", data=b""), "/t")
        await change(Delete(path="/t/b", version=0), "/t")
        await change(Delete(path="/t/a", version=1), "/t", "/t/a")

    store.run(scenario)


@pytest.mark.parametrize("by_another", [False, True])
def test_a_watch_of_a_parent_hears_of_a_child_that_is_replaced_in_one_commit(
    store: Store, by_another: bool
) -> None:
    """So is a broker that was killed and comes back before its session has run out."""

    async def scenario() -> None:
        registry = await store.open()
        writer = await store.open() if by_another else registry
        await writer.commit([Create(path="/t/a", data=b"")])
        await registry.sync()
        calls: list[int] = []
        registry.watch("/t", lambda: calls.append(1))
        await registry.children("/t")
        calls_before = len(calls)
        await writer.commit([Delete(path="/t/a", version=0), Create(path="/t/a", data=b"")])

        async def was_called() -> bool:
            return len(calls) > calls_before

        await until(was_called)

    store.run(scenario)


def test_a_watch_that_was_ended_is_not_called(store: Store) -> None:
    async def scenario() -> None:
        registry = await store.open()
        ended: list[int] = []
        going_on: list[int] = []
        end = registry.watch("/a", lambda: ended.append(1))
        registry.watch("/a", lambda: going_on.append(1))
        end()
        end()
        before = len(ended)
        await registry.commit([Create(path="/a", data=b"")])

        async def was_called() -> bool:
            return bool(going_on)

        await until(was_called)
        assert len(ended) == before

    store.run(scenario)


def test_watches_tell_of_an_expired_sessions_nodes(store: Store) -> None:
    async def scenario() -> None:
        dying, heir = await store.open(), await store.open()
        await dying.commit([Create(path="/controller", data=b"", ephemeral=True)])
        seen: list[int] = []
        heir.watch("/controller", lambda: seen.append(1))
        await heir.sync()
        assert await heir.get("/controller") is not None
        await store.expire(dying)

        async def called_and_gone() -> bool:
            return bool(seen) and await heir.get("/controller") is None

        await until(called_and_gone)

    store.run(scenario)


def test_watches_go_on_in_a_renewed_session(store: Store) -> None:
    async def scenario() -> None:
        registry, other = await store.open(), await store.open()
        expired = asyncio.Event()
        registry.on_expired = expired.set
        versions: list[int] = []
        registry.watch("/a", lambda: versions.append(1))
        await registry.commit([Create(path="/mine", data=b"", ephemeral=True)])
        await store.expire(registry)
        await other.commit([Create(path="/a", data=b"")])
        await expired.wait()
        await registry.renew()
        await registry.sync()
        assert await registry.get("/a") is not None
        versions.clear()
        await other.commit([Put(path="/a", data=b"", version=0)])

        async def called_and_changed() -> bool:
            node = await registry.get("/a")
            return bool(versions) and node is not None and node.version == 1

        await until(called_and_changed)

    store.run(scenario)


# -- a connection that breaks --------------------------------------------------------------------------------


def test_a_commit_that_returned_happened_and_one_that_failed_can_be_read(store: Store) -> None:
    async def scenario() -> None:
        registry, other = await store.open(), await store.open()
        await registry.commit([Create(path="/a", data=b"")])
        version = 0
        for _ in range(8):
            commit = asyncio.ensure_future(registry.commit([Put(path="/a", data=b"", version=version)]))
            await asyncio.sleep(0)
            await store.lose_connection(registry)
            returned = True
            try:
                await commit
            except RegistryError:
                returned = False
            await registry.sync()
            node_version = (await registry.get("/a")).version
            assert node_version in ({version + 1} if returned else {version, version + 1})
            await other.sync()
            assert (await other.get("/a")).version == node_version
            version = node_version

    store.run(scenario)


def test_a_change_made_while_the_connection_was_lost_is_reported(store: Store) -> None:
    async def scenario() -> None:
        registry, other = await store.open(), await store.open()
        seen: list[int] = []

        async def read() -> None:
            node = await registry.get("/a")
            seen.append(-1 if node is None else node.version)

        reading: list[asyncio.Task[None]] = []
        registry.watch("/a", lambda: reading.append(asyncio.ensure_future(read())))
        await other.commit([Create(path="/a", data=b"")])
        for version in range(3):
            await store.lose_connection(registry)
            await other.commit([Put(path="/a", data=b"", version=version)])

        async def newest_seen() -> bool:
            return bool(seen) and seen[-1] == 3

        await until(newest_seen)
        await asyncio.gather(*reading, return_exceptions=True)

    store.run(scenario)
