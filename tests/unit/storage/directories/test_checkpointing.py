"""Checkpoints of many logs: the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from odradek.config.topic import LogConfig
from odradek.model.ids import TopicPartition
from odradek.storage.directories import checkpointing

Lab = Any
TOPIC_ID = UUID(int=7, version=4)
CONFIG = LogConfig()


async def test_checkpoints_of_many_logs_let_others_go_on_and_speak_of_all(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointing, "LOOKED_AT_ONCE", 2)
    directories = lab.directories()
    names = [TopicPartition("flights", number) for number in range(9)]
    for name in names:
        await directories.open_log(name, TOPIC_ID, CONFIG)
    rounds: list[None] = []

    async def others() -> None:
        while True:
            rounds.append(None)
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    await directories.write_checkpoints(dict.fromkeys(names, 0))
    other.cancel()
    assert len(rounds) >= len(names) // 2
    for kind in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        lines = lab.disk.read(f"/data/{kind}").decode().splitlines()[2:]
        assert lines == [f"flights {name.partition} 0" for name in names]


async def test_noting_logs_that_were_made_writes_no_other_checkpoint(lab: Lab) -> None:
    directories = lab.directories()
    names = [TopicPartition("flights", number) for number in range(9)]
    for name in names:
        await directories.open_log(name, TOPIC_ID, CONFIG)
    before = set(lab.names("/data"))
    await directories.record_created_logs()
    assert set(lab.names("/data")) - before == {"held-replicas"}
    lab.kill()
    directories = lab.directories()
    assert all(directories.was_held(name, TOPIC_ID) for name in names)
