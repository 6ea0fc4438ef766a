"""What any Disk does. The simulated one must not be kinder than the real one, nor harsher."""

from __future__ import annotations

import errno

import pytest

from odradek.runtime.ports import Disk


def test_a_missing_file_is_opened_only_with_create(disk: Disk, folder: str) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(f"{folder}/a")
    disk.open(f"{folder}/a", create=True).close()
    assert disk.exists(f"{folder}/a")
    assert disk.length(f"{folder}/a") == 0


def test_open_with_create_keeps_what_is_there(disk: Disk, folder: str) -> None:
    disk.open(f"{folder}/a", create=True).pwrite(b"kept", 0)
    assert disk.open(f"{folder}/a", create=True).pread(10, 0) == b"kept"


def test_create_needs_the_parent_directory(disk: Disk, folder: str) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(f"{folder}/missing/a", create=True)


def test_a_directory_cannot_be_opened_for_writing(disk: Disk, folder: str) -> None:
    with pytest.raises(IsADirectoryError):
        disk.open(folder)


def test_pread_returns_less_only_at_the_end(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/a", create=True)
    file.pwrite(b"0123456789", 0)
    assert file.pread(4, 2) == b"2345"
    assert file.pread(4, 8) == b"89"
    assert file.pread(4, 10) == b""
    assert file.pread(4, 99) == b""


def test_writes_overwrite_extend_and_fill_gaps_with_zeros(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/a", create=True)
    file.pwrite(bytearray(b"abcd"), 0)
    file.pwrite(memoryview(b"xyz")[1:], 1)
    file.pwrite(b"end", 6)
    assert file.pread(100, 0) == b"ayzd\0\0end"
    assert file.length() == 9


def test_pwritev_writes_thousands_of_buffers_in_order(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/a", create=True)
    buffers = [bytes([i % 251]) * (i % 7) for i in range(5000)]
    file.pwritev(buffers, 3)
    assert file.pread(100_000, 0) == b"\0\0\0" + b"".join(buffers)


def test_pwritev_of_nothing_changes_nothing(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/a", create=True)
    file.pwritev([], 7)
    file.pwritev([b"", b""], 7)
    assert file.length() == 0


def test_truncate_cuts_and_extends_with_zeros(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/a", create=True)
    file.pwrite(b"abcdef", 0)
    file.truncate(3)
    file.truncate(5)
    assert file.pread(10, 0) == b"abc\0\0"


def test_a_file_opened_for_reading_refuses_writes(disk: Disk, folder: str) -> None:
    disk.open(f"{folder}/a", create=True).pwrite(b"a", 0)
    file = disk.open(f"{folder}/a", write=False)
    with pytest.raises(OSError, match=f"Errno {errno.EBADF}"):
        file.pwrite(b"b", 0)
    assert file.pread(1, 0) == b"a"


def test_two_files_on_one_path_see_each_other(disk: Disk, folder: str) -> None:
    first = disk.open(f"{folder}/a", create=True)
    second = disk.open(f"{folder}/a", write=False)
    first.pwrite(b"seen", 0)
    assert second.pread(4, 0) == b"seen"


def test_a_closed_file_refuses_everything_but_another_close(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/a", create=True)
    file.close()
    file.close()
    with pytest.raises(OSError, match=f"Errno {errno.EBADF}"):
        file.pread(1, 0)
    with pytest.raises(OSError, match=f"Errno {errno.EBADF}"):
        file.pwrite(b"a", 0)
    with pytest.raises(OSError, match=f"Errno {errno.EBADF}"):
        file.sync()


def test_a_file_that_rests_is_opened_again_with_its_next_use(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/a", create=True)
    file.pwrite(b"before", 0)
    file.sync()
    assert file.rest()
    assert file.rest(), "it rests already"
    file.pwrite(b"behind", 6)
    file.sync()
    assert file.pread(20, 0) == b"beforebehind"
    file.close()
    assert not file.rest()
    with pytest.raises(OSError, match=f"Errno {errno.EBADF}"):
        file.pread(1, 0)


def test_a_file_whose_name_leads_elsewhere_does_not_rest(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/a", create=True)
    file.pwrite(b"mine", 0)
    disk.rename(f"{folder}/a", f"{folder}/b")
    assert not file.rest()
    disk.open(f"{folder}/a", create=True).close()
    assert not file.rest()
    assert file.pread(4, 0) == b"mine"


def test_a_resting_file_that_is_removed_is_missed(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/a", create=True)
    assert file.rest()
    disk.remove(f"{folder}/a")
    with pytest.raises(FileNotFoundError):
        file.pread(1, 0)


def test_an_open_file_outlives_its_name(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/a", create=True)
    file.pwrite(b"still here", 0)
    disk.remove(f"{folder}/a")
    assert not disk.exists(f"{folder}/a")
    assert file.pread(10, 0) == b"still here"
    file.sync()


def test_an_open_file_follows_a_rename_of_its_directory(disk: Disk, folder: str) -> None:
    disk.make_directory(f"{folder}/t-0")
    file = disk.open(f"{folder}/t-0/a", create=True)
    disk.rename(f"{folder}/t-0", f"{folder}/t-0.gone-delete")
    file.pwrite(b"x", 0)
    assert disk.read(f"{folder}/t-0.gone-delete/a") == b"x"


def test_names_are_listed_in_order(disk: Disk, folder: str) -> None:
    for name in ("b", "a", "c"):
        disk.open(f"{folder}/{name}", create=True).close()
    disk.make_directory(f"{folder}/aa")
    assert disk.list_directory(folder) == ["a", "aa", "b", "c"]
    with pytest.raises(FileNotFoundError):
        disk.list_directory(f"{folder}/none")
    with pytest.raises(NotADirectoryError):
        disk.list_directory(f"{folder}/a")


def test_make_directory_makes_parents_and_accepts_what_exists(disk: Disk, folder: str) -> None:
    disk.make_directory(f"{folder}/x/y/z")
    disk.make_directory(f"{folder}/x/y/z")
    assert disk.is_directory(f"{folder}/x/y/z")
    assert not disk.is_directory(f"{folder}/x/none")
    disk.open(f"{folder}/file", create=True).close()
    assert not disk.is_directory(f"{folder}/file")
    with pytest.raises(FileExistsError):
        disk.make_directory(f"{folder}/file")
    with pytest.raises(NotADirectoryError):
        disk.make_directory(f"{folder}/file/below")


def test_remove_directory_takes_everything_below(disk: Disk, folder: str) -> None:
    disk.make_directory(f"{folder}/x/y")
    disk.open(f"{folder}/x/y/a", create=True).close()
    disk.open(f"{folder}/x/b", create=True).close()
    disk.remove_directory(f"{folder}/x")
    assert disk.list_directory(folder) == []
    disk.remove_directory(f"{folder}/x")


def test_rename_replaces_a_file(disk: Disk, folder: str) -> None:
    disk.open(f"{folder}/new", create=True).pwrite(b"new", 0)
    disk.open(f"{folder}/old", create=True).pwrite(b"older", 0)
    disk.rename(f"{folder}/new", f"{folder}/old")
    assert disk.list_directory(folder) == ["old"]
    assert disk.read(f"{folder}/old") == b"new"


def test_rename_refuses_what_cannot_be_replaced(disk: Disk, folder: str) -> None:
    disk.open(f"{folder}/file", create=True).close()
    disk.make_directory(f"{folder}/full/below")
    disk.make_directory(f"{folder}/empty")
    with pytest.raises(FileNotFoundError):
        disk.rename(f"{folder}/none", f"{folder}/x")
    with pytest.raises(IsADirectoryError):
        disk.rename(f"{folder}/file", f"{folder}/empty")
    with pytest.raises(NotADirectoryError):
        disk.rename(f"{folder}/empty", f"{folder}/file")
    with pytest.raises(OSError, match=f"Errno {errno.ENOTEMPTY}"):
        disk.rename(f"{folder}/empty", f"{folder}/full")


def test_remove_takes_files_only(disk: Disk, folder: str) -> None:
    with pytest.raises(FileNotFoundError):
        disk.remove(f"{folder}/none")
    disk.make_directory(f"{folder}/x")
    with pytest.raises(IsADirectoryError):
        disk.remove(f"{folder}/x")


def test_read_returns_the_whole_file(disk: Disk, folder: str) -> None:
    disk.open(f"{folder}/a", create=True).pwrite(b"z" * 100_000, 0)
    assert disk.read(f"{folder}/a") == b"z" * 100_000
    with pytest.raises(FileNotFoundError):
        disk.read(f"{folder}/none")
    with pytest.raises(IsADirectoryError):
        disk.read(folder)


def test_replace_puts_new_content_and_leaves_nothing_else(disk: Disk, folder: str) -> None:
    disk.replace(f"{folder}/a", b"first and long")
    disk.replace(f"{folder}/a", b"second")
    assert disk.read(f"{folder}/a") == b"second"
    assert disk.list_directory(folder) == ["a"]


def test_replace_overwrites_what_an_earlier_crash_left(disk: Disk, folder: str) -> None:
    disk.open(f"{folder}/a.tmp", create=True).pwrite(b"left over and longer", 0)
    disk.replace(f"{folder}/a", b"new")
    assert disk.read(f"{folder}/a") == b"new"
    assert disk.list_directory(folder) == ["a"]


def test_replace_in_a_missing_directory_fails(disk: Disk, folder: str) -> None:
    with pytest.raises(FileNotFoundError):
        disk.replace(f"{folder}/none/a", b"x")


def test_sync_directory_needs_a_directory(disk: Disk, folder: str) -> None:
    disk.sync_directory(folder)
    with pytest.raises(FileNotFoundError):
        disk.sync_directory(f"{folder}/none")


def test_a_directory_has_one_lock(disk: Disk, folder: str) -> None:
    lock = disk.lock(folder)
    with pytest.raises(BlockingIOError) as refused:
        disk.lock(folder)
    assert refused.value.filename == f"{folder}/.lock"
    assert disk.list_directory(folder) == [".lock"]
    lock.release()
    lock.release()
    disk.lock(folder).release()
    with pytest.raises(FileNotFoundError):
        disk.lock(f"{folder}/none")


def test_sizes_and_times_are_known(disk: Disk, folder: str) -> None:
    disk.open(f"{folder}/a", create=True).pwrite(b"123", 0)
    assert disk.length(f"{folder}/a") == 3
    assert disk.modified_ms(f"{folder}/a") > 1_600_000_000_000
    assert disk.free_bytes(folder) > 0
    with pytest.raises(FileNotFoundError):
        disk.length(f"{folder}/none")
    with pytest.raises(FileNotFoundError):
        disk.modified_ms(f"{folder}/none")


def test_a_file_can_be_given_the_time_of_another(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/a", create=True)
    file.pwrite(b"123", 0)
    disk.set_modified(f"{folder}/a", 1_500_000_000_123)
    file.sync()
    disk.rename(f"{folder}/a", f"{folder}/b")
    assert disk.modified_ms(f"{folder}/b") == 1_500_000_000_123
    with pytest.raises(FileNotFoundError):
        disk.set_modified(f"{folder}/none", 0)


def test_errors_name_the_file(disk: Disk, folder: str) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        disk.open(f"{folder}/none")
    assert missing.value.filename == f"{folder}/none"
    file = disk.open(f"{folder}/a", create=True)
    file.close()
    with pytest.raises(OSError, match="closed") as closed:
        file.length()
    assert closed.value.filename == f"{folder}/a"


def test_the_lock_of_a_file_is_held_until_it_is_released(disk: Disk, folder: str) -> None:
    held = disk.lock_file(f"{folder}/a")
    with pytest.raises(BlockingIOError):
        disk.lock_file(f"{folder}/a")
    disk.lock_file(f"{folder}/b").release()
    held.release()
    held.release()
    disk.lock_file(f"{folder}/a", create=False).release()


def test_locking_without_create_needs_the_file(disk: Disk, folder: str) -> None:
    with pytest.raises(FileNotFoundError):
        disk.lock_file(f"{folder}/a", create=False)
    assert not disk.exists(f"{folder}/a")


def test_locking_a_file_leaves_its_content(disk: Disk, folder: str) -> None:
    disk.open(f"{folder}/a", create=True).pwrite(b"kept", 0)
    disk.lock_file(f"{folder}/a").release()
    assert disk.read(f"{folder}/a") == b"kept"


def test_a_file_that_was_removed_takes_its_lock_along(disk: Disk, folder: str) -> None:
    held = disk.lock_file(f"{folder}/a")
    disk.remove(f"{folder}/a")
    another = disk.lock_file(f"{folder}/a")
    held.release()
    with pytest.raises(BlockingIOError):
        disk.lock_file(f"{folder}/a")
    another.release()


def test_bringing_a_file_that_was_closed_cut_or_removed_meanwhile_raises_nothing(
    disk: Disk, folder: str
) -> None:
    path = f"{folder}/a"
    cut = disk.open(path, create=True)
    cut.pwrite(b"x" * 100, 0)
    cut.truncate(10)
    cut.bring(100, 0)
    cut.sync()
    assert cut.rest()
    disk.remove(path)
    cut.bring(100, 0)
    closed = disk.open(path, create=True)
    closed.close()
    closed.bring(100, 0)
    with pytest.raises(OSError, match="closed"):
        closed.pread(1, 0)


def test_a_sync_that_was_begun_changes_nothing_and_raises_nothing(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/a", create=True)
    file.pwrite(b"kept", 0)
    file.begin_sync()
    file.sync()
    file.begin_sync()
    assert file.pread(10, 0) == b"kept"
    file.close()
    file.begin_sync()
