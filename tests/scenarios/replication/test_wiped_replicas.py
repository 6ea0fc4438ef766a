"""Replicas that lost what they had, and what they say of themselves while they fetch it again (`nodes.py`)."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.kit.waiting import until
from tests.scenarios.replication.nodes import FIRST_ID, Controller, Node, led_by, nodes

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.storage.files.lack_notes import LackNote
from odradek.storage.log.log import Log


@pytest.fixture
def controller() -> Controller:
    return Controller()


async def wipe(node: Node) -> None:
    """While it is down."""
    await node.stop()
    shutil.rmtree(Path(node.directories.home) / "t-0")


async def test_a_wiped_replica_outside_the_isr_does_not_rank_with_those_that_have_their_records(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(5)
        await b.replicas.directories.record_created_logs()
        controller.grants = False
        await controller.elect(0, isr=(0,))
        await wipe(b)
        await b.start()
        await controller.tell()
        assert b.replicas.health.lacking == {(FIRST_ID, 0)}
        assert b.replicas.health.damaged == frozenset(), "nothing waits for it"
        controller.grants = True
        await until(lambda: controller.state().isr == (0, 1), "it is in sync again")
        await controller.tell()
        assert b.directories.lack_notes == {}
        assert b.replicas.health.lacking == frozenset()


async def test_a_note_that_a_full_disk_kept_as_it_was_goes_when_the_replica_is_in_sync_again(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(5)
        await b.replicas.directories.record_created_logs()
        await wipe(b)
        await b.start()
        await controller.tell(0, 1)
        assert b.replicas.health.lost == {(FIRST_ID, 0)}
        real: Any = b.directories.settle_lack

        async def on_full_disk(log: Log, note: LackNote | None) -> None:
            if note is not None:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")
            await real(log, note)

        b.directories.settle_lack = on_full_disk  # type: ignore[method-assign]
        controller.grants = False
        await controller.elect(0, isr=(0,))
        assert b.directories.lack_notes
        controller.grants = True
        await until(lambda: BrokerId(1) in controller.state().isr, "it is in sync again")
        controller.has(replace(controller.state(), partition_epoch=controller.state().partition_epoch + 1))
        await controller.tell()
        assert b.directories.lack_notes == {}
        assert b.replicas.health.lost == frozenset()
