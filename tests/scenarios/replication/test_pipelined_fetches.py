"""A follower that sends many fetches at once gets an answer to each of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kit.wire import Wire
from tests.scenarios.replication.nodes import FIRST_ID, Controller, led_by, nodes

from odradek.protocol.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState

COUNT = 600
"""More than the calls that Python nests, and more bytes than a connection receives at once."""


@pytest.mark.parametrize("min_bytes", [1, 2], ids=["short way", "general way"])
async def test_each_of_many_fetches_that_are_sent_at_once_is_answered(tmp_path: Path, min_bytes: int) -> None:
    controller = Controller()
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell(a.me)
        wanted = FetchPartition(
            partition=0,
            current_leader_epoch=0,
            fetch_offset=0,
            log_start_offset=0,
            partition_max_bytes=1 << 20,
            high_watermark=0,
        )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=b.me, replica_epoch=b.epoch),
            max_wait_ms=0,
            min_bytes=min_bytes,
            session_epoch=0,
            topics=[FetchTopic(topic_id=FIRST_ID, partitions=[wanted])],
        )
        wire = await Wire.connect(a.port)
        opened = await wire.ask(request, 18)
        assert (opened.error_code, len(opened.responses)) == (0, 1)
        for epoch in range(1, COUNT + 1):
            next_request = request.replace(
                session_id=opened.session_id,
                session_epoch=epoch,
                max_wait_ms=600_000 if epoch < COUNT else 0,
            )
            wire.ask_later(next_request, 18)
        for _ in range(COUNT):
            response = await wire.response()
            assert (response.error_code, response.responses) == (0, [])
        await wire.close()
