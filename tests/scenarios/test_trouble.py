"""When the disk, the client or another request gets in the way: everyone concerned gets an answer, no one else notices."""

import asyncio
import errno
import gc
import os
from typing import Any

import pytest

from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.topics.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from odradek.records import Codec
from odradek.runtime.real import PosixDisk, PosixFile

TOPIC, BROKER = 2, 4


def no_space(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def metadata_of(*names: str) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=True
    )


def settings(kind: int, name: str, **values: str) -> IncrementalAlterConfigsRequest:
    configs = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
        for key, value in values.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource])


async def codes_of_changes(wire: Any) -> dict[str, int]:
    """What each API that writes to the registry answers."""
    new = CreateTopicsRequest(topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)])
    more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=5, assignments=None)])
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    return {
        "CreateTopics": (await wire.ask(new, 7)).topics[0].error_code,
        "Metadata": (await wire.ask(metadata_of("asked"), 12)).topics[0].error_code,
        "CreatePartitions": (await wire.ask(more, 3)).results[0].error_code,
        "topic settings": (await wire.ask(settings(TOPIC, "t", retention_ms="5"), 1)).responses[0].error_code,
        "broker settings": (await wire.ask(settings(BROKER, "1", message_max_bytes="500"), 1))
        .responses[0]
        .error_code,
        "InitProducerId": (await wire.ask(InitProducerIdRequest(transactional_id=None), 4)).error_code,
        "DeleteTopics": (await wire.ask(gone, 6)).responses[0].error_code,
    }


