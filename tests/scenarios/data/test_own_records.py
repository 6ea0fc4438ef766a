"""A record that was acknowledged with acks=1 is there for every later request, although it is on its way to the disk."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.kit.wire import Wire

from odradek.protocol.messages.data.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

LATEST, MAX_TIMESTAMP, FIRST_TIMESTAMP = -1, -3, 1_700_000_000_000
READ_COMMITTED = 1
TO_THE_END = -1


def list_offsets(timestamp: int, isolation_level: int = 0) -> ListOffsetsRequest:
    topic = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=timestamp)])
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[topic])


def delete_records(offset: int) -> DeleteRecordsRequest:
    topic = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(offset=offset)])
    return DeleteRecordsRequest(topics=[topic], timeout_ms=5000)


async def right_after_produce(
    wire: Wire,
    make_batch: Callable[..., Any],
    make_produce: Callable[..., Any],
    asked: Any,
    version: int,
) -> Any:
    """The answer for the one partition. Both requests arrive together, so no flush is between them."""
    wire.ask_later(make_produce("t", make_batch([b"one"]), acks=1), 9)
    wire.ask_later(asked, version)
    produced = (await wire.response()).responses[0].partition_responses[0]
    assert produced.error_code == 0
    return (await wire.response()).topics[0].partitions[0]


@pytest.mark.parametrize(
    ("asked", "offset"),
    [
        (list_offsets(LATEST), 1),
        (list_offsets(LATEST, READ_COMMITTED), 1),
        (list_offsets(MAX_TIMESTAMP), 0),
        (list_offsets(FIRST_TIMESTAMP), 0),
    ],
    ids=["latest", "latest that is committed", "largest timestamp", "by timestamp"],
)
async def test_list_offsets_counts_it(
    wire: Wire,
    make_batch: Callable[..., Any],
    make_produce: Callable[..., Any],
    asked: ListOffsetsRequest,
    offset: int,
) -> None:
    await wire.create("t")
    response = await right_after_produce(wire, make_batch, make_produce, asked, 7)
    assert (response.error_code, response.offset) == (0, offset)


@pytest.mark.parametrize("offset", [TO_THE_END, 1])
async def test_delete_records_deletes_it(
    wire: Wire, make_batch: Callable[..., Any], make_produce: Callable[..., Any], offset: int
) -> None:
    await wire.create("t")
    response = await right_after_produce(wire, make_batch, make_produce, delete_records(offset), 2)
    assert (response.error_code, response.low_watermark) == (0, 1)
