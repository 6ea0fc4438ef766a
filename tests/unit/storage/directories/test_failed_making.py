"""A log whose making failed, and that is made later: its names are durable before its records are."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from odradek.config.topic import LogConfig
from odradek.model.errors import KafkaError
from odradek.model.ids import TopicPartition
from odradek.storage.files.checkpoints import parse_partition_metadata
from odradek.testing.sim import FailOperations
from odradek.testing.sim.disk_faults import Point

Lab = Any
FLIGHTS = TopicPartition("flights", 0)
TOPIC_ID = UUID(int=7, version=4)
METADATA = "/data/flights-0/partition.metadata"


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


async def test_the_topic_id_of_a_new_log_is_durable_before_there_is_a_record(lab: Lab) -> None:
    await opened(lab.directories())
    assert topic_id_after_power_cut(lab) == TOPIC_ID


@pytest.mark.parametrize("failing", [METADATA, "/data/flights-0"])
@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_log_whose_making_failed_has_a_durable_topic_id_once_it_is_made(
    lab: Lab, failing: str, *, is_killed: bool
) -> None:
    """The file has its content when it is opened again, but after a failed sync the system takes that for written."""
    directories = lab.directories()
    lab.disk.faults.append(
        FailOperations(
            operations={"sync", "sync_directory"}, path_test=lambda path: path == failing, error=errno.EIO
        )
    )
    with pytest.raises(KafkaError, match="flights-0"):
        await opened(directories)
    if is_killed:
        lab.kill()
        directories = lab.directories()
    noted = NotedOperations()
    lab.disk.faults.insert(0, noted)
    await opened(directories)
    assert noted.of(METADATA)[-2:] == ["pwrite", "sync"]
    assert topic_id_after_power_cut(lab) == TOPIC_ID


@dataclass
class NotedOperations:
    """A fault that only notes what is done."""

    points: list[Point] = field(default_factory=list)

    def at(self, point: Point) -> None:
        self.points.append(point)

    def of(self, path: str) -> list[str]:
        return [point.operation for point in self.points if point.path == path]


def topic_id_after_power_cut(lab: Lab) -> UUID:
    """Keeps names, and loses all that was not synced."""
    lab.disk.sync_directory("/data")
    lab.cut_power()
    return parse_partition_metadata(lab.disk.read(METADATA))


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
