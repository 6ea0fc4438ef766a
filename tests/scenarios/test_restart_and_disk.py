"""What a broker keeps over restarts, and what disk trouble does and does not harm."""

import errno
import os
from typing import Any

import pytest

from odradek.model.errors import ConfigError, ErrorCode
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.runtime.real import PosixFile


async def test_topics_records_and_producers_survive_a_restart(scene: Any) -> None:
    await scene.start()
    wire = await scene.connect()
    created = await wire.create("t", partitions=2)
    await wire.produce("t", [b"a"], producer_id=3, producer_epoch=0, base_sequence=0)
    first_ids = await wire.call("InitProducerId", 4, InitProducerIdRequest(transactional_id=None))
    before = await wire.call("Metadata", 12, MetadataRequest(topics=None))
    await scene.stop()

    await scene.start()
    wire = await scene.connect()
    after = await wire.call("Metadata", 12, MetadataRequest(topics=None))
    assert (after.cluster_id, after.topics[0].topic_id) == (before.cluster_id, created.topic_id)
    assert await wire.values("t") == [b"a"]
    again = await wire.produce("t", [b"a"], producer_id=3, producer_epoch=0, base_sequence=0)
    assert (again.error_code, again.base_offset) == (0, 0), "the duplicate is recognised after a restart"
    next_ids = await wire.call("InitProducerId", 4, InitProducerIdRequest(transactional_id=None))
    assert next_ids.producer_id > first_ids.producer_id


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


async def test_a_full_disk_refuses_appends_and_gives_the_partition_back(
    scene: Any, monkeypatch: pytest.MonkeyPatch, until: Any
) -> None:
    await scene.start()
    wire = await scene.connect()
    await wire.create("t")
    await wire.create("other")
    await wire.produce("t", [b"before"])
    real_write = PosixFile.pwrite
    full = True

    def write(self: PosixFile, data: Any, position: int) -> None:
        if full and self._path.endswith("t-0/00000000000000000000.log"):
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
        await scene.broker._replicas.try_to_recover()
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
    homes = {name: first if (first / f"{name}-0").exists() else second for name in ("a", "b")}
    assert homes["a"] != homes["b"], "two directories share the partitions"
    real_sync = PosixFile.sync

    def sync(self: PosixFile) -> None:
        if self._path.startswith(str(homes["a"])):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real_sync(self)

    monkeypatch.setattr(PosixFile, "sync", sync)
    assert (await wire.produce("a", [b"x"])).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.setattr(PosixFile, "sync", real_sync)
    assert (await wire.produce("a", [b"x"])).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await wire.fetch("a", 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await wire.produce("b", [b"y"])).error_code == 0
    metadata = await wire.call("Metadata", 9, MetadataRequest(topics=None))
    offline = {topic.name: topic.partitions[0].offline_replicas for topic in metadata.topics}
    assert offline == {"a": [1], "b": []}


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
