"""Commits and values where ZooKeeper's tree is not quite the registry's."""

from __future__ import annotations

import asyncio
import json
import random

import pytest
from tests.kit.waiting import until

from odradek.registry import Check, Create, Delete, Put, RegistryConflict, RegistryError


async def test_parents_come_with_the_commit_or_not_at_all(zookeeper, chroot, open_registry) -> None:
    registry = await open_registry(zookeeper.address + chroot)
    await registry.commit([Create(path="/controller_epoch", data=b"1")])
    deposed = [Check(path="/controller_epoch", version=7), Create(path="/a/b/c", data=b"1")]
    with pytest.raises(RegistryConflict, match="/controller_epoch has another version"):
        await registry.commit(deposed)
    assert await registry.children("/") == ["controller_epoch", "odradek"]
    await registry.commit([Check(path="/controller_epoch", version=0), *deposed[1:]])
    assert (await registry.get("/a/b/c")).data == b"1"
    assert await registry.get("/a/b") is None, "a parent is no node"
    assert await registry.children("/a") == ["b"]


async def test_many_that_make_the_same_parents_at_once_all_succeed(zookeeper, chroot, open_registry) -> None:
    registries = [await open_registry(zookeeper.address + chroot) for _ in range(3)]
    await asyncio.gather(
        *(
            registry.commit([Create(path=f"/x/{turn}/y/{number}", data=b"")])
            for number, registry in enumerate(registries)
            for turn in range(5)
        )
    )
    for turn in range(5):
        assert await registries[0].children(f"/x/{turn}/y") == ["0", "1", "2"]


async def test_a_node_may_be_made_above_others_and_removed_from_above_them(
    zookeeper, chroot, open_registry
) -> None:
    registry = await open_registry(zookeeper.address + chroot)
    await registry.commit([Create(path="/a/b", data=b"below"), Create(path="/a", data=b"above")])
    node = await registry.get("/a")
    assert node.data == b"above"
    with pytest.raises(RegistryConflict, match="/a exists"):
        await registry.commit([Create(path="/a", data=b"again")])
    await registry.commit([Delete(path="/a", version=node.version)])
    assert await registry.get("/a") is None
    assert (await registry.get("/a/b")).data == b"below"
    await registry.commit([Create(path="/a", data=b"anew")])
    assert (await registry.get("/a")).data == b"anew"


async def test_an_ephemeral_node_has_no_children(zookeeper, chroot, open_registry) -> None:
    registry = await open_registry(zookeeper.address + chroot)
    await registry.commit([Create(path="/a", data=b"", ephemeral=True)])
    with pytest.raises(RegistryError, match="no children of ephemeral nodes"):
        await registry.commit([Create(path="/a/b", data=b"")])


async def test_a_topic_of_ten_thousand_partitions_is_one_node(zookeeper, chroot, open_registry) -> None:
    registry = await open_registry(zookeeper.address + chroot)
    chance = random.Random(3)
    partitions = [[chance.randrange(99) for _ in range(9)] for _ in range(10_000)]
    document = json.dumps({"id": "x", "partitions": partitions}).encode()
    assert len(document) > 300_000
    await registry.commit([Create(path="/topics/wide", data=document)])
    await registry.commit([Put(path="/topics/wide", data=document + b" ", version=0)])
    assert (await registry.get("/topics/wide")).data == document + b" "


async def test_the_largest_change_that_is_not_refused_here_is_taken_there(
    zookeeper, chroot, open_registry
) -> None:
    registry = await open_registry(zookeeper.address + chroot)
    await registry.commit([Create(path="/a", data=b"")])
    largest = random.Random(5).randbytes(0xFFFFF - 200)
    await registry.commit([Put(path="/a", data=largest, version=0)])
    assert (await registry.get("/a")).data == largest
    with pytest.raises(RegistryError, match="more than ZooKeeper takes at once"):
        await registry.commit([Put(path="/a", data=largest + bytes(200), version=1)])
    assert (await registry.get("/a")).version == 1
    many = [Create(path=f"/many/{number:05}", data=b"x" * 100) for number in range(3_500)]
    await registry.commit(many)
    assert len(await registry.children("/many")) == 3_500


async def test_more_requests_than_may_be_under_way_wait_their_turn(zookeeper, chroot, open_registry) -> None:
    one_by_one = {"zookeeper.max.in.flight.requests": "1"}
    registry = await open_registry(zookeeper.address + chroot, **one_by_one)
    await registry.commit([Create(path="/a", data=b"")])
    outcomes = await asyncio.gather(
        *(registry.commit([Put(path="/a", data=b"", version=version)]) for version in range(100)),
    )
    assert outcomes == [None] * 100
    assert (await registry.get("/a")).version == 100


async def test_a_caller_that_gives_up_leaves_whole_commits_behind(zookeeper, chroot, open_registry) -> None:
    registry = await open_registry(zookeeper.address + chroot)
    for number in range(20):
        both = [Create(path=f"/a/{number}", data=b""), Create(path=f"/b/{number}", data=b"")]
        commit = asyncio.ensure_future(registry.commit(both))
        for _ in range(number % 4):
            await asyncio.sleep(0)
        commit.cancel()
        await asyncio.gather(commit, return_exceptions=True)
    await registry.sync()
    assert await registry.children("/a") == await registry.children("/b")


async def test_a_watch_that_ended_is_set_again_when_someone_watches_again(
    zookeeper, chroot, open_registry
) -> None:
    registry = await open_registry(zookeeper.address + chroot)
    other = await open_registry(zookeeper.address + chroot)
    for number in range(3):
        answers: list[int] = []
        end = registry.watch("/a", lambda replies=answers: replies.append(1))
        await registry.get("/a")
        await until(lambda reply=answers: reply)
        answers.clear()
        await other.commit([Create(path=f"/a/{number}", data=b"")])
        await until(lambda second_reply=answers: second_reply)
        end()
