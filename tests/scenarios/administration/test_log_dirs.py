"""Partitions move between the data directories of a running broker."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.kit.waiting import until

from odradek.protocol.messages.topics.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.topics.describe_log_dirs import DescribeLogDirsRequest
from odradek.storage.directories.log_dir_move import FolderCopy


def directories(scene: Any) -> list[str]:
    return [str(scene.directory / name) for name in ("a", "b")]


async def start(scene: Any, **settings: str) -> Any:
    await scene.start(log_dirs=",".join(directories(scene)), **settings)
    return await scene.connect()


async def move(wire: Any, path: str, topic: str, *indexes: int, version: int = 2) -> list[int]:
    wanted = AlterReplicaLogDir(
        path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=list(indexes))]
    )
    response = await wire.ask(AlterReplicaLogDirsRequest(dirs=[wanted]), version)
    return [partition.error_code for partition in response.results[0].partitions]


async def places(wire: Any) -> dict[tuple[str, int, bool], str]:
    """Returns where each log is, by topic, partition, and whether it is a future one."""
    response = await wire.ask(DescribeLogDirsRequest(topics=None), 5)
    return {
        (topic.name, partition.partition_index, partition.is_future_key): entry.log_dir
        for entry in response.results
        for topic in entry.topics
        for partition in topic.partitions
    }


async def other_place(scene: Any, wire: Any, topic: str) -> str:
    here = (await places(wire))[topic, 0, False]
    return next(path for path in directories(scene) if path != here)


@pytest.mark.parametrize("version", [1, 2])
async def test_a_partition_moves_while_it_is_written_and_survives_a_restart(scene: Any, version: int) -> None:
    wire = await start(scene)
    await wire.create("t")
    expected = [b"%d" % number for number in range(20)]
    await wire.produce("t", expected)
    target = await other_place(scene, wire, "t")
    assert await move(wire, target, "t", 0, version=version) == [0]
    for number in range(20, 40):
        while (await wire.produce("t", [b"%d" % number])).error_code == 6:
            await asyncio.sleep(0)  # as a client does: it tries again
        expected.append(b"%d" % number)
    await until(lambda: not scene.broker.context.moves.futures(target))
    assert await places(wire) == {("t", 0, False): target}
    assert await wire.values("t") == expected
    await scene.stop()
    wire = await start(scene)
    assert await places(wire) == {("t", 0, False): target}
    assert await wire.values("t") == expected
    left = [path.name for path in scene.directory.glob("*/t-0*")]
    assert left == ["t-0"]


class PausedCopies:
    """Copies stand still until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, offload: Any) -> None:
        self.go = asyncio.Event()
        run = offload.run

        async def held(work: Any, *arguments: object) -> Any:
            if isinstance(getattr(work, "__self__", None), FolderCopy):
                await self.go.wait()
            return await run(work, *arguments)

        monkeypatch.setattr(type(offload), "run", lambda _, work, *arguments: held(work, *arguments))


