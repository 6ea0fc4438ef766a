"""The system calls of a sync of several files: each begins to be written before one is waited for, so they share a commit.

A library that is loaded before the C library writes down the calls, and refuses some.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.runtime.real_syncs import thread_syncs

COMPILER = shutil.which("cc")
pytestmark = [
    pytest.mark.skipif(
        thread_syncs(1) is None,
        reason="absent: the threads that sync files are built on Linux with a C compiler",
    ),
    pytest.mark.skipif(COMPILER is None, reason="absent: a C compiler"),
]

CALLS = r"""
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void note(const char *call, int descriptor) {
    char path[64], name[4096];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(path, name, sizeof name - 1);
    name[length < 0 ? 0 : length] = 0;
    FILE *calls = fopen(getenv("CALLS"), "a");
    fprintf(calls, "%s %c\n", call, length > 0 ? name[length - 1] : '?');
    fclose(calls);
}

int sync_file_range(int descriptor, long offset, long size, unsigned int flags) {
    note(offset == 0 && size == 0 && flags == 2 ? "start" : "other", descriptor);
    errno = atoi(getenv("ERRNO"));
    return errno ? -1 : 0;
}

int fdatasync(int descriptor) {
    note("sync", descriptor);
    return 0;
}
"""

SYNC = """
import asyncio, sys
from odradek.runtime.real import PosixDisk
from odradek.runtime.real_syncs import thread_syncs
async def story():
    syncs = thread_syncs(1)
    files = [PosixDisk().open(path, create=True) for path in sys.argv[1:]]
    over = asyncio.get_running_loop().create_future()
    assert syncs.begin(files, over.set_result) is not None
    group = await over
    print(*(None if group.error(index) is None else group.error(index).errno for index in range(len(files))))
    syncs.close()
asyncio.run(story())
"""


def calls_of(directory: Path, names: str, *, start_errno: int = 0) -> tuple[list[str], str]:
    """Syncs files of these names as a group; returns the calls, and the errno of each file's error, or None."""
    assert COMPILER is not None
    (directory / "calls.c").write_text(CALLS, encoding="ascii")
    library, calls = directory / "calls.so", directory / "calls.txt"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", library, directory / "calls.c"], check=True)
    environment = os.environ | {"LD_PRELOAD": str(library), "CALLS": str(calls), "ERRNO": str(start_errno)}
    paths = [str(directory / name) for name in names]
    command = [sys.executable, "-c", SYNC, *paths]
    ran = subprocess.run(command, env=environment, check=True, capture_output=True, encoding="ascii")
    return calls.read_text(encoding="ascii").splitlines(), ran.stdout.strip()


def test_the_files_of_a_group_are_all_written_before_the_first_is_synced(tmp_path: Path) -> None:
    calls, errors = calls_of(tmp_path, "abc")
    assert calls == ["start a", "start b", "start c", "sync a", "sync b", "sync c"]
    assert errors == "None None None"


def test_a_file_alone_is_only_synced(tmp_path: Path) -> None:
    assert calls_of(tmp_path, "a") == (["sync a"], "None")


@pytest.mark.parametrize(
    "code", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EUCLEAN, errno.EBADMSG, errno.EROFS]
)
def test_an_error_of_the_disk_at_the_start_is_the_outcome_even_if_the_sync_reports_none(
    tmp_path: Path, code: int
) -> None:
    assert calls_of(tmp_path, "ab", start_errno=code)[1] == f"{code} {code}"


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.ENOMEM])
def test_where_writing_cannot_be_started_early_the_files_are_synced_all_the_same(
    tmp_path: Path, code: int
) -> None:
    calls, errors = calls_of(tmp_path, "ab", start_errno=code)
    assert calls[-2:] == ["sync a", "sync b"]
    assert errors == "None None"
