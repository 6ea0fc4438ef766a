"""A disk that is full, from which topics are deleted; and records that are on disk alone, which many read at once."""

from __future__ import annotations

import os
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Final

from tests.faults.disks import SmallDisk, absent
from tests.hostile.attack import Attack, Stage, in_parallel
from tests.hostile.attacks.connections import produce_frame
from tests.hostile.figures import MEBIBYTE
from tests.kit.requests import fetch_request
from tests.kit.waiting import seconds_until

from odradek.protocol import decode_response
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState

_FULL_TOPIC: Final = "filler"
_COLD_TOPIC: Final = "cold"
_FREE_SECONDS: Final = 20.0
_PRODUCE: Final = 0
_SPARE_BYTES: Final = 4 * MEBIBYTE


def _prepare_filler(stage: Stage) -> None:
    stage.create_topic(_FULL_TOPIC, partitions=2)  # one in each directory


def _fill_and_delete(stage: Stage) -> None:
    """Fills the disk of one directory by a topic, takes the last byte, deletes the topic, and waits for the space."""
    disk = stage.home / "small"
    (partition,) = [path for path in (disk / "data").iterdir() if path.name.startswith(f"{_FULL_TOPIC}-")]
    number = int(partition.name.rpartition("-")[2])
    frame = produce_frame(_FULL_TOPIC, 900_000, partition=number)
    code = 0
    with stage.connect() as peer:
        while code == 0 and shutil.disk_usage(disk).free > _SPARE_BYTES:
            peer.send(frame)
            _, response = decode_response(_PRODUCE, 8, peer.receive())
            code = response.responses[0].partition_responses[0].error_code
        used_bytes = shutil.disk_usage(disk).used
        ballast = disk / "ballast"
        _fill(ballast)
        try:
            states = [DeleteTopicState(name=_FULL_TOPIC)]
            deleted = peer.ask(DeleteTopicsRequest(topics=states, timeout_ms=10_000), 6)
            free_bytes = used_bytes // 2
            seconds = seconds_until(lambda: shutil.disk_usage(disk).free > free_bytes, _FREE_SECONDS)
        finally:
            ballast.unlink()
    stage.notes["delete_answered"] = deleted.responses[0].error_code
    stage.notes["used_mb"] = used_bytes // MEBIBYTE
    stage.notes["seconds_until_free"] = None if seconds is None else round(seconds, 2)
    stage.must(seconds is not None, f"the deleted topic's space is not free after {_FREE_SECONDS:.0f} s")


def _fill(ballast: Path) -> None:
    """Writes until not another byte fits."""
    with ballast.open("wb", buffering=0) as file:
        for size in (MEBIBYTE, 4096, 512):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def _small_disk(home: Path) -> SmallDisk:
    return SmallDisk(home / "small", size_bytes=96 * MEBIBYTE)


def _prepare_cold(stage: Stage) -> None:
    stage.create_topic(_COLD_TOPIC, partitions=1, segment_bytes=str(64 * MEBIBYTE))
    frame = produce_frame(_COLD_TOPIC, 900_000)
    with stage.connect() as peer:
        for _ in range(stage.scale.count(400, 60)):
            peer.send(frame)
            peer.receive()


def _read_cold(stage: Stage) -> None:
    """Consumers that begin at the beginning, where nothing is in the page cache."""
    evicted = sum(_evict(path) for path in stage.victim.terms.directory.glob(f"{_COLD_TOPIC}-*/*.log"))
    stage.notes["evicted_mb"] = evicted // MEBIBYTE
    readers = [partial(_read_all, stage) for _ in range(4)]
    stage.must(in_parallel(readers, 90.0) == 0, "readers of old records do not come to the end")


def _evict(path: Path) -> int:
    """Take a file out of the page cache; its size."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path.stat().st_size


def _read_all(stage: Stage) -> None:
    offset, end = 0, 1
    with stage.connect() as peer:
        while offset < end:
            most = 8 * MEBIBYTE
            asked = fetch_request(
                _COLD_TOPIC, offset, max_wait_ms=100, max_bytes=most, partition_max_bytes=most
            )
            partition = peer.ask(asked, 11).responses[0].partitions[0]
            assert partition.error_code == 0, partition
            end = partition.high_watermark
            offset += _record_count(bytes(partition.records or b""))
            time.sleep(0.01)


def _record_count(data: bytes) -> int:
    """Batches of one record each, as they were produced."""
    count, position = 0, 0
    while position + 12 <= len(data):
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        count += position <= len(data)
    return count


ATTACKS: Final = (
    Attack(
        name="a topic deleted from a full disk",
        brokers_in_short=(1,),
        claim="a deleted topic's space is free soon, also where not another byte can be written",
        run=_fill_and_delete,
        prepare=_prepare_filler,
        log_directories=("large", "small/data"),
        directory_of=_small_disk,
        absent=absent,
    ),
    Attack(
        name="cold reads",
        claim="records that are on disk alone are read without holding up anyone",
        run=_read_cold,
        prepare=_prepare_cold,
    ),
)
