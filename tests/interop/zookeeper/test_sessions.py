"""What a session of the ZooKeeper registry goes through: cuts, pauses, restarts, expiry, wiped data, a lost leader."""

from __future__ import annotations

import asyncio

import pytest
from tests.kit.waiting import until

from odradek.registry import Create, Put, RegistryError, SessionExpired
from odradek.testing.zookeeper import Ensemble, expire_session


async def test_a_cut_shorter_than_the_session_costs_nothing_but_time(
    zookeeper, chroot, open_registry, relay
) -> None:
    cable = await relay(zookeeper.address)
    registry = await open_registry(cable.address + chroot, **{"zookeeper.session.timeout.ms": "20000"})
    other = await open_registry(zookeeper.address + chroot)
    expired: list[int] = []
    registry.on_expired = lambda: expired.append(1)
    await registry.commit([Create(path="/ids/1", data=b"", ephemeral=True)])
    session = registry.session_id
    answers: list[int] = []
    registry.watch("/a", lambda: answers.append(1))
    await registry.get("/a")
    await cable.cut()
    await until(lambda: not registry.is_connected)
    reading = asyncio.ensure_future(registry.get("/a"))
    await other.commit([Create(path="/a", data=b"1")])
    answers.clear()
    await cable.heal()
    assert (await reading).data == b"1"
    await until(lambda: answers)
    await registry.commit([Put(path="/a", data=b"2", version=0)])
    assert (registry.session_id, expired) == (session, [])
    await other.sync()
    assert (await other.get("/ids/1")).owner == session


async def test_a_request_during_a_cut_fails_after_a_bounded_time_and_is_never_made(
    zookeeper, chroot, open_registry, relay
) -> None:
    cable = await relay(zookeeper.address)
    registry = await open_registry(cable.address + chroot, **{"zookeeper.session.timeout.ms": "800"})
    await registry.commit([Create(path="/a", data=b"")])
    await cable.cut()
    await until(lambda: not registry.is_connected)
    for request in (
        registry.get("/a"),
        registry.commit([Put(path="/a", data=b"late", version=0)]),
        registry.sync(),
    ):
        with pytest.raises(RegistryError, match="did not answer within") as caught:
            await request
        assert not isinstance(caught.value, SessionExpired), "lost is not expired"
    await cable.heal()
    other = await open_registry(zookeeper.address + chroot)
    assert (await other.get("/a")).version == 0


async def test_what_was_not_sent_when_its_caller_gave_up_is_never_made(
    zookeeper, chroot, open_registry, relay
) -> None:
    cable = await relay(zookeeper.address)
    registry = await open_registry(cable.address + chroot, **{"zookeeper.session.timeout.ms": "20000"})
    await registry.commit([Create(path="/a", data=b"")])
    await cable.cut()
    await until(lambda: not registry.is_connected)
    late = asyncio.ensure_future(registry.commit([Put(path="/a", data=b"late", version=0)]))
    for _ in range(3):
        await asyncio.sleep(0)
    late.cancel()
    await cable.heal()
    await registry.sync()
    assert (await registry.get("/a")).version == 0


async def test_a_cut_longer_than_the_session_ends_it_and_nothing_goes_on_until_it_is_renewed(
    zookeeper, chroot, open_registry, relay
) -> None:
    cable = await relay(zookeeper.address)
    registry = await open_registry(cable.address + chroot)
    other = await open_registry(zookeeper.address + chroot)
    expired: list[int] = []
    registry.on_expired = lambda: expired.append(1)
    await registry.commit([Create(path="/ids/1", data=b"", ephemeral=True)])
    gone = asyncio.Event()
    other.watch("/ids", gone.set)
    assert await other.children("/ids") == ["1"]
    await cable.cut()
    while await other.children("/ids"):
        gone.clear()
        await gone.wait()
    assert expired == [], "it has not heard of it yet"
    await cable.heal()
    await until(lambda: expired)
    for _ in range(3):
        with pytest.raises(SessionExpired):
            await registry.commit([Create(path="/late", data=b"")])
        with pytest.raises(SessionExpired):
            await registry.get("/ids/1")
    old = registry.session_id
    await asyncio.gather(registry.renew(), registry.renew())
    assert registry.session_id != old
    await registry.commit([Create(path="/ids/1", data=b"", ephemeral=True)])
    assert (await registry.get("/ids/1")).owner == registry.session_id
    assert await registry.get("/late") is None
    assert expired == [1]