async def test_a_move_under_way_is_shown_and_can_be_called_off(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = await start(scene)
    await wire.create("t")
    await wire.produce("t", [b"x"] * 5)
    here, target = (await places(wire))["t", 0, False], await other_place(scene, wire, "t")
    with monkeypatch.context() as patch:
        held = PausedCopies(patch, scene.runtime.offload)
        assert await move(wire, target, "t", 0) == [0]
        assert await move(wire, target, "t", 0) == [0], "asking twice changes nothing"
        response = await wire.ask(DescribeLogDirsRequest(topics=None), 5)
        future = (
            next(directory for directory in response.results if directory.log_dir == target)
            .topics[0]
            .partitions[0]
        )
        assert (future.is_future_key, future.offset_lag) == (True, 5)
        assert all(entry.total_bytes > entry.usable_bytes > 0 for entry in response.results)
        assert await move(wire, here, "t", 0) == [0]
        assert await places(wire) == {("t", 0, False): here}
        held.go.set()
        await until(lambda: not list(Path(target).glob("t-0*")))
    assert await wire.values("t") == [b"x"] * 5
    assert await places(wire) == {("t", 0, False): here}


async def test_a_partition_is_in_one_directory_at_every_moment_of_its_move(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = await start(scene)
    await wire.create("t")
    await wire.produce("t", [b"x"] * 5)
    here, target = (await places(wire))["t", 0, False], await other_place(scene, wire, "t")
    run, seen = scene.runtime.offload.run, []

    async def seen_before_and_after(work: Any, *arguments: object) -> Any:
        seen.append(await places(other))
        outcome = await run(work, *arguments)
        seen.append(await places(other))
        return outcome

    other = await scene.connect()
    with monkeypatch.context() as patch:
        patch.setattr(type(scene.runtime.offload), "run", lambda _, *call: seen_before_and_after(*call))
        assert await move(wire, target, "t", 0) == [0]
        await until(lambda: not scene.broker.context.moves.futures(target))
        await until(lambda: ("t", 0) in scene.broker.context.replicas.partitions)
    assert {state["t", 0, False] for state in seen} == {here, target}
    assert {state.get(("t", 0, True), target) for state in seen} == {target}
    assert any(("t", 0, True) in state for state in seen)
    assert all(state["t", 0, False] == here for state in seen if ("t", 0, True) in state)


async def test_a_topic_deleted_on_its_way_is_gone(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = await start(scene)
    await wire.create("t")
    target = await other_place(scene, wire, "t")
    with monkeypatch.context() as patch:
        held = PausedCopies(patch, scene.runtime.offload)
        assert await move(wire, target, "t", 0) == [0]
        delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
        assert (await wire.ask(delete, 6)).responses[0].error_code == 0
        held.go.set()
        await until(lambda: not list(Path(target).glob("t-0.*-future")))
    await wire.create("t")
    assert await wire.values("t") == []


async def test_a_stop_gives_moves_up(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = await start(scene)
    await wire.create("t")
    await wire.produce("t", [b"x"])
    target = await other_place(scene, wire, "t")
    assert await move(wire, target, "t", 0) == [0]
    await scene.stop()
    wire = await start(scene)
    assert await wire.values("t") == [b"x"]
    assert len(await places(wire)) == 1


async def test_what_cannot_be_moved_is_said(scene: Any) -> None:
    wire = await start(scene)
    await wire.create("t")
    here = (await places(wire))["t", 0, False]
    assert await move(wire, here, "t", 0, 5) == [0, 3]
    assert await move(wire, here, "none", 0) == [3]
    assert await move(wire, "/nowhere", "t", 0, 7) == [57, 57]
    assert await move(wire, "relative", "t", 0) == [57]


async def test_a_groups_offsets_move_with_their_partition(scene: Any) -> None:
    wire = await start(scene, offsets_topic_num_partitions="1")
    await wire.create("t")
    from odradek.protocol.messages.groups.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )
    from odradek.protocol.messages.groups.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopics,
    )
    from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest

    await wire.ask(FindCoordinatorRequest(key="g"), 3)
    commit = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
            )
        ],
    )
    fetch = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
            )
        ]
    )

    async def committed() -> tuple[int, int]:
        group = (await wire.ask(fetch, 8)).groups[0]
        return group.error_code, group.topics[0].partitions[0].committed_offset if group.topics else -1

    async def commit_it() -> bool:
        response = await wire.ask(commit, 8)
        return not response.topics[0].partitions[0].error_code

    await until(commit_it)
    target = await other_place(scene, wire, "__consumer_offsets")
    assert await move(wire, target, "__consumer_offsets", 0) == [0]
    await until(lambda: not scene.broker.context.moves.futures(target))
    assert await until(committed, holds=lambda offset: offset[0] == 0) == (0, 7)
    assert (await places(wire))["__consumer_offsets", 0, False] == target
