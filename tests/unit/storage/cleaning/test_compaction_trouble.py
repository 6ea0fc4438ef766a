"""Compaction that meets damage, a full disk, errors, a crash, or the end of its log."""

from __future__ import annotations

import asyncio
import errno
from contextlib import suppress
from random import Random

import pytest
from tests.simulation.compaction.keyed_log import HOME, PARTITION, KeyedLog
from tests.unit.storage.cleaning.compacted import DIRECTORY, EAGER, Fixed, files, filled

from odradek.model.errors import KafkaError
from odradek.records import Codec
from odradek.storage.log.health import FaultKind
from odradek.testing.sim import CrashAt, CrashKind, FailOperations, HostCrashed


def test_a_damaged_batch_stops_the_compaction_of_its_log_and_nothing_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keyed = filled()
    name = files(keyed, ".log")[1]
    before = {file: keyed.disk.read(f"{DIRECTORY}/{file}") for file in files(keyed, ".log")}
    keyed.medium.file(f"{DIRECTORY}/{name}").cache[90] ^= 1
    with pytest.raises(Exception, match="CRC"):
        keyed.compact()
    assert "log_uncleanable" in caplog.text
    keyed.medium.file(f"{DIRECTORY}/{name}").cache[90] ^= 1
    assert {file: keyed.disk.read(f"{DIRECTORY}/{file}") for file in files(keyed, ".log")} == before
    keyed.check()
    points = keyed.disk.point_count
    keyed.run_round()
    assert keyed.disk.point_count == points, "it is not tried again"


def test_a_full_disk_puts_compaction_off(caplog: pytest.LogCaptureFixture) -> None:
    keyed = filled()
    keyed.medium.capacity_bytes = keyed.medium.used_bytes() + 500
    keyed.compact()
    assert "compaction_put_off" in caplog.text
    assert keyed.log.failed is None
    keyed.check()
    keyed.medium.capacity_bytes = None
    keyed.compact()
    keyed.check()
    assert keyed.cleaned_offset > 0


@pytest.mark.parametrize(
    ("operation", "ending"),
    [("sync", ".cleaned"), ("rename", ".cleaned"), ("rename", ".swap"), ("pread", ".log")],
)
def test_a_disk_error_takes_the_directory_offline(operation: str, ending: str) -> None:
    keyed = filled()
    fault = FailOperations(operations=(operation,), path_test=lambda path: path.endswith(ending))
    keyed.disk.faults.append(fault)
    with suppress(KafkaError):  # the log cannot be read any more
        keyed.compact()
    assert fault.remaining == 0
    assert keyed.log.failed is not None
    assert keyed.log.failed.kind is FaultKind.BROKEN
    keyed.crash(CrashKind.POWER_LOSS)
    keyed.open()
    keyed.check()


def test_deleting_a_log_stops_its_compaction() -> None:
    keyed = filled()
    keyed.log.abandon()
    asyncio.run(keyed.cleaner.run_round([Fixed(keyed)], keyed.broker))
    assert keyed.cleaned_offset == 0


def test_a_broker_that_stops_leaves_no_half_compaction() -> None:
    keyed = filled()
    keyed.cleaner.stop()
    size_bytes = keyed.log.size_bytes
    keyed.compact()
    assert keyed.log.size_bytes == size_bytes
    assert not [name for name in files(keyed) if name.endswith(".cleaned")]


def test_a_topic_of_the_same_name_begins_dirty() -> None:
    keyed = filled()
    keyed.compact()
    assert keyed.cleaned_offset > 0
    asyncio.run(keyed.directories.delete_log(PARTITION))
    assert keyed.directories.cleaned_offset(PARTITION) is None


def test_where_compaction_got_is_written_as_kafka_writes_it() -> None:
    keyed = filled()
    keyed.compact()
    content = keyed.disk.read(f"{HOME}/cleaner-offset-checkpoint")
    assert content == b"0\n1\nkeyed 0 %d\n" % keyed.cleaned_offset
    keyed.close()
    cleaned = keyed.cleaned_offset
    keyed.open()
    assert keyed.cleaned_offset == cleaned


# ---- crashes -------------------------------------------------------------------------------------------------------


def eventful(seed: int) -> KeyedLog:
    """A log with everything in it, a part of which was compacted before."""
    keyed = KeyedLog(EAGER, seed=seed)
    for number in range(40):
        keyed.write((b"k%d" % (number % 4), b"%d" % number * 20 if number % 7 else None))
        if number % 5 == 0:
            keyed.write((b"k%d" % (number % 4), b"in"), producer_id=number % 3, transactional=True)
            keyed.end_transaction(number % 3, is_commit=bool(number % 2))
        if number == 20:
            keyed.roll()
            keyed.compact()
            keyed.now_ms += 1100
    keyed.write((b"mine", b"1"), producer_id=8)
    keyed.roll()
    return keyed


def test_a_crash_at_any_point_loses_nothing_and_brings_nothing_back() -> None:
    whole = eventful(0)
    first = whole.disk.point_count
    whole.run_round()
    points = whole.disk.point_count - first
    whole.note_horizons()
    whole.check()
    assert points > 60
    for kind in CrashKind:
        for number in range(1, points + 1):
            keyed = eventful(number)
            point = keyed.disk.point_count + number
            keyed.disk.faults.append(CrashAt(number=point, kind=kind, rng=Random(number)))
            with pytest.raises(HostCrashed):
                keyed.run_round()
            keyed.crash(kind)
            keyed.now_ms += 10_000
            keyed.open()
            keyed.note_horizons()
            keyed.check()
            keyed.compact()
            keyed.check()
            again = keyed.send([(b"mine", b"1")], Codec.NONE, 8, 0)
            assert again.duplicate


def test_a_lack_of_descriptors_puts_compaction_off() -> None:
    keyed = filled()
    keyed.disk.faults.append(FailOperations(operations=("create",), error=errno.EMFILE))
    keyed.compact()
    keyed.check()
    assert keyed.log.failed is None
