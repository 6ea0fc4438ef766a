"""A checkpoint on this machine is written by one JVM at a time: then its files need not be made in the slow way.

Spark makes a file of a checkpoint so that of two writers the second fails. On a local disk that takes processes of the
system for each file, 20 to 40 ms. The other way, a rename, is atomic, too, but a second writer would win. So the JVM
holds a lock beside the checkpoint's directory, which ends with the JVM, however it ends.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from odradek.model.errors import ConfigError
from odradek.runtime.real import SystemClock
from odradek.streams.places import CheckpointPlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
RENAMING: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_WITHIN_S: Final = 20.0
"""A JVM whose program was killed ends soon after."""
_LOOK_EVERY_S: Final = 0.1


@dataclass(slots=True)
class _Held:
    channel: Any
    """Java's; the lock ends when it is closed."""
    users: int = 1


_held: Final[dict[str, _Held]] = {}
_guard: Final = threading.Lock()


class CheckpointLocks:
    """Those of one program that runs. They are this process's: a program may acquire them again while it has them."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._paths: list[str] = []

    def acquire(self, place: CheckpointPlace) -> bool:
        """Whether no one else writes there now. False where that cannot be told: it is no directory of this machine, or the
        session is not local.

        ConfigError when another process keeps it for 20 s.
        """
        directory = place.local_path
        if directory is None or not _is_local(self._spark):
            return False
        parent, name = os.path.split(os.path.realpath(directory))
        os.makedirs(parent, exist_ok=True)
        path = os.path.join(parent, f".{name}.lock")  # beside it: the directory may be removed
        with _guard:
            held = _held.get(path)
            if held is not None:
                held.users += 1
            else:
                _held[path] = _Held(_locked(self._spark, path, directory))
        self._paths.append(path)
        return True

    def release(self) -> None:
        """All that were acquired. Once the queries have ended."""
        with _guard:
            while self._paths:
                path = self._paths.pop()
                held = _held[path]
                held.users -= 1
                if not held.users:
                    del _held[path]
                    held.channel.close()


def _is_local(spark: SparkSession) -> bool:
    context = getattr(spark, "_sc", None)  # a session of Spark Connect has none
    return context is not None and str(context.master).startswith("local")


def _locked(spark: SparkSession, path: str, directory: str) -> Any:
    """Java's channel of the file, with the lock."""
    jvm: Any = spark.sparkContext._jvm
    clock = SystemClock()
    deadline = clock.monotonic() + _WITHIN_S
    channel = jvm.java.io.RandomAccessFile(path, "rw").getChannel()
    while channel.tryLock() is None:
        if clock.monotonic() > deadline:
            channel.close()
            raise ConfigError(
                f"checkpoint {directory}: another process writes it. Stop that one first, or give another checkpoint"
            )
        time.sleep(_LOOK_EVERY_S)  # noqa: TID251 - a program that starts, on a thread of its own
    return channel
