"""What the simulated disk keeps and loses, and that nothing of a dead host reaches it."""

from __future__ import annotations

import errno

import pytest

from odradek.testing.sim import (
    CrashAt,
    CrashKind,
    FailAt,
    FailOperations,
    HostCrashed,
    Medium,
    RandomFailures,
    SimDisk,
    stream,
)
from odradek.testing.sim.disk_faults import DiskFault
from odradek.testing.sim.medium import SECTOR_BYTES

pytestmark = pytest.mark.sim
SEEDS = range(60)


def mount(medium: Medium, seed: object = 0, *faults: DiskFault) -> SimDisk:
    return SimDisk(medium, rng=stream(seed, "disk"), faults=faults)


def after(kind: CrashKind, disk: SimDisk) -> SimDisk:
    disk.crash(kind)
    return mount(disk.medium)


def prepared(seed: object = 0) -> SimDisk:
    """A disk whose file /a durably holds 2000 bytes of `s`."""
    disk = mount(Medium(), seed)
    file = disk.open("/a", create=True)
    file.pwrite(b"s" * 2000, 0)
    file.sync()
    disk.sync_directory("/")
    return disk


def test_a_killed_process_loses_nothing_it_wrote() -> None:
    disk = prepared()
    disk.open("/a").pwrite(b"n" * 3000, 2000)
    disk.open("/b", create=True).pwrite(b"b", 0)
    again = after(CrashKind.PROCESS_KILL, disk)
    assert again.read("/a") == b"s" * 2000 + b"n" * 3000
    assert again.read("/b") == b"b"


def test_what_was_synced_survives_every_power_loss() -> None:
    for seed in SEEDS:
        disk = prepared(seed)
        disk.open("/a").pwrite(b"n" * 3000, 2000)
        content = after(CrashKind.POWER_LOSS, disk).read("/a")
        assert content[: 2000 - 2000 % SECTOR_BYTES] == b"s" * (2000 - 2000 % SECTOR_BYTES)
        assert content[:2000] == b"s" * 2000, "a sector is rewritten with its old bytes in it"


def test_unsynced_writes_are_lost_kept_or_torn_by_sector() -> None:
    shapes = set()
    for seed in SEEDS:
        disk = prepared(seed)
        disk.open("/a").pwrite(b"n" * 4096, 2048)
        content = after(CrashKind.POWER_LOSS, disk).read("/a").ljust(6144, b"?")
        sectors = [content[at : at + SECTOR_BYTES] for at in range(2048, 6144, SECTOR_BYTES)]
        for sector in sectors:
            assert len(set(sector)) == 1, "a sector is written whole or not at all"
        shapes.add("".join(chr(sector[0]) if sector[0] else "0" for sector in sectors))
    assert "nnnnnnnn" in shapes
    assert "????????" in shapes
    assert any("n" in shape and "0n" in shape for shape in shapes), "holes happen"
    assert any(shape.startswith("n") and shape.endswith("?") for shape in shapes), "short tails happen"


def test_overwritten_sectors_come_back_old_or_new() -> None:
    results = set()
    for seed in SEEDS:
        disk = prepared(seed)
        disk.open("/a").pwrite(b"1" * 512, 0)
        disk.open("/a").pwrite(b"2" * 512, 0)
        results.add(after(CrashKind.POWER_LOSS, disk).read("/a")[0:1])
    assert results == {b"s", b"1", b"2"}


def test_an_unsynced_cut_may_come_undone() -> None:
    lengths = set()
    for seed in SEEDS:
        disk = prepared(seed)
        disk.open("/a").truncate(700)
        lengths.add(len(after(CrashKind.POWER_LOSS, disk).read("/a")))
    assert lengths == {700, 2000}


def test_a_name_is_durable_only_once_its_directory_is() -> None:
    kept = {True: 0, False: 0}
    for seed in SEEDS:
        disk = prepared(seed)
        file = disk.open("/b", create=True)
        file.pwrite(b"b", 0)
        file.sync()
        again = after(CrashKind.POWER_LOSS, disk)
        kept[again.exists("/b")] += 1
        if again.exists("/b"):
            assert again.read("/b") == b"b"
    assert kept[True] > 5
    assert kept[False] > 5


def test_unsynced_removals_and_renames_may_come_undone_but_never_halfway() -> None:
    outcomes = set()
    for seed in SEEDS:
        disk = prepared(seed)
        disk.rename("/a", "/z")
        outcomes.add(tuple(after(CrashKind.POWER_LOSS, disk).list_directory("/")))
    assert outcomes == {("a",), ("z",)}


def test_what_stands_in_an_unsynced_directory_goes_with_it() -> None:
    outcomes = set()
    for seed in SEEDS:
        disk = prepared(seed)
        disk.make_directory("/d")
        disk.open("/d/a", create=True).sync()
        disk.sync_directory("/d")
        again = after(CrashKind.POWER_LOSS, disk)
        outcomes.add(again.exists("/d/a"))
    assert outcomes == {True, False}


