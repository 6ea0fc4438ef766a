"""What only the real ports can get wrong."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from tests.kit.waiting import PATIENCE_S, until

from odradek.runtime import real_disk
from odradek.runtime.real import PosixDisk, SystemClock, SystemEntropy, ThreadOffload, real_runtime

disk = PosixDisk()


def test_vector_writes_go_on_after_short_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev

    def short(number: int, buffers: Sequence[bytes], position: int) -> int:
        return real(number, [memoryview(buffers[0]).cast("B")[:3]], position)

    monkeypatch.setattr(os, "pwritev", short)
    file = disk.open(str(tmp_path / "a"), create=True)
    file.pwritev([b"01234567", memoryview(b"abc"), bytearray(b""), b"XYZ"], 2)
    assert file.pread(100, 0) == b"\0\x0001234567abcXYZ"


def test_writes_and_reads_go_on_after_short_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write, real_read = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda number, data, at: real_write(number, memoryview(data)[:3], at))
    monkeypatch.setattr(os, "pread", lambda number, length, at: real_read(number, min(2, length), at))
    file = disk.open(str(tmp_path / "a"), create=True)
    file.pwrite(b"0123456789", 0)
    assert file.pread(7, 1) == b"1234567"
    assert file.pread(100, 8) == b"89"


def test_a_file_system_that_takes_nothing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open(str(tmp_path / "a"), create=True)
    monkeypatch.setattr(os, "pwritev", lambda *_: 0)
    with pytest.raises(OSError, match="accepted no bytes") as stuck:
        file.pwritev([b"x"], 0)
    assert stuck.value.filename == str(tmp_path / "a")


def test_descriptors_do_not_leak_into_children(tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a"), create=True)
    lock = disk.lock(str(tmp_path))
    assert str(tmp_path / "a") in _open_files()
    listing = (
        "import os; print([os.path.realpath('/proc/self/fd/' + n) for n in os.listdir('/proc/self/fd')])"
    )
    child = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, check=True, close_fds=False
    )
    assert str(tmp_path) not in child.stdout
    lock.release()
    file.close()


def _open_files() -> set[str]:
    """Other threads close descriptors meanwhile."""
    paths = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            paths.add(os.readlink(f"/proc/self/fd/{name}"))
    return paths


def test_closing_under_a_running_call_frees_the_descriptor_only_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open(str(tmp_path / "a"), create=True)
    inside, go_on, numbers = threading.Event(), threading.Event(), []

    def slow_sync(number: int) -> None:
        numbers.append(number)
        inside.set()
        go_on.wait(PATIENCE_S)
        os.fstat(number)  # still ours: else EBADF, or worse, another file

    monkeypatch.setattr(os, "fdatasync", slow_sync)
    thread = threading.Thread(target=file.sync)
    thread.start()
    inside.wait(PATIENCE_S)
    file.close()
    other = disk.open(str(tmp_path / "b"), create=True)
    os.fstat(numbers[0])
    go_on.set()
    thread.join(PATIENCE_S)
    with pytest.raises(OSError, match=f"Errno {errno.EBADF}"):
        os.fstat(numbers[0])
    other.close()


def test_a_lock_holds_against_another_process_and_dies_with_it(tmp_path: Path) -> None:
    program = (
        "import sys; from odradek.runtime.real import PosixDisk\n"
        "lock = PosixDisk().lock(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BlockingIOError, match="another process"):
            disk.lock(str(tmp_path))
        holder.kill()
    disk.lock(str(tmp_path)).release()


def test_a_failed_replace_leaves_the_old_content_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "a")
    disk.replace(path, b"old")

    def failing_sync(number: int) -> None:
        raise OSError(errno.EIO, "planted")

    monkeypatch.setattr(os, "fdatasync", failing_sync)
    with pytest.raises(OSError, match="planted"):
        disk.replace(path, b"new")
    assert disk.read(path) == b"old"
    assert disk.list_directory(str(tmp_path)) == ["a"]


async def test_offloaded_work_runs_on_another_thread_and_its_errors_come_back() -> None:
    offload = ThreadOffload(2)
    assert await offload.run(threading.get_ident) != threading.get_ident()
    assert await offload.run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await offload.run(divmod, 7, 0)
    offload.close()
    offload.close()
    with pytest.raises(RuntimeError):
        await offload.run(divmod, 7, 2)
    with pytest.raises(RuntimeError, match="closed"):
        offload.submit(lambda value, error: None, divmod, 7, 2)


async def test_submitted_work_that_a_close_drops_ends_with_a_cancellation() -> None:
    offload = ThreadOffload(1)
    began, go_on = threading.Event(), threading.Event()
    heard: list[tuple[object, BaseException | None]] = []

    def busy() -> str:
        began.set()
        go_on.wait(PATIENCE_S)
        return "done"

    offload.submit(lambda value, error: heard.append((value, error)), busy)
    offload.submit(lambda value, error: heard.append((value, error)), busy)
    await asyncio.to_thread(began.wait, 10)
    closing = asyncio.ensure_future(asyncio.to_thread(offload.close))
    await asyncio.sleep(0.05)
    go_on.set()
    await closing
    await until(lambda: len(heard) >= 2)
    assert heard[0] == ("done", None)
    assert heard[1][0] in (None, "done")  # it may have begun before the close
    assert heard[1][1] is None or isinstance(heard[1][1], asyncio.CancelledError)


async def test_at_most_the_given_number_of_threads_work_at_once() -> None:
    offload = ThreadOffload(2)
    both_in = threading.Barrier(2)
    others = set(threading.enumerate())  # brokers of other tests may still run in this process
    await asyncio.gather(*(offload.run(both_in.wait, 10) for _ in range(6)))
    ours = [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("odradek-offload") and thread not in others
    ]
    assert len(ours) == 2
    offload.close()


def test_the_clocks_agree_with_the_machine() -> None:
    clock = SystemClock()
    assert clock.wall_ms() > 1_700_000_000_000
    assert clock.monotonic() <= clock.monotonic()


def test_entropy_gives_random_ids_and_fractions() -> None:
    entropy = SystemEntropy()
    ids = {entropy.uuid() for _ in range(100)}
    assert len(ids) == 100
    assert {topic_id.version for topic_id in ids} == {4}
    fractions = [entropy.uniform() for _ in range(1000)]
    assert all(0 <= fraction < 1 for fraction in fractions)
    assert 0.4 < sum(fractions) / 1000 < 0.6


async def test_the_real_runtime_has_every_port(tmp_path: Path) -> None:
    runtime = real_runtime(threads=1)
    await runtime.offload.run(runtime.disk.replace, str(tmp_path / "a"), runtime.entropy.uuid().bytes)
    assert await runtime.offload.run(runtime.disk.length, str(tmp_path / "a")) == 16
    assert runtime.clock.wall_ms() > 0
    assert isinstance(runtime.offload, ThreadOffload)
    runtime.offload.close()


def test_content_that_is_lost_when_a_sync_is_begun_fails_the_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ext4 drops what it cannot find blocks for, and tells the first caller alone."""
    path = str(tmp_path / "a")
    file = disk.open(path, create=True)
    outcomes = [errno.EUCLEAN, 0]
    monkeypatch.setattr(real_disk, "start_writing", lambda number: outcomes.pop(0))
    file.begin_sync()
    with pytest.raises(OSError, match=path) as refused:
        file.sync()
    assert refused.value.errno == errno.EUCLEAN
    whole = disk.open(path)
    whole.begin_sync()
    whole.sync()
    assert outcomes == []


@pytest.mark.skipif(real_disk.sync_file_range() is None, reason="absent: sync_file_range(2)")
def test_what_cannot_be_begun_is_left_to_the_sync_and_other_errors_are_not(tmp_path: Path) -> None:
    number = os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    os.write(number, b"data")
    reading, writing = os.pipe()
    assert [real_disk.start_writing(number), real_disk.start_writing(writing)] == [0, 0]
    for descriptor in (number, reading, writing):
        os.close(descriptor)
    assert real_disk.start_writing(-1) == errno.EBADF


def test_an_error_that_someone_keeps_does_not_keep_the_file_open(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"data")
    file = PosixDisk().open(str(path), write=False)
    kept = []
    for use in (lambda: file.pwrite(b"x", 0), lambda: file.pwritev([b"x"], 0), lambda: file.truncate(1)):
        with pytest.raises(OSError, match=str(path)) as refused:
            use()
        kept.append(refused)
    assert _is_open(path)
    file.close()
    assert not _is_open(path)
    assert len(kept) == 3


def _is_open(path: Path) -> bool:
    return any(os.path.realpath(link) == str(path) for link in Path("/dev/fd").iterdir())
