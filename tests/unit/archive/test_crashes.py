"""A driver that dies at any step leaves no double and no gap: every step of a batch is tried, before it and after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import pytest

from odradek.archive.checks.topic_side import LogExtent
from odradek.archive.checks.verify import verify_archive
from odradek.archive.files import data_files
from odradek.archive.store import object_store as store
from odradek.archive.store.location import archive_location
from odradek.archive.tables import delta, iceberg, parquet
from odradek.archive.tables.port import TableFormat
from odradek.spark.reading.offsets import OffsetRange

from .conftest import ORDERS, ListedTopics, TestArchive, rows

BATCH = 6
BATCHES = 2
STEPS_MAX = 200


class Died(BaseException):
    """The driver is dead: nothing that catches Exception goes on."""


class Mortal:
    """Counts the steps of a driver and ends it at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.last: int | None = None
        self.count = 0
        self.names: list[str] = []

    def watch(self, owner: Any, name: str) -> None:
        """Each call is two steps: about to happen, and happened."""
        real = getattr(owner, name)

        def step(*arguments: Any, **more: Any) -> Any:
            self._step(f"before {name}")
            returned = real(*arguments, **more)
            self._step(f"after {name}")
            return returned

        self._patch.setattr(owner, name, step)

    def _step(self, name: str) -> None:
        if self.last is None:
            return
        if self.count >= self.last:
            self.names.append(name)
            raise Died(name)
        self.count += 1

    def live_until(self, step: int | None) -> None:
        self.last, self.count = step, 0


@pytest.fixture
def mortal(monkeypatch: pytest.MonkeyPatch) -> Mortal:
    mortal_calls = Mortal(monkeypatch)
    for owner, name in (
        (data_files.OpenDataFile, "write"),
        (data_files.OpenDataFile, "close"),
        (delta, "make_durable"),
        (iceberg, "make_durable"),
        (parquet, "make_durable"),
        (deltalake.DeltaTable, "create_write_transaction"),
        (deltalake.DeltaTable, "create"),
        (store.LocalObjects, "put_if_absent"),
        (store.os, "link"),
    ):
        mortal_calls.watch(owner, name)
    return mortal_calls


def drive(archive: TestArchive) -> None:
    """A driver's life, or that of the one after it: Spark repeats the batch that it has not noted as done, and goes on."""
    state = archive.table.state()
    begin = state.batches.get(("s", "q"), 0)
    for number in range(begin, BATCHES):
        start = number * BATCH
        extent = OffsetRange(partition=ORDERS, start=start, end=start + BATCH)
        halves = [range(start, start + 4), range(start + 4, start + BATCH)][
            :: -1 if archive.written % 2 else 1
        ]
        archive.commit(archive.batch(number, [extent], *(rows(ORDERS, half) for half in halves)))


def lives(mortal: Mortal, make: Callable[[], TestArchive]) -> Iterator[TestArchive]:
    """An archive for each step at which the first driver dies; the second one lives."""
    for step in range(STEPS_MAX):
        archive = make()
        mortal.live_until(step)
        try:
            drive(archive)
        except Died:
            mortal.live_until(None)
            drive(archive)
            yield archive
        else:
            return
    pytest.fail("the driver never got to its end")


def test_wherever_a_driver_dies_the_next_one_leaves_no_double_and_no_gap(
    tmp_path: Path, table_format: TableFormat, mortal: Mortal
) -> None:
    places = iter(range(STEPS_MAX))

    def make() -> TestArchive:
        location = archive_location(str(tmp_path / str(next(places))))
        return TestArchive(location, table_format, ["bucket"])

    end = BATCH * BATCHES
    brokers = ListedTopics({ORDERS: LogExtent(start=0, end=end)}, {ORDERS: range(end)})
    for archive in lives(mortal, make):
        assert archive.offsets() == list(range(end)), mortal.names[-1]
        assert not [
            fault
            for partition_findings in verify_archive(archive.table, brokers)
            for fault in partition_findings.faults
        ]
    commit = "create_write_transaction" if table_format is TableFormat.DELTA else "put_if_absent"
    assert {f"before {commit}", f"after {commit}", "before close", "after close"} <= set(mortal.names)


def test_a_driver_that_dies_twice_in_one_batch_is_survived(
    tmp_path: Path, table_format: TableFormat, mortal: Mortal
) -> None:
    archive = TestArchive(archive_location(str(tmp_path)), table_format)
    for step in (9, 3, 5, 7, 4):
        mortal.live_until(step)
        with pytest.raises(Died):
            drive(archive)
        mortal.live_until(None)
    drive(archive)
    assert archive.offsets() == list(range(BATCH * BATCHES))
