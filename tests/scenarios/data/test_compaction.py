"""Compacted topics behind the wire, on a production broker: Fetch, ListOffsets, new settings, a restart, a deletion."""

import asyncio
from typing import Any

from tests.kit.waiting import until

from odradek.model.ids import TopicPartition
from odradek.protocol.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from odradek.records import BatchBuilder, Record, decode_batch, split_batches

SETTINGS = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": "3000",
    "min_cleanable_dirty_ratio": "0",
    "delete_retention_ms": "0",
}
RESTING = {"log_cleaner_backoff_ms": "3600000"}
MAX_TIMESTAMP = -3
START_MS = 1_700_000_000_000


async def fill(wire: Any, make_produce: Any, *, count: int = 120, keys: int = 7) -> dict[bytes, bytes]:
    """Single records; what a dict holds of them."""
    latest: dict[bytes, bytes] = {}
    for number in range(count):
        key, value = b"key %d" % (number % keys), b"%d:" % number + bytes(100)
        builder = BatchBuilder()
        if number % 11 == 0:
            builder.append(START_MS + number, key, None)
            latest.pop(key, None)
        else:
            builder.append(START_MS + number, key, value)
            latest[key] = value
        response = await wire.ask(make_produce("table", builder.build()), 9)
        assert response.responses[0].partition_responses[0].error_code == 0
    return latest


async def read_all(wire: Any) -> list[Record]:
    records: list[Record] = []
    offset = 0
    while batches := split_batches((await wire.fetch("table", offset)).records):
        for header, batch in batches:
            records += decode_batch(batch, header, from_offset=offset)
            offset = header.next_offset
    return records


def state_of(records: list[Record]) -> dict[bytes | None, bytes]:
    state: dict[bytes | None, bytes | None] = {}
    for record in records:
        state[record.key] = record.value
    return {key: value for key, value in state.items() if value is not None}


async def list_offset(wire: Any, timestamp: int) -> Any:
    wanted = ListOffsetsTopic(
        name="table", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    )
    response = await wire.ask(ListOffsetsRequest(replica_id=-1, topics=[wanted]), 8)
    return response.topics[0].partitions[0]


async def test_readers_find_a_compacted_table_also_after_a_restart(scene: Any, make_produce: Any) -> None:
    await scene.start(**RESTING)
    wire = await scene.connect()
    await wire.create("table", **SETTINGS)
    latest = await fill(wire, make_produce)
    assert len(await read_all(wire)) == 120
    replicas = scene.broker.context.replicas
    await replicas.maintenance.compact()
    left = await read_all(wire)
    assert len(left) < 60
    assert state_of(left) == latest
    times = {record.offset: record.timestamp for record in left}
    for number in range(0, 120, 7):
        offsets = await list_offset(wire, START_MS + number)
        assert offsets.offset == min(offset for offset in times if times[offset] >= START_MS + number)
    assert (await list_offset(wire, MAX_TIMESTAMP)).offset == 119
    await scene.stop()
    await scene.start(**RESTING)
    wire = await scene.connect()
    assert await read_all(wire) == left


async def test_the_background_task_compacts_once_a_topics_setting_says_so(
    scene: Any, make_produce: Any
) -> None:
    await scene.start(log_cleaner_backoff_ms="10")
    wire = await scene.connect()
    await wire.create("table", **SETTINGS | {"min_cleanable_dirty_ratio": "1"})
    latest = await fill(wire, make_produce)
    assert len(await read_all(wire)) == 120
    change = AlterableConfig(name="min.cleanable.dirty.ratio", config_operation=0, value="0.01")
    resource = AlterConfigsResource(resource_type=2, resource_name="table", configs=[change])
    await wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    log = scene.broker.context.replicas.leader("table", 0).log
    await until(lambda: log.size_bytes < 8000 and not log.cleaning.in_work)
    assert state_of(await read_all(wire)) == latest


async def test_a_topic_that_is_deleted_while_it_is_compacted_is_gone(scene: Any, make_produce: Any) -> None:
    # Slow enough that the deletion comes into the middle.
    await scene.start(**RESTING, log_cleaner_io_max_bytes_per_second="20000")
    wire = await scene.connect()
    await wire.create("table", **SETTINGS)
    await fill(wire, make_produce)
    replicas = scene.broker.context.replicas
    log = replicas.leader("table", 0).log
    work = asyncio.ensure_future(replicas.maintenance.compact())
    while not log.cleaning.in_work:
        await asyncio.sleep(0)
    request = DeleteTopicsRequest(topic_names=["table"], timeout_ms=5000)
    await wire.ask(request, 5)
    await work
    assert replicas.directories.log_directory_of(TopicPartition("table", 0)) is None
    await wire.create("table", **SETTINGS)
    assert await read_all(wire) == []


async def test_a_broker_that_stops_ends_its_compaction(scene: Any, make_produce: Any) -> None:
    await scene.start(log_cleaner_backoff_ms="10", log_cleaner_io_max_bytes_per_second="1")
    wire = await scene.connect()
    await wire.create("table", **SETTINGS)
    latest = await fill(wire, make_produce, count=60)
    log = scene.broker.context.replicas.leader("table", 0).log
    while not log.cleaning.in_work:
        await asyncio.sleep(0.01)
    await scene.stop()
    await scene.start(**RESTING)
    wire = await scene.connect()
    assert state_of(await read_all(wire)) == latest
