"""What a broker keeps over restarts, and what disk trouble does and does not harm."""

import asyncio
import errno
import os
import shutil
from typing import Any

import pytest
from tests.kit.waiting import PATIENCE_S

from odradek.broker.cluster.membership import ClusterMembership
from odradek.broker.replicas.maintenance import ReplicaMaintenance
from odradek.broker.replicas.replica_manager import ReplicaManager
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest
from odradek.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from odradek.runtime.real import PosixFile
from odradek.storage.log.log import Log


async def test_topics_records_and_producers_survive_a_restart(scene: Any) -> None:
    await scene.start()
    wire = await scene.connect()
    created = await wire.create("t", partitions=2)
    await wire.produce("t", [b"a"], producer_id=3, producer_epoch=0, base_sequence=0)
    first_ids = await wire.ask(InitProducerIdRequest(transactional_id=None), 4)
    before = await wire.ask(MetadataRequest(topics=None), 12)
    await scene.stop()

    await scene.start()
    wire = await scene.connect()
    after = await wire.ask(MetadataRequest(topics=None), 12)
    assert (after.cluster_id, after.topics[0].topic_id) == (before.cluster_id, created.topic_id)
    assert await wire.values("t") == [b"a"]
    again = await wire.produce("t", [b"a"], producer_id=3, producer_epoch=0, base_sequence=0)
    assert (again.error_code, again.base_offset) == (0, 0), "the duplicate is recognised after a restart"
    next_ids = await wire.ask(InitProducerIdRequest(transactional_id=None), 4)
    assert next_ids.producer_id > first_ids.producer_id