async def test_a_zookeeper_that_hangs_is_waited_for_and_its_answer_believed(
    own_zookeeper, open_registry
) -> None:
    registry = await open_registry(own_zookeeper.address + "/x", **{"zookeeper.session.timeout.ms": "800"})
    expired: list[int] = []
    registry.on_expired = lambda: expired.append(1)
    await registry.commit([Create(path="/ids/1", data=b"", ephemeral=True)])
    own_zookeeper.pause()
    try:
        await until(lambda: not registry.is_connected)
        with pytest.raises(RegistryError) as caught:
            await registry.commit([Create(path="/a", data=b"")])
        assert not isinstance(caught.value, SessionExpired)
        assert expired == []
    finally:
        own_zookeeper.resume()
    await until(lambda: expired or registry.is_connected)
    if expired:  # which of the two is ZooKeeper's to say
        await registry.renew()
        assert await registry.get("/ids/1") is None
    else:
        assert (await registry.get("/ids/1")).owner == registry.session_id
    await registry.commit([Create(path="/b", data=b"")])


async def test_a_restarted_zookeeper_keeps_sessions_and_tells_what_changed(
    own_zookeeper, open_registry
) -> None:
    connect, patient = own_zookeeper.address + "/x", {"zookeeper.session.timeout.ms": "30000"}
    registry, other = await open_registry(connect, **patient), await open_registry(connect, **patient)
    expired: list[int] = []
    registry.on_expired = lambda: expired.append(1)
    await registry.commit([Create(path="/ids/1", data=b"", ephemeral=True)])
    event = asyncio.Event()
    registry.watch("/a", event.set)
    await registry.get("/a")
    session = registry.session_id
    await asyncio.to_thread(own_zookeeper.restart)
    event.clear()
    await other.commit([Create(path="/a", data=b"")])
    async with asyncio.timeout(30):
        await event.wait()
    assert await registry.get("/a") is not None
    assert (await registry.get("/ids/1")).owner == session == registry.session_id
    assert expired == []


async def test_a_zookeeper_whose_data_was_wiped_is_not_taken_for_an_empty_one(
    own_zookeeper, open_registry
) -> None:
    registry = await open_registry(own_zookeeper.address + "/x", **{"zookeeper.session.timeout.ms": "800"})
    expired: list[int] = []
    registry.on_expired = lambda: expired.append(1)
    for version in range(30):
        await registry.commit([Create(path=f"/topics/{version}", data=b"")])
    await asyncio.to_thread(own_zookeeper.stop)
    own_zookeeper.wipe()
    await asyncio.to_thread(own_zookeeper.start)
    await until(lambda: expired)
    for _ in range(2):
        with pytest.raises(RegistryError, match="has lost what it held below /x: restore its data"):
            await registry.renew()
        with pytest.raises(SessionExpired):
            await registry.commit([Create(path="/topics/a", data=b"")])
    assert expired == [1]


async def test_a_session_that_others_end_again_and_again_is_renewed_each_time(
    zookeeper, chroot, open_registry
) -> None:
    registry = await open_registry(zookeeper.address + chroot)
    expired: list[int] = []
    registry.on_expired = lambda: expired.append(registry.session_id)
    seen = {registry.session_id}
    for round_ in range(5):
        await asyncio.to_thread(expire_session, zookeeper.address, registry.session_id, registry.password)
        await until(lambda wanted=round_ + 1: len(expired) == wanted)
        await registry.renew()
        seen.add(registry.session_id)
    assert len(seen) == 6
    assert expired == sorted(set(expired), key=expired.index)


