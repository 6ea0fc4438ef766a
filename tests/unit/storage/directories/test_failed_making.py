"""A log whose making failed, and that is made later: its names are durable before its records are."""

from __future__ import annotations

import errno
from typing import Any
from uuid import UUID

import pytest

from odradek.config.topic import LogConfig
from odradek.model.errors import KafkaError
from odradek.model.ids import TopicPartition
from odradek.testing.sim import FailOperations

Lab = Any
FLIGHTS = TopicPartition("flights", 0)
TOPIC_ID = UUID(int=7, version=4)


async def opened(directories: Any) -> Any:
    return await directories.open_log(FLIGHTS, TOPIC_ID, LogConfig())


async def shut(directories: Any) -> None:
    await directories.close_logs()
    directories.close()


def noted_syncs(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The list that gets the path of each directory that is synced from now on."""
    synced: list[str] = []
    sync = lab.disk.sync_directory

    def noted(path: str) -> None:
        sync(path)
        synced.append(path)

    monkeypatch.setattr(lab.disk, "sync_directory", noted)
    return synced


@pytest.mark.parametrize("stops_between", [False, True])
async def test_a_log_whose_making_failed_is_durable_with_its_names_once_it_is_made(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, *, stops_between: bool
) -> None:
    """Its first segment is there already when it is opened again."""
    synced, directories = noted_syncs(lab, monkeypatch), lab.directories()
    lab.disk.faults.append(
        FailOperations(
            operations={"sync_directory"},
            path_test=lambda path: path == "/data/flights-0",
            error=errno.EMFILE,
        )
    )
    synced.clear()
    with pytest.raises(KafkaError, match="flights-0"):
        await opened(directories)
    assert synced == []
    if stops_between:
        await shut(directories)
        directories = lab.directories()
    log = await opened(directories)
    assert "/data/flights-0" in synced
    lab.append(log, b"kept")
    lab.flush(log)
    assert log.flushed_offset == 1
    assert "/data" in synced
    monkeypatch.undo()
    lab.cut_power()
    assert lab.values(await opened(lab.directories())) == [b"kept"]


async def test_an_empty_log_that_was_made_is_opened_after_a_clean_stop_without_a_sync(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = lab.directories()
    await opened(directories)
    await shut(directories)
    synced, directories = noted_syncs(lab, monkeypatch), lab.directories()
    assert directories.all()[0].was_clean
    await opened(directories)
    assert "/data/flights-0" not in synced
