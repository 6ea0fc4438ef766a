"""Keeps other users of this machine out of a local session that we start."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

DIRECTORIES: Final = "SPARK_LOCAL_DIRS"
_LOOPBACK: Final = "127.0.0.1"
_SOCKETS: Final = "spark.python.unix.domain.socket"
_SOCKET_DIRECTORY_MAX: Final = 60
"""A path of a socket has at most 104 to 108 bytes, with its name of 43."""


def is_local(master: str) -> bool:
    """Tells whether tasks run in the driver's JVM, on this machine."""
    return master == "local" or master.startswith("local[")


@contextmanager
def own_session(master: str) -> Iterator[dict[str, str]]:
    """Settings for a JVM that starts within the block. A master of a cluster has its own rules: nothing changes there.

    The driver of a local session, too, listens on a port, where it reads objects of Java. So it is a port of 127.0.0.1, unless
    SPARK_LOCAL_IP is set, and clients must know a secret, which Spark makes. Spilled and shuffled rows are in a directory for
    this user only, unless SPARK_LOCAL_DIRS is set: Spark's own directory is open to all users. There Python's workers have
    their sockets, too: over TCP each task waits 40 ms for an acknowledgement.
    """
    if not is_local(master):
        yield {}
        return
    settings = {"spark.authenticate": "true"}
    if "SPARK_LOCAL_IP" not in os.environ:
        settings |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    if DIRECTORIES in os.environ:
        yield settings
        return
    directory = tempfile.mkdtemp(prefix="odradek-spark-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    os.environ[DIRECTORIES] = directory
    if len(directory) <= _SOCKET_DIRECTORY_MAX:
        settings |= {f"{_SOCKETS}.enabled": "true", f"{_SOCKETS}.dir": directory}
    try:
        yield settings
    finally:
        os.environ.pop(DIRECTORIES, None)