async def test_a_watch_follows_many_changes_made_through_another_connection_to_the_last(
    zookeeper, chroot, open_registry, relay
) -> None:
    cable = await relay(zookeeper.address)
    registry = await open_registry(cable.address + chroot, **{"zookeeper.session.timeout.ms": "20000"})
    writer = await open_registry(zookeeper.address + chroot)
    await writer.commit([Create(path="/a", data=b"")])
    seen: list[int] = []
    reading: set[asyncio.Task[None]] = set()

    async def read() -> None:
        node = await registry.get("/a")
        assert node is not None
        seen.append(node.version)

    def on_change() -> None:
        task = asyncio.ensure_future(read())
        reading.add(task)
        task.add_done_callback(reading.discard)

    registry.watch("/a", on_change)
    for version in range(60):
        if version % 20 == 10:
            await cable.cut()
            await cable.heal()
        await writer.commit([Put(path="/a", data=b"", version=version)])
    await until(lambda: 60 in seen)
    await asyncio.gather(*reading)
    assert seen == sorted(seen), "a session never reads backwards"


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    with Ensemble(tmp_path_factory.mktemp("ensemble"), durable=False) as three:
        yield three


async def test_an_ensemble_that_loses_its_leader_keeps_session_and_data(
    ensemble, chroot, open_registry
) -> None:
    patient = {"zookeeper.session.timeout.ms": "30000"}
    leader = await asyncio.to_thread(ensemble.leader)
    registry = await open_registry(ensemble.address + chroot, **patient)
    other = await open_registry(ensemble.followers()[0].address + chroot, **patient)
    expired: list[int] = []
    registry.on_expired = lambda: expired.append(1)
    await registry.commit([Create(path="/ids/1", data=b"", ephemeral=True), Create(path="/n", data=b"")])
    await _read_after_sync_is_never_stale(registry, other)
    session = registry.session_id
    leader.kill()
    try:
        version = await _put(registry, "/n")
        assert (session, expired) == (registry.session_id, [])
        assert (await registry.get("/ids/1")).owner == session
        await other.sync()
        assert (await other.get("/n")).version == version
    finally:
        await asyncio.to_thread(leader.start)


async def test_a_follower_that_was_behind_is_current_after_sync(ensemble, chroot, open_registry) -> None:
    leader = await asyncio.to_thread(ensemble.leader)
    follower = ensemble.followers()[0]
    patient = {"zookeeper.session.timeout.ms": "30000"}
    writer = await open_registry(leader.address + chroot, **patient)
    reader = await open_registry(follower.address + chroot, **patient)
    await writer.commit([Create(path="/a", data=b"")])
    version = 0
    for _ in range(4):
        follower.pause()
        try:
            for _ in range(150):
                await writer.commit([Put(path="/a", data=b"", version=version)])
                version += 1
            synced = asyncio.ensure_future(reader.sync())
            await asyncio.sleep(0)
        finally:
            follower.resume()
        await synced
        assert (await reader.get("/a")).version == version


async def _read_after_sync_is_never_stale(writer, reader) -> None:
    await writer.commit([Create(path="/s", data=b"")])
    for version in range(50):
        await writer.commit([Put(path="/s", data=b"", version=version)])
        await reader.sync()
        assert (await reader.get("/s")).version == version + 1


async def _put(registry, path: str) -> int:
    """Tries until the change is known to be made; returns the node's version."""
    async with asyncio.timeout(30):
        while True:
            try:
                node = await registry.get(path)
                await registry.commit([Put(path=path, data=b"", version=node.version)])
            except RegistryError:
                continue
            return node.version + 1