def test_replace_is_atomic_at_every_point() -> None:
    for kind in CrashKind:
        for number in range(1, 8):
            for seed in range(10):
                disk = prepared(seed)
                rng = stream(seed, "crash")
                disk.faults.append(CrashAt(number=disk.point_count + number, kind=kind, rng=rng))
                try:
                    disk.replace("/a", b"new")
                    finished = True
                except HostCrashed:
                    finished = False
                content = after(kind, disk).read("/a")
                assert content in (b"s" * 2000, b"new")
                assert content == b"new" or not finished


def test_a_dead_host_can_touch_nothing() -> None:
    disk = prepared()
    file = disk.open("/a")
    disk.crash(CrashKind.PROCESS_KILL)
    for call in (
        lambda: file.pwrite(b"x", 0),
        lambda: file.pread(1, 0),
        lambda: file.length(),
        lambda: file.sync(),
        lambda: disk.open("/a"),
        lambda: disk.exists("/a"),
        lambda: disk.remove("/a"),
        lambda: disk.lock("/"),
    ):
        with pytest.raises(HostCrashed):
            call()
    file.close()
    assert mount(disk.medium).read("/a") == b"s" * 2000


def test_no_handler_of_exceptions_catches_a_crash() -> None:
    disk = mount(Medium(), 0, CrashAt(number=1, kind=CrashKind.PROCESS_KILL, rng=stream(0, "x")))
    assert not issubclass(HostCrashed, Exception)
    with pytest.raises(HostCrashed):
        disk.open("/a", create=True)


def test_a_crash_inside_a_write_leaves_a_part_of_it() -> None:
    lengths = set()
    for seed in SEEDS:
        disk = prepared(seed)
        at = CrashAt(number=disk.point_count + 2, kind=CrashKind.PROCESS_KILL, rng=stream(seed, "x"))
        disk.faults.append(at)
        with pytest.raises(HostCrashed):
            disk.open("/a").pwritev([b"n" * 500, b"n" * 500], 2000)
        lengths.add(mount(disk.medium).length("/a"))
    assert {2000, 3000} < lengths


def test_a_failed_sync_loses_pages_and_the_next_one_succeeds_without_them() -> None:
    lost = 0
    for seed in SEEDS:
        disk = prepared(seed)
        file = disk.open("/a")
        file.pwrite(b"n" * 1024, 2048)
        disk.faults.append(FailOperations(operations={"sync"}))
        with pytest.raises(OSError, match=f"Errno {errno.EIO}"):
            file.sync()
        file.sync()
        lost += after(CrashKind.POWER_LOSS, disk).read("/a")[2048:] != b"n" * 1024
    assert lost > 20


def test_a_full_disk_takes_what_fits_and_says_so() -> None:
    disk = mount(Medium(capacity_bytes=1000))
    file = disk.open("/a", create=True)
    file.pwrite(b"a" * 600, 0)
    assert disk.free_bytes("/") == 400
    with pytest.raises(OSError, match=f"Errno {errno.ENOSPC}"):
        file.pwrite(b"b" * 600, 600)
    assert file.length() == 1000
    file.pwrite(b"c" * 600, 0)
    with pytest.raises(OSError, match=f"Errno {errno.ENOSPC}"):
        disk.open("/b", create=True)
    file.truncate(0)
    disk.open("/b", create=True).pwrite(b"b" * 1000, 0)


def test_an_injected_error_strikes_once_with_a_prefix_written() -> None:
    disk = mount(Medium(), 0, FailAt(number=2, error=errno.ENOSPC, done=0.5))
    file = disk.open("/a", create=True)
    with pytest.raises(OSError, match=f"Errno {errno.ENOSPC}") as full:
        file.pwrite(b"12345678", 0)
    assert full.value.filename == "/a"
    assert file.pread(100, 0) == b"1234"
    file.pwrite(b"12345678", 0)


def test_random_failures_follow_their_rates_and_can_be_ended() -> None:
    failing = RandomFailures(rng=stream(1, "faults"), read_rate=0.5)
    disk = prepared()
    disk.faults.append(failing)
    file = disk.open("/a")
    outcomes = []
    for _ in range(100):
        try:
            file.pread(1, 0)
            outcomes.append(True)
        except OSError:
            outcomes.append(False)
    assert 30 < sum(outcomes) < 70
    failing.active = False
    assert all(file.pread(1, 0) for _ in range(50))


def test_bit_rot_is_silent_and_lasting() -> None:
    disk = prepared()
    (_, inode), *_ = disk.files()
    inode.flip_bit(100, 3)
    for kind in CrashKind:
        again = after(kind, disk)
        assert again.read("/a")[100] == ord("s") ^ 8
        disk = again