async def test_the_first_produce_after_a_restart_finds_a_leader(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.start()
    wire = await scene.connect()
    await wire.create("t", partitions=3)
    await scene.stop()

    joined = asyncio.Event()
    may_join = asyncio.Event()
    join = ClusterMembership.join

    async def join_when_asked(membership: ClusterMembership, *arguments: Any) -> None:
        joined.set()
        await may_join.wait()
        await join(membership, *arguments)

    monkeypatch.setattr(ClusterMembership, "join", join_when_asked)
    starting = asyncio.create_task(scene.start())
    await joined.wait()  # it listens now, and knows no leader
    wire = await scene.connect()
    wire.ask_later(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
    assert (await wire.response()).error_code == ErrorCode.NONE
    producing = asyncio.create_task(wire.produce("t", [b"a"], partition=1))
    may_join.set()
    await starting
    assert (await producing).error_code == ErrorCode.NONE


async def test_a_log_of_a_topic_that_is_gone_is_set_aside_and_the_others_are_not(
    scene: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await scene.start()
    wire = await scene.connect()
    await wire.create("t")
    await wire.produce("t", [b"a"])
    await scene.stop()
    data = scene.directory / "data"
    shutil.copytree(data / "t-0", data / "gone-0")
    metadata = data / "gone-0" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg")

    for expected in (True, False):
        caplog.clear()
        await scene.start()
        wire = await scene.connect()
        assert await wire.values("t") == [b"a"]
        await scene.stop()
        assert ("stray" in caplog.text) is expected
    (stray,) = [named for named in data.iterdir() if named.name.endswith("-stray")]
    assert stray.name.startswith("gone-0.")
    assert (stray / "00000000000000000000.log").stat().st_size > 0
    assert not (data / "gone-0").exists()


async def test_a_second_broker_cannot_take_the_same_directory(scene: Any, tmp_path: Any) -> None:
    await scene.start()
    other = type(scene)(tmp_path)
    with pytest.raises(ConfigError, match="in use by another broker"):
        await other.start()


async def test_another_brokers_directory_is_refused(scene: Any) -> None:
    await scene.start()
    await scene.stop()
    with pytest.raises(ConfigError, match="belongs to broker 1, this is broker 2"):
        await scene.start(node_id="2")


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
async def test_a_full_disk_refuses_appends_and_gives_the_partition_back(
    scene: Any, monkeypatch: pytest.MonkeyPatch, timestamp_type: str
) -> None:
    await scene.start()
    wire = await scene.connect()
    await wire.create("t", message_timestamp_type=timestamp_type)
    await wire.create("other")
    await wire.produce("t", [b"before"])
    real_write = PosixFile.pwrite
    full = True

    def write(self: PosixFile, data: Any, position: int) -> None:
        if full and self.path.endswith("t-0/00000000000000000000.log"):
            real_write(self, data[: len(data) // 2], position)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real_write(self, data, position)

    monkeypatch.setattr(PosixFile, "pwrite", write)
    assert (await wire.produce("t", [b"lost"])).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await wire.produce("t", [b"lost"])).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await wire.produce("other", [b"fine"])).error_code == 0
    assert await wire.values("t") == [b"before"]
    full = False
    response = await wire.produce("t", [b"after"])
    for _ in range(500):
        if response.error_code == 0:
            break
        await scene.broker.context.replicas.try_to_recover()
        response = await wire.produce("t", [b"after"])
    assert (response.error_code, response.base_offset) == (0, 1)
    assert await wire.values("t") == [b"before", b"after"]


async def test_a_failed_fsync_takes_the_directory_offline_for_good(
    scene: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    await scene.start(log_dirs=f"{first},{second}")
    wire = await scene.connect()
    await wire.create("a")
    await wire.create("b")
    placement = {name: first if (first / f"{name}-0").exists() else second for name in ("a", "b")}
    assert placement["a"] != placement["b"], "two directories share the partitions"
    real_sync = PosixFile.sync

    def sync(self: PosixFile) -> None:
        if self.path.startswith(str(placement["a"])):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real_sync(self)

    monkeypatch.setattr(PosixFile, "sync", sync)
    assert (await wire.produce("a", [b"x"])).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.setattr(PosixFile, "sync", real_sync)
    assert (await wire.produce("a", [b"x"])).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await wire.fetch("a", 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await wire.produce("b", [b"y"])).error_code == 0
    metadata = await wire.ask(MetadataRequest(topics=None), 9)
    offline = {topic.name: topic.partitions[0].offline_replicas for topic in metadata.topics}
    assert offline == {"a": [1], "b": []}


async def test_a_failed_sync_without_a_thread_of_python_takes_the_directory_offline_for_good(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await scene.start()
    if scene.runtime.file_syncs is None:
        pytest.skip("absent: the threads that sync files are built on Linux with a C compiler")
    wire = await scene.connect()
    await wire.create("t")
    for _ in range(2):  # the first flush has the names of a new log to sync
        assert (await wire.produce("t", [b"durable"])).error_code == 0
    reading, writing = os.pipe()
    refused: list[str] = []

    class Refused:
        """A descriptor that fdatasync(2) refuses."""

        number = writing

        def __init__(self, path: str) -> None:
            self.path = path

    def descriptor(file: PosixFile) -> Refused:
        refused.append(file.path)
        return Refused(file.path)

    monkeypatch.setattr(PosixFile, "descriptor", descriptor)
    assert (await wire.produce("t", [b"x"])).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    assert len(refused) == 1
    assert refused[0].endswith("t-0/00000000000000000000.log")
    assert (await wire.produce("t", [b"x"])).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.fatal.is_set()
    os.close(reading)
    os.close(writing)


async def test_the_broker_gives_up_when_its_only_directory_fails(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await scene.start()
    wire = await scene.connect()
    await wire.create("t")

    def sync(self: PosixFile) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(PosixFile, "sync", sync)
    assert (await wire.produce("t", [b"x"])).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.fatal.is_set()


async def test_a_part_that_fails_to_stop_keeps_no_other_from_stopping(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await scene.start()
    wire = await scene.connect()
    await wire.create("t")
    await wire.produce("t", [b"x"])

    async def fail(_: ReplicaManager) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(ReplicaManager, "close", fail)
        with pytest.raises(RuntimeError, match="a bug"):
            await broker.stop()
    other = type(scene)(scene.directory)
    await other.start()  # the directory is not locked any more
    assert await (await other.connect()).values("t") == [b"x"]
    await other.stop()


async def test_who_stops_a_broker_that_is_stopping_waits_for_its_end(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    closes, ended = ReplicaManager.close, False

    async def close(replicas: ReplicaManager) -> None:
        nonlocal ended
        await asyncio.sleep(0)
        await closes(replicas)
        ended = True

    monkeypatch.setattr(ReplicaManager, "close", close)
    broker = await scene.start()
    first = asyncio.ensure_future(broker.stop())
    await asyncio.sleep(0)
    await broker.stop()
    assert ended
    await first


async def test_work_in_the_background_comes_to_its_end_before_what_it_works_on_is_closed(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[str] = []
    begun = asyncio.Event()

    async def write(_: ReplicaMaintenance) -> None:
        rounds.append("begun")
        begun.set()
        await asyncio.sleep(0.05)
        rounds.append("ended")

    monkeypatch.setattr(ReplicaMaintenance, "write_checkpoints", write)
    broker = await scene.start(log_flush_offset_checkpoint_interval_ms="1")
    async with asyncio.timeout(PATIENCE_S):
        await begun.wait()
    await broker.stop()
    assert rounds == ["begun", "ended"] * (len(rounds) // 2)


async def test_background_work_that_fails_is_tried_again(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = asyncio.Semaphore(0)

    async def write(_: ReplicaMaintenance) -> None:
        failed.release()
        raise RuntimeError("a bug")

    monkeypatch.setattr(ReplicaMaintenance, "write_checkpoints", write)
    await scene.start(log_flush_offset_checkpoint_interval_ms="1")
    async with asyncio.timeout(PATIENCE_S):
        await failed.acquire()
        await failed.acquire()


async def test_one_partition_that_cannot_be_cleaned_keeps_no_other_from_it(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await scene.start()
    wire = await scene.connect()
    for name in ("a", "b"):
        await wire.create(name, retention_ms="1")
        await wire.produce(name, [b"x" * 1000])
    real = Log.apply_retention

    def retain(self: Log, now_ms: int, **more: Any) -> Any:
        if self.topic_partition.topic == "a":
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space to begin a segment")
        return real(self, now_ms, **more)

    monkeypatch.setattr(Log, "apply_retention", retain)
    async with asyncio.timeout(PATIENCE_S):
        while (await wire.fetch("b", 0)).error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            await broker.context.replicas.maintenance.apply_retention()
    assert await wire.values("a") == [b"x" * 1000]


async def test_a_topic_created_while_the_broker_stops_is_there_afterwards_or_was_refused(scene: Any) -> None:
    broker = await scene.start()
    wire = await scene.connect()
    creating = asyncio.ensure_future(wire.create("t", partitions=5))
    stopping = asyncio.ensure_future(broker.stop())
    try:
        reply = (await creating).error_code
    except (ConnectionError, asyncio.IncompleteReadError):
        reply = None
    await stopping
    await scene.stop()
    await scene.start()
    wire = await scene.connect()
    response = await wire.produce("t", [b"x"], partition=4)
    if reply == 0:
        assert response.error_code == 0
    assert response.error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