async def test_changes_that_cannot_be_written_are_refused_and_work_once_there_is_space(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.start(auto_create_topics_enable="true")
    wire = await scene.connect()
    await wire.create("t")
    real_sync = PosixFile.sync

    def sync(self: PosixFile) -> None:  # of the line, and of the cut that should undo it
        if self.path.endswith("registry.journal"):
            no_space()
        real_sync(self)

    with monkeypatch.context() as patch:
        patch.setattr(PosixFile, "sync", sync)
        codes = await codes_of_changes(wire)
    assert (
        codes.pop("InitProducerId") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )  # so that every client tries again
    assert set(codes.values()) == {ErrorCode.KAFKA_STORAGE_ERROR}, codes
    assert (await wire.produce("t", [b"x"])).error_code == 0
    codes = await codes_of_changes(wire)
    assert set(codes.values()) == {0}, codes


async def test_a_topic_made_on_a_full_disk_can_be_used_once_there_is_space(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await scene.start()
    wire = await scene.connect()
    with monkeypatch.context() as patch:
        patch.setattr(PosixDisk, "make_directory", no_space)
        created = await wire.create("t", partitions=2)
    assert created.error_code == 0
    assert (await wire.produce("t", [b"x"])).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    await broker.context.replicas.try_to_recover()
    codes = [(await wire.produce("t", [b"x"], partition=1)).error_code]
    while codes[-1] and len(codes) < 1000:  # the controller hears of it, and elects
        codes.append((await wire.produce("t", [b"x"], partition=1)).error_code)
    assert codes[-1] == 0
    topic = (await wire.ask(metadata_of("t"), 12)).topics[0]
    assert [partition.leader_id for partition in topic.partitions] == [1, 1]


async def test_a_topic_that_never_got_its_log_can_be_deleted(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await scene.start()
    wire = await scene.connect()
    with monkeypatch.context() as patch:
        patch.setattr(PosixDisk, "make_directory", no_space)
        await wire.create("t")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    assert (await wire.ask(request, 6)).responses[0].error_code == 0
    await broker.context.replicas.try_to_recover()
    assert (await wire.produce("t", [b"x"])).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not (scene.directory / "data" / "t-0").exists()


async def test_a_client_that_leaves_while_its_topic_is_made_leaves_a_whole_topic(scene: Any) -> None:
    await scene.start()
    for number in range(20):
        leaving = await scene.connect()
        topic = CreatableTopic(name=f"t{number}", num_partitions=3, replication_factor=1)
        leaving.ask_later(CreateTopicsRequest(topics=[topic]), 7)
        for _ in range(number % 7):
            await asyncio.sleep(0.001)
        leaving.abandon()
    wire = await scene.connect()
    await wire.create("last")
    results = (await wire.ask(MetadataRequest(topics=None), 12)).topics
    for topic in results:
        for index in range(len(topic.partitions)):
            assert (await wire.produce(topic.name, [b"x"], partition=index)).error_code == 0
    await scene.stop()
    await scene.start()
    wire = await scene.connect()
    again = (await wire.ask(MetadataRequest(topics=None), 12)).topics
    assert {topic.name for topic in again} == {topic.name for topic in results}


async def test_many_clients_that_ask_for_the_same_missing_topic_get_one_topic(scene: Any) -> None:
    await scene.start(auto_create_topics_enable="true", num_partitions="2")
    wires = [await scene.connect() for _ in range(30)]

    async def ask_and_write(wire: Any) -> tuple[int, Any]:
        topic = (await wire.ask(metadata_of("t"), 12)).topics[0]
        return (await wire.produce("t", [b"x"], partition=1)).error_code, topic.topic_id

    answers = await asyncio.gather(*(ask_and_write(wire) for wire in wires))
    assert {code for code, _ in answers} == {0}
    assert len({topic_id for _, topic_id in answers}) == 1
    assert len(await wires[0].values("t", partition=1)) == 30


async def test_deletion_goes_on_where_one_partitions_files_cannot_be_moved(
    scene: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    await scene.start(log_dirs=f"{tmp_path / 'one'},{tmp_path / 'two'}")
    wire = await scene.connect()
    await wire.create("t", partitions=4)
    bad = str(tmp_path / "two")
    real_rename = PosixDisk.rename

    def rename(self: PosixDisk, source: str, target: str) -> None:
        if source.startswith(bad):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real_rename(self, source, target)

    monkeypatch.setattr(PosixDisk, "rename", rename)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    assert (await wire.ask(request, 6)).responses[0].error_code == 0
    for index in range(4):
        response = await wire.produce("t", [b"x"], partition=index)
        assert response.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not [name for name in os.listdir(tmp_path / "one") if name.startswith("t-") and len(name) == 3]


async def test_a_waiting_fetch_whose_answer_meets_a_disk_error_is_answered_once(
    scene: Any, monkeypatch: pytest.MonkeyPatch, make_fetch: Any
) -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    await scene.start()
    writer, reader = await scene.connect(), await scene.connect()
    await writer.create("t")
    reader.ask_later(make_fetch("t", 0, max_wait_ms=20_000), 11)
    await asyncio.sleep(0.05)

    def broken(*_: Any) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(PosixFile, "pread", broken)
    await writer.produce("t", [b"x"])
    partition = (await reader.response()).responses[0].partitions[0]
    assert partition.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not reported


async def test_a_refused_batch_is_forgotten_without_the_garbage_collector(
    wire: Any, make_batch: Any, make_produce: Any
) -> None:
    await wire.create("t")
    batch = make_batch([os.urandom(300_000)], codec=Codec.GZIP)
    batch[-1] ^= 1
    gc.collect()
    gc.disable()
    earlier = {id(thing_alive) for thing_alive in gc.get_objects() if isinstance(thing_alive, KafkaError)}

    def left() -> list[KafkaError]:
        errors = [thing_alive for thing_alive in gc.get_objects() if isinstance(thing_alive, KafkaError)]
        return [error for error in errors if error.__traceback__ and id(error) not in earlier]

    try:
        response = await wire.ask(make_produce("t", batch), 9)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.CORRUPT_MESSAGE
        for _ in range(100):  # the answer may be here before the request has come to its end
            if not left():
                break
            await asyncio.sleep(0)
        assert left() == []
    finally:
        gc.enable()
