"""Cold reads give way to the syncs of their disk, for a bounded time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from odradek.runtime import real_cold_reads, real_disk
from odradek.runtime.real import PosixDisk
from odradek.runtime.real_cold_reads import WAIT_S_MAX, ColdReads

WAIT_S = 30.0


class SlowDisk:
    """A clock by which each read takes `read_s`."""

    def __init__(self, read_s: float) -> None:
        self._read_s = read_s
        self._now = 0.0
        self.cold_reads = ColdReads(self._time)
        self.cold_reads.read(lambda: 1)

    def _time(self) -> float:
        self._now += self._read_s
        return self._now


@contextmanager
def begun(work: threading.Thread) -> Iterator[None]:
    work.start()
    yield
    work.join(WAIT_S)
    assert not work.is_alive()


def test_a_read_waits_until_all_syncs_under_way_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_cold_reads, "WAIT_S_MAX", WAIT_S)
    cold_reads = SlowDisk(read_s=WAIT_S).cold_reads
    happened: list[str] = []
    cold_reads.sync_began()
    cold_reads.sync_began()

    def read() -> int:
        happened.append("read")
        return 1

    reader = threading.Thread(target=cold_reads.read, args=(read,))
    with begun(reader):
        cold_reads.sync_ended()
        reader.join(0.05)
        happened.append("synced")
        cold_reads.sync_ended()
    assert happened == ["synced", "read"]


def test_a_read_without_a_sync_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cold_reads = SlowDisk(read_s=WAIT_S).cold_reads
    cold_reads.sync_began()
    cold_reads.sync_ended()

    def wait_for(*_: object) -> None:
        raise AssertionError("it waits")

    monkeypatch.setattr(threading.Condition, "wait_for", wait_for)
    assert cold_reads.read(lambda: 7) == 7


def test_a_reader_goes_on_however_long_syncs_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its patience grows with the time that a read takes on that disk, and with nothing else, up to a limit."""
    waits: list[float] = []
    real = threading.Condition.wait_for

    def wait_for(self: threading.Condition, predicate: object, timeout: float) -> bool:
        waits.append(timeout)
        return real(self, predicate, 0.0)  # type: ignore[arg-type]

    monkeypatch.setattr(threading.Condition, "wait_for", wait_for)
    for read_s, longest_s in ((0.001, 0.004), (0.02, 0.08), (60.0, WAIT_S_MAX)):
        cold_reads = SlowDisk(read_s).cold_reads
        cold_reads.sync_began()
        assert [cold_reads.read(lambda: 1) for _ in range(3)] == [1, 1, 1]
        assert waits == pytest.approx([longest_s] * 3)
        waits.clear()


def test_reads_meet_a_sync_that_is_under_way_or_began_since_the_last_read() -> None:
    cold_reads = ColdReads()
    met = [cold_reads.meet_syncs]
    steps: list[Callable[[], object]] = [
        cold_reads.sync_began,
        partial(cold_reads.read, lambda: 1),
        cold_reads.sync_ended,
        cold_reads.sync_began,
        cold_reads.sync_ended,
        partial(cold_reads.read, lambda: 1),
    ]
    for step in steps:
        step()
        met.append(cold_reads.meet_syncs)
    assert met == [False, True, True, False, True, True, False]


def test_bytes_are_brought_in_small_pieces_where_there_are_syncs_and_none_beyond_the_end_of_the_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(3 << 20))
    file = PosixDisk().open(str(path))
    pieces: list[tuple[int, int]] = []
    real = os.preadv

    def preadv(number: int, buffers: Sequence[memoryview], position: int) -> int:
        file.sync()
        count = real(number, buffers, position)
        pieces.append((position, count))
        return count

    large, small = real_disk.BRING_BYTES, real_disk.BRING_BYTES_BESIDE_SYNCS
    monkeypatch.setattr(os, "preadv", preadv)
    file.bring(large + small + 1000, 100_000)
    assert pieces == [(100_000, large), (100_000 + large, small), (100_000 + large + small, 1000)]


def test_a_sync_of_one_file_delays_what_is_brought_of_another_one_on_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = PosixDisk()
    written = disk.open(str(tmp_path / "written"), create=True)
    read = disk.open(str(tmp_path / "read"), create=True)
    read.pwrite(bytes(100_000), 0)
    read.bring(1000, 0)
    happened: list[str] = []
    syncing, may_end = threading.Event(), threading.Event()
    real = os.preadv

    def sync(number: int) -> None:
        syncing.set()
        assert may_end.wait(WAIT_S)
        happened.append("synced")

    def preadv(*arguments: object) -> int:
        happened.append("read")
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(real_cold_reads, "PATIENCE", 1e9)
    monkeypatch.setattr(real_cold_reads, "WAIT_S_MAX", 1e9)
    monkeypatch.setattr(real_disk, "_sync_descriptor", sync)
    monkeypatch.setattr(os, "preadv", preadv)
    reader = threading.Thread(target=read.bring, args=(1000, 0))
    with begun(threading.Thread(target=written.sync)):
        assert syncing.wait(WAIT_S)
        with begun(reader):
            reader.join(0.05)
            may_end.set()
    assert happened == ["synced", "read"]


def test_a_failed_sync_delays_nothing_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = PosixDisk().open(str(tmp_path / "file"), create=True)
    file.pwrite(bytes(100_000), 0)
    file.bring(1000, 0)

    def sync(number: int) -> None:
        raise OSError(5, "the disk fails")

    monkeypatch.setattr(real_disk, "_sync_descriptor", sync)
    with pytest.raises(OSError, match="the disk fails"):
        file.sync()
    monkeypatch.setattr(real_cold_reads, "PATIENCE", 1e9)
    monkeypatch.setattr(real_cold_reads, "WAIT_S_MAX", 1e9)
    reader = threading.Thread(target=file.bring, args=(1000, 0))
    with begun(reader):
        pass
